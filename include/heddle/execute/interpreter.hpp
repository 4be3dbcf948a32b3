// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs a plan on one rank: forward, then backward by transposing the distributed program.
///
/// The cotangent of a tensor held in some form is held in the dual form, so every instruction's adjoint
/// follows from its two forms.
///
/// A device of a group has its part of the group's tensors if they are cut inside, and a copy otherwise. The same holds
/// for cotangents, except that only the first device has a parameter's gradient until the end.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/inside_exchange.hpp>
#include <heddle/execute/detail/row_exchange.hpp>
#include <heddle/execute/detail/run_operator.hpp>
#include <heddle/execute/detail/shard_layout.hpp>
#include <heddle/execute/detail/tensor_exchange.hpp>
#include <heddle/execute/detail/turns.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/plan/buckets.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>
#include <heddle/theory/micro_batch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Executes plans on one rank of a communicator, or on one device of a group, whose communicator is a
/// `grouped_communicator`.
///
/// *Preconditions.* The plan is one of the program (`verify` accepts it), for as many devices as there are ranks; every
/// rank runs the same plan. `indexed` is `index_for(p, what)`. References to all arguments are kept.
///
/// A collective is started where the plan has its step, and waited for where what it brings is used first; gradients
/// are waited for at the end. Inside device groups each is waited for at once.
/// If micro-batches take turns, a stage's collectives are started for one before the other computes (`turns_of`); steps
/// of parameters are run once, with the sum of their gradients. Kernels run parts of the whole program's operators, so that means and random draws are those
/// of the whole batch.
template <class Scalar, communicator_of<Scalar> Communicator, kernel_backend<Scalar> Backend>
class interpreter {
public:
    using tensor = typename Backend::tensor;
    using values_type = tensor_values<tensor>;
    using result_type = iteration_result<Scalar, tensor>;

    interpreter(program const& p, indexed_program const& indexed, plan const& what, Communicator& communicator,
                Backend const& backend, std::uint64_t seed = 0)
        : program_(p), indexed_(indexed), plan_(what), communicator_(communicator), backend_(backend), seed_(seed),
          layout_(indexed, what), across_(indexed, layout_, communicator),
          inside_(indexed, layout_, communicator.rank(), devices_of(communicator)) {
        if (count_ > 1) divide();
        calls_.resize(count_);
        for (auto& bucket : gradient_buckets(what))
            if (bucket.steps.size() > 1) buckets_.push_back(std::move(bucket));
        for (std::size_t b = 0; b < buckets_.size(); ++b)
            for (auto n : buckets_[b].steps) bucket_of_step_[n] = b;
        for (auto const& s : what.steps)
            if (auto const* read = s.instruction.template as<instruction::read>();
                read && indexed.tensors[read->tensor].is_parameter())
                stored_as_[read->tensor] = read->from.is_shard() ? read->from : tensor_form::replicated();
    }

    /// Turns whole sources into what this rank keeps between iterations: parameters are in the form in which they are
    /// stored, other sources are whole. It can be used for gradients too, which have the same form.
    [[nodiscard]] values_type place(source_values<Scalar> const& whole) const {
        values_type mine;
        for (auto const& [t, value] : whole) {
            auto const stored = stored_as_.find(t);
            if (stored != stored_as_.end() && stored->second.is_shard())
                mine.emplace(t, layout_.cut(t, stored->second, value, communicator_.rank()));
            else mine.emplace(t, value);
        }
        return mine;
    }

    /// Random draws of the iterations that follow are of this seed.
    void reseed(std::uint64_t seed) { seed_ = seed; }

