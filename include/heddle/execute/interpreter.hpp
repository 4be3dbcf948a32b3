// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs a plan, or a stage of a pipeline, on one rank: forward, then backward by transposing the distributed
/// program.
///
/// The cotangent of a tensor held in some form is held in the dual form, so every instruction's adjoint
/// follows from its two forms. That of sending a value is receiving its cotangent.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/batch_part.hpp>
#include <heddle/execute/detail/gradient_sums.hpp>
#include <heddle/execute/detail/operator_calls.hpp>
#include <heddle/execute/detail/rank_program.hpp>
#include <heddle/execute/detail/rank_tensors.hpp>
#include <heddle/execute/detail/run_operator.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace heddle {

/// A rank that has no others but those of its communicator.
struct only_stage {
    static constexpr bool is_alone = true;
};

/// Executes a plan on one rank of a communicator, or on one device of a group, whose communicator is a
/// `grouped_communicator`; or a stage of a pipeline on one rank of its group (`stage_rank`). A plan is a pipeline
/// of one stage.
///
/// *Preconditions.* The plan is one of the program (`verify` accepts it), for as many devices as there are ranks; every
/// rank runs the same plan. `indexed` is `index_for(p, what)`. References to all arguments are kept.
///
/// A collective is started where the plan has its step, and waited for where what it brings is used first; gradients
/// are waited for at the end. Inside device groups each is waited for at once.
/// If micro-batches take turns, a stage's collectives are started for one before the other computes (`turns_of`); steps
/// of parameters are run once, with the sum of their gradients. Kernels run parts of the whole program's operators, so
/// that means and random draws are those of the whole batch.
template <class Scalar, communicator_of<Scalar> Communicator, kernel_backend<Scalar> Backend, class Stage = only_stage>
class interpreter {
public:
    using tensor = typename Backend::tensor;
    using values_type = tensor_values<tensor>;
    using result_type = rank_result<tensor>;

    interpreter(program const& p, indexed_program const& indexed, plan const& what, Communicator& communicator,
                Backend const& backend, std::uint64_t seed = 0)
        requires(Stage::is_alone)
        : interpreter(p, indexed, detail::program_of_rank(p, indexed, what), communicator, nullptr, backend, seed) {}

    /// *Precondition:* `indexed` is the program of which the stage is.
    interpreter(program const& p, indexed_program const& indexed, Stage& stage, Backend const& backend,
                std::uint64_t seed = 0)
        requires(!Stage::is_alone)
        : interpreter(p, indexed, stage.program(), stage.group(), &stage, backend, seed) {}

    interpreter(interpreter const&) = delete;

    /// Turns whole sources into what this rank keeps between iterations: parameters are in the form in which they are
    /// stored, other sources are whole. What this rank does not use is left out. It can be used for gradients too, which
    /// have the same form.
    [[nodiscard]] values_type place(source_values<Scalar> const& whole) const {
        values_type mine;
        for (auto const* read : reads_) {
            tensor_id const t = read->tensor;
            auto const found = whole.find(t);
            if (found == whole.end()) continue;
            if (common_.of.is_parameter(t) && stored_as_.at(t).is_shard())
                mine.emplace(t, tensor(common_.of.layout.cut(t, stored_as_.at(t), found->second, common_.of.rank())));
            else mine.emplace(t, tensor(found->second));
        }
        return mine;
    }

    /// Random draws of the iterations that follow are of this seed.
    void reseed(std::uint64_t seed) { seed_ = seed; }

