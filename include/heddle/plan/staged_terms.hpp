// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Where the seconds of a plan of stages go, and how full its devices are.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/plan/staged_plan.hpp>

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
    auto const times = detail::times_of_places(p, cost);
    auto const slowest =
        static_cast<std::size_t>(algorithm::max_element(times, {}, &detail::place_times::pace) - times.begin());
    double const m = p.micro_batches;
    staged_terms terms;
    for (auto s = slowest; s < p.stages.size(); s += p.places()) {
        auto const& time = cost.stages[s].time;
        terms.compute += seconds(m * time.own_compute());
        terms.inner += seconds(m * time.compute_inside);
        terms.outer += seconds(m * (time.forward_communication + time.backward_communication));
    }
    auto const& at = times[slowest];
    terms.sends = (p.rounds() == 1 ? at.before + at.after : at.pace - at.own) + (m - 1) * (at.pace - at.own);
    terms.gradients = cost.time.gradients + cost.time.shared;
    terms.update = cost.time.update;
    terms.parameters = cost.time.parameters;
    if (p.stages.size() > 1) terms.idle = cost.time.pipeline - terms.compute - terms.inner - terms.outer - terms.sends;
    for (std::size_t n = 0; n < p.places(); ++n) {
        auto const& devices = p.stages[n].plan.devices;
        for (std::size_t d = 0; d < devices.size(); ++d) {
            bytes const used = cost.memory[n][d];
            if (terms.limit == bytes(0) || used * terms.limit.value > terms.used * devices[d].memory_limit.value)
                terms.used = used, terms.limit = devices[d].memory_limit;
        }
    }
    return terms;
}

} // namespace heddle

#endif
