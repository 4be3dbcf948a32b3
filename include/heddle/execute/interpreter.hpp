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
#include <heddle/execute/detail/shard_layout.hpp>
#include <heddle/execute/detail/tensor_exchange.hpp>
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
/// If micro-batches take turns, each step is run for one after the other; steps of parameters are run once, with the
/// sum of their gradients. Kernels run parts of the whole program's operators, so that means and random draws are those
/// of the whole batch.
template <class Scalar, communicator_of<Scalar> Communicator, kernel_backend<Scalar> Backend>
class interpreter {
public:
    using tensor = typename Backend::tensor;

    interpreter(program const& p, indexed_program const& indexed, plan const& what, Communicator& communicator,
                Backend const& backend, std::uint64_t seed = 0)
        : program_(p), indexed_(indexed), plan_(what), communicator_(communicator), backend_(backend), seed_(seed),
          layout_(indexed, what), across_(indexed, layout_, communicator),
          inside_(indexed, layout_, communicator.rank(), devices_of(communicator)) {
        if (count_ > 1) divide();
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
    [[nodiscard]] source_values<Scalar> place(source_values<Scalar> const& whole) const {
        source_values<Scalar> mine;
        for (auto const& [t, value] : whole) {
            auto const stored = stored_as_.find(t);
            bool const is_cut = stored != stored_as_.end() && stored->second.is_shard();
            mine.emplace(t, is_cut ? layout_.cut(t, stored->second, value, communicator_.rank()) : value);
        }
        return mine;
    }

    /// Random draws of the iterations that follow are of this seed.
    void reseed(std::uint64_t seed) { seed_ = seed; }

    /// Runs one iteration on placed sources. Returns the loss, which is this rank's summand if the plan ends with it
    /// partial, and the parameters' gradients. *Throws* `input_error` if a parameter is not as `place` leaves it.
    [[nodiscard]] iteration_result<Scalar> run(source_values<Scalar> const& sources) {
        for (auto const& [t, stored] : stored_as_)
            if (auto const found = sources.find(t);
                found == sources.end() || found->second.dims != layout_.held_shape(t, stored, communicator_.rank()))
                throw input_error("parameter '" + program_.tensor(t).name + "'",
                                  "is missing or not the part that this rank stores, expected what place() gives");
        parts_.assign(count_, {});
        gradients_.clear();
        result_ = {};
        for (auto const& s : plan_.steps) in_parts(s.step.once, [&] { forward(s, sources); });
        in_parts(false, [&] { seed_loss(); });
        for (std::size_t n = plan_.steps.size(); n-- > 0;) {
            in_parts(plan_.steps[n].step.once, [&] { backward(n); });
            if (auto const b = bucket_of_step_.find(n);
                b != bucket_of_step_.end() && buckets_[b->second].steps.back() == n)
                send(buckets_[b->second]);
        }
        for (auto s = plan_.steps.rbegin(); s != plan_.steps.rend(); ++s)
            if (auto const* read = s->instruction.template as<instruction::read>()) finish_gradient(*read);
        return std::move(result_);
    }

    /// Returns the whole loss of an iteration; this is a collective if the ranks have summands.
    [[nodiscard]] Scalar whole_loss(iteration_result<Scalar> const& result) {
        tensor_id const t = program_.loss();
        if (!values(t).contains(at(t, tensor_form::partial()))) return result.loss;
        return turned(t, tensor_form::partial(), tensor_form::replicated(), tensor(layout_.whole_shape(t), result.loss),
                      true, [&](tensor const& x) { return across_.reduced(t, x); })[0];
    }

    /// Returns the Euclidean norm of the gradients of all parameters; this is a collective.
    [[nodiscard]] Scalar gradient_norm(iteration_result<Scalar> const& result) {
        Scalar sum = 0;
        for (auto const& [t, gradient] : result.gradients) // each element on one rank
            if (gradient.first.is_shard() || communicator_.rank() == 0) sum += sum_of_squares(gradient.second).number();
        if (inside_.is_first()) communicator_.all_reduce(std::span<Scalar>(&sum, 1));
        return std::sqrt(inside_.broadcast(tensor(tensor_shape{}, sum))[0]);
    }

    /// Returns a parameter, as the ranks store it, whole on each of them; this is a collective if it is cut.
    [[nodiscard]] tensor gather(tensor_id t, tensor const& stored) {
        tensor_form const f = stored_as_.at(t);
        return f.is_shard() ? converted(t, f, tensor_form::replicated(), stored, uneven::padded) : stored;
    }

private:
    using key = std::pair<tensor_id, std::uint16_t>;
    static key at(tensor_id t, tensor_form f) { return {t, f.code()}; }

    // ---- micro-batches

    /// What a micro-batch has. The first one has what belongs to parameters, for all.
    struct part {
        std::map<key, tensor> values, cotangents;
        /// The statistics of rows, combined, or the rows that others sent, by operator and number.
        std::map<std::pair<operator_id, std::size_t>, tensor> statistics;
    };
    template <class Work>
    void in_parts(bool once, Work&& work) {
        for (part_ = 0; part_ < (once ? 1 : count_); ++part_) work();
        part_ = 0;
    }
    [[nodiscard]] part& part_of(tensor_id t) { return parts_[is_parameter(t) ? 0 : part_]; }
    [[nodiscard]] part const& part_of(tensor_id t) const { return parts_[is_parameter(t) ? 0 : part_]; }
    [[nodiscard]] auto& values(tensor_id t) { return part_of(t).values; }
    [[nodiscard]] auto const& values(tensor_id t) const { return part_of(t).values; }
    [[nodiscard]] auto& cotangents(tensor_id t) { return part_of(t).cotangents; }

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
    [[nodiscard]] tensor in_part(tensor_id t, tensor const& source) const {
        auto const number = count_ > 1 && !is_parameter(t) ? batch_->first_of(t) : no_factor;
        if (number == no_factor) return source;
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
    [[nodiscard]] tensor turned(tensor_id t, tensor_form from, tensor_form to, tensor const& mine, bool is_collective,
                                Turn&& turn) {
        if (!inside_.is_group()) return turn(mine);
        if (!is_collective) {
            auto const cuts_batch = [&](tensor_form f) {
                return f.is_shard() && f.factor() == indexed_.tensors[t].inside;
            };
            if (!inside_.is_cut(t)) return turn(mine);
            if (cuts_batch(from) == cuts_batch(to)) return inside_.part(t, to, turn(inside_.padded(t, from, mine)));
        }
        across_.count_as(t);
        auto const whole = inside_.gathered(t, from, mine);
        auto const result = inside_.is_first() ? turn(whole) : tensor(layout_.held_shape(t, to, communicator_.rank()));
        return inside_.is_cut(t) ? inside_.scattered(t, to, result) : inside_.broadcast(result);
    }
    [[nodiscard]] tensor converted(tensor_id t, tensor_form from, tensor_form to, tensor const& value, uneven how) {
        return turned(t, from, to, value, find_conversion(from, to)->forward.collective.has_value(),
                      [&](tensor const& x) { return across_.convert(t, from, to, x, how); });
    }
    /// A parameter's gradient stays on the first device.
    [[nodiscard]] tensor transposed(tensor_id t, tensor_form from, tensor_form to, tensor const& cotangent,
                                    uneven how) {
        auto const turn = [&](tensor const& x) { return across_.transpose(t, from, to, x, how); };
        if (is_parameter(t)) return turn(cotangent);
        return turned(t, to, from, cotangent, find_conversion(from, to)->backward.collective.has_value(), turn);
    }

    // ---- forward

    /// Returns how a step's shards move, which is padded if nothing is said.
    [[nodiscard]] static uneven way_of(transfer_list const& transfers) {
        return transfers.empty() ? uneven::padded : transfers[0].how.value_or(uneven::padded);
    }

    void forward(plan_step const& s, source_values<Scalar> const& sources) {
        s.instruction.visit([&](instruction::read const& i) { read(i, sources, s.step.update_transfers); },
                            [&](instruction::compute const& i) { compute(i); },
                            [&](instruction::reshard const& i) { values(i.tensor).erase(at(i.tensor, i.from)); },
                            [&](form_change const& i) {
                                values(i.tensor)[at(i.tensor, i.to)] =
                                    converted(i.tensor, i.from, i.to, values(i.tensor).at(at(i.tensor, i.from)),
                                              way_of(s.step.forward_transfers));
                            });
    }

    void read(instruction::read const& i, source_values<Scalar> const& sources, transfer_list const& transfers) {
        auto const stored = in_part(i.tensor, sources.at(i.tensor));
        auto& value = values(i.tensor)[at(i.tensor, i.to)];
        if (i.from != i.to) { // updated in shards: whole again for this iteration
            value = converted(i.tensor, i.from, i.to, stored, way_of(transfers));
            return;
        }
        bool const is_cut_now = i.to.is_shard() && !stored_as_.contains(i.tensor);
        tensor mine = is_cut_now                       ? layout_.cut(i.tensor, i.to, stored, communicator_.rank())
                      : i.to == tensor_form::partial() ? across_.scaled(stored)
                                                       : stored;
        value = inside_.part(i.tensor, i.to, std::move(mine));
    }

    void compute(instruction::compute const& i) {
        std::vector<tensor> brought;
        auto results =
            backend_.forward(call(i), whole_inside(i.op, program_.operands(i.op), i.operands, operands(i), brought));
        for (std::size_t k = 0; k < results.size(); ++k) {
            tensor_id const t = program_.results(i.op)[k];
            auto& value = values(t)[at(t, i.results[k])] = std::move(results[k]);
            if (!is_split_inside(i.op)) value = inside_.part(t, i.results[k], std::move(value));
            else if (!inside_.is_cut(t)) value = all_reduced_inside(t, std::move(value));
        }
    }

    [[nodiscard]] bool is_split_inside(operator_id o) const {
        return inside_.is_group() && indexed_.operators[o].inside_loop >= 0;
    }
    [[nodiscard]] tensor all_reduced_inside(tensor_id t, tensor value) {
        across_.count_as(t);
        return inside_.all_reduced(std::move(value));
    }

    /// Brings the group's tensors together for an operator that is not split inside; null stays null. `brought` keeps
    /// them.
    template <class Tensors>
    [[nodiscard]] std::vector<tensor const*> whole_inside(operator_id o, Tensors const& tensors, form_list const& forms,
                                                          std::vector<tensor const*> mine,
                                                          std::vector<tensor>& brought) {
        if (!inside_.is_group() || is_split_inside(o)) return mine;
        brought.reserve(mine.size());
        for (std::size_t k = 0; k < mine.size(); ++k) {
            if (!mine[k] || !inside_.is_cut(tensors[k])) continue;
            across_.count_as(tensors[k]);
            mine[k] = &brought.emplace_back(inside_.all_gathered(tensors[k], forms[k], *mine[k]));
        }
        return mine;
    }

    /// Calls `visit(tensor, form)` for the operands and results of a computation, until it returns true.
    template <class Visit>
    void find_tensor(instruction::compute const& i, Visit&& visit) const {
        for (std::size_t k = 0; k < i.operands.size(); ++k)
            if (visit(program_.operands(i.op)[k], i.operands[k])) return;
        for (std::size_t k = 0; k < i.results.size(); ++k)
            if (visit(program_.results(i.op)[k], i.results[k])) return;
    }

    [[nodiscard]] tensor_call<tensor> call(instruction::compute const& i) {
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
                combine(i, which, how, rows);
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
    void combine(instruction::compute const& i, std::size_t which, reduction how, tensor& rows) {
        auto const [known, is_new] = parts_[part_].statistics.try_emplace({i.op, which}, rows);
        if (is_new) {
            auto const& op = indexed_.operators[i.op];
            bool const is_alone = across_.is_alone(program_.results(i.op)[0]);
            bool const across = i.loop >= 0 && detail::has_statistics(op.loops[static_cast<std::size_t>(i.loop)]);
            bool const inside =
                is_split_inside(i.op) && detail::has_statistics(op.loops[static_cast<std::size_t>(op.inside_loop)]);
            tensor& mine = known->second;
            auto const reduce_across = [&](tensor& all) {
                if (!is_alone && inside_.is_first()) communicator_.all_reduce(all.flat(), how);
            };
            if (inside) inside_.all_reduce(mine.flat(), how);
            if (across && is_split_inside(i.op) && !inside) {
                std::vector<std::size_t> counts;
                find_tensor(i, [&](tensor_id t, tensor_form f) {
                    if (inside_.is_cut(t))
                        counts = inside_.counts_like(t, f, static_cast<std::size_t>(mine.elements()));
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
        rows = known->second;
    }

    [[nodiscard]] std::vector<tensor const*> operands(instruction::compute const& i) const {
        std::vector<tensor const*> result;
        for (std::size_t k = 0; k < i.operands.size(); ++k)
            result.push_back(&values(program_.operands(i.op)[k]).at(at(program_.operands(i.op)[k], i.operands[k])));
        return result;
    }

    // ---- backward

    void seed_loss() {
        tensor_id const t = program_.loss();
        tensor_form const f =
            values(t).contains(at(t, tensor_form::partial())) ? tensor_form::partial() : tensor_form::mirrored();
        result_.loss += values(t).at(at(t, f))[0];
        cotangents(t)[at(t, f)] = tensor(layout_.whole_shape(t), Scalar{1});
    }

    void accumulate(tensor_id t, tensor_form f, tensor value) {
        auto const [slot, is_new] = cotangents(t).try_emplace(at(t, f));
        if (is_new) slot->second = std::move(value);
        else slot->second += value;
    }

    void backward(std::size_t n) {
        auto const& s = plan_.steps[n];
        s.instruction.visit(
            [&](instruction::read const& i) { reduce_gradient(n, i); },
            [&](instruction::compute const& i) { backward_compute(i, s.step.deferred_transfers); },
            [&](instruction::reshard const& i) {
                values(i.tensor)[at(i.tensor, i.from)] = converted(
                    i.tensor, i.to, i.from, values(i.tensor).at(at(i.tensor, i.to)), way_of(s.step.backward_transfers));
            },
            [&](form_change const& i) {
                auto const found = cotangents(i.tensor).find(at(i.tensor, i.to));
                if (found == cotangents(i.tensor).end() || bucket_of_step_.contains(n)) return;
                auto const& transfers =
                    s.step.deferred_transfers.empty() ? s.step.backward_transfers : s.step.deferred_transfers;
                accumulate(i.tensor, i.from, transposed(i.tensor, i.from, i.to, found->second, way_of(transfers)));
            });
    }

    void backward_compute(instruction::compute const& i, transfer_list const& deferred) {
        auto const results_of = program_.results(i.op);
        std::vector<tensor const*> results, cotangents;
        bool any = false;
        for (std::size_t k = 0; k < i.results.size(); ++k) {
            auto const place = at(results_of[k], i.results[k]);
            results.push_back(&values(results_of[k]).at(place));
            auto const found = this->cotangents(results_of[k]).find(place);
            cotangents.push_back(found == this->cotangents(results_of[k]).end() ? nullptr : &found->second);
            any |= cotangents.back() != nullptr;
        }
        if (algorithm::none_of(results_of, [&](tensor_id t) { return indexed_.tensors[t].has_cotangent; }))
            return add_zeros(i);
        std::vector<tensor> zeros;
        zeros.reserve(cotangents.size());
        // A group exchanges what has a cotangent. If the loss depends on whole numbers alone, all devices wait for the
        // derivatives, which are zero.
        for (std::size_t k = 0; k < cotangents.size() && (inside_.is_group() || !any); ++k)
            if (!cotangents[k] && indexed_.tensors[results_of[k]].has_cotangent)
                cotangents[k] = &zeros.emplace_back(inside_.held_shape(results_of[k], i.results[k]));
        std::vector<tensor> brought_operands, brought_results, brought_cotangents;
        auto gradients = backend_.backward(
            call(i), whole_inside(i.op, program_.operands(i.op), i.operands, operands(i), brought_operands),
            whole_inside(i.op, results_of, i.results, results, brought_results),
            whole_inside(i.op, results_of, i.results, cotangents, brought_cotangents));
        for (std::size_t k = 0; k < gradients.size(); ++k) {
            tensor_id const t = program_.operands(i.op)[k];
            bool const from_factors = i.loop >= 0 && i.operands[k] == tensor_form::mirrored();
            if (gradients[k] && indexed_.tensors[t].has_cotangent && !from_factors)
                add_gradient(i, k, std::move(*gradients[k]));
        }
        if (gathers_factors(i)) multiply_factors(i, deferred, cotangents);
    }

    /// Adds the cotangents that an operator of truth values or whole numbers gives its operands: they are zero, but
    /// other devices wait for them.
    void add_zeros(instruction::compute const& i) {
        for (std::size_t k = 0; k < i.operands.size(); ++k)
            if (tensor_id const t = program_.operands(i.op)[k]; has_cotangent(t))
                accumulate(t, i.operands[k], tensor(inside_.held_shape(t, i.operands[k])));
    }

    /// Adds the cotangent that an operator gives an operand. In a group that splits the operator, this is this device's
    /// summand if the operand is not cut.
    void add_gradient(instruction::compute const& i, std::size_t k, tensor gradient) {
        tensor_id const t = program_.operands(i.op)[k];
        if (!is_split_inside(i.op)) gradient = inside_.part(t, i.operands[k], std::move(gradient));
        else if (!inside_.is_cut(t)) {
            across_.count_as(t);
            gradient =
                is_parameter(t) ? inside_.reduced(std::move(gradient)) : inside_.all_reduced(std::move(gradient));
        }
        if (has_cotangent(t)) accumulate(t, i.operands[k], std::move(gradient));
    }

    /// Computes the whole gradients of a split operator's mirrored parameters from its gathered operands and
    /// cotangents; in a group, on its first device. No kernel may read the whole results.
    void multiply_factors(instruction::compute const& i, transfer_list const& transfers,
                          std::vector<tensor const*> const& mine) {
        auto next = transfers.begin();
        auto const end = transfers.end();
        std::vector<tensor> brought;
        brought.reserve(i.operands.size() + i.results.size());
        auto const gather = [&](tensor_id t, tensor_form f, tensor const& held) {
            uneven const how = f.is_shard() && next != end ? next++->how.value_or(uneven::padded) : uneven::padded;
            across_.count_as(t);
            tensor whole = inside_.gathered(t, f, held);
            if (f.is_shard() && inside_.is_first()) whole = across_.gathered(t, f, whole, how);
            return &brought.emplace_back(std::move(whole));
        };
        auto whole = operands(i);
        for (std::size_t k = 0; k < whole.size(); ++k)
            if (tensor_id const t = program_.operands(i.op)[k]; i.operands[k].is_shard() || inside_.is_cut(t))
                whole[k] = gather(t, i.operands[k], *whole[k]);
        std::vector<tensor const*> cotangents(mine.size()), results(mine.size());
        for (std::size_t k = 0; k < mine.size(); ++k) {
            tensor_id const t = program_.results(i.op)[k];
            if (!indexed_.tensors[t].has_cotangent) continue;
            tensor const zero(mine[k] ? tensor_shape{0} : inside_.held_shape(t, i.results[k]));
            cotangents[k] = gather(t, i.results[k], mine[k] ? *mine[k] : zero);
        }
        if (!inside_.is_first()) return;
        auto gradients = backend_.backward(part_call(i.op), whole, results, cotangents);
        for (std::size_t k = 0; k < gradients.size(); ++k)
            if (gradients[k] && i.operands[k] == tensor_form::mirrored())
                accumulate(program_.operands(i.op)[k], i.operands[k], std::move(*gradients[k]));
    }

    // ---- gradients

    /// Returns this rank's gradient of a step's parameter in the form in which it was used; it is zero if nothing was
    /// differentiated with respect to it.
    [[nodiscard]] tensor take_cotangent(form_change const& i) {
        auto taken = cotangents(i.tensor).extract(at(i.tensor, i.to));
        return taken ? std::move(taken.mapped()) : tensor(layout_.held_shape(i.tensor, i.to, communicator_.rank()));
    }
    /// Reduces the gradient of a parameter that is read whole, unless its bucket does.
    void reduce_gradient(std::size_t n, instruction::read const& i) {
        if (!has_cotangent(i.tensor) || i.to != tensor_form::replicated() || bucket_of_step_.contains(n)) return;
        gradients_[i.tensor] = i.from != i.to ? across_.transpose(i.tensor, i.from, i.to, take_cotangent(i),
                                                                  way_of(plan_.steps[n].step.deferred_transfers))
                                              : across_.reduced(i.tensor, take_cotangent(i));
    }
    /// Reduces the gradients of a bucket by one collective.
    void send(gradient_bucket const& bucket) {
        if (!inside_.is_first()) return;
        std::vector<tensor_id> tensors;
        std::vector<tensor_form> forms;
        std::vector<tensor> values;
        for (auto n : bucket.steps) {
            auto const& i = *plan_.steps[n].instruction.change();
            tensors.push_back(i.tensor);
            forms.push_back(i.from);
            values.push_back(take_cotangent(i));
        }
        auto const& transfers = plan_.steps[bucket.steps.front()].step.deferred_transfers;
        values = transfers[0].kind == collective::all_reduce
                     ? across_.reduced_together(tensors, std::move(values))
                     : across_.scattered_together(tensors, forms, std::move(values), way_of(transfers));
        for (std::size_t k = 0; k < values.size(); ++k) {
            auto const& i = plan_.steps[bucket.steps[k]].instruction;
            auto const& [t, from, to] = *i.change();
            if (i.template is<instruction::read>()) gradients_[t] = std::move(values[k]);
            else accumulate(t, from, std::move(values[k]));
        }
    }
    void finish_gradient(instruction::read const& i) {
        if (!indexed_.tensors[i.tensor].has_cotangent) return;
        tensor_form const stored = stored_as_.at(i.tensor);
        tensor gradient(layout_.held_shape(i.tensor, stored, communicator_.rank()));
        if (auto const reduced = gradients_.find(i.tensor); reduced != gradients_.end())
            gradient = std::move(reduced->second);
        else if (inside_.is_first())
            gradient = i.from != i.to ? across_.transpose(i.tensor, i.from, i.to, take_cotangent(i), uneven::padded)
                                      : take_cotangent(i);
        across_.count_as(i.tensor);
        result_.gradients.insert_or_assign(i.tensor, std::pair(stored, inside_.broadcast(std::move(gradient))));
    }

    program const& program_;
    indexed_program const& indexed_;
    plan const& plan_;
    Communicator& communicator_;
    Backend const& backend_;
    std::uint64_t seed_;
    detail::shard_layout layout_;
    detail::tensor_exchange<Scalar, Communicator> across_;
    detail::inside_exchange<tensor, inner> inside_;
    /// The form in which a rank keeps each parameter: a shard, or replicated.
    std::map<tensor_id, tensor_form> stored_as_;
    std::size_t count_ = static_cast<std::size_t>(plan_.provenance.training.micro_batches), part_ = 0;
    /// The buckets of several gradients, by number and by step.
    std::vector<gradient_bucket> buckets_;
    std::map<std::size_t, std::size_t> bucket_of_step_;
    /// The reduced gradients of parameters that are read whole.
    std::map<tensor_id, tensor> gradients_;
    /// With several micro-batches, the whole program and its batch.
    std::optional<indexed_program> whole_;
    std::optional<factor_set> batch_;
    std::vector<part> parts_;
    iteration_result<Scalar> result_;
};

} // namespace heddle
