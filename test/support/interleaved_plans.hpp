// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans whose micro-batches take turns.
#pragma once

#include <support/random_plans.hpp>

#include <utility>

namespace heddle::test {

/// A plan of one micro-batch, as the plan of so many of them; stages begin where they must, and now and then elsewhere.
[[nodiscard]] inline plan interleaved(plan p, indexed_program const& program, training_options const& training, random_source& random) {
    p.provenance.training = training;
    p.stages.clear();
    for (std::size_t n = 0; n < p.steps.size(); ++n) {
        auto& s = p.steps[n];
        s.step = make_step(program, s.instruction, training);
        if (s.instruction.what == instruction::kind::unshard || random.chance(0.1)) p.stages.push_back(n);
    }
    return p;
}

} // namespace heddle::test
