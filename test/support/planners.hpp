// SPDX-License-Identifier: BSL-1.0
// The planners that most of our programs call, compiled once in planners.cpp. The build includes this file first in every source.
#pragma once

#include <heddle/clp/all.hpp>
#include <heddle/heddle.hpp>

#ifndef HEDDLE_PLANNER
#define HEDDLE_PLANNER extern template
#endif

namespace heddle {

HEDDLE_PLANNER plan plan_hap(program const&, cluster const&, clp::ratio_solver&, hap_options const&);
HEDDLE_PLANNER plan plan_hap(program const&, cluster const&, clp::ratio_solver&&, hap_options const&);
HEDDLE_PLANNER plan find_plan(program const&, cluster const&, clp::ratio_solver&&, hap_options const&);
HEDDLE_PLANNER plan plan_hidup(program const&, cluster const&, clp::ratio_solver&&, hidup_options const&);

} // namespace heddle
