// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The calls of operators on what one rank has of one micro-batch.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/rank_program.hpp>
#include <heddle/execute/detail/rank_tensors.hpp>
#include <heddle/execute/detail/row_exchange.hpp>
#include <heddle/execute/detail/run_operator.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/program/program.hpp>
#include <heddle/theory/batch.hpp>
#include <heddle/theory/instruction.hpp>
#include <heddle/theory/product_form.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Makes the calls of a rank's operators in a micro-batch; they refer to it, and to what it is made of.
template <rank_tensor Tensor, ranks_of_plan<typename Tensor::scalar_type> Ranks>
class operator_calls {
public:
    using tensors = rank_tensors<Tensor, Ranks>;
    using state = micro_batch_state<Tensor, typename tensors::exchange::request, product_form>;
    using wide = wide_of<Tensor>;

    /// `whole` is the program of the whole batch, and `range` the micro-batch's first place and the number of its
    /// places.
    operator_calls(program const& p, indexed_program const& whole, rank_program const& what,
                   std::pair<extent, extent> range, tensors& here, state& mine)
        : program_(p), whole_(whole), split_(what.parts > 1 ? &what.split : nullptr), range_(range), here_(here),
          mine_(mine) {}

    /// Returns the call that runs a step on what this rank has.
    [[nodiscard]] tensor_call<Tensor> of(plan_step const& s) const {
        operator_id const o = s.computation().op;
        tensor_call<Tensor> result = whole_call(program_, o);
        std::vector<axis_number> with_statistics;
        for (axis_number a = 0; a < s.axis_count(); ++a) {
            auto const* const loop = loop_of(s, a);
            if (!loop) continue;
            if (loop->exchanges()) {
                exchange_rows(result, s, a);
                continue;
            }
            auto const [begin, count] = range(s, a, here_.layout.here());
            split_call(result, program_, here_.indexed, o, *loop, begin, count);
            if (has_statistics(*loop)) with_statistics.push_back(a);
        }
        bool const is_inside = here_.is_split_inside(o) && has_statistics(inside_loop(o));
        if (here_.is_split_inside(o))
            find_tensor(s, [&](tensor_id t, product_form const& f) {
                if (!here_.inside.is_cut(t)) return false;
                auto const [begin, count] = here_.inside.range(t, f[0]);
                split_call(result, program_, here_.indexed, o, inside_loop(o), begin, count);
                return true;
            });
        place_in_batch(result, o);
        if (is_inside || !with_statistics.empty())
            result.combine = [all = *this, &s, o, with_statistics](std::size_t which, reduction how, wide& rows) {
                combine_once(all.mine_, o, which, rows,
                             [&](wide& mine) { all.combine(s, with_statistics, how, mine); });
            };
        return result;
    }

    /// Returns the call that runs an operator on what is held once factors are gathered along some axes: all of the
    /// batch's part on these; and of a loop that another axis cuts too, the places of all devices of their lines.
    [[nodiscard]] tensor_call<Tensor> of_factors(plan_step const& s, std::vector<axis_number> const& axes,
                                                 std::uint64_t seed) const {
        operator_id const o = s.computation().op;
        tensor_call<Tensor> result = whole_call(program_, o, seed);
        auto const& layout = here_.layout;
        auto const is_gathered = [&](axis_number a) { return algorithm::find(axes, a) != axes.end(); };
        for (axis_number a = 0; a < s.axis_count(); ++a) {
            auto const* const loop = loop_of(s, a);
            if (!loop || is_gathered(a)) continue;
            std::vector<kernel_call> parts;
            for (std::size_t device = 0; device < layout.mesh().device_count(); ++device) {
                auto const place = layout.mesh().place_of(device);
                bool is_in_lines = true;
                for (axis_number b = 0; b < s.axis_count(); ++b)
                    is_in_lines &= place[b] == layout.here()[b] || (is_gathered(b) && loop_of(s, b) == loop);
                if (!is_in_lines) continue;
                auto const [begin, count] = range(s, a, place);
                parts.push_back(split_call(program_, here_.indexed, o, *loop, begin, count));
            }
            restrict_to_any(result, parts);
        }
        place_in_batch(result, o);
        return result;
    }

private:
    /// Turns what a call holds of this micro-batch into what it holds of the batch.
    void place_in_batch(kernel_call& call, operator_id o) const {
        auto const number = split_ ? split_->computations[o].loop : std::int16_t{-1};
        if (number < 0) return;
        auto const& loop = whole_.operators[o].loops[static_cast<std::size_t>(number)];
        auto part = whole_call(program_, o);
        split_call(part, program_, whole_, o, loop, range_.first, range_.second);
        auto const place = [&](std::span<tensor_id const> of, std::vector<held_part>& mine,
                               std::vector<held_part>& of_part) {
            for (std::size_t k = 0; k < mine.size(); ++k)
                for (std::size_t d = 0; d < mine[k].size(); ++d) {
                    auto &held = mine[k][d], &all = of_part[k][d];
                    if (!all) continue;
                    if (!held) held = std::move(all);
                    // A source that is whole in every micro-batch has the places of the batch.
                    else if (here_.indexed.tensors[of[k]].info.shape[d] == whole_.tensors[of[k]].info.shape[d])
                        restrict_to(held, std::move(*all));
                    else
                        for (auto& at : *held) at = (*all)[static_cast<std::size_t>(at)];
                }
        };
        place(program_.operands(o), call.operands, part.operands);
        place(program_.results(o), call.results, part.results);
    }

