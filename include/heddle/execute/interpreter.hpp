// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs a plan, or a stage of one, on one rank: forward, then backward by transposing the distributed
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
#include <heddle/execute/mesh_communicator.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>
#include <heddle/theory/product_form.hpp>

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

/// Executes a plan on one rank of a communicator; on one device of a mesh, whose lines a `mesh_communicator` has; on
/// one of a group, whose communicator is a `grouped_communicator`; or a stage of a plan on one of its ranks
/// (`stage_rank`).
///
/// *Preconditions.* The plan is one of the program (`verify` accepts it), for as many devices as there are ranks; every
/// rank runs the same plan. `indexed` is `index_for(p, what)`. References to all arguments are kept.
/// *Throws* `input_error` for an input that is differentiated if there are micro-batches, or in device groups.
///
/// A collective is started where the plan has its step, and waited for where what it brings is used first; gradients
/// are waited for at the end. Parameters and what kernels wait for have lanes of their own, if the communicator has
/// several. Inside device groups each is waited for at once, as nothing is priced beside it; so is a
/// statistic of rows, inside its operator's kernel.
/// If micro-batches take turns, a stage's collectives are started for one before the other computes (`turns_of`); steps
/// of parameters are run once, with the sum of their gradients. Kernels run parts of the whole program's operators, so
/// that means and random draws are those of the whole batch.
template <class Scalar, ranks_of_plan<Scalar> Ranks, kernel_backend<Scalar> Backend, class Stage = only_stage>
class interpreter {
public:
    using tensor = typename Backend::tensor;
    using number_type = host_number<tensor>;
    using values_type = tensor_values<tensor>;
    using result_type = rank_result<tensor>;

    interpreter(program const& p, indexed_program const& indexed, plan const& what, Ranks& ranks,
                Backend const& backend, std::uint64_t seed = 0)
        requires(Stage::is_alone)
        : interpreter(p, indexed, detail::program_of_rank(p, indexed, what), ranks, nullptr, backend, seed) {}

    /// *Precondition:* `indexed` is the program of which the stage is; of a staged plan, `staged_layout::indexed`.
    interpreter(program const& p, indexed_program const& indexed, Stage& stage, Backend const& backend,
                std::uint64_t seed = 0)
        requires(!Stage::is_alone)
        : interpreter(p, indexed, stage.program(), stage.group(), &stage, backend, seed) {}

    interpreter(interpreter const&) = delete;

    /// Turns whole sources into what this rank keeps between iterations: parameters are in the form in which they are
    /// stored, and so are inputs that are differentiated; other sources are whole. What this rank does not use is left
    /// out; what has the data of another source (`program::data_of`) needs none of its own. It can be used for
    /// gradients too, which have the same form, and with another type of tensors for weights that an optimiser has in
    /// more bits.
    template <rank_tensor Placed = tensor>
    [[nodiscard]] tensor_values<Placed> place(source_values<number_type> const& whole) const {
        tensor_values<Placed> mine;
        for (auto const* read : reads_) {
            tensor_id const t = read->instruction.change()->tensor;
            auto const found = whole.find(program_.data_of(t));
            if (found == whole.end()) continue;
            auto const stored = stored_as_.find(t);
            mine.emplace(t, stored == stored_as_.end()
                                ? brought<Placed>(found->second, program_.tensor(t).type)
                                : Placed(common_.of.layout.cut(t, stored->second.form, found->second)));
        }
        return mine;
    }

    /// Random draws of the iterations that follow are of this seed.
    void reseed(std::uint64_t seed) { seed_ = seed; }
    /// Gradients of the iterations that follow are so many times as large.
    void scale_gradients(number_type by) { scale_ = by; }

    /// Runs one iteration on placed sources. Returns this rank's part of the loss, and the gradients of the parameters
    /// and differentiated inputs that it uses, in the form in which they are stored. The host reads no tensor, unless a
    /// kernel does.
    /// *Throws* `input_error` if a source is missing, or a parameter is not as `place` leaves it.
    [[nodiscard]] result_type run(values_type const& sources) {
        begin(sources);
        while (!is_through()) go_on();
        auto result = end();
        for (auto t : shared()) share(t, result.gradients);
        return result;
    }

