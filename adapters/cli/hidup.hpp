// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the command line has for micro-batches that take turns.
#pragma once

#include "commands.hpp"

#include <heddle/cost/timeline.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/program/program.hpp>

namespace heddle::cli {

/// *Throws* as `plan_hidup`.
plan plan_interleaved(heddle::program const& p, cluster const& c, hap_options const& planning, hidup_arguments const& arguments);
/// The events of one iteration of any plan.
timeline timeline_of(plan const& p, cluster const& c);

} // namespace heddle::cli
