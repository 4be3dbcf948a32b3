// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The batch of a program: of another size, and how a device group splits it among its devices.
#pragma once

#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>
#include <heddle/theory/factor_set.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace heddle {

/// The same program for a batch of another size. *Throws* `input_error` if the first input has no batch, or if an operator's rule does
/// not let the batch through, which makes its tensors disagree about it.
[[nodiscard]] inline program with_batch_size(program const& p, extent size) {
    auto const indexed = index_program(p);
    auto const batch = batch_factors(indexed);
    extent before = 0;
    for (tensor_id t = 0; t < indexed.tensors.size() && before == 0; ++t)
        if (auto const f = batch.first_of(t); f != no_factor) before = indexed.tensors[t].factors[static_cast<std::size_t>(f)].extent;
    if (before == 0) throw input_error("batch", "no input has one");
    if (size < 1) throw input_error("batch", std::to_string(size) + ", expected one at least");
    // Whether index i, in a dimension of an access, has the batch as a piece of it.
    auto const has_batch = [&](index_rule const& rule, indexed_access const& access, tensor_id t, std::size_t i) {
        for (std::size_t d = 0; d < access.size(); ++d) {
            extent low = 1;
            for (auto at = access[d].rbegin(); at != access[d].rend(); ++at) {
                extent const high = low * rule.indices[*at].extent;
                for (std::size_t f = 0; *at == i && f < indexed.tensors[t].factors.size(); ++f) {
                    auto const& cut = indexed.tensors[t].factors[f];
                    if (cut.dimension == d && cut.stride >= low && cut.stride * cut.extent <= high && batch.contains({t, static_cast<factor_number>(f)})) return true;
                }
                low = high;
            }
        }
        return false;
    };
    std::vector<std::vector<extent>> extents;
    for (operator_id o = 0; o < p.operator_count(); ++o) {
        auto const& rule = p.rule(o);
        auto& mine = extents.emplace_back();
        for (std::size_t i = 0; i < rule.indices.size(); ++i) {
            bool grows = false;
            for (std::size_t k = 0; k < rule.operands.size(); ++k) grows = grows || has_batch(rule, rule.operands[k], p.operands(o)[k], i);
            for (std::size_t k = 0; k < rule.results.size(); ++k) grows = grows || has_batch(rule, rule.results[k], p.results(o)[k], i);
            mine.push_back(grows ? rule.indices[i].extent / before * size : rule.indices[i].extent);
        }
    }
    return p.resized(extents);
}

namespace detail {

/// Whether an operator can be split inside a group along a loop: everything it touches is cut as the loop asks, and summands of its
/// results follow from its cut operands alone.
[[nodiscard]] inline bool splits_inside(indexed_program const& p, indexed_operator const& op, split_loop const& loop) {
    bool any = false;
    for (std::size_t k = 0; k < op.operands.size(); ++k) {
        if (loop.operands[k] != p.tensors[op.operands[k]].inside) return false;
        any |= loop.operands[k] != no_factor;
    }
    for (std::size_t k = 0; k < op.results.size(); ++k) {
        if (loop.results[k] != p.tensors[op.results[k]].inside || (loop.results[k] == no_factor && !loop.is_reduction)) return false;
        any |= loop.results[k] != no_factor;
    }
    if (!any) return false;
    auto const has_loop = [&](auto const& term) { return std::ranges::any_of(term, [&](auto k) { return loop.operands[k] != no_factor; }); };
    auto const with_loop = std::ranges::count_if(op.terms, has_loop);
    if (loop.is_reduction && with_loop > 0 && with_loop < std::ranges::ssize(op.terms)) return false;
    // Rows' statistics are put together row by row: in the order of the batch, if it is outermost.
    bool const other_statistics = loop.forward_statistics + loop.backward_statistics == 0 &&
                                  std::ranges::any_of(op.loops, [](auto const& l) { return l.forward_statistics + l.backward_statistics > 0; });
    if (!other_statistics) return true;
    auto const is_outermost = [&](tensor_id t) {
        auto const f = p.tensors[t].inside;
        if (f == no_factor) return true;
        auto const& batch = p.tensors[t].factors[static_cast<std::size_t>(f)];
        return batch.dimension == 0 && batch.extent * batch.stride == p.tensors[t].info.shape[0];
    };
    return std::ranges::all_of(op.operands, is_outermost) && std::ranges::all_of(op.results, is_outermost);
}

} // namespace detail

/// Splits a program inside device groups: inputs and values along the batch, and each operator that has the batch as a loop of all
/// of them; the others run whole on every device of a group, as do all where the first input has no batch.
///
/// *Precondition:* the program is one segment.
/// Data parallelism inside a group (HAP section 3). Inside, a tensor is cut along its batch or copied, whatever form it has across.
inline void split_inside(indexed_program& p) {
    p.is_split_inside = true;
    auto const batch = batch_factors(p);
    for (tensor_id t = 0; t < p.tensors.size(); ++t)
        if (!p.tensors[t].is_parameter()) p.tensors[t].inside = batch.first_of(t);
    for (auto& op : p.operators)
        for (std::size_t l = 0; l < op.loops.size() && op.inside_loop < 0; ++l)
            if (detail::splits_inside(p, op, op.loops[l])) op.inside_loop = static_cast<std::int16_t>(l);
}

} // namespace heddle
