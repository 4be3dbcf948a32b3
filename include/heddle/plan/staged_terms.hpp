// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Where the seconds of a plan of stages go, and how full its devices are.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/plan/staged_plan.hpp>

#include <algorithm>
#include <cstddef>

namespace heddle {

/// Returns where the seconds of a plan go. *Precondition:* the plan exists. *Throws* `input_error` as `evaluate` does.
[[nodiscard]] staged_terms terms_of(staged_plan const& p, cluster const& c);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/plan/evaluate.hpp>

namespace heddle {

HEDDLE_INLINE staged_terms terms_of(staged_plan const& p, cluster const& c) {
    auto const cost = evaluate(p, c);
    auto const own = [&](std::size_t s) {
        auto const& t = cost.stages[s].time;
        return seconds(t.compute + t.forward_communication + t.backward_communication);
    };
    auto const before = [&](std::size_t s) { return s < p.stages.size() ? cost.boundaries[s].both() : seconds(0); };
    auto const pace = [&](std::size_t s) {
        return p.sends_beside ? std::max({own(s), before(s), before(s + 1)}) : own(s) + before(s) + before(s + 1);
    };
    std::size_t slowest = 0;
    for (std::size_t s = 1; s < p.stages.size(); ++s)
        if (pace(s) > pace(slowest)) slowest = s;
    auto const& time = cost.stages[slowest].time;
    double const m = p.micro_batches;

    staged_terms terms;
    terms.compute = seconds(m * time.own_compute());
    terms.inner = seconds(m * time.compute_inside);
    terms.outer = seconds(m * (time.forward_communication + time.backward_communication));
    terms.sends = before(slowest) + before(slowest + 1) + (m - 1) * (pace(slowest) - own(slowest));
    terms.gradients = cost.time.gradients + cost.time.shared;
    terms.update = cost.time.update;
    terms.parameters = cost.time.parameters;
    if (p.stages.size() > 1) terms.idle = cost.time.pipeline - terms.compute - terms.inner - terms.outer - terms.sends;
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        auto const& devices = p.stages[s].plan.devices;
        for (std::size_t d = 0; d < devices.size(); ++d) {
            bytes const used(cost.stages[s].memory[d].total());
            if (terms.limit == bytes(0) || used * terms.limit.value > terms.used * devices[d].memory_limit.value)
                terms.used = used, terms.limit = devices[d].memory_limit;
        }
    }
    return terms;
}

} // namespace heddle

#endif
