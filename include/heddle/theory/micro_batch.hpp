// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A part of a program's batch that is run by itself.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>
#include <heddle/theory/factor_set.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Returns the loop along which an operator goes through the batch, or -1.
[[nodiscard]] std::int16_t batch_loop(indexed_operator const& op, factor_set const& batch);

/// What prevents running parts of a batch one after the other; empty if the parts' losses add up to the loss.
struct batch_obstacles {
    /// The first operator with statistics of the whole batch (a batch norm), which differ from those of the parts.
    std::optional<operator_id> statistic;
    /// The first operator that cannot work on parts at all, or that adds once what each part would add.
    std::optional<operator_id> operation;
};

/// Finds what prevents micro-batches. Micro-batches are to time what devices are to space: independent parts of the
/// batch, one after the other. So the batch must split with every operand used in the form in which it is held, and the
/// loss must be a sum over the parts.
[[nodiscard]] batch_obstacles obstacles_to_micro_batches(indexed_program const& p);

/// Returns the program of one of `count` equal parts of the batch. Everything can be cut in it as in the whole, along
/// factors of the same numbers.
/// *Throws* `input_error` if the batch is no multiple of `count`, if something cannot be cut so in a part, such as one
/// of a single sample, and as `with_part_of_batch` does.
[[nodiscard]] program micro_batch_of(program const& p, int count);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/batch_split.hpp>
#include <heddle/theory/rescale.hpp>

namespace heddle {

HEDDLE_INLINE std::int16_t batch_loop(indexed_operator const& op, factor_set const& batch) {
    for (std::size_t l = 0; l < op.loops.size(); ++l)
        if (is_of(op, op.loops[l], batch)) return static_cast<std::int16_t>(l);
    return -1;
}

HEDDLE_INLINE batch_obstacles obstacles_to_micro_batches(indexed_program const& p) {
    auto const split = find_batch_split(p, batch_of_inputs(p));
    batch_obstacles found{split.statistic, split.obstacle ? std::optional(split.obstacle->first) : std::nullopt};
    auto const batch = batch_factors(p);
    for (tensor_id t = 0; t < p.tensors.size(); ++t) // a part would have no more of it than of the batch
        if (!p.tensors[t].info.whole_of.empty() && batch.first_of(t) != no_factor)
            found.operation =
                std::min(p.tensors[t].consumers.front(), found.operation.value_or(p.tensors[t].consumers.front()));
    for (auto const& i : split.computations) {
        auto const& operands = p.operators[i.op].operands;
        if (algorithm::equal(i.operands, operands, {}, {}, [&](tensor_id t) { return split.forms[t]; })) continue;
        found.operation = std::min(i.op, found.operation.value_or(i.op));
        return found;
    }
    if (!found.operation && split.forms[p.loss] != tensor_form::partial())
        found.operation = static_cast<operator_id>(p.operators.size() - 1);
    return found;
}

HEDDLE_INLINE program micro_batch_of(program const& p, int count) {
    auto const indexed = index_program(p);
    if (batch_of_inputs(indexed).empty())
        throw input_error("micro-batches",
                          "no input has a batch of two or more samples, expected one that can be divided");
    extent const size = batch_size_of(indexed);
    if (count < 2 || size % count != 0)
        throw input_error("micro-batches", std::to_string(count) + ", expected two or more that divide the batch of " +
                                               std::to_string(size));
    auto part = with_part_of_batch(p, size / count);
    auto const in_part = index_program(part);
    auto const check = [&](std::string const& what, std::size_t ways, std::size_t of_whole) {
        if (ways != of_whole)
            throw input_error("micro-batches", std::to_string(count) + ", in each of which " + what +
                                                   " can be cut in other ways than in the batch of " +
                                                   std::to_string(size) +
                                                   ", expected fewer micro-batches or a larger batch");
    };
    for (tensor_id t = 0; t < indexed.tensors.size(); ++t)
        check("tensor '" + p.tensor(t).name + "'", in_part.tensors[t].factors.size(),
              indexed.tensors[t].factors.size());
    for (operator_id o = 0; o < indexed.operators.size(); ++o)
        check("operator '" + p.name(o) + "'", in_part.operators[o].loops.size(), indexed.operators[o].loops.size());
    return part;
}

} // namespace heddle

#endif
