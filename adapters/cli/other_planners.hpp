// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the other planners say about a model and a cluster, as long as no single planner chooses among all.
#pragma once

#include "plan_input.hpp"

#include <heddle/planner/hap.hpp>

#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace heddle::cli {

/// What a planner found, at its own price.
struct other_plan : search::outcome<> {
    std::string planner;
    std::optional<double> cost;
    /// What status and bound refer to, and what the price leaves out.
    std::string space, leaves_out;
    /// The planner was not asked, because the input is none that it takes.
    bool is_refused = false;
    double seconds = 0;
};

/// Asks the planners other than hap, for this many seconds in all; `common` is what hidup shares with hap. Planners
/// ignore those of a plan's options that they do not know.
std::vector<other_plan> ask_others(plan_arguments const& arguments, plan_input const& input, hap_options const& common,
                                   double time);

/// Prints them as a section of the plan's table.
void print_others(std::ostream& out, std::vector<other_plan> const& others, plan const& beside);
/// Adds them to the object of `--json`.
std::string with_others(std::string const& summary, std::vector<other_plan> const& others);

} // namespace heddle::cli