    [[nodiscard]] split_loop const& inside_loop(operator_id o) const {
        auto const& op = here_.indexed.operators[o];
        return op.loops[static_cast<std::size_t>(op.inside_loop)];
    }
    /// Returns the loop along which an axis splits an operator; null if it does not.
    [[nodiscard]] split_loop const* loop_of(plan_step const& s, axis_number a) const {
        auto const& i = s.computation(a);
        return i.loop < 0 ? nullptr : &here_.indexed.operators[i.op].loops[static_cast<std::size_t>(i.loop)];
    }
    /// Calls `visit(tensor, form)` for the operands and results of a computation, until it returns true.
    template <class Visit>
    void find_tensor(plan_step const& s, Visit&& visit) const {
        auto const& i = s.computation();
        for (std::size_t k = 0; k < i.operands.size(); ++k)
            if (visit(program_.operands(i.op)[k], s.operand(k))) return;
        for (std::size_t k = 0; k < i.results.size(); ++k)
            if (visit(program_.results(i.op)[k], s.result(k))) return;
    }
    /// Returns the places of an axis's loop that a device computes, of the micro-batch.
    [[nodiscard]] place_range range(plan_step const& s, axis_number a, mesh::coordinates const& place) const {
        auto const& i = s.computation(a);
        place_range result{0, here_.indexed.operators[i.op].loops[static_cast<std::size_t>(i.loop)].extent};
        find_tensor(s, [&](tensor_id t, product_form const& f) {
            if (f[a].is_shard()) result = here_.layout.range(t, f, f[a], place);
            return f[a].is_shard();
        });
        return result;
    }

    /// Lets a computation send rows along an axis to the ranks that have what they choose. There are no groups then.
    void exchange_rows(tensor_call<Tensor>& call, plan_step const& s, axis_number a) const {
        operator_id const o = s.computation().op;
        split_exchange(call, program_, here_.indexed, s, a, here_.layout);
        call.send = [all = *this, a, o](std::size_t which, Tensor const& rows, shard_counts sent,
                                        shard_counts received) {
            auto& known = all.mine_.rows;
            auto& line = all.here_.on(a);
            line.over.count_as(all.program_.results(o)[0]);
            if (auto const found = known.find({o, which}); found != known.end()) return found->second;
            auto came = through(line.ranks, lane::kernels, [&] { return exchanged(line.ranks, rows, sent, received); });
            return known.try_emplace({o, which}, std::move(came)).first->second;
        };
    }

    /// Combines the statistics of rows over all that hold parts of the rows, along the axes that cut them. In a group,
    /// the first device combines across groups the statistics of its own rows and of the others'.
    void combine(plan_step const& s, std::vector<axis_number> const& axes, reduction how, wide& mine) const {
        operator_id const o = s.computation().op;
        auto& inside = here_.inside;
        bool const splits_inside = here_.is_split_inside(o);
        bool const is_inside = splits_inside && has_statistics(inside_loop(o));
        for (axis_number a = 0; a < s.axis_count(); ++a) here_.on(a).over.count_as(program_.results(o)[0]);
        auto const reduce_across = [&](wide& all) {
            for (auto a : axes)
                if (auto& ranks = here_.on(a).ranks; here_.layout.mesh().size(a) > 1 && inside.is_first())
                    through(ranks, lane::kernels, [&] { ranks.all_reduce(all.flat(), how); });
        };
        if (is_inside) inside.all_reduce(mine.flat(), how);
        if (!axes.empty() && splits_inside && !is_inside) {
            std::vector<std::size_t> counts;
            find_tensor(s, [&](tensor_id t, product_form const& f) {
                if (inside.is_cut(t)) counts = inside.counts_like(t, f[0], static_cast<std::size_t>(mine.elements()));
                return inside.is_cut(t);
            });
            auto all = inside.to_first(mine, counts);
            reduce_across(all);
            inside.from_first(all, mine, counts);
        } else if (!axes.empty()) {
            reduce_across(mine);
            if (inside.is_group()) inside.broadcast(mine.flat());
        }
    }

    program const& program_;
    indexed_program const& whole_;
    batch_split const* split_;
    std::pair<extent, extent> range_;
    tensors& here_;
    state& mine_;
};

} // namespace heddle::detail
