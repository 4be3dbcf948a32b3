// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief How far a planner has come, for whoever waits for it.
#pragma once

#include <heddle/base/requirements.hpp>

#include <functional>
#include <optional>
#include <string>

namespace heddle {

struct planning_progress {
    /// What it does now.
    std::string phase;
    /// Seconds per iteration of the best plan so far; and a bound for the plans of this phase, such as those at its
    /// ratios.
    std::optional<double> cost{}, lower_bound{};
};

/// Called whenever a phase begins or finds something; none: nobody waits.
using progress_function = std::function<void(planning_progress const&)>;

} // namespace heddle