    /// Runs one iteration on placed sources. Returns this rank's part of the loss, and the gradients of the parameters
    /// that it uses, in the form in which they are stored. The host reads no tensor, unless a kernel does.
    /// *Throws* `input_error` if a source is missing, or a parameter is not as `place` leaves it.
    [[nodiscard]] result_type run(values_type const& sources) {
        require_placed(sources);
        sources_ = &sources;
        most_in_flight_ = 0;
        std::optional<tensor> loss;
        for (auto const& [what, step, micro_batch] : what_.turns) {
            enter(micro_batch);
            if (what == detail::rank_turn::kind::forward) {
                forward(what_.steps[step], loss);
            } else if (what == detail::rank_turn::kind::backward) {
                backward(step);
                gradients_.passed(step);
            } else {
                now_->drop_all();
                parts_.erase(micro_batch);
                now_ = nullptr;
            }
        }
        result_type result{loss ? std::move(*loss) : tensor(tensor_shape{}), {}};
        auto const for_each_gradient = [&](auto&& work) {
            for (auto read = reads_.rbegin(); read != reads_.rend(); ++read)
                if (indexed_.tensors[(*read)->tensor].has_cotangent) work(**read);
        };
        for_each_gradient([&](auto const& read) { gradients_.start(read); });
        for_each_gradient([&](auto const& read) {
            result.gradients.insert_or_assign(read.tensor,
                                              std::pair(stored_as_.at(read.tensor), gradients_.finish(read)));
        });
        if constexpr (!Stage::is_alone) stage_->finish(result.gradients, common_.of);
        for (auto& [number, part] : parts_) part->drop_all();
        common_.drop_all();
        gradients_.clear();
        return result;
    }

    /// Returns the whole loss of an iteration on every rank, for which the host waits; this is a collective if ranks
    /// have parts of it.
    [[nodiscard]] Scalar whole_loss(result_type const& result) {
        if (Stage::is_alone && !is_loss_partial_) return result.loss.number();
        common_.of.across.count_as(indexed_.loss);
        // All of a stage's group have the same.
        bool const is_mine = Stage::is_alone || common_.of.rank() == 0;
        return total(is_mine ? result.loss : tensor(tensor_shape{})).number();
    }

    /// Returns the Euclidean norm of the gradients of all parameters, a single number; this is a collective.
    [[nodiscard]] tensor gradient_norm(gradients_of<tensor> const& gradients) {
        tensor sum(tensor_shape{});
        for (auto const& [t, gradient] : gradients) { // each element on one rank
            bool is_mine = gradient.first.is_shard() || common_.of.rank() == 0;
            if constexpr (!Stage::is_alone) is_mine = is_mine && stage_->speaks_for(t);
            if (is_mine) sum += sum_of_squares(gradient.second);
        }
        sum = total(std::move(sum));
        for_each_element(
            [](auto& squares) {
                using std::sqrt;
                squares = sqrt(squares);
            },
            sum);
        return sum;
    }

    /// Returns a parameter, as the ranks store it, whole on each of them; this is a collective if it is cut.
    [[nodiscard]] tensor gather(tensor_id t, tensor const& stored) {
        tensor_form const f = stored_as_.at(t);
        if (!f.is_shard()) return stored;
        return *common_.of.converted(t, f, tensor_form::replicated(), held::of(stored), uneven::padded).get();
    }

    /// Returns the largest number of micro-batches of which this rank had values at one time of the last iteration.
    [[nodiscard]] std::int64_t most_in_flight() const { return most_in_flight_; }

private:
    using tensors = detail::rank_tensors<tensor, Communicator>;
    using held = detail::held<tensor>;
    using request = typename tensors::exchange::request;
    using arriving = typename tensors::arriving_tensor;
    using slots = detail::form_slots<detail::slot<tensor, request>>;
    using compute = instruction::compute;

    /// What a rank has once, for all micro-batches.
    struct common_state {
        common_state(indexed_program const& p, plan const& layout, Communicator& ranks)
            : of(p, layout, ranks), values(p.tensors.size()), cotangents(p.tensors.size()) {}
        void drop_all() {
            values.drop_all();
            cotangents.drop_all();
        }

        tensors of;
        slots values, cotangents;
    };
    /// The tensors of micro-batches of one size.
    struct sized {
        sized(indexed_program part, plan const& layout, Communicator& ranks)
            : program(std::move(part)), of(program, layout, ranks) {}

        indexed_program program;
        tensors of;
    };
    /// A micro-batch that is not through yet.
    struct in_flight : detail::micro_batch_state<tensor, request> {
        in_flight(interpreter& rank, std::size_t number)
            : detail::micro_batch_state<tensor, request>(rank.indexed_.tensors.size()),
              here(rank.tensors_of(rank.what_.places[number].second)),
              uses(rank.whole(), rank.what_, rank.common_.of.layout, here.rank(), rank.what_.places[number]),
              calls(rank.program_, rank.whole(), rank.what_, rank.what_.places[number], here, *this),
              made(rank.indexed_.operators.size()) {}

