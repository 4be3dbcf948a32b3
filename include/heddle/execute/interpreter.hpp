// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs a plan on one rank: forward, then backward by transposing the distributed program.
///
/// The cotangent of a tensor held in some form is held in the dual form, so every instruction's adjoint
/// follows from its two forms.
#pragma once

#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/shard_layout.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Executes plans on one rank of a communicator.
///
/// *Preconditions.* The plan is one of the program (`verify` accepts it), for as many devices as there are
/// ranks; every rank runs the same plan. Keeps references to all it is given.
template <class Scalar, communicator_of<Scalar> Communicator, kernel_backend<Scalar> Backend>
class interpreter {
public:
    using tensor = dense_tensor<Scalar>;

    interpreter(program const& p, indexed_program const& indexed, plan const& what, Communicator& communicator, Backend const& backend, std::uint64_t seed = 0)
        : program_(p), indexed_(indexed), plan_(what), communicator_(communicator), backend_(backend), seed_(seed), layout_(indexed, what) {
        for (auto const& s : what.steps)
            if (s.instruction.what == instruction::kind::read && indexed.tensors[s.instruction.tensor].is_parameter())
                stored_as_[s.instruction.tensor] = s.instruction.from.is_shard() ? s.instruction.from : form::replicated();
    }

    /// Whole sources as this rank keeps them between iterations: parameters in the form they are stored in,
    /// the rest whole. For gradients too, which are of the same form.
    [[nodiscard]] source_values<Scalar> place(source_values<Scalar> const& whole) const {
        source_values<Scalar> mine;
        for (auto const& [t, value] : whole) {
            auto const stored = stored_as_.find(t);
            bool const is_cut = stored != stored_as_.end() && stored->second.is_shard();
            mine.emplace(t, is_cut ? layout_.cut(t, stored->second, value, communicator_.rank()) : value);
        }
        return mine;
    }

    /// One iteration on placed sources: the loss, if the plan ends with it partial this rank's summand, and the parameters'
    /// gradients. Throws `input_error` if a parameter is not as `place` leaves it.
    [[nodiscard]] iteration_result<Scalar> run(source_values<Scalar> const& sources) {
        for (auto const& [t, stored] : stored_as_)
            if (auto const found = sources.find(t); found == sources.end() || found->second.dims != layout_.held_shape(t, stored, communicator_.rank()))
                throw input_error("parameter '" + program_.tensor(t).name + "'", "is missing or not the part that this rank stores, expected what place() gives");
        values_.clear();
        cotangents_.clear();
        statistics_.clear();
        result_ = {};
        for (auto const& s : plan_.steps) forward(s, sources);
        seed_loss();
        for (auto s = plan_.steps.rbegin(); s != plan_.steps.rend(); ++s) backward(*s);
        return std::move(result_);
    }

    /// The whole loss of an iteration; a collective where the ranks have summands.
    [[nodiscard]] Scalar whole_loss(iteration_result<Scalar> const& result) {
        tensor_id const t = program_.loss();
        return values_.contains(at(t, form::partial())) ? reduced(t, tensor(whole_shape(t), result.loss))[0] : result.loss;
    }

    /// A parameter as the ranks store it, whole again on each of them; a collective where it is cut.
    [[nodiscard]] tensor gather(tensor_id t, tensor const& stored) {
        form const f = stored_as_.at(t);
        return f.is_shard() ? gathered(t, f, stored, uneven::padded) : stored;
    }

private:
    using key = std::pair<tensor_id, std::uint16_t>;
    static key at(tensor_id t, form f) { return {t, f.code()}; }

    // ---- collectives on tensors; shards of a factor travel one after the other

    /// Whether there is nobody to exchange anything with; otherwise what follows is counted as of this tensor's elements.
    [[nodiscard]] bool is_alone(tensor_id t) {
        if constexpr (requires { communicator_.charge_elements_as(std::size_t{}); })
            communicator_.charge_elements_as(static_cast<std::size_t>(element_size(program_.tensor(t).type)));
        return communicator_.size() == 1;
    }
    [[nodiscard]] shape const& whole_shape(tensor_id t) const { return layout_.whole_shape(t); }
    [[nodiscard]] factor const& factor_of(tensor_id t, form f) const { return layout_.factor_of(t, f); }
    [[nodiscard]] tensor cut(tensor_id t, form f, tensor const& whole) const { return layout_.cut(t, f, whole, communicator_.rank()); }

