// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A part of a program's batch, run for itself.
#pragma once

#include <heddle/theory/instruction.hpp>
#include <heddle/theory/rescale.hpp>
#include <heddle/theory/theory.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// The loop along which an operator goes through the batch, or -1.
[[nodiscard]] inline std::int16_t batch_loop(indexed_operator const& op, factor_set const& batch) {
    for (std::size_t l = 0; l < op.loops.size(); ++l)
        if (is_of(op, op.loops[l], batch)) return static_cast<std::int16_t>(l);
    return -1;
}

/// What stands against running parts of a batch one after the other; nothing, if the parts' losses add up to the loss.
struct batch_obstacles {
    /// The first operator with statistics of the whole batch (a batch norm, a mean over the targets not ignored), which parts have others of.
    std::optional<operator_id> statistic;
    /// The first that cannot work on parts at all, or that adds once what the parts would add each.
    std::optional<operator_id> operation;
};

/// Micro-batches are to time what devices are to space: with the inputs' batch cut and all other sources whole, every operator must have a
/// computation on the forms that its operands are in, and the loss must be a sum over the parts.
[[nodiscard]] inline batch_obstacles obstacles_to_micro_batches(indexed_program const& p) {
    auto const batch = batch_factors(p);
    std::vector<form> forms(p.tensors.size(), form::replicated());
    for (auto const& f : batch_of_inputs(p)) forms[f.tensor] = form::shard(f.factor);
    batch_obstacles found;
    for (operator_id o = 0; o < p.operators.size(); ++o) {
        auto const& op = p.operators[o];
        std::optional<instruction> fitting;
        for (auto const& i : computations(p, o)) {
            bool fits = !gathers_factors(i) && (i.loop < 0 || i.loop == batch_loop(op, batch));
            for (std::size_t k = 0; k < op.operands.size(); ++k) fits = fits && i.operands[k] == forms[op.operands[k]];
            if (fits && (!fitting || i.loop >= 0)) fitting = i; // what has no batch yet, such as a token put before every sample's, gets a part's
        }
        if (!fitting) {
            found.operation = o;
            return found;
        }
        for (std::size_t k = 0; k < op.results.size(); ++k) forms[op.results[k]] = fitting->results[k];
        if (fitting->loop < 0) continue;
        auto const& loop = op.loops[static_cast<std::size_t>(fitting->loop)];
        if (!found.statistic && loop.forward_statistics + loop.backward_statistics > 0) found.statistic = o;
    }
    if (forms[p.loss] != form::partial()) found.operation = static_cast<operator_id>(p.operators.size() - 1);
    return found;
}

/// The program of one of `count` equal parts of the batch, in which everything can be cut as in the whole, along factors of the same numbers.
/// *Throws* `input_error` if the batch is no multiple of it, if something cannot be cut so in a part, such as one of a single sample, and as `with_batch_size`.
[[nodiscard]] inline program micro_batch_of(program const& p, int count) {
    auto const indexed = index_program(p);
    if (batch_of_inputs(indexed).empty()) throw input_error("micro-batches", "no input has a batch of two or more");
    extent const size = batch_size_of(indexed);
    if (count < 2 || size % count != 0)
        throw input_error("micro-batches", std::to_string(count) + ", expected two or more that divide the batch of " + std::to_string(size));
    auto part = with_batch_size(p, size / count);
    auto const in_part = index_program(part);
    auto const check = [&](std::string const& what, std::size_t ways, std::size_t of_whole) {
        if (ways != of_whole)
            throw input_error("micro-batches", std::to_string(count) + ", in each of which " + what + " can be cut in other ways than in the batch of " + std::to_string(size));
    };
    for (tensor_id t = 0; t < indexed.tensors.size(); ++t)
        check("tensor '" + p.tensor(t).name + "'", in_part.tensors[t].factors.size(), indexed.tensors[t].factors.size());
    for (operator_id o = 0; o < indexed.operators.size(); ++o)
        check("operator '" + p.name(o) + "'", in_part.operators[o].loops.size(), indexed.operators[o].loops.size());
    return part;
}

} // namespace heddle