    /// Runs one iteration on placed sources. Returns the loss, which is this rank's summand if the plan ends with it
    /// partial, and the parameters' gradients. *Throws* `input_error` if a parameter is not as `place` leaves it.
    [[nodiscard]] result_type run(values_type const& sources) {
        for (auto const& [t, stored] : stored_as_)
            if (auto const found = sources.find(t);
                found == sources.end() || found->second.shape() != layout_.held_shape(t, stored, communicator_.rank()))
                throw input_error("parameter '" + program_.tensor(t).name + "'",
                                  "is missing or not the part that this rank stores, expected what place() gives");
        for (part_ = 0; part_ < count_; ++part_) parts_.emplace_back(indexed_.tensors.size());
        for (auto const& [step, part] : turns_.forward) {
            part_ = part;
            forward(plan_.steps[step], sources);
        }
        std::optional<tensor> loss;
        for (part_ = 0; part_ < count_; ++part_) seed_loss(loss);
        for (auto const& [step, part] : turns_.backward) {
            part_ = part;
            backward(step);
            if (auto const b = bucket_of_step_.find(step);
                b != bucket_of_step_.end() && buckets_[b->second].steps.back() == step)
                send(buckets_[b->second]);
        }
        part_ = 0;
        result_type result{loss->number(), {}};
        auto const for_each_read = [&](auto&& work) {
            for (auto s = plan_.steps.rbegin(); s != plan_.steps.rend(); ++s)
                if (auto const* read = s->instruction.template as<instruction::read>())
                    if (indexed_.tensors[read->tensor].has_cotangent) work(*read);
        };
        for_each_read([&](auto const& read) { start_gradient(read); });
        for_each_read([&](auto const& read) {
            result.gradients.insert_or_assign(read.tensor,
                                              std::pair(stored_as_.at(read.tensor), finished_gradient(read)));
        });
        for (auto& p : parts_) {
            p.values.drop_all();
            p.cotangents.drop_all();
        }
        parts_.clear();
        gradients_.clear();
        return result;
    }

    /// Returns the whole loss of an iteration; this is a collective if the ranks have summands.
    [[nodiscard]] Scalar whole_loss(result_type const& result) {
        if (!is_loss_partial_) return result.loss;
        tensor_id const t = program_.loss();
        return turned(t, tensor_form::partial(), tensor_form::replicated(), tensor(layout_.whole_shape(t), result.loss),
                      true, [&](held x) { return across_.reduced(t, std::move(x)); })
            .get()
            ->number();
    }

    /// Returns the Euclidean norm of the gradients of all parameters; this is a collective.
    [[nodiscard]] Scalar gradient_norm(result_type const& result) {
        tensor sum(tensor_shape{});
        for (auto const& [t, gradient] : result.gradients) // each element on one rank
            if (gradient.first.is_shard() || communicator_.rank() == 0) sum += sum_of_squares(gradient.second);
        if (inside_.is_first()) communicator_.all_reduce(sum.flat());
        return std::sqrt(inside_.broadcast(std::move(sum)).number());
    }

    /// Returns a parameter, as the ranks store it, whole on each of them; this is a collective if it is cut.
    [[nodiscard]] tensor gather(tensor_id t, tensor const& stored) {
        tensor_form const f = stored_as_.at(t);
        if (!f.is_shard()) return stored;
        return *converted(t, f, tensor_form::replicated(), held::of(stored), uneven::padded).get();
    }

private:
    using exchange = detail::tensor_exchange<tensor, Communicator>;
    using held = detail::held<tensor>;
    using arriving = typename exchange::result;
    using slots = detail::form_slots<detail::slot<tensor, typename exchange::request>>;

    // ---- micro-batches

    /// Tensors of parameters belong to the first micro-batch, for all.
    [[nodiscard]] auto& part_of(tensor_id t) { return parts_[is_parameter(t) ? 0 : part_]; }
    [[nodiscard]] slots& values(tensor_id t) { return part_of(t).values; }
    [[nodiscard]] slots& cotangents(tensor_id t) { return part_of(t).cotangents; }
    [[nodiscard]] held& value(tensor_id t, tensor_form f) { return values(t).find(t, f)->get(); }
    [[nodiscard]] auto take_cotangent(tensor_id t, tensor_form f) { return cotangents(t).take(t, f); }