    [[nodiscard]] tensor reduced(tensor_id t, tensor value) {
        if (!is_alone(t)) communicator_.all_reduce(std::span<Scalar>(value.data));
        return value;
    }
    [[nodiscard]] tensor gathered(tensor_id t, form f, tensor const& part, uneven how) {
        if (is_alone(t)) return part;
        auto const counts = layout_.places(t, f);
        auto const sizes = layout_.shard_sizes(t, f);
        tensor flat(shape{count_elements(whole_shape(t))});
        communicator_.all_gather_v(std::span<Scalar const>(part.data), std::span<Scalar>(flat.data), sizes, how);
        tensor whole(whole_shape(t));
        auto from = flat.data.begin();
        for (std::size_t r = 0; r < counts.size(); ++r) {
            auto const next = from + static_cast<std::ptrdiff_t>(sizes[r]);
            tensor const piece(part_shape(whole.dims, factor_of(t, f), counts[r]), std::vector<Scalar>(from, next));
            put(whole, factor_of(t, f), layout_.begin_of(counts, r), counts[r], piece);
            from = next;
        }
        return whole;
    }
    [[nodiscard]] tensor scattered(tensor_id t, form f, tensor const& whole, uneven how) {
        if (is_alone(t)) return whole;
        auto const counts = layout_.places(t, f);
        auto const sizes = layout_.shard_sizes(t, f);
        std::vector<Scalar> flat;
        for (std::size_t r = 0; r < counts.size(); ++r) {
            auto const piece = take(whole, factor_of(t, f), layout_.begin_of(counts, r), counts[r]);
            flat.insert(flat.end(), piece.data.begin(), piece.data.end());
        }
        tensor part(part_shape(whole_shape(t), factor_of(t, f), counts[communicator_.rank()]));
        communicator_.reduce_scatter_v(std::span<Scalar const>(flat), std::span<Scalar>(part.data), sizes, how);
        return part;
    }
    /// A factor of a tensor of which `count` places of another factor are held.
    [[nodiscard]] static factor within(factor f, factor const& other, extent count) {
        if (other.dimension == f.dimension && other.stride < f.stride) f.stride = f.stride / other.extent * count;
        return f;
    }
    [[nodiscard]] tensor exchanged(tensor_id t, form from, form to, tensor const& part) {
        if (is_alone(t)) return part;
        auto const rank = communicator_.rank();
        auto const &f = factor_of(t, from), &g = factor_of(t, to);
        auto const before = layout_.places(t, from), after = layout_.places(t, to);
        if (is_same_place(f, g)) return redistributed(t, f, before, after, part);
        std::vector<std::size_t> send_sizes, receive_sizes;
        std::vector<Scalar> send;
        for (std::size_t r = 0; r < before.size(); ++r) {
            auto const piece = part.data.empty() ? tensor(shape{0}) : take(part, within(g, f, before[rank]), layout_.begin_of(after, r), after[r]);
            send_sizes.push_back(piece.data.size());
            send.insert(send.end(), piece.data.begin(), piece.data.end());
            auto const theirs = part_shape(whole_shape(t), f, before[r]);
            bool const nothing = before[r] == 0;
            receive_sizes.push_back(nothing ? 0 : static_cast<std::size_t>(count_elements(part_shape(theirs, within(g, f, before[r]), after[rank]))));
        }
        tensor result(part_shape(whole_shape(t), g, after[rank]));
        std::vector<Scalar> receive(result.data.size());
        communicator_.all_to_all_v(std::span<Scalar const>(send), send_sizes, std::span<Scalar>(receive), receive_sizes);
        auto at = receive.begin();
        for (std::size_t r = 0; r < before.size(); ++r) {
            auto const local = within(f, g, after[rank]);
            auto const next = at + static_cast<std::ptrdiff_t>(receive_sizes[r]);
            if (at != next) put(result, local, layout_.begin_of(before, r), before[r], tensor(part_shape(result.dims, local, before[r]), std::vector<Scalar>(at, next)));
            at = next;
        }
        return result;
    }
    /// The same factor, other places: each rank sends what others have of its part from now on.
    [[nodiscard]] tensor redistributed(tensor_id t, factor const& f, std::vector<extent> const& before, std::vector<extent> const& after, tensor const& part) {
        if (before == after) return part;
        auto const rank = communicator_.rank();
        struct range { extent begin, count; };
        auto mine = f, now = f; // as they are in this rank's parts
        mine.extent = before[rank];
        now.extent = after[rank];
        // What rank r has before that rank s has after.
        auto const common = [&](std::size_t r, std::size_t s) {
            extent const from = layout_.begin_of(before, r), to = layout_.begin_of(after, s);
            extent const begin = std::max(from, to), end = std::min(from + before[r], to + after[s]);
            return range{begin, std::max<extent>(0, end - begin)};
        };
        std::vector<std::size_t> send_sizes, receive_sizes;
        std::vector<Scalar> send;
        for (std::size_t r = 0; r < before.size(); ++r) {
            auto const given = common(rank, r);
            if (given.count > 0) {
                auto const piece = take(part, mine, given.begin - layout_.begin_of(before, rank), given.count);
                send.insert(send.end(), piece.data.begin(), piece.data.end());
            }
            send_sizes.push_back(send.size());
            receive_sizes.push_back(static_cast<std::size_t>(count_elements(part_shape(whole_shape(t), f, common(r, rank).count))));
        }
        std::adjacent_difference(send_sizes.begin(), send_sizes.end(), send_sizes.begin());
        tensor result(part_shape(whole_shape(t), f, after[rank]));
        std::vector<Scalar> receive(result.data.size());
        communicator_.all_to_all_v(std::span<Scalar const>(send), send_sizes, std::span<Scalar>(receive), receive_sizes);
        auto at = receive.begin();
        for (std::size_t r = 0; r < before.size(); ++r) {
            auto const got = common(r, rank);
            auto const next = at + static_cast<std::ptrdiff_t>(receive_sizes[r]);
            if (at != next) put(result, now, got.begin - layout_.begin_of(after, rank), got.count, tensor(part_shape(result.dims, now, got.count), std::vector<Scalar>(at, next)));
            at = next;
        }
        return result;
    }
    [[nodiscard]] tensor scaled(tensor t) const {
        t *= Scalar{1} / static_cast<Scalar>(communicator_.size());
        return t;
    }

