// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the other planners say to a model and a cluster, while there is no one planner that chooses among all.
#pragma once

#include "plan_input.hpp"

#include <heddle/planner/hap.hpp>

#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace heddle::cli {

/// What a planner found, by its own price.
struct other_plan : search::outcome<> {
    std::string planner;
    std::optional<double> cost;
    /// What status and bound are of; what the price leaves out.
    std::string space, leaves_out;
    /// Not even asked: the input is none of its.
    bool is_refused = false;
    double seconds = 0;
};

/// Asks the planners other than hap, for so many seconds in all; `common` is what hidup shares with hap. What of a
/// plan's options they do not know, they do not heed.
std::vector<other_plan> ask_others(plan_arguments const& arguments, plan_input const& input, hap_options const& common,
                                   double time);

/// As a section of the plan's table.
void print_others(std::ostream& out, std::vector<other_plan> const& others, plan const& beside);
/// The object of `--json` with them.
std::string with_others(std::string const& summary, std::vector<other_plan> const& others);

} // namespace heddle::cli