    /// Finds the batch of the whole program, whose factors are those of a part; see `micro_batch_of`.
    void divide() {
        whole_ = index_program(program_, plan_.segments);
        batch_.emplace(batch_factors(*whole_));
    }
    [[nodiscard]] indexed_program const& whole() const { return whole_ ? *whole_ : indexed_; }
    /// Returns the number of places of the batch before this micro-batch, if there are `all` of them.
    [[nodiscard]] extent places_before(extent all) const {
        return all / static_cast<extent>(count_) * static_cast<extent>(part_);
    }
    /// Returns this micro-batch's part of a source.
    [[nodiscard]] held in_part(tensor_id t, tensor const& source) const {
        auto const number = count_ > 1 && !is_parameter(t) ? batch_->first_of(t) : no_factor;
        if (number == no_factor) return held::of(source);
        auto const& f = whole_->tensors[t].factors[static_cast<std::size_t>(number)];
        return take(source, f, places_before(f.extent), f.extent / static_cast<extent>(count_));
    }
    /// Returns the call that runs an operator on all of this micro-batch.
    [[nodiscard]] tensor_call<tensor> part_call(operator_id o) const {
        tensor_call<tensor> result = whole_call(program_, o, seed_);
        auto const number = count_ > 1 ? batch_loop(whole_->operators[o], *batch_) : std::int16_t{-1};
        if (number < 0) return result;
        auto const& loop = whole_->operators[o].loops[static_cast<std::size_t>(number)];
        split_call(result, program_, *whole_, o, loop, places_before(loop.extent),
                   loop.extent / static_cast<extent>(count_));
        return result;
    }

    // ---- device groups

    using inner = typename detail::devices_inside<Communicator>::type;
    static inner* devices_of(Communicator& c) {
        if constexpr (requires { c.inside(); }) return &c.inside();
        else return nullptr;
    }

    [[nodiscard]] bool is_parameter(tensor_id t) const { return indexed_.tensors[t].is_parameter(); }
    /// Tells whether this device has a tensor's cotangent.
    [[nodiscard]] bool has_cotangent(tensor_id t) const {
        return indexed_.tensors[t].has_cotangent && (inside_.is_first() || !is_parameter(t));
    }

    /// Applies `turn` to the group's tensor: to this device's part if that is possible; otherwise to all of it on the
    /// first device, which gives each device its part of the result.
    template <class Turn>
    [[nodiscard]] arriving turned(tensor_id t, tensor_form from, tensor_form to, held mine, bool is_collective,
                                  Turn&& turn) {
        if (!inside_.is_group()) return turn(std::move(mine));
        if (!is_collective) {
            auto const cuts_batch = [&](tensor_form f) {
                return f.is_shard() && f.factor() == indexed_.tensors[t].inside;
            };
            if (!inside_.is_cut(t)) return turn(std::move(mine));
            if (cuts_batch(from) == cuts_batch(to))
                return held(inside_.part(t, to, *turn(inside_.padded(t, from, *mine)).get()));
        }
        across_.count_as(t);
        auto const whole = inside_.gathered(t, from, *mine);
        auto const result =
            inside_.is_first() ? turn(whole).get() : held(tensor(layout_.held_shape(t, to, communicator_.rank())));
        return held(inside_.is_cut(t) ? inside_.scattered(t, to, *result) : inside_.broadcast(*result));
    }
    [[nodiscard]] arriving converted(tensor_id t, tensor_form from, tensor_form to, held value, uneven how) {
        return turned(t, from, to, std::move(value), find_conversion(from, to)->forward.collective.has_value(),
                      [&](held x) { return across_.convert(t, from, to, std::move(x), how); });
    }
    /// A parameter's gradient stays on the first device.
    [[nodiscard]] arriving transposed(tensor_id t, tensor_form from, tensor_form to, held cotangent, uneven how) {
        auto const turn = [&](held x) { return across_.transpose(t, from, to, std::move(x), how); };
        if (is_parameter(t)) return turn(std::move(cotangent));
        return turned(t, to, from, std::move(cotangent), find_conversion(from, to)->backward.collective.has_value(),
                      turn);
    }

    // ---- forward

    /// Returns how a step's shards move, which is padded if nothing is said.
    [[nodiscard]] static uneven way_of(transfer_list const& transfers) {
        return transfers.empty() ? uneven::padded : transfers[0].how.value_or(uneven::padded);
    }

