// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Inputs that every part of the batch has whole, beside those of which each has its part.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/program/program.hpp>

namespace heddle {

/// Returns the program with the inputs marked that every part of its batch has whole (`program::with_whole_input`), if
/// that lets it run in parts; otherwise the program as it is.
///
/// A mean loss over labels of which some may be ignored divides by the number of all that count. So what is computed of
/// the labels alone, such as shifting and flattening them, is computed of all in every part of the batch. Decoders that
/// take their labels from their tokens need both: each part has its tokens, and all labels.
/// *Complexity.* That of `find_batch_split`, at most three times, and a copy for each such input.
[[nodiscard]] program with_whole_inputs(program p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/batch_split.hpp>
#include <heddle/theory/micro_batch.hpp>

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace heddle::detail {

/// Returns the operators that need an input whole, by input.
[[nodiscard]] HEDDLE_INLINE std::map<tensor_id, std::set<operator_id>> whole_uses(indexed_program const& p) {
    std::map<tensor_id, std::set<operator_id>> uses;
    factor_set batch(p);
    batch.insert(batch_of_inputs(p));
    for (auto const& i : find_batch_split(p).computations) {
        auto const& operands = p.operators[i.op].operands;
        for (std::size_t k = 0; k < operands.size(); ++k)
            if (batch.first_of(operands[k]) != no_factor && !p.tensors[operands[k]].has_cotangent &&
                !i.operands[k].is_shard())
                uses[operands[k]].insert(i.op);
    }
    return uses;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE program with_whole_inputs(program p) {
    auto const indexed = index_program(p);
    if (!obstacles_to_micro_batches(indexed).operation) return p;
    auto const uses = detail::whole_uses(indexed);
    if (uses.empty()) return p;
    std::optional<program> separate;
    for (auto const& [t, operators] : uses) separate = (separate ? *separate : p).with_whole_input(t, operators);
    bool const helps = !obstacles_to_micro_batches(index_program(*separate)).operation;
    return helps ? *std::move(separate) : std::move(p);
}

} // namespace heddle

#endif