        tensors& here;
        detail::batch_part uses;
        detail::operator_calls<tensor, Communicator> calls;
        /// The calls that were made, by operator.
        std::vector<std::optional<tensor_call<tensor>>> made;
    };

    interpreter(program const& p, indexed_program const& indexed, detail::rank_program what, Communicator& communicator,
                Stage* stage, Backend const& backend, std::uint64_t seed)
        : program_(p), indexed_(indexed), what_(std::move(what)), communicator_(communicator), stage_(stage),
          backend_(backend), seed_(seed), common_(indexed, *what_.layout, communicator),
          gradients_(what_, common_.of, common_.cotangents) {
        for (auto const& s : what_.steps) {
            if (auto const* loss = std::get_if<detail::add_loss>(&s))
                is_loss_partial_ = loss->form == tensor_form::partial();
            auto const* const step = std::get_if<plan_step>(&s);
            auto const* const read = step ? step->instruction.template as<instruction::read>() : nullptr;
            if (!read) continue;
            reads_.push_back(read);
            if (common_.of.is_parameter(read->tensor))
                stored_as_[read->tensor] = read->from.is_shard() ? read->from : tensor_form::replicated();
        }
    }

    // ---- what there is

    [[nodiscard]] indexed_program const& whole() const { return what_.whole ? *what_.whole : indexed_; }
    /// Returns the tensors of micro-batches with this many places. Those of a plan are what was indexed.
    [[nodiscard]] tensors& tensors_of(extent places) {
        if (Stage::is_alone || what_.parts == 1) return common_.of;
        auto const known = sizes_.find(places);
        if (known != sizes_.end()) return known->second.of;
        return sizes_
            .try_emplace(places, detail::part_of_batch(indexed_, what_.split, places), *what_.layout, communicator_)
            .first->second.of;
    }
    void enter(std::size_t micro_batch) {
        if (micro_batch == detail::rank_turn::all || (now_ && number_ == micro_batch)) return;
        auto& part = parts_[micro_batch];
        if (!part) part = std::make_unique<in_flight>(*this, micro_batch);
        now_ = part.get();
        number_ = micro_batch;
        most_in_flight_ = std::max(most_in_flight_, static_cast<std::int64_t>(parts_.size()));
    }
    [[nodiscard]] tensors& tensors_of(tensor_id t) { return what_.is_common[t] ? common_.of : now_->here; }
    [[nodiscard]] slots& values(tensor_id t) { return what_.is_common[t] ? common_.values : now_->values; }
    [[nodiscard]] slots& cotangents(tensor_id t) { return what_.is_common[t] ? common_.cotangents : now_->cotangents; }
    [[nodiscard]] held& value(tensor_id t, tensor_form f) { return values(t).find(t, f)->get(); }
    void accumulate(tensor_id t, tensor_form f, arriving&& cotangent) {
        detail::accumulate(cotangents(t), t, f, std::move(cotangent));
    }
    /// Returns the sum of tensors of all ranks.
    [[nodiscard]] tensor total(tensor mine) {
        if constexpr (Stage::is_alone) return common_.of.total(std::move(mine));
        else return stage_->total(std::move(mine));
    }

    void require_placed(values_type const& sources) const {
        for (auto const* read : reads_) {
            tensor_id const t = read->tensor;
            auto const found = sources.find(t);
            bool const is_there = found != sources.end();
            auto const stored = stored_as_.find(t);
            if (is_there &&
                (stored == stored_as_.end() ||
                 found->second.shape() == common_.of.layout.held_shape(t, stored->second, common_.of.rank())))
                continue;
            throw input_error("'" + program_.tensor(t).name + "'",
                              "is missing or not the part that this rank stores, expected what place() gives");
        }
    }

    // ---- forward