    // ---- forward

    /// How a step's shards move; padded where nothing is said.
    [[nodiscard]] static uneven way_of(transfer_list const& transfers) { return transfers.empty() ? uneven::padded : transfers[0].how.value_or(uneven::padded); }

    void forward(plan_step const& s, source_values<Scalar> const& sources) {
        auto const& i = s.instruction;
        switch (i.what) {
        case instruction::kind::read: {
            auto const& stored = sources.at(i.tensor);
            if (i.from != i.to) { // updated in shards: whole again for this iteration
                values_[at(i.tensor, i.to)] = gathered(i.tensor, i.from, stored, way_of(s.step.update_transfers));
                break;
            }
            bool const is_cut_now = i.to.is_shard() && !stored_as_.contains(i.tensor);
            values_[at(i.tensor, i.to)] = is_cut_now ? cut(i.tensor, i.to, stored) : i.to == form::partial() ? scaled(stored) : stored;
            break;
        }
        case instruction::kind::unshard:
        case instruction::kind::convert: values_[at(i.tensor, i.to)] = convert(i.tensor, i.from, i.to, values_.at(at(i.tensor, i.from)), way_of(s.step.forward_transfers)); break;
        case instruction::kind::compute: {
            auto results = backend_.forward(call(i), operands(i));
            for (std::size_t k = 0; k < results.size(); ++k) values_[at(program_.results(i.op)[k], i.results[k])] = std::move(results[k]);
            break;
        }
        case instruction::kind::reshard: values_.erase(at(i.tensor, i.from)); break;
        }
    }

