// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which operators of a program are the same except for the tensors they are applied to.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/indexed_program.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <ranges>
#include <vector>

namespace heddle {

/// Tells whether a tensor is one operand of one operator and used nowhere else.
[[nodiscard]] bool is_used_once(indexed_program const& p, tensor_id t);

/// Tells whether the backward pass of an operator that uses a tensor reads it. *Precondition:* `is_used_once(p, t)`.
[[nodiscard]] bool is_read_again(indexed_program const& p, tensor_id t);

/// Returns the tensor at a position of an operator: its operands in order, then its results.
[[nodiscard]] inline tensor_id tensor_at(indexed_operator const& op, std::size_t position) {
    return position < op.operands.size() ? op.operands[position] : op.results[position - op.operands.size()];
}

/// Calls `visit(tensor)` for every position.
template <class Visit>
void for_each_tensor(indexed_operator const& op, Visit&& visit) {
    for (auto t : op.operands) visit(t);
    for (auto t : op.results) visit(t);
}

/// Returns the first position of a tensor in an operator. *Precondition:* the tensor has one.
[[nodiscard]] std::size_t position_of(indexed_operator const& op, tensor_id t);

/// The tensor of operator `to` in the position that another has in `from`, an operator of the same kind.
[[nodiscard]] inline tensor_id counterpart(indexed_program const& p, tensor_id t, operator_id from, operator_id to) {
    return from == to ? t : tensor_at(p.operators[to], position_of(p.operators[from], t));
}

/// Appends what tells tensors apart, as numbers: role, type, extents, factors, and whether they have a cotangent and
/// other uses; see `operator_kinds`.
void describe_tensor(indexed_program const& p, tensor_id t, bool by_use, std::vector<std::uint64_t>& description);

/// Returns for each operator the first operator of its kind. Operators of a kind compute the same, have equal work and
/// loops, and their tensors are equal, position by position, in role, type, extents, and in whether they have a
/// cotangent or another use. Programs and prices of one are those of the other, with other tensors. Without `by_use`,
/// it does not matter where a tensor comes from and what else uses it, unless it is a parameter.
/// *Complexity.* Linear in the program, expected.
[[nodiscard]] std::vector<operator_id> operator_kinds(indexed_program const& p, bool by_use = true);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/search/numbering.hpp>

namespace heddle {

HEDDLE_INLINE bool is_used_once(indexed_program const& p, tensor_id t) {
    auto const& tensor = p.tensors[t];
    return tensor.consumers.size() == 1 && algorithm::count(p.operators[tensor.consumers[0]].operands, t) == 1;
}

HEDDLE_INLINE bool is_read_again(indexed_program const& p, tensor_id t) {
    auto const& op = p.operators[p.tensors[t].consumers[0]];
    return algorithm::any_of(op.work.saved_operands, [&](auto k) { return op.operands[k] == t; });
}

HEDDLE_INLINE std::size_t position_of(indexed_operator const& op, tensor_id t) {
    auto const operand = algorithm::find(op.operands, t);
    if (operand != op.operands.end()) return static_cast<std::size_t>(operand - op.operands.begin());
    return op.operands.size() + static_cast<std::size_t>(algorithm::find(op.results, t) - op.results.begin());
}

HEDDLE_INLINE void describe_tensor(indexed_program const& p, tensor_id t, bool by_use,
                                   std::vector<std::uint64_t>& description) {
    auto const add = [&](auto value) { description.push_back(static_cast<std::uint64_t>(value)); };
    auto const add_list = [&](auto const& list) {
        add(list.size());
        for (auto v : list) add(v);
    };
    auto const& tensor = p.tensors[t];
    add(by_use ? static_cast<int>(tensor.info.role) : tensor.is_parameter());
    add(static_cast<int>(tensor.info.type));
    add_list(tensor.info.shape);
    add(tensor.info.trainable);
    add(by_use && tensor.has_cotangent);
    add(t == p.loss);
    add(by_use ? tensor.uses : 0);
    add_list(tensor.is_contiguous);
    add(tensor.inside);
    add(std::min<int>(tensor.region, 1)); // the last region need not run again
    add(p.counted_of(tensor.region));
    add(tensor.factors.size());
    for (auto const& f : tensor.factors)
        for (auto v : {static_cast<extent>(f.dimension), f.extent, f.stride, static_cast<extent>(f.segment)}) add(v);
    for (auto const& f : tensor.factors) add_list(f.widths);
}

HEDDLE_INLINE std::vector<operator_id> operator_kinds(indexed_program const& p, bool by_use) {
    using description = std::vector<std::uint64_t>;
    search::numbering<description, search::list_hash<std::uint64_t>> kinds;
    search::numbering<std::string> names;
    search::numbering<description, search::list_hash<std::uint64_t>> tensors;
    std::vector<std::uint32_t> tensor_kinds;
    std::vector<operator_id> first, result;
    description d;
    for (tensor_id t = 0; t < p.tensors.size(); ++t) {
        d.clear();
        describe_tensor(p, t, by_use, d);
        tensor_kinds.push_back(tensors.insert(d).first);
    }
    auto const add = [&](auto value) {
        if constexpr (std::is_floating_point_v<decltype(value)>)
            d.push_back(std::bit_cast<std::uint64_t>(double{value}));
        else d.push_back(static_cast<std::uint64_t>(value));
    };
    auto const add_list = [&](auto const& list) {
        add(list.size());
        for (auto v : list) add(v);
    };
    for (operator_id o = 0; o < p.operators.size(); ++o) {
        auto const& op = p.operators[o];
        auto const& work = op.work;
        d.clear();
        add(names.insert(op.kind).first);
        for (double v : {work.forward.value, work.backward.value, work.extra_saved.value}) add(v);
        for (auto const* list : {&work.saved_operands, &work.saved_results, &work.sparse_operands}) add_list(*list);
        add(static_cast<int>(work.category));
        add(work.is_view);
        add(op.terms.size());
        for (auto const& term : op.terms) add_list(term);
        add(op.loops.size());
        for (auto const& loop : op.loops) {
            add(loop.extent);
            add(loop.is_reduction);
            add_list(loop.operands);
            add_list(loop.results);
            add(loop.forward_statistics);
            add(loop.backward_statistics);
            add(loop.statistic.value);
            add(loop.sent.value);
            add(loop.returned.value);
        }
        add(op.inside_loop);
        add(op.listed.size()); // listed alike where operators that they are of are of one kind, see `searched_program`
        add(op.operands.size());
        for (std::size_t position = 0; position < op.operands.size() + op.results.size(); ++position) {
            tensor_id const t = tensor_at(op, position);
            add(position_of(op, t));
            add(tensor_kinds[t]);
        }
        auto const [kind, is_new] = kinds.insert(d);
        if (is_new) first.push_back(o);
        result.push_back(first[kind]);
    }
    return result;
}

} // namespace heddle

#endif
