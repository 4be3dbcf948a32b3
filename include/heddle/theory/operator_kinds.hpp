// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which operators of a program are the same except for the tensors they are applied to.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/search/numbering.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <ranges>
#include <string>
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

/// In what operators of a kind are alike.
///
/// They compute the same, have equal work and loops, and their tensors are equal, position by position, in role, type,
/// extents, and in whether they have a cotangent or another use. Programs and prices of one are those of the other, with
/// other tensors.
enum class kinds_alike : std::uint8_t {
    in_use,      ///< In all of this.
    in_size,     ///< It does not matter where a tensor comes from and what else uses it, unless it is a parameter.
    in_structure ///< Nor do extents and work.
};

/// Appends what tells tensors apart, as numbers: role, type, extents, factors, and whether they have a cotangent and
/// other uses.
void describe_tensor(indexed_program const& p, tensor_id t, kinds_alike by, std::vector<std::uint64_t>& description);

/// Numbers kinds of operators, of one program or of several.
class kind_numbers {
public:
    explicit kind_numbers(kinds_alike by) : by_(by) {}

    /// Returns the kind of each operator. *Complexity.* Linear in the program, expected.
    [[nodiscard]] std::vector<std::uint32_t> of(indexed_program const& p);

private:
    using description = std::vector<std::uint64_t>;
    using descriptions = search::numbering<description, search::list_hash<std::uint64_t>>;

    kinds_alike by_;
    descriptions kinds_, tensors_;
    search::numbering<std::string> names_;
};

/// Returns for each operator the first operator of its kind.
/// *Complexity.* Linear in the program, expected.
[[nodiscard]] std::vector<operator_id> operator_kinds(indexed_program const& p, kinds_alike by = kinds_alike::in_use);

} // namespace heddle

#if HEDDLE_DEFINITIONS

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

HEDDLE_INLINE void describe_tensor(indexed_program const& p, tensor_id t, kinds_alike by,
                                   std::vector<std::uint64_t>& description) {
    bool const by_use = by == kinds_alike::in_use, by_size = by != kinds_alike::in_structure;
    auto const add = [&](auto value) { description.push_back(static_cast<std::uint64_t>(value)); };
    auto const add_list = [&](auto const& list) {
        add(list.size());
        for (auto v : list) add(v);
    };
    auto const& tensor = p.tensors[t];
    add(by_use ? static_cast<int>(tensor.info.role) : tensor.is_parameter());
    add(static_cast<int>(tensor.info.type));
    if (by_size) add_list(tensor.info.shape);
    add(tensor.info.trainable);
    add(by_use && tensor.has_cotangent);
    add(t == p.loss);
    add(by_use ? tensor.uses : 0);
    add_list(tensor.is_contiguous);
    add(tensor.inside);
    add(std::min<int>(tensor.region, 1)); // the last region need not run again
    add(p.counted_of(tensor.region));
    add(tensor.factors.size());
    for (auto const& f : tensor.factors) {
        add(f.dimension);
        add(f.segment);
        if (!by_size) continue;
        add(f.extent);
        add(f.stride);
        add_list(f.widths);
    }
}

HEDDLE_INLINE std::vector<std::uint32_t> kind_numbers::of(indexed_program const& p) {
    bool const by_size = by_ != kinds_alike::in_structure;
    std::vector<std::uint32_t> tensor_kinds, result;
    description d;
    for (tensor_id t = 0; t < p.tensors.size(); ++t) {
        d.clear();
        describe_tensor(p, t, by_, d);
        tensor_kinds.push_back(tensors_.insert(d).first);
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
    for (auto const& op : p.operators) {
        auto const& work = op.work;
        d.clear();
        add(names_.insert(op.kind).first);
        for (double v : {work.forward.value, work.backward.value, work.extra_saved.value}) add(by_size ? v : 0);
        for (auto const* list : {&work.saved_operands, &work.saved_results, &work.sparse_operands}) add_list(*list);
        add(static_cast<int>(work.category));
        add(work.is_view);
        add(op.terms.size());
        for (auto const& term : op.terms) add_list(term);
        add(op.loops.size());
        for (auto const& loop : op.loops) {
            add(by_size ? loop.extent : 0);
            add(loop.is_reduction);
            add_list(loop.operands);
            add_list(loop.results);
            add(loop.forward_statistics);
            add(loop.backward_statistics);
            for (double v : {loop.statistic.value, loop.sent.value, loop.returned.value}) add(by_size ? v : v > 0);
        }
        add(op.inside_loop);
        add(op.listed.size()); // listed alike where operators that they are of are of one kind, see `searched_program`
        add(op.operands.size());
        for (std::size_t position = 0; position < op.operands.size() + op.results.size(); ++position) {
            tensor_id const t = tensor_at(op, position);
            add(position_of(op, t));
            add(tensor_kinds[t]);
        }
        result.push_back(kinds_.insert(d).first);
    }
    return result;
}

HEDDLE_INLINE std::vector<operator_id> operator_kinds(indexed_program const& p, kinds_alike by) {
    std::vector<operator_id> first, result;
    for (auto const kind : kind_numbers(by).of(p)) {
        if (kind == first.size()) first.push_back(static_cast<operator_id>(result.size()));
        result.push_back(first[kind]);
    }
    return result;
}

} // namespace heddle

#endif