    [[nodiscard]] tensor convert(tensor_id t, form from, form to, tensor const& value, uneven how) {
        if (to == form::partial()) return scaled(value);
        if (from == form::partial()) return to.is_shard() ? scattered(t, to, value, how) : reduced(t, value);
        if (from.is_shard()) return to.is_shard() ? exchanged(t, from, to, value) : gathered(t, from, value, how);
        return to.is_shard() ? cut(t, to, value) : value;
    }

    [[nodiscard]] kernel_call call(instruction const& i) {
        if (i.loop < 0) return whole_call(program_, i.op, seed_);
        auto const& loop = indexed_.operators[i.op].loops[static_cast<std::size_t>(i.loop)];
        auto const find_part = [&]() -> std::pair<extent, extent> {
            auto const part = [&](tensor_id t, form f) {
                auto const counts = layout_.places(t, f);
                return std::pair(layout_.begin_of(counts, communicator_.rank()), counts[communicator_.rank()]);
            };
            for (std::size_t k = 0; k < i.operands.size(); ++k)
                if (i.operands[k].is_shard()) return part(program_.operands(i.op)[k], i.operands[k]);
            for (std::size_t k = 0; k < i.results.size(); ++k)
                if (i.results[k].is_shard()) return part(program_.results(i.op)[k], i.results[k]);
            return {0, loop.extent};
        };
        auto const [begin, count] = find_part();
        auto result = split_call(program_, indexed_, i.op, loop, begin, count, seed_);
        if (loop.forward_statistics + loop.backward_statistics > 0)
            result.combine = [this, op = i.op](std::size_t which, reduction how, std::span<double> rows) { combine(op, which, how, rows); };
        return result;
    }

    void combine(operator_id op, std::size_t which, reduction how, std::span<double> rows) {
        auto const [known, is_new] = statistics_.try_emplace({op, which}, rows.begin(), rows.end());
        if (is_new && !is_alone(program_.results(op)[0])) communicator_.all_reduce(std::span<Scalar>(known->second), how);
        std::ranges::copy(known->second, rows.begin());
    }

    [[nodiscard]] std::vector<tensor const*> operands(instruction const& i) const {
        std::vector<tensor const*> result;
        for (std::size_t k = 0; k < i.operands.size(); ++k) result.push_back(&values_.at(at(program_.operands(i.op)[k], i.operands[k])));
        return result;
    }

    // ---- backward

    void seed_loss() {
        tensor_id const t = program_.loss();
        form const f = values_.contains(at(t, form::partial())) ? form::partial() : form::mirrored();
        result_.loss = values_.at(at(t, f))[0];
        cotangents_[at(t, f)] = tensor(whole_shape(t), Scalar{1});
    }

    void accumulate(tensor_id t, form f, tensor value) {
        auto const [slot, is_new] = cotangents_.try_emplace(at(t, f));
        if (is_new) slot->second = std::move(value);
        else slot->second += value;
    }

    void backward(plan_step const& s) {
        auto const& i = s.instruction;
        switch (i.what) {
        case instruction::kind::read: return finish_gradient(i, way_of(s.step.deferred_transfers));
        case instruction::kind::reshard: values_[at(i.tensor, i.from)] = gathered(i.tensor, i.to, values_.at(at(i.tensor, i.to)), way_of(s.step.backward_transfers)); return;
        case instruction::kind::unshard:
        case instruction::kind::convert:
            if (auto const found = cotangents_.find(at(i.tensor, i.to)); found != cotangents_.end())
                accumulate(i.tensor, i.from, transpose(i.tensor, i.from, i.to, found->second, way_of(s.step.deferred_transfers.empty() ? s.step.backward_transfers : s.step.deferred_transfers)));
            return;
        case instruction::kind::compute: break;
        }
        std::vector<tensor const*> results, cotangents;
        bool any = false;
        for (std::size_t k = 0; k < i.results.size(); ++k) {
            auto const place = at(program_.results(i.op)[k], i.results[k]);
            results.push_back(&values_.at(place));
            auto const found = cotangents_.find(place);
            cotangents.push_back(found == cotangents_.end() ? nullptr : &found->second);
            any |= cotangents.back() != nullptr;
        }
        if (!any) return;
        auto gradients = backend_.backward(call(i), operands(i), results, cotangents);
        for (std::size_t k = 0; k < gradients.size(); ++k) {
            tensor_id const t = program_.operands(i.op)[k];
            bool const from_factors = i.loop >= 0 && i.operands[k] == form::mirrored();
            if (gradients[k] && indexed_.tensors[t].has_cotangent && !from_factors) accumulate(t, i.operands[k], std::move(*gradients[k]));
        }
        if (gathers_factors(i)) multiply_factors(s, cotangents);
    }

