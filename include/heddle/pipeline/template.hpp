// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Finds the fastest pipeline template for machines of several types, exactly.
#pragma once

#include <heddle/base/quantity.hpp>
#include <heddle/pipeline/layer_assignment.hpp>
#include <heddle/pipeline/template_plan.hpp>
#include <heddle/pipeline/template_problem.hpp>
#include <heddle/pipeline/template_search.hpp>
#include <heddle/plan/schedule.hpp>

namespace heddle {

/// Returns the fastest template that uses all devices, or all that are not left out: the order of machines, how each is
/// divided, and the layers of each stage. Of equally fast templates it is the same one every time.
///
/// *Returns* `optimal`, `infeasible` with the reason, or `limit` with the best template met, if any, and a bound. It is
/// optimal up to rounding times to a grid, whose step is at most 2^-43 of a bound on any template's time, and 2^-58 as
/// a rule.
/// *Throws* `input_error` before work starts, also if the schedule cannot run as many stages as there may be (Oobleck's
/// estimate with fewer micro-batches than stages).
/// *Complexity.* See `detail::template_search`.
/// *Reference.* Ditto section 3, whose recursion over all halves of all subsets takes O((L - n) L^3 (n M + 1)^m).
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] pipeline_template plan_template(template_problem const& p, template_options const& o = {},
                                              Schedule const& schedule = {}) {
    detail::check(p, schedule);
    return detail::template_search<Schedule>(p, schedule, o).run();
}

} // namespace heddle
