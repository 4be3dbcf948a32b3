// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans of programs, the batch whole or in micro-batches that take turns; in one unit, as both have one engine.
#pragma once

#include "commands.hpp"
#include "ratio_solver.hpp"

#include <heddle/cost/timeline.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/joint.hpp>
#include <heddle/program/program.hpp>

namespace heddle::cli {

/// *Throws* what `plan_hap` does.
plan plan_whole(program const& p, cluster const& c, hap_options const& options, chosen_ratio_solver const& solver);
/// *Throws* what `plan_mesh` does.
plan plan_on_axes(program const& p, cluster const& c, mesh const& m, hap_options const& options,
                  chosen_ratio_solver const& solver);
/// *Throws* what `plan_hidup` does.
plan plan_interleaved(program const& p, cluster const& c, hap_options const& planning, hidup_arguments const& arguments,
                      chosen_ratio_solver const& solver);
/// *Throws* what `find_plan` does.
staged_plan plan_of_all(program const& p, cluster const& c, joint_options const& options,
                        chosen_ratio_solver const& solver);
/// Returns the events of one iteration of any plan.
timeline timeline_of(plan const& p, cluster const& c);

} // namespace heddle::cli