    void forward(plan_step const& s, values_type const& sources) {
        s.instruction.visit([&](instruction::read const& i) { read(i, sources, s.step.update_transfers); },
                            [&](instruction::compute const& i) { compute(i); },
                            [&](instruction::reshard const& i) { values(i.tensor).drop(i.tensor, i.from); },
                            [&](form_change const& i) {
                                values(i.tensor).set(i.tensor, i.to,
                                                     converted(i.tensor, i.from, i.to, value(i.tensor, i.from),
                                                               way_of(s.step.forward_transfers)));
                            });
    }

    void read(instruction::read const& i, values_type const& sources, transfer_list const& transfers) {
        auto const& [t, from, to] = static_cast<form_change const&>(i);
        auto mine = in_part(t, sources.at(t));
        if (from != to) // updated in shards: whole again for this iteration
            return values(t).set(t, to, converted(t, from, to, std::move(mine), way_of(transfers)));
        if (to.is_shard() && !stored_as_.contains(t)) mine = layout_.cut(t, to, *mine, communicator_.rank());
        if (to == tensor_form::partial()) mine = across_.scaled(std::move(mine));
        if (inside_.is_group()) mine = inside_.part(t, to, *mine);
        values(t).set(t, to, arriving(std::move(mine)));
    }

    void compute(instruction::compute const& i) {
        detail::run_forward(
            backend_, i, call(i), [&](std::size_t k) { return operand(i, k); },
            [&](std::size_t k, tensor made) {
                tensor_id const t = program_.results(i.op)[k];
                if (inside_.is_group()) {
                    if (!is_split_inside(i.op)) made = inside_.part(t, i.results[k], std::move(made));
                    else if (!inside_.is_cut(t)) made = all_reduced_inside(t, std::move(made));
                }
                values(t).set(t, i.results[k], arriving(std::move(made)));
            });
    }

    [[nodiscard]] bool is_split_inside(operator_id o) const {
        return inside_.is_group() && indexed_.operators[o].inside_loop >= 0;
    }
    [[nodiscard]] tensor all_reduced_inside(tensor_id t, tensor value) {
        across_.count_as(t);
        return inside_.all_reduced(std::move(value));
    }

    /// Brings the group's tensor together for an operator that is not split inside.
    [[nodiscard]] held whole_inside(operator_id o, tensor_id t, tensor_form f, held mine) {
        if (!mine || !inside_.is_cut(t) || is_split_inside(o)) return mine;
        across_.count_as(t);
        return inside_.all_gathered(t, f, *mine);
    }
    [[nodiscard]] held operand(instruction::compute const& i, std::size_t k) {
        tensor_id const t = program_.operands(i.op)[k];
        return whole_inside(i.op, t, i.operands[k], value(t, i.operands[k]));
    }
    [[nodiscard]] held result(instruction::compute const& i, std::size_t k) {
        tensor_id const t = program_.results(i.op)[k];
        return whole_inside(i.op, t, i.results[k], value(t, i.results[k]));
    }

    /// Calls `visit(tensor, form)` for the operands and results of a computation, until it returns true.
    template <class Visit>
    void find_tensor(instruction::compute const& i, Visit&& visit) const {
        for (std::size_t k = 0; k < i.operands.size(); ++k)
            if (visit(program_.operands(i.op)[k], i.operands[k])) return;
        for (std::size_t k = 0; k < i.results.size(); ++k)
            if (visit(program_.results(i.op)[k], i.results[k])) return;
    }

