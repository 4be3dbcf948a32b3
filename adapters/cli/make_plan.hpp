// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans as the arguments of `heddle plan` ask for them, by any planner.
#pragma once

#include "attended_run.hpp"
#include "commands.hpp"
#include "plan_file.hpp"
#include "plan_input.hpp"

#include <heddle/base/quantity.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/plan/pipeline_plan.hpp>

#include <functional>
#include <string>
#include <vector>

namespace heddle::cli {

/// A plan that is to be tried, and its family.
struct tried_plan {
    std::string family;
    staged_plan plan;
};

/// What the planner `joint` is asked beside the arguments.
struct joint_requests {
    /// What moving to a plan adds to each of its iterations (`joint_options::moving`).
    std::function<seconds(staged_plan const&)> moving{};
    /// Takes the plans to be tried, if the arguments ask for some.
    std::vector<tried_plan>* tried = nullptr;
};

/// Plans a model on a cluster, which need not be the one that was read with it. The plan says where it comes from.
/// *Throws* what the planner does.
[[nodiscard]] any_plan make_plan(plan_arguments const& arguments, plan_input const& input, cluster const& c,
                                 attended_run& attended, joint_requests const& requests = {});

/// Adds where a plan of the input comes from.
void add_origin(any_plan& p, plan_input const& input);

/// What `make_plan` does by AMP and by Ditto, and what they do with a profile in place of a model.
[[nodiscard]] pipeline_plan plan_by_amp(plan_arguments const& arguments, plan_input const& input, cluster const& c,
                                        attended_run& attended);
[[nodiscard]] pipeline_plan plan_by_ditto(plan_arguments const& arguments, plan_input const& input, cluster const& c,
                                          attended_run& attended);
[[nodiscard]] pipeline_plan plan_profile_by_amp(plan_arguments const& arguments, attended_run& attended);
[[nodiscard]] pipeline_plan plan_profile_by_ditto(plan_arguments const& arguments, attended_run& attended);

} // namespace heddle::cli
