// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans whose micro-batches take turns.
#pragma once

#include <heddle/theory/instruction.hpp>
#include <heddle/theory/micro_batch.hpp>
#include <support/random_plans.hpp>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::test {

/// Turns a plan of one micro-batch into the plan of several; stages begin where they must, and now and then elsewhere.
[[nodiscard]] inline plan interleaved(plan p, indexed_program const& program, training_options const& training,
                                      random_source& random) {
    p.provenance.training = training;
    p.stages.clear();
    for (std::size_t n = 0; n < p.steps.size(); ++n) {
        auto& s = p.steps[n];
        s.step = make_step(program, s.instruction, training);
        if (s.instruction.is<instruction::unshard>() || random.chance(0.1)) p.stages.push_back(n);
    }
    return p;
}

/// Returns a number of micro-batches into which a program's batch can be divided; none if it cannot.
[[nodiscard]] inline int divisor_of_batch(program const& p, random_source& random) try {
    auto const indexed = index_program(p);
    auto const batch = batch_of_inputs(indexed);
    auto const [statistic, operation] = obstacles_to_micro_batches(indexed);
    if (batch.empty() || statistic || operation) return 0;
    auto const size =
        indexed.tensors[batch.front().tensor].factors[static_cast<std::size_t>(batch.front().factor)].extent;
    std::vector<int> fit;
    for (int k = 2; k <= 4; ++k)
        if (size % k == 0 && size > k) fit.push_back(k);
    if (fit.empty()) return 0;
    int const count = random.of(fit);
    static_cast<void>(micro_batch_of(p, count));
    return count;
} catch (input_error const&) { // an extent depends on the batch's in a way that no rule states
    return 0;
}

/// Returns a random plan, on one to five ranks, of micro-batches of a program that take turns; nothing if its batch
/// cannot be divided.
[[nodiscard]] inline std::optional<plan> random_turns(program const& p, random_source& random) {
    int const count = divisor_of_batch(p, random);
    if (count == 0) return std::nullopt;
    auto const indexed = index_program(micro_batch_of(p, count));
    auto const ranks = static_cast<std::size_t>(random.between(1, 5));
    return interleaved(random_plan(indexed, ranks, random), indexed, {.micro_batches = count}, random);
}

} // namespace heddle::test