    /// What follows is `run` in parts, for ranks with several stages (`stages_interpreter`): a begin, as many `go_on`
    /// as the program has pauses and one more, an end, and the gradients of what other stages share.
    void begin(values_type const& sources) {
        require_placed(sources);
        sources_ = &sources;
        most_in_flight_ = 0;
        next_turn_ = next_pause_ = 0;
        loss_.reset();
    }
    /// Runs what comes before the next pause, or the end.
    void go_on() {
        auto const& pauses = what_.pauses;
        auto const until = next_pause_ < pauses.size() ? pauses[next_pause_++] : what_.turns.size();
        for (; next_turn_ < until; ++next_turn_) {
            auto const& [what, step, micro_batch] = what_.turns[next_turn_];
            enter(micro_batch);
            if (what == detail::rank_turn::kind::forward) {
                forward(what_.steps[step]);
            } else if (what == detail::rank_turn::kind::drop) {
                drop(std::get<plan_step>(what_.steps[step]));
            } else if (what == detail::rank_turn::kind::backward) {
                backward(step);
                gradients_.passed(step);
            } else {
                now_->drop_all();
                parts_.erase(micro_batch);
                now_ = nullptr;
            }
        }
    }
    [[nodiscard]] bool is_through() const { return next_turn_ == what_.turns.size(); }
    [[nodiscard]] result_type end() {
        result_type result{loss_ ? std::move(*loss_) : tensor(tensor_shape{}), {}};
        auto const for_each_gradient = [&](auto&& work) {
            for (auto read = reads_.rbegin(); read != reads_.rend(); ++read)
                if (auto const t = (*read)->instruction.change()->tensor; indexed_.tensors[t].has_cotangent)
                    work(t, **read);
        };
        for_each_gradient([&](tensor_id, plan_step const& read) { gradients_.start(read); });
        for_each_gradient([&](tensor_id t, plan_step const&) {
            auto const& stored = stored_as_.at(t).form;
            result.gradients.insert_or_assign(t, std::pair(stored, gradients_.finish(t, stored)));
        });
        if constexpr (!Stage::is_alone) stage_->finish(result.gradients);
        for (auto& [number, part] : parts_) part->drop_all();
        common_.drop_all();
        gradients_.clear();
        return result;
    }
    /// Returns the parameters that other stages use too, ascending.
    [[nodiscard]] std::vector<tensor_id> shared() const {
        if constexpr (Stage::is_alone) return {};
        else return stage_->shared();
    }
    /// Adds up the gradient of one of these over all stages that use it, whose ranks all call this.
    void share(tensor_id t, gradients_of<tensor>& gradients) {
        if constexpr (!Stage::is_alone) stage_->share(t, gradients, common_.of);
    }

    /// Returns the whole loss of an iteration on every rank, for which the host waits; this is a collective if ranks
    /// have parts of it.
    [[nodiscard]] number_type whole_loss(result_type const& result) {
        bool const is_partial =
            algorithm::any_of(loss_form_, [](tensor_form f) { return f == tensor_form::partial(); });
        if (Stage::is_alone && !is_partial) return result.loss.number();
        for (axis_number a = 0; a < common_.of.axis_count(); ++a) common_.of.on(a).over.count_as(indexed_.loss);
        // Copies of it count once.
        bool is_mine = Stage::is_alone || common_.of.inside.is_first();
        for (axis_number a = 0; a < loss_form_.size() && !Stage::is_alone; ++a)
            is_mine = is_mine && (loss_form_[a] == tensor_form::partial() || common_.of.layout.here()[a] == 0);
        return total(is_mine ? wide(widened(result.loss)) : wide(tensor_shape{}), loss_form_).number();
    }