    void forward(detail::rank_step const& s, std::optional<tensor>& loss) {
        if (auto const* const step = std::get_if<plan_step>(&s)) return forward(*step);
        if (auto const* const i = std::get_if<detail::add_loss>(&s)) {
            tensor of_part = *value(indexed_.loss, i->form);
            if (auto const share = now_->uses.template loss_share<tensor>(); share != Scalar{1}) of_part *= share;
            if (loss) *loss += of_part;
            else loss = std::move(of_part);
        }
        if constexpr (!Stage::is_alone) {
            if (auto const* const i = std::get_if<detail::receive_value>(&s))
                values(i->tensor).set(i->tensor, i->form,
                                      stage_->received(now_->here.zeros(i->tensor, i->form), Stage::previous));
            if (auto const* const i = std::get_if<detail::send_value>(&s))
                stage_->send(value(i->tensor, i->form), i->tensor, Stage::next);
        }
    }
    void forward(plan_step const& s) {
        s.instruction.visit([&](instruction::read const& i) { read(i, s.step.update_transfers); },
                            [&](compute const& i) { run_forward(i); },
                            [&](instruction::reshard const& i) { values(i.tensor).drop(i.tensor, i.from); },
                            [&](form_change const& i) { convert(i, i.from, i.to, s.step.forward_transfers); });
    }
    void convert(form_change const& i, tensor_form from, tensor_form to, transfer_list const& transfers) {
        values(i.tensor).set(
            i.tensor, to,
            tensors_of(i.tensor).converted(i.tensor, from, to, value(i.tensor, from), detail::way_of(transfers)));
    }
    void read(instruction::read const& i, transfer_list const& transfers) {
        auto const& [t, from, to] = static_cast<form_change const&>(i);
        auto const& source = sources_->at(t);
        auto& of = tensors_of(t);
        auto mine = what_.is_common[t] ? held::of(source) : now_->uses.of_source(t, source);
        if (from != to) // updated in shards: whole again for this iteration
            return values(t).set(t, to, of.converted(t, from, to, std::move(mine), detail::way_of(transfers)));
        if (to.is_shard() && !stored_as_.contains(t)) mine = of.layout.cut(t, to, *mine, of.rank());
        if (to == tensor_form::partial()) mine = of.across.scaled(std::move(mine));
        if (of.inside.is_group()) mine = of.inside.part(t, to, *mine);
        values(t).set(t, to, arriving(std::move(mine)));
    }
    void run_forward(compute const& i) {
        detail::run_forward(
            backend_, i, call(i), [&](std::size_t k) { return operand(i, k); },
            [&](std::size_t k, tensor made) {
                tensor_id const t = program_.results(i.op)[k];
                values(t).set(t, i.results[k], arriving(now_->here.made(i.op, t, i.results[k], std::move(made))));
            });
    }
    [[nodiscard]] held operand(compute const& i, std::size_t k) {
        tensor_id const t = program_.operands(i.op)[k];
        return now_->uses.operand(i, k, now_->here.whole_inside(i.op, t, i.operands[k], value(t, i.operands[k])));
    }
    [[nodiscard]] held result(compute const& i, std::size_t k) {
        tensor_id const t = program_.results(i.op)[k];
        return now_->here.whole_inside(i.op, t, i.results[k], value(t, i.results[k]));
    }
    /// Returns the call of an operator in this micro-batch, which is made once.
    [[nodiscard]] tensor_call<tensor> const& call(compute const& i) {
        auto& made = now_->made[i.op];
        if (!made) made = now_->calls.of(i);
        made->random.seed = seed_;
        return *made;
    }

    // ---- backward