    /// Returns the call of an operator in this micro-batch, which is made once.
    [[nodiscard]] tensor_call<tensor> const& call(instruction::compute const& i) {
        auto& known = calls_[part_];
        if (known.empty()) known.resize(program_.operator_count());
        auto& mine = known[i.op];
        if (!mine) mine = make_call(i);
        mine->random.seed = seed_;
        return *mine;
    }
    [[nodiscard]] tensor_call<tensor> make_call(instruction::compute const& i) {
        auto result = part_call(i.op);
        auto const& op = whole().operators[i.op];
        bool const divides_batch = count_ > 1 && i.loop >= 0 && i.loop == batch_loop(op, *batch_);
        bool has_statistics = false;
        auto const split_along = [&](std::int16_t number, std::pair<extent, extent> range) {
            auto const& loop = op.loops[static_cast<std::size_t>(number)];
            split_call(result, program_, whole(), i.op, loop,
                       range.first + (divides_batch ? places_before(loop.extent) : 0), range.second);
            has_statistics = has_statistics || detail::has_statistics(loop);
        };
        if (i.loop >= 0 && op.loops[static_cast<std::size_t>(i.loop)].exchanges()) {
            exchange_rows(result, i);
        } else if (i.loop >= 0) {
            std::pair<extent, extent> range{0, indexed_.operators[i.op].loops[static_cast<std::size_t>(i.loop)].extent};
            find_tensor(i, [&](tensor_id t, tensor_form f) {
                if (!f.is_shard()) return false;
                auto const counts = layout_.places(t, f);
                range = {layout_.begin_of(counts, communicator_.rank()), counts[communicator_.rank()]};
                return true;
            });
            split_along(i.loop, range);
        }
        if (is_split_inside(i.op))
            find_tensor(i, [&](tensor_id t, tensor_form f) {
                if (inside_.is_cut(t)) split_along(op.inside_loop, inside_.range(t, f));
                return inside_.is_cut(t);
            });
        if (has_statistics)
            result.combine = [this, &i](std::size_t which, reduction how, tensor& rows) {
                detail::combine_once(parts_[part_], i.op, which, rows, [&](tensor& mine) { combine(i, how, mine); });
            };
        return result;
    }

    /// Lets a computation send rows to the ranks that have what they choose. There are no groups then.
    void exchange_rows(tensor_call<tensor>& call, instruction::compute const& i) {
        auto const& op = whole().operators[i.op];
        auto const& loop = op.loops[static_cast<std::size_t>(i.loop)];
        auto const of_batch = count_ > 1 ? batch_loop(op, *batch_) : std::int16_t{-1};
        bool const divides_batch =
            of_batch >= 0 && op.loops[static_cast<std::size_t>(of_batch)].operands == sides_of(loop).first.operands;
        detail::split_exchange(call, program_, whole(), i, loop, layout_, communicator_.rank(),
                               divides_batch ? places_before(loop.extent) : 0);
        call.send = [this, &i](std::size_t which, tensor const& rows, shard_counts sent, shard_counts received) {
            auto& known = parts_[part_].statistics;
            across_.count_as(program_.results(i.op)[0]);
            if (auto const found = known.find({i.op, which}); found != known.end()) return found->second;
            return known.try_emplace({i.op, which}, detail::exchanged(communicator_, rows, sent, received))
                .first->second;
        };
    }

    /// Combines the statistics of rows over all that hold parts of the rows. In a group, the first device combines
    /// across groups the statistics of its own rows and of the others'.
    void combine(instruction::compute const& i, reduction how, tensor& mine) {
        auto const& op = indexed_.operators[i.op];
        bool const is_alone = across_.is_alone(program_.results(i.op)[0]);
        bool const across = i.loop >= 0 && detail::has_statistics(op.loops[static_cast<std::size_t>(i.loop)]);
        bool const inside =
            is_split_inside(i.op) && detail::has_statistics(op.loops[static_cast<std::size_t>(op.inside_loop)]);
        auto const reduce_across = [&](tensor& all) {
            if (!is_alone && inside_.is_first()) communicator_.all_reduce(all.flat(), how);
        };
        if (inside) inside_.all_reduce(mine.flat(), how);
        if (across && is_split_inside(i.op) && !inside) {
            std::vector<std::size_t> counts;
            find_tensor(i, [&](tensor_id t, tensor_form f) {
                if (inside_.is_cut(t)) counts = inside_.counts_like(t, f, static_cast<std::size_t>(mine.elements()));
                return inside_.is_cut(t);
            });
            auto all = inside_.to_first(mine, counts);
            reduce_across(all);
            inside_.from_first(all, mine, counts);
        } else if (across) {
            reduce_across(mine);
            if (inside_.is_group()) inside_.broadcast(mine.flat());
        }
    }