    /// Returns the Euclidean norm of the gradients of all parameters, a single number; this is a collective.
    [[nodiscard]] wide_of<tensor> gradient_norm(gradients_of<tensor> const& gradients) {
        return norm_of(squares(gradients));
    }
    /// Returns the sum of squares of the elements for which this rank, and this stage, speaks.
    [[nodiscard]] wide_of<tensor> squares(gradients_of<tensor> const& gradients) const {
        wide sum(tensor_shape{});
        for (auto const& [t, gradient] : gradients) { // each element on one rank
            bool is_mine = common_.of.is_first_of(gradient.first);
            if constexpr (!Stage::is_alone) is_mine = is_mine && common_.of.inside.is_first() && stage_->speaks_for(t);
            if (is_mine) sum += sum_of_squares(widened(gradient.second));
        }
        return sum;
    }
    /// Returns the root of the sum of all ranks' squares.
    [[nodiscard]] wide_of<tensor> norm_of(wide_of<tensor> mine) {
        auto sum = total(std::move(mine), product_form(common_.of.axis_count(), tensor_form::partial()));
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
        return *common_.of.read(t, stored_as_.at(t).form, whole_form(), held::of(stored), uneven::padded).get();
    }

    /// Returns the largest number of micro-batches of which this rank had values at one time of the last iteration.
    [[nodiscard]] std::int64_t most_in_flight() const { return most_in_flight_; }

private:
    using wide = wide_of<tensor>;
    using tensors = detail::rank_tensors<tensor, Ranks>;
    using held = detail::held<tensor>;
    using request = typename tensors::exchange::request;
    using arriving = typename tensors::arriving_tensor;
    using slots = detail::form_slots<detail::slot<tensor, request>, product_form>;
    using state = detail::micro_batch_state<tensor, request, product_form>;
    using compute = instruction::compute;

    /// What a rank has once, for all micro-batches.
    struct common_state {
        common_state(indexed_program const& p, plan const& layout, Ranks& ranks)
            : of(p, layout, ranks), values(p.tensors.size()), cotangents(p.tensors.size()) {}
        void drop_all() {
            values.drop_all();
            cotangents.drop_all();
        }

        tensors of;
        slots values, cotangents;
    };
    /// What a rank keeps of a parameter.
    struct stored_part {
        product_form form;
        tensor_shape shape;
    };
    /// The tensors of micro-batches of one size.
    struct sized {
        sized(indexed_program part, plan const& layout, Ranks& ranks)
            : program(std::move(part)), of(program, layout, ranks) {}

        indexed_program program;
        tensors of;
    };
    /// A micro-batch that is not through yet.
    struct in_flight : state {
        in_flight(interpreter& rank, std::size_t number)
            : state(rank.indexed_.tensors.size()), here(rank.tensors_of(rank.what_.places[number].second)),
              uses(rank.whole(), rank.what_, rank.common_.of.layout, rank.what_.places[number]),
              calls(rank.program_, rank.whole(), rank.what_, rank.what_.places[number], here, *this),
              made(rank.indexed_.operators.size()) {}

        tensors& here;
        detail::batch_part uses;
        detail::operator_calls<tensor, Ranks> calls;
        /// The calls that were made, by operator.
        std::vector<std::optional<tensor_call<tensor>>> made;
    };

    interpreter(program const& p, indexed_program const& indexed, detail::rank_program what, Ranks& ranks, Stage* stage,
                Backend const& backend, std::uint64_t seed)
        : program_(p), indexed_(indexed), what_(std::move(what)), ranks_(ranks), stage_(stage), backend_(backend),
          seed_(seed), common_(indexed, *what_.layout, ranks), gradients_(what_, common_.of, common_.cotangents) {
        for (auto const& s : what_.steps) {
            if (auto const* loss = std::get_if<detail::add_loss>(&s)) loss_form_ = loss->form;
            auto const* const step = std::get_if<plan_step>(&s);
            if (!step || !step->instruction.template is<instruction::read>()) continue;
            reads_.push_back(step);
            auto const t = step->instruction.change()->tensor;
            if (!indexed.tensors[t].is_read_once()) continue;
            if (!what_.is_common[t] || (!common_.of.is_parameter(t) && common_.of.inside.is_group()))
                throw input_error(
                    "'" + program_.tensor(t).name + "'",
                    "is a differentiated input, which runs neither in micro-batches nor in device groups");
            auto const stored = detail::stored_form(step->from());
            stored_as_.insert_or_assign(t, stored_part{stored, common_.of.layout.held_shape(t, stored)});
        }
        common_.of.open_lanes(*what_.layout);
    }

    // ---- what there is

