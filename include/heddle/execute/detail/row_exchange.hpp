// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The ranks' side of operators that send rows to one another.
#pragma once

#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/mesh_layout.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/plan/plan.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace heddle::detail {

/// Restricts a call that sends rows along an axis to the rows and the places that a device holds, and notes which rank
/// of its line has which place.
void split_exchange(kernel_call& call, program const& p, indexed_program const& indexed, plan_step const& s,
                    axis_number axis, mesh_layout const& layout);

/// Notes which rank has which places of a factor of a tensor of this shape.
void own_places(place_owners& owners, tensor_shape const& whole, factor const& cut,
                std::span<place_range const> ranges);

/// Returns what ranks send to this one.
template <rank_tensor Tensor, communicator_of<typename Tensor::scalar_type> Communicator>
[[nodiscard]] Tensor exchanged(Communicator& ranks, Tensor const& mine, shard_counts sent, shard_counts received) {
    if (ranks.size() == 1) return mine;
    Tensor result(tensor_shape{static_cast<extent>(total_count(received))});
    ranks.all_to_all_v(mine.flat(), sent, result.flat(), received);
    return result;
}

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE void split_exchange(kernel_call& call, program const& p, indexed_program const& indexed,
                                  plan_step const& s, axis_number axis, mesh_layout const& layout) {
    auto const& i = s.computation(axis);
    auto const& loop = indexed.operators[i.op].loops[static_cast<std::size_t>(i.loop)];
    auto const [rows, places] = sides_of(loop);
    auto const of_rows = layout.range(p.results(i.op)[0], s.result(0), i.results[0]);
    split_call(call, p, indexed, i.op, rows, of_rows.begin, of_rows.count);
    auto const k = loop.destination();
    auto const destination = p.operands(i.op)[k];
    std::vector<place_range> ranges;
    auto place = layout.here();
    for (place[axis] = 0; place[axis] < layout.mesh().size(axis); ++place[axis])
        ranges.push_back(layout.range(destination, s.operand(k), i.operands[k], place));
    auto const mine = ranges[layout.here()[axis]];
    split_call(call, p, indexed, i.op, places, mine.begin, mine.count);
    own_places(call.destinations, p.tensor(destination).shape, layout.factor_of(destination, i.operands[k]), ranges);
}

HEDDLE_INLINE void own_places(place_owners& owners, tensor_shape const& whole, factor const& cut,
                              std::span<place_range const> ranges) {
    extent const all = whole[cut.dimension];
    owners.ranks = ranges.size();
    owners.of.resize(static_cast<std::size_t>(all));
    for (std::size_t r = 0; r < ranges.size(); ++r)
        for (extent place : positions_of(all, cut, ranges[r].begin, ranges[r].count))
            owners.of[static_cast<std::size_t>(place)] = r;
}

} // namespace heddle::detail

#endif
