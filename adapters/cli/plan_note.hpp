// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What `heddle plan` finds out about a plan beside it, when asked.
#pragma once

#include "make_plan.hpp"
#include "plan_before.hpp"

#include <heddle/json/file.hpp>

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace heddle::cli {

/// A section of the report, without the empty line before it, and a field of the object.
struct plan_note {
    std::string section, field;
    nlohmann::ordered_json value;
};

/// Says what `--pin` and `--forbid` cost: plans without them, and sets the plan beside that.
[[nodiscard]] plan_note cost_of_form_rules(plan_arguments const& arguments, plan_input const& input, any_plan const& p,
                                           attended_run& attended);

/// Plans for the loss of machines, to be written beside the plan's own file. *Precondition:* the plan exists and is
/// `joint`'s.
[[nodiscard]] plan_note plan_for_losses(plan_arguments const& arguments, plan_input const& input, any_plan const& p,
                                        attended_run& attended, std::vector<json::staged_file>& files);

/// *Throws* `input_error` if plans to be tried cannot lie beside this file: their list cannot have its name, or is there
/// with times in it, which would be lost.
void require_room_for_trials(std::string const& out);

/// Puts plans to be tried, and the list of them, beside the plan's own file.
[[nodiscard]] plan_note plans_to_try(std::vector<tried_plan> tried, plan_arguments const& arguments,
                                     plan_input const& input, std::vector<json::staged_file>& files);

/// Says what training that goes on from a plan has to move, and puts another plan in place of the new one if that takes
/// less with its part of moving: one that leaves parameters in the forms that they have, or the plan before.
/// *Precondition:* the plan exists.
[[nodiscard]] plan_note going_on(plan_before& before, plan_arguments const& arguments, plan_input const& input,
                                 any_plan& p, attended_run& attended);

/// Says how far each bandwidth, speed and memory of the cluster may change before planning ends with another strategy.
/// *Precondition:* the plan exists.
[[nodiscard]] plan_note sensitivity_of(plan_arguments const& arguments, plan_input const& input, any_plan const& p,
                                       attended_run& attended);

/// Plans on the first machines of the cluster, fewer and more.
[[nodiscard]] plan_note sweep_over_devices(plan_arguments const& arguments, plan_input const& input, any_plan const& p,
                                           attended_run& attended);

/// Returns the text of a plan's file.
[[nodiscard]] std::string text_of(any_plan const& p, plan_arguments const& arguments);

} // namespace heddle::cli