    /// Runs the adjoint of a step. What the step made, nobody needs after that.
    void backward(std::size_t n) {
        auto const& s = what_.steps[n];
        if (auto const* const step = std::get_if<plan_step>(&s)) return backward(n, *step);
        if (auto const* const i = std::get_if<detail::add_loss>(&s))
            cotangents(indexed_.loss)
                .set(indexed_.loss, i->form,
                     arriving(tensor(program_.tensor(indexed_.loss).shape, now_->uses.template loss_share<tensor>())));
        if constexpr (!Stage::is_alone) {
            if (auto const* const i = std::get_if<detail::receive_value>(&s);
                i && common_.of.has_cotangent(i->tensor)) {
                auto cotangent = cotangents(i->tensor).take(i->tensor, i->form);
                stage_->send(cotangent ? cotangent->get() : now_->here.zeros(i->tensor, i->form), i->tensor,
                             Stage::previous);
            }
            if (auto const* const i = std::get_if<detail::send_value>(&s); i && common_.of.has_cotangent(i->tensor))
                accumulate(i->tensor, i->form, stage_->received(now_->here.zeros(i->tensor, i->form), Stage::next));
        }
    }
    void backward(std::size_t n, plan_step const& s) {
        s.instruction.visit(
            [&](instruction::read const& i) {
                gradients_.read(n, i);
                values(i.tensor).drop(i.tensor, i.to);
            },
            [&](compute const& i) {
                backward(i, s.step.deferred_transfers);
                for (std::size_t k = 0; k < i.results.size(); ++k) {
                    tensor_id const t = program_.results(i.op)[k];
                    values(t).drop(t, i.results[k]);
                    cotangents(t).drop(t, i.results[k]);
                }
            },
            [&](instruction::reshard const& i) { convert(i, i.to, i.from, s.step.backward_transfers); },
            [&](form_change const& i) {
                values(i.tensor).drop(i.tensor, i.to);
                if (gradients_.is_in_bucket(n)) return;
                auto cotangent = cotangents(i.tensor).take(i.tensor, i.to);
                if (!cotangent) return;
                auto const& transfers =
                    s.step.deferred_transfers.empty() ? s.step.backward_transfers : s.step.deferred_transfers;
                accumulate(i.tensor, i.from,
                           tensors_of(i.tensor).transposed(i.tensor, i.from, i.to, std::move(cotangent->get()),
                                                           detail::way_of(transfers)));
            });
    }

    void backward(compute const& i, transfer_list const& deferred) {
        auto& here = now_->here;
        auto const results_of = program_.results(i.op);
        if (algorithm::none_of(results_of, [&](tensor_id t) { return indexed_.tensors[t].has_cotangent; }))
            return add_zeros(i);
        detail::short_list<held> mine(i.results.size());
        bool any = false;
        for (std::size_t k = 0; k < mine.size(); ++k)
            if (auto* const found = cotangents(results_of[k]).find(results_of[k], i.results[k])) {
                mine[k] = found->get();
                any = true;
            }
        // A group exchanges what has a cotangent. If the loss depends on whole numbers alone, all devices wait for the
        // derivatives, which are zero.
        for (std::size_t k = 0; k < mine.size() && (here.inside.is_group() || !any); ++k)
            if (!mine[k] && indexed_.tensors[results_of[k]].has_cotangent)
                mine[k] = here.zeros(results_of[k], i.results[k]);
        detail::short_list<held> of_group;
        for (std::size_t k = 0; k < mine.size() && here.inside.is_group(); ++k)
            of_group.push_back(here.whole_inside(i.op, results_of[k], i.results[k], mine[k]));
        detail::run_backward(
            backend_, i, call(i), [&](std::size_t k) { return operand(i, k); },
            [&](std::size_t k) { return result(i, k); }, detail::all_of(here.inside.is_group() ? of_group : mine),
            [&](std::size_t k, tensor gradient) {
                bool const from_factors = i.loop >= 0 && i.operands[k] == tensor_form::mirrored();
                if (indexed_.tensors[program_.operands(i.op)[k]].has_cotangent && !from_factors)
                    add_gradient(i, k, std::move(gradient));
            });
        if (gathers_factors(i)) multiply_factors(i, deferred, detail::all_of(mine));
    }

    /// Adds the cotangents that an operator of truth values or whole numbers gives its operands: they are zero, but
    /// other devices wait for them.
    void add_zeros(compute const& i) {
        for (std::size_t k = 0; k < i.operands.size(); ++k)
            if (tensor_id const t = program_.operands(i.op)[k]; common_.of.has_cotangent(t))
                accumulate(t, i.operands[k], tensors_of(t).zeros(t, i.operands[k]));
    }
    /// Adds the cotangent that an operator gives an operand. In a group that splits the operator, this is this device's
    /// summand if the operand is not cut.
    void add_gradient(compute const& i, std::size_t k, tensor gradient) {
        tensor_id const t = program_.operands(i.op)[k];
        gradient = now_->here.given(i.op, t, i.operands[k], std::move(gradient));
        if (common_.of.has_cotangent(t))
            accumulate(t, i.operands[k], held(now_->uses.of_tensor(i, k, std::move(gradient))));
    }