    /// The whole gradients of a split operator's mirrored parameters, from its gathered operands and cotangents. Of the whole
    /// results no kernel may read anything.
    void multiply_factors(plan_step const& s, std::vector<tensor const*> const& mine) {
        auto const& i = s.instruction;
        auto next = s.step.deferred_transfers.begin();
        auto const end = s.step.deferred_transfers.end();
        auto const gather = [&](tensor_id t, form f, tensor const& part) { return gathered(t, f, part, next == end ? uneven::padded : next++->how.value_or(uneven::padded)); };
        std::vector<tensor> brought;
        brought.reserve(i.operands.size() + i.results.size());
        auto whole = operands(i);
        for (std::size_t k = 0; k < whole.size(); ++k)
            if (i.operands[k].is_shard()) whole[k] = &brought.emplace_back(gather(program_.operands(i.op)[k], i.operands[k], *whole[k]));
        std::vector<tensor const*> cotangents(mine.size()), results(mine.size());
        for (std::size_t k = 0; k < mine.size(); ++k) {
            tensor_id const t = program_.results(i.op)[k];
            if (!indexed_.tensors[t].has_cotangent) continue;
            tensor const zero(mine[k] ? shape{0} : layout_.held_shape(t, i.results[k], communicator_.rank()));
            cotangents[k] = &brought.emplace_back(gather(t, i.results[k], mine[k] ? *mine[k] : zero));
        }
        auto gradients = backend_.backward(whole_call(program_, i.op, seed_), whole, results, cotangents);
        for (std::size_t k = 0; k < gradients.size(); ++k)
            if (gradients[k] && i.operands[k] == form::mirrored()) accumulate(program_.operands(i.op)[k], i.operands[k], std::move(*gradients[k]));
    }

    /// The adjoint of a conversion, on cotangents in the dual forms.
    [[nodiscard]] tensor transpose(tensor_id t, form from, form to, tensor const& cotangent, uneven how) {
        if (from.is_shard()) {
            if (to.is_shard()) return exchanged(t, to, from, cotangent);
            return to == form::replicated() ? scattered(t, from, cotangent, how) : cut(t, from, cotangent);
        }
        if (to.is_shard()) return from == form::replicated() ? layout_.padded(t, to, cotangent, communicator_.rank()) : gathered(t, to, cotangent, how);
        // Between whole forms: summands where the value is replicated, the whole cotangent elsewhere.
        if (from == form::replicated()) return scaled(cotangent);
        return to == form::replicated() ? reduced(t, cotangent) : cotangent;
    }

    void finish_gradient(instruction const& i, uneven how) {
        if (!indexed_.tensors[i.tensor].has_cotangent) return;
        auto const found = cotangents_.find(at(i.tensor, i.to));
        form const stored = stored_as_.at(i.tensor);
        tensor gradient = found != cotangents_.end() ? std::move(found->second) : tensor(layout_.held_shape(i.tensor, i.to, communicator_.rank()));
        if (i.from != i.to) gradient = transpose(i.tensor, i.from, i.to, gradient, how);
        else if (i.to == form::replicated()) gradient = reduced(i.tensor, std::move(gradient));
        result_.gradients.insert_or_assign(i.tensor, std::pair(stored, std::move(gradient)));
    }

    program const& program_;
    indexed_program const& indexed_;
    plan const& plan_;
    Communicator& communicator_;
    Backend const& backend_;
    std::uint64_t seed_;
    detail::shard_layout layout_;
    /// The form a rank keeps each parameter in: a shard, or replicated.
    std::map<tensor_id, form> stored_as_;
    std::map<key, tensor> values_, cotangents_;
    /// By operator and number: its rows' statistics, combined.
    std::map<std::pair<operator_id, std::size_t>, std::vector<Scalar>> statistics_;
    iteration_result<Scalar> result_;
};

} // namespace heddle