    // ---- backward

    void seed_loss(std::optional<tensor>& sum) {
        tensor_id const t = program_.loss();
        is_loss_partial_ = values(t).find(t, tensor_form::partial()) != nullptr;
        tensor_form const f = is_loss_partial_ ? tensor_form::partial() : tensor_form::mirrored();
        if (sum) *sum += *value(t, f);
        else sum = *value(t, f);
        cotangents(t).set(t, f, arriving(tensor(layout_.whole_shape(t), Scalar{1})));
    }

    void accumulate(tensor_id t, tensor_form f, arriving gradient) {
        detail::accumulate(cotangents(t), t, f, std::move(gradient));
    }

    /// Runs the adjoint of a step. What the step made, nobody needs after that.
    void backward(std::size_t n) {
        auto const& s = plan_.steps[n];
        s.instruction.visit(
            [&](instruction::read const& i) {
                reduce_gradient(n, i);
                values(i.tensor).drop(i.tensor, i.to);
            },
            [&](instruction::compute const& i) {
                backward_compute(i, s.step.deferred_transfers);
                for (std::size_t k = 0; k < i.results.size(); ++k) {
                    tensor_id const t = program_.results(i.op)[k];
                    values(t).drop(t, i.results[k]);
                    cotangents(t).drop(t, i.results[k]);
                }
            },
            [&](instruction::reshard const& i) {
                values(i.tensor).set(
                    i.tensor, i.from,
                    converted(i.tensor, i.to, i.from, value(i.tensor, i.to), way_of(s.step.backward_transfers)));
            },
            [&](form_change const& i) {
                values(i.tensor).drop(i.tensor, i.to);
                if (bucket_of_step_.contains(n)) return;
                auto cotangent = take_cotangent(i.tensor, i.to);
                if (!cotangent) return;
                auto const& transfers =
                    s.step.deferred_transfers.empty() ? s.step.backward_transfers : s.step.deferred_transfers;
                accumulate(i.tensor, i.from,
                           transposed(i.tensor, i.from, i.to, std::move(cotangent->get()), way_of(transfers)));
            });
    }

    void backward_compute(instruction::compute const& i, transfer_list const& deferred) {
        auto const results_of = program_.results(i.op);
        if (algorithm::none_of(results_of, [&](tensor_id t) { return indexed_.tensors[t].has_cotangent; }))
            return add_zeros(i);
        std::vector<held> mine(i.results.size());
        bool any = false;
        for (std::size_t k = 0; k < mine.size(); ++k)
            if (auto* const found = cotangents(results_of[k]).find(results_of[k], i.results[k])) {
                mine[k] = found->get();
                any = true;
            }
        // A group exchanges what has a cotangent. If the loss depends on whole numbers alone, all devices wait for the
        // derivatives, which are zero.
        for (std::size_t k = 0; k < mine.size() && (inside_.is_group() || !any); ++k)
            if (!mine[k] && indexed_.tensors[results_of[k]].has_cotangent)
                mine[k] = tensor(inside_.held_shape(results_of[k], i.results[k]));
        auto whole = mine;
        for (std::size_t k = 0; k < whole.size(); ++k)
            whole[k] = whole_inside(i.op, results_of[k], i.results[k], std::move(whole[k]));
        detail::run_backward(
            backend_, i, call(i), [&](std::size_t k) { return operand(i, k); },
            [&](std::size_t k) { return result(i, k); }, whole,
            [&](std::size_t k, tensor gradient) {
                bool const from_factors = i.loop >= 0 && i.operands[k] == tensor_form::mirrored();
                if (indexed_.tensors[program_.operands(i.op)[k]].has_cotangent && !from_factors)
                    add_gradient(i, k, std::move(gradient));
            });
        if (gathers_factors(i)) multiply_factors(i, deferred, mine);
    }

    /// Adds the cotangents that an operator of truth values or whole numbers gives its operands: they are zero, but
    /// other devices wait for them.
    void add_zeros(instruction::compute const& i) {
        for (std::size_t k = 0; k < i.operands.size(); ++k)
            if (tensor_id const t = program_.operands(i.op)[k]; has_cotangent(t))
                accumulate(t, i.operands[k], held(tensor(inside_.held_shape(t, i.operands[k]))));
    }