    [[nodiscard]] indexed_program const& whole() const { return what_.whole ? *what_.whole : indexed_; }
    /// Returns the tensors of micro-batches with this many places. Those of a plan are what was indexed.
    [[nodiscard]] tensors& tensors_of(extent places) {
        if (what_.whole || what_.parts == 1) return common_.of;
        auto const known = sizes_.find(places);
        if (known != sizes_.end()) return known->second.of;
        return sizes_.try_emplace(places, detail::part_of_batch(indexed_, what_.split, places), *what_.layout, ranks_)
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
    [[nodiscard]] product_form whole_form() const { return {common_.of.axis_count(), tensor_form::replicated()}; }
    [[nodiscard]] held& value(tensor_id t, product_form const& f) { return values(t).find(t, f)->get(); }
    void accumulate(tensor_id t, product_form const& f, arriving&& cotangent) {
        detail::accumulate(cotangents(t), t, f, std::move(cotangent));
    }
    /// Returns the sum of tensors along the axes on which a form is partial; of a stage, of all ranks.
    [[nodiscard]] wide total(wide mine, product_form const& f) {
        if constexpr (Stage::is_alone) return common_.of.total(std::move(mine), f);
        else return stage_->total(std::move(mine));
    }

    void require_placed(values_type const& sources) const {
        for (auto const* read : reads_) {
            tensor_id const t = read->instruction.change()->tensor;
            auto const found = sources.find(t);
            bool const is_there = found != sources.end();
            auto const stored = stored_as_.find(t);
            if (is_there && (stored == stored_as_.end() || found->second.shape() == stored->second.shape)) continue;
            throw input_error("'" + program_.tensor(t).name + "'",
                              "is missing or not the part that this rank stores, expected what place() gives");
        }
    }

    // ---- forward

    void forward(detail::rank_step const& s) {
        if (auto const* const step = std::get_if<plan_step>(&s)) return forward(*step);
        if (auto const* const i = std::get_if<detail::add_loss>(&s)) {
            tensor of_part = *value(indexed_.loss, i->form);
            if (auto const share = now_->uses.template loss_share<tensor>(); share != number_type{1}) of_part *= share;
            if (loss_) *loss_ += of_part;
            else loss_ = std::move(of_part);
        }
        if constexpr (!Stage::is_alone) {
            if (auto const* const i = std::get_if<detail::receive_value>(&s))
                values(i->tensor).set(i->tensor, i->form,
                                      stage_->received(now_->here, number_, i->tensor, i->form, Stage::way::values));
            if (auto const* const i = std::get_if<detail::send_value>(&s))
                stage_->send(now_->here, number_, i->tensor, i->form, value(i->tensor, i->form), Stage::way::values);
        }
    }
    void forward(plan_step const& s) {
        s.acting().visit([&](instruction::read const& i) { read(s, i.tensor); },
                         [&](compute const& i) { run_forward(s, i.op); },
                         [&](instruction::reshard const& i) { values(i.tensor).drop(i.tensor, s.from()); },
                         [&](instruction::unshard const& i) { // two operators that run again may share it
                             if (!values(i.tensor).find(i.tensor, s.to()))
                                 convert(i.tensor, s.from(), s.to(), s.step.forward_transfers);
                         },
                         [&](form_change const& i) { // what is gathered once for several micro-batches is of the update
                             auto const& sent = s.step.forward_transfers;
                             convert(i.tensor, s.from(), s.to(), sent.empty() ? s.step.update_transfers : sent);
                         });
    }
    void convert(tensor_id t, product_form const& from, product_form const& to, transfer_list const& transfers) {
        values(t).set(t, to, tensors_of(t).converted(t, from, to, value(t, from), detail::way_of(transfers)));
    }
    void read(plan_step const& s, tensor_id t) {
        auto const from = s.from(), to = s.to();
        auto const& source = sources_->at(t);
        auto& of = tensors_of(t);
        auto mine = what_.is_common[t] ? held::of(source) : now_->uses.of_source(t, source);
        bool const is_cut = algorithm::any_of(from, [](tensor_form f) { return f.is_shard(); });
        if (is_cut && !stored_as_.contains(t)) mine = of.layout.cut(t, from, *mine);
        if (of.inside.is_group() && from == to) mine = of.inside.part(t, to[0], *mine);
        // What is updated in shards is whole again for this iteration.
        values(t).set(t, to, of.read(t, from, to, std::move(mine), detail::way_of(s.step.update_transfers)));
    }
    void run_forward(plan_step const& s, operator_id o) {
        detail::run_forward(
            backend_, s.computation(), call(s), [&](std::size_t k) { return operand(s, k); },
            [&](std::size_t k, tensor made) {
                tensor_id const t = program_.results(o)[k];
                auto const f = s.result(k);
                values(t).set(t, f, arriving(now_->here.made(o, t, f, std::move(made))));
            });
    }
    [[nodiscard]] held operand(plan_step const& s, std::size_t k) {
        operator_id const o = s.computation().op;
        tensor_id const t = program_.operands(o)[k];
        auto const f = s.operand(k);
        return now_->uses.operand(o, k, f, now_->here.whole_inside(o, t, f, value(t, f)));
    }
    [[nodiscard]] held result(plan_step const& s, std::size_t k) {
        operator_id const o = s.computation().op;
        tensor_id const t = program_.results(o)[k];
        auto const f = s.result(k);
        return now_->here.whole_inside(o, t, f, value(t, f));
    }
    /// Returns the call of an operator in this micro-batch, which is made once.
    [[nodiscard]] tensor_call<tensor> const& call(plan_step const& s) {
        auto& made = now_->made[s.computation().op];
        if (!made) made = now_->calls.of(s);
        made->random.seed = seed_;
        return *made;
    }

    void drop(plan_step const& s) {
        s.acting().visit(
            [&](compute const& i) {
                for (std::size_t k = 0; k < i.results.size(); ++k) {
                    tensor_id const t = program_.results(i.op)[k];
                    values(t).drop(t, s.result(k));
                }
            },
            [](instruction::reshard const&) {}, [&](form_change const& i) { values(i.tensor).drop(i.tensor, s.to()); });
    }

    // ---- backward

    /// Runs the adjoint of a step. What the step made, nobody needs after that.
    void backward(std::size_t n) {
        auto const& s = what_.steps[n];
        if (auto const* const step = std::get_if<plan_step>(&s)) return backward(n, *step);
        if (auto const* const i = std::get_if<detail::add_loss>(&s))
            cotangents(indexed_.loss)
                .set(indexed_.loss, i->form,
                     arriving(tensor(program_.tensor(indexed_.loss).shape,
                                     now_->uses.template loss_share<tensor>() * scale_)));
        if constexpr (!Stage::is_alone) {
            if (auto const* const i = std::get_if<detail::receive_value>(&s);
                i && common_.of.has_cotangent(i->tensor)) {
                auto cotangent = cotangents(i->tensor).take(i->tensor, i->form);
                stage_->send(now_->here, number_, i->tensor, i->form,
                             cotangent ? std::move(cotangent->get()) : now_->here.zeros(i->tensor, i->form),
                             Stage::way::cotangents);
            }
            if (auto const* const i = std::get_if<detail::send_value>(&s); i && common_.of.has_cotangent(i->tensor))
                accumulate(i->tensor, i->form,
                           stage_->received(now_->here, number_, i->tensor, i->form, Stage::way::cotangents));
        }
    }
    void backward(std::size_t n, plan_step const& s) {
        s.acting().visit(
            [&](instruction::read const& i) {
                gradients_.read(n, s);
                values(i.tensor).drop(i.tensor, s.to());
            },
            [&](compute const& i) {
                backward(s, i.op);
                for (std::size_t k = 0; k < i.results.size(); ++k) {
                    tensor_id const t = program_.results(i.op)[k];
                    values(t).drop(t, s.result(k));
                    cotangents(t).drop(t, s.result(k));
                }
            },
            [&](instruction::reshard const& i) { // what runs again may have it there
                if (!values(i.tensor).find(i.tensor, s.from()))
                    convert(i.tensor, s.to(), s.from(), s.step.backward_transfers);
            },
            [&](form_change const& i) {
                values(i.tensor).drop(i.tensor, s.to());
                if (gradients_.is_in_bucket(n)) return;
                auto cotangent = cotangents(i.tensor).take(i.tensor, s.to());
                if (!cotangent) return;
                auto const& transfers =
                    s.step.deferred_transfers.empty() ? s.step.backward_transfers : s.step.deferred_transfers;
                accumulate(i.tensor, s.from(),
                           tensors_of(i.tensor).transposed(i.tensor, s.from(), s.to(), std::move(cotangent->get()),
                                                           detail::way_of(transfers)));
            });
    }

    void backward(plan_step const& s, operator_id o) {
        auto& here = now_->here;
        auto const results_of = program_.results(o);
        if (algorithm::none_of(results_of, [&](tensor_id t) { return indexed_.tensors[t].has_cotangent; }))
            return add_zeros(s);
        detail::short_list<held> mine(results_of.size());
        bool any = false;
        for (std::size_t k = 0; k < mine.size(); ++k)
            if (auto* const found = cotangents(results_of[k]).find(results_of[k], s.result(k))) {
                mine[k] = found->get();
                any = true;
            }
        // A group exchanges what has a cotangent. If the loss depends on whole numbers alone, all devices wait for the
        // derivatives, which are zero.
        for (std::size_t k = 0; k < mine.size() && (here.inside.is_group() || !any); ++k)
            if (!mine[k] && indexed_.tensors[results_of[k]].has_cotangent)
                mine[k] = here.zeros(results_of[k], s.result(k));
        detail::short_list<held> of_group;
        for (std::size_t k = 0; k < mine.size() && here.inside.is_group(); ++k)
            of_group.push_back(here.whole_inside(o, results_of[k], s.result(k), mine[k]));
        bool gathers = false;
        for (axis_number a = 0; a < s.axis_count(); ++a) gathers = gathers || gathers_factors(s.computation(a));
        detail::run_backward(
            backend_, s.computation(), call(s), [&](std::size_t k) { return operand(s, k); },
            [&](std::size_t k) { return result(s, k); }, detail::all_of(here.inside.is_group() ? of_group : mine),
            [&](std::size_t k, tensor gradient) {
                if (indexed_.tensors[program_.operands(o)[k]].has_cotangent && (!gathers || gathering(s, k).empty()))
                    add_gradient(s, k, std::move(gradient));
            });
        if (gathers) multiply_factors(s, detail::all_of(mine));
    }

    /// Adds the cotangents that an operator of truth values or whole numbers gives its operands: they are zero, but
    /// other devices wait for them.
    void add_zeros(plan_step const& s) {
        auto const operands_of = program_.operands(s.computation().op);
        for (std::size_t k = 0; k < operands_of.size(); ++k)
            if (tensor_id const t = operands_of[k]; common_.of.has_cotangent(t))
                accumulate(t, s.operand(k), tensors_of(t).zeros(t, s.operand(k)));
    }
    /// Adds the cotangent that an operator gives an operand. In a group that splits the operator, this is this device's
    /// summand if the operand is not cut.
    void add_gradient(plan_step const& s, std::size_t k, tensor gradient) {
        operator_id const o = s.computation().op;
        tensor_id const t = program_.operands(o)[k];
        auto const f = s.operand(k);
        gradient = now_->here.given(o, t, f, std::move(gradient));
        if (common_.of.has_cotangent(t)) accumulate(t, f, held(now_->uses.of_tensor(o, k, f, std::move(gradient))));
    }

    /// Returns the axes along which the factors of an operand's gradient are gathered, from inside out.
    [[nodiscard]] static std::vector<axis_number> gathering(plan_step const& s, std::size_t k) {
        std::vector<axis_number> axes;
        for (axis_number a = s.axis_count(); a-- > 0;)
            if (s.computation(a).loop >= 0 && s.computation(a).operands[k] == tensor_form::mirrored())
                axes.push_back(a);
        return axes;
    }
    /// Computes gradients of a split operator's parameters from their factors, which are gathered along the axes that
    /// have the parameters mirrored; the other axes take what comes as the gradient in their dual form.
    void multiply_factors(plan_step const& s, std::span<held const> mine) {
        std::map<std::vector<axis_number>, std::vector<std::size_t>> wanted;
        for (std::size_t k = 0; k < s.computation().operands.size(); ++k)
            if (auto axes = gathering(s, k); !axes.empty()) wanted[std::move(axes)].push_back(k);
        for (auto const& [axes, parameters] : wanted) multiply_factors(s, axes, parameters, mine);
    }
    /// Computes these gradients of all lines along some axes when they are wanted; in a group, on its first device. No
    /// kernel may read the whole results.
    void multiply_factors(plan_step const& s, std::vector<axis_number> const& axes,
                          std::vector<std::size_t> const& parameters, std::span<held const> mine) {
        struct factors {
            std::vector<arriving> operands, cotangents;
        };
        operator_id const o = s.computation().op;
        auto const operands_of = program_.operands(o), results_of = program_.results(o);
        auto& here = now_->here;
        auto const all = std::make_shared<factors>();
        auto next = s.step.deferred_transfers.begin();
        auto const end = s.step.deferred_transfers.end();
        auto const gather = [&](tensor_id t, product_form const& f, held const& part) {
            return here.whole_along(
                axes, t, f, part, [&] { return next != end ? next++->how.value_or(uneven::padded) : uneven::padded; });
        };
        for (std::size_t k = 0; k < operands_of.size(); ++k)
            all->operands.push_back(gather(operands_of[k], s.operand(k), value(operands_of[k], s.operand(k))));
        for (std::size_t k = 0; k < mine.size(); ++k) {
            tensor_id const t = results_of[k];
            if (!indexed_.tensors[t].has_cotangent) all->cotangents.emplace_back();
            else all->cotangents.push_back(gather(t, s.result(k), mine[k] ? mine[k] : here.zeros(t, s.result(k))));
        }
        if (!here.inside.is_first()) return;
        auto const gradients = std::make_shared<detail::arriving_list<tensor, request>>(
            request{}, [this, &s, &here, all, call = now_->calls.of_factors(s, axes, seed_)] {
                std::vector<tensor const*> operands, cotangents, results(all->cotangents.size());
                for (auto& x : all->operands) operands.push_back(x.get().get());
                for (auto& g : all->cotangents) cotangents.push_back(g.get().get());
                auto made = backend_.backward(call, operands, results, cotangents);
                std::vector<held> kept;
                for (std::size_t k = 0; k < made.size(); ++k)
                    kept.push_back(made[k] ? held(std::move(*made[k]))
                                           : here.zeros(program_.operands(s.computation().op)[k], s.operand(k)));
                return kept;
            });
        for (auto k : parameters)
            if (tensor_id const t = operands_of[k]; common_.of.has_cotangent(t))
                accumulate(t, s.operand(k), detail::one_of(gradients, k));
    }

    program const& program_;
    indexed_program const& indexed_;
    detail::rank_program what_;
    Ranks& ranks_;
    Stage* stage_;
    Backend const& backend_;
    std::uint64_t seed_;
    number_type scale_ = 1;
    common_state common_;
    std::map<extent, sized> sizes_;
    detail::gradient_sums<tensor, Ranks> gradients_;
    /// The sources that are read, and how a rank keeps each parameter: on each axis a shard, or replicated.
    std::vector<plan_step const*> reads_;
    std::map<tensor_id, stored_part> stored_as_;
    product_form loss_form_{tensor_form::mirrored()};
    /// The micro-batches that are not through, and the one whose turn it is.
    std::map<std::size_t, std::unique_ptr<in_flight>> parts_;
    in_flight* now_ = nullptr;
    std::size_t number_ = 0;
    std::int64_t most_in_flight_ = 0;
    values_type const* sources_ = nullptr;
    std::optional<tensor> loss_;
    std::size_t next_turn_ = 0, next_pause_ = 0;
};

template <class Ranks, class Backend>
interpreter(program const&, indexed_program const&, plan const&, Ranks&, Backend const&, std::uint64_t = 0)
    -> interpreter<typename Backend::tensor::scalar_type, Ranks, Backend>;

/// A stage runs with the communicator of its group.
template <class Stage, class Backend>
interpreter(program const&, indexed_program const&, Stage&, Backend const&, std::uint64_t = 0)
    -> interpreter<typename Backend::tensor::scalar_type, typename Stage::group_type, Backend, Stage>;

} // namespace heddle