    /// Computes the whole gradients of a split operator's mirrored parameters from its gathered operands and
    /// cotangents, when they are wanted; in a group, on its first device. No kernel may read the whole results.
    void multiply_factors(compute const& i, transfer_list const& transfers, std::span<held const> mine) {
        struct factors {
            std::vector<arriving> operands, cotangents;
        };
        auto& here = now_->here;
        auto const all = std::make_shared<factors>();
        auto next = transfers.begin();
        auto const end = transfers.end();
        auto const gather = [&](tensor_id t, tensor_form f, held const& part) -> arriving {
            uneven const how = f.is_shard() && next != end ? next++->how.value_or(uneven::padded) : uneven::padded;
            return here.whole_across(t, f, part, how);
        };
        for (std::size_t k = 0; k < i.operands.size(); ++k) {
            tensor_id const t = program_.operands(i.op)[k];
            auto const& mine_of = value(t, i.operands[k]);
            if (i.operands[k].is_shard() || here.inside.is_cut(t))
                all->operands.push_back(gather(t, i.operands[k], mine_of));
            else all->operands.push_back(mine_of);
        }
        for (std::size_t k = 0; k < mine.size(); ++k) {
            tensor_id const t = program_.results(i.op)[k];
            if (!indexed_.tensors[t].has_cotangent) all->cotangents.emplace_back();
            else all->cotangents.push_back(gather(t, i.results[k], mine[k] ? mine[k] : here.zeros(t, i.results[k])));
        }
        if (!here.inside.is_first()) return;
        auto const gradients = std::make_shared<detail::arriving_list<tensor, request>>(
            request{}, [this, &i, &here, all, call = now_->calls.of_part(i.op, seed_)] {
                std::vector<tensor const*> operands, cotangents, results(all->cotangents.size());
                for (auto& x : all->operands) operands.push_back(x.get().get());
                for (auto& g : all->cotangents) cotangents.push_back(g.get().get());
                auto made = backend_.backward(call, operands, results, cotangents);
                std::vector<held> kept;
                for (std::size_t k = 0; k < made.size(); ++k)
                    kept.push_back(made[k] ? std::move(*made[k])
                                           : tensor(here.layout.whole_shape(program_.operands(i.op)[k])));
                return kept;
            });
        for (std::size_t k = 0; k < i.operands.size(); ++k)
            if (tensor_id const t = program_.operands(i.op)[k];
                i.operands[k] == tensor_form::mirrored() && common_.of.has_cotangent(t))
                accumulate(t, i.operands[k], detail::one_of(gradients, k));
    }

    program const& program_;
    indexed_program const& indexed_;
    detail::rank_program what_;
    Communicator& communicator_;
    Stage* stage_;
    Backend const& backend_;
    std::uint64_t seed_;
    common_state common_;
    std::map<extent, sized> sizes_;
    detail::gradient_sums<tensor, Communicator> gradients_;
    /// The sources that are read, and the form in which a rank keeps each parameter: a shard, or replicated.
    std::vector<instruction::read const*> reads_;
    std::map<tensor_id, tensor_form> stored_as_;
    bool is_loss_partial_ = false;
    /// The micro-batches that are not through, and the one whose turn it is.
    std::map<std::size_t, std::unique_ptr<in_flight>> parts_;
    in_flight* now_ = nullptr;
    std::size_t number_ = 0;
    std::int64_t most_in_flight_ = 0;
    values_type const* sources_ = nullptr;
};

template <class Communicator, class Backend>
interpreter(program const&, indexed_program const&, plan const&, Communicator&, Backend const&, std::uint64_t = 0)
    -> interpreter<typename Backend::tensor::scalar_type, Communicator, Backend>;

/// A stage runs with the communicator of its group.
template <class Stage, class Backend>
interpreter(program const&, indexed_program const&, Stage&, Backend const&, std::uint64_t = 0)
    -> interpreter<typename Backend::tensor::scalar_type, typename Stage::group_type, Backend, Stage>;

} // namespace heddle