    /// Adds the cotangent that an operator gives an operand. In a group that splits the operator, this is this device's
    /// summand if the operand is not cut.
    void add_gradient(instruction::compute const& i, std::size_t k, tensor gradient) {
        tensor_id const t = program_.operands(i.op)[k];
        if (inside_.is_group()) {
            if (!is_split_inside(i.op)) gradient = inside_.part(t, i.operands[k], std::move(gradient));
            else if (!inside_.is_cut(t)) {
                across_.count_as(t);
                gradient =
                    is_parameter(t) ? inside_.reduced(std::move(gradient)) : inside_.all_reduced(std::move(gradient));
            }
        }
        if (has_cotangent(t)) accumulate(t, i.operands[k], held(std::move(gradient)));
    }

    using arriving_list = detail::arriving<std::vector<held>, typename exchange::request>;
    /// Returns one of several tensors that arrive together.
    [[nodiscard]] static arriving one_of(std::shared_ptr<arriving_list> const& all, std::size_t k) {
        return {typename exchange::request{}, [all, k] { return std::move(all->get()[k]); }};
    }

    /// Computes the whole gradients of a split operator's mirrored parameters from its gathered operands and
    /// cotangents, when they are wanted; in a group, on its first device. No kernel may read the whole results.
    void multiply_factors(instruction::compute const& i, transfer_list const& transfers,
                          std::vector<held> const& mine) {
        struct factors {
            std::vector<arriving> operands, cotangents;
        };
        auto const all = std::make_shared<factors>();
        auto next = transfers.begin();
        auto const end = transfers.end();
        auto const gather = [&](tensor_id t, tensor_form f, held const& part) -> arriving {
            uneven const how = f.is_shard() && next != end ? next++->how.value_or(uneven::padded) : uneven::padded;
            across_.count_as(t);
            held const of_group = inside_.is_cut(t) ? held(inside_.gathered(t, f, *part)) : part;
            return f.is_shard() && inside_.is_first() ? across_.gathered(t, f, of_group, how) : arriving(of_group);
        };
        for (std::size_t k = 0; k < i.operands.size(); ++k) {
            tensor_id const t = program_.operands(i.op)[k];
            auto const& here = value(t, i.operands[k]);
            if (i.operands[k].is_shard() || inside_.is_cut(t)) all->operands.push_back(gather(t, i.operands[k], here));
            else all->operands.push_back(here);
        }
        for (std::size_t k = 0; k < mine.size(); ++k) {
            tensor_id const t = program_.results(i.op)[k];
            if (!indexed_.tensors[t].has_cotangent) all->cotangents.emplace_back();
            else
                all->cotangents.push_back(
                    gather(t, i.results[k], mine[k] ? mine[k] : held(tensor(inside_.held_shape(t, i.results[k])))));
        }
        if (!inside_.is_first()) return;
        auto const gradients = std::make_shared<arriving_list>(typename exchange::request{}, [this, &i, all,
                                                                                              call = part_call(i.op)] {
            std::vector<tensor const*> operands, cotangents, results(all->cotangents.size());
            for (auto& x : all->operands) operands.push_back(x.get().get());
            for (auto& g : all->cotangents) cotangents.push_back(g.get().get());
            auto made = backend_.backward(call, operands, results, cotangents);
            std::vector<held> kept;
            for (std::size_t k = 0; k < made.size(); ++k)
                kept.push_back(made[k] ? std::move(*made[k]) : tensor(layout_.whole_shape(program_.operands(i.op)[k])));
            return kept;
        });
        for (std::size_t k = 0; k < i.operands.size(); ++k)
            if (tensor_id const t = program_.operands(i.op)[k];
                i.operands[k] == tensor_form::mirrored() && has_cotangent(t))
                accumulate(t, i.operands[k], one_of(gradients, k));
    }

    // ---- gradients

