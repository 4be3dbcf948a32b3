// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief How a device group splits a program's batch among its devices.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/indexed_program.hpp>

#include <algorithm>
#include <vector>

namespace heddle {

namespace detail {

/// Tells whether an operator can be split inside a group along a loop: everything it touches is cut as the loop asks,
/// and summands of its results follow from its cut operands alone.
[[nodiscard]] bool splits_inside(indexed_program const& p, indexed_operator const& op, split_loop const& loop);

} // namespace detail

/// Splits a program inside device groups: divided inputs and values along the batch, and each operator that has the
/// batch as a loop and whose tensors are all cut along it. Other operators run whole on every device of a group; so do
/// all operators if the first input has no batch.
///
/// *Precondition:* the program is one segment. This is data parallelism inside a group (HAP section 3). Inside, a
/// tensor is cut along its batch or copied, whatever form it has across groups.
void split_inside(indexed_program& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/factor_set.hpp>

namespace heddle::detail {

HEDDLE_INLINE bool splits_inside(indexed_program const& p, indexed_operator const& op, split_loop const& loop) {
    bool any = false;
    for (std::size_t k = 0; k < op.operands.size(); ++k) {
        if (loop.operands[k] != p.tensors[op.operands[k]].inside) return false;
        any |= loop.operands[k] != no_factor;
    }
    for (std::size_t k = 0; k < op.results.size(); ++k) {
        if (loop.results[k] != p.tensors[op.results[k]].inside || (loop.results[k] == no_factor && !loop.is_reduction))
            return false;
        any |= loop.results[k] != no_factor;
    }
    if (!any) return false;
    auto const has_loop = [&](auto const& term) { return cuts_term(op, loop, term); };
    auto const with_loop = algorithm::count_if(op.terms, has_loop);
    if (loop.is_reduction && with_loop > 0 && with_loop < std::ranges::ssize(op.terms)) return false;
    // The statistics of rows are put together row by row, which gives the order of the batch if it is outermost.
    bool const other_statistics =
        loop.forward_statistics + loop.backward_statistics == 0 &&
        algorithm::any_of(op.loops, [](auto const& l) { return l.forward_statistics + l.backward_statistics > 0; });
    if (!other_statistics) return true;
    auto const is_outermost = [&](tensor_id t) {
        auto const f = p.tensors[t].inside;
        if (f == no_factor) return true;
        auto const& batch = p.tensors[t].factors[static_cast<std::size_t>(f)];
        return batch.dimension == 0 && batch.widths.empty() &&
               batch.extent * batch.stride == p.tensors[t].info.shape[0];
    };
    return algorithm::all_of(op.operands, is_outermost) && algorithm::all_of(op.results, is_outermost);
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE void split_inside(indexed_program& p) {
    p.is_split_inside = true;
    auto const batch = batch_factors(p);
    for (tensor_id t = 0; t < p.tensors.size(); ++t)
        if (!p.tensors[t].is_parameter()) p.tensors[t].inside = batch.first_of(t);
    for (auto& op : p.operators)
        for (std::size_t l = 0; l < op.loops.size() && op.inside_loop < 0; ++l)
            if (detail::splits_inside(p, op, op.loops[l])) op.inside_loop = static_cast<std::int16_t>(l);
}

} // namespace heddle

#endif
