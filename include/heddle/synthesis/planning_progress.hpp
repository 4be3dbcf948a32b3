// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Tells those who wait for a planner how far it has come.
#pragma once

#include <heddle/base/definitions.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace heddle {

struct planning_progress {
    /// What the planner does now.
    std::string phase;
    /// The seconds per iteration of the best plan so far; and a bound for the plans of this phase, such as those at its
    /// ratios.
    std::optional<double> cost{}, lower_bound{};
};

/// Is called whenever a phase begins or finds something; it may be empty.
using progress_function = std::function<void(planning_progress const&)>;

/// For a part of the work, of which there is more: told is which part it is and the best cost of all, but no bound.
[[nodiscard]] progress_function told_of_part(progress_function whole, std::string part, std::optional<double> best);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE progress_function told_of_part(progress_function whole, std::string part, std::optional<double> best) {
    if (!whole) return {};
    return [whole = std::move(whole), part = std::move(part), best](planning_progress now) {
        now.phase = part + ", " + now.phase;
        now.lower_bound.reset();
        if (best) now.cost = std::min(*best, now.cost.value_or(*best));
        whole(now);
    };
}

} // namespace heddle

#endif