    /// Returns this rank's gradient of a step's parameter in the form in which it was used; it is zero if nothing was
    /// differentiated with respect to it.
    [[nodiscard]] held take_gradient(form_change const& i) {
        auto taken = take_cotangent(i.tensor, i.to);
        return taken ? std::move(taken->get()) : held(tensor(layout_.held_shape(i.tensor, i.to, communicator_.rank())));
    }
    /// Reduces the gradient of a parameter that is read whole, unless its bucket does.
    void reduce_gradient(std::size_t n, instruction::read const& i) {
        if (!has_cotangent(i.tensor) || i.to != tensor_form::replicated() || bucket_of_step_.contains(n)) return;
        gradients_[i.tensor] = i.from != i.to ? across_.transpose(i.tensor, i.from, i.to, take_gradient(i),
                                                                  way_of(plan_.steps[n].step.deferred_transfers))
                                              : across_.reduced(i.tensor, take_gradient(i));
    }
    /// Reduces the gradients of a bucket by one collective.
    void send(gradient_bucket const& bucket) {
        if (!inside_.is_first()) return;
        std::vector<tensor_id> tensors;
        std::vector<tensor_form> forms;
        std::vector<held> gradients;
        for (auto n : bucket.steps) {
            auto const& i = *plan_.steps[n].instruction.change();
            tensors.push_back(i.tensor);
            forms.push_back(i.from);
            gradients.push_back(take_gradient(i));
        }
        auto const& transfers = plan_.steps[bucket.steps.front()].step.deferred_transfers;
        auto const sent = transfers[0].kind == collective::all_reduce
                              ? across_.reduced_together(tensors, std::move(gradients))
                              : across_.scattered_together(tensors, forms, std::move(gradients), way_of(transfers));
        for (std::size_t k = 0; k < tensors.size(); ++k) {
            auto const& i = plan_.steps[bucket.steps[k]].instruction;
            if (i.template is<instruction::read>()) gradients_[tensors[k]] = one_of(sent, k);
            else accumulate(tensors[k], forms[k], one_of(sent, k));
        }
    }
    /// Starts what is still to be done for the gradient of a parameter.
    void start_gradient(instruction::read const& i) {
        if (gradients_.contains(i.tensor) || !inside_.is_first()) return;
        gradients_[i.tensor] = i.from != i.to
                                   ? across_.transpose(i.tensor, i.from, i.to, take_gradient(i), uneven::padded)
                                   : arriving(take_gradient(i));
    }
    [[nodiscard]] tensor finished_gradient(instruction::read const& i) {
        auto const found = gradients_.find(i.tensor);
        tensor gradient = found != gradients_.end()
                              ? std::move(found->second.get()).release()
                              : tensor(layout_.held_shape(i.tensor, stored_as_.at(i.tensor), communicator_.rank()));
        across_.count_as(i.tensor);
        return inside_.is_group() ? inside_.broadcast(std::move(gradient)) : gradient;
    }

    program const& program_;
    indexed_program const& indexed_;
    plan const& plan_;
    Communicator& communicator_;
    Backend const& backend_;
    std::uint64_t seed_;
    detail::shard_layout layout_;
    exchange across_;
    detail::inside_exchange<tensor, inner> inside_;
    /// The form in which a rank keeps each parameter: a shard, or replicated.
    std::map<tensor_id, tensor_form> stored_as_;
    std::size_t count_ = static_cast<std::size_t>(plan_.provenance.training.micro_batches), part_ = 0;
    detail::turns turns_ = detail::turns_of(plan_);
    /// The buckets of several gradients, by number and by step.
    std::vector<gradient_bucket> buckets_;
    std::map<std::size_t, std::size_t> bucket_of_step_;
    /// The reduced gradients of parameters.
    std::map<tensor_id, arriving> gradients_;
    /// With several micro-batches, the whole program and its batch.
    std::optional<indexed_program> whole_;
    std::optional<factor_set> batch_;
    std::vector<detail::micro_batch_state<tensor, typename exchange::request>> parts_;
    /// The calls that were made, by micro-batch and operator.
    std::vector<std::vector<std::optional<tensor_call<tensor>>>> calls_;
    bool is_loss_partial_ = false;
};

} // namespace heddle
