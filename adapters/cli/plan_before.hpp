// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The plan that training goes on from, and what has to move from its devices to those of another.
#pragma once

#include "commands.hpp"
#include "plan_file.hpp"
#include "plan_input.hpp"

#include <heddle/base/quantity.hpp>
#include <heddle/execute/stored_parts.hpp>

#include <string>
#include <vector>

namespace heddle::cli {

/// What moves, and the seconds of it.
struct state_move {
    bytes received, from_checkpoint;
    double time = 0;
};

/// A plan before, as the devices of a cluster have what its devices stored. *Lifetime:* refers to the input.
class plan_before {
public:
    /// Reads the plan that the arguments name. *Throws* `input_error` for a plan by AMP or Ditto, and if the plan is
    /// none of the model.
    plan_before(plan_arguments const& arguments, plan_input const& input);

    [[nodiscard]] any_plan& plan() { return plan_; }
    /// Tells whether the devices of the cluster are of the types of the plan's.
    [[nodiscard]] bool has_same_devices() const;
    /// Returns what has to move to the devices of another plan.
    [[nodiscard]] state_move move_to(any_plan const& p) const;
    [[nodiscard]] state_move move_to(staged_plan const& p) const;

private:
    plan_input const& input_;
    any_plan plan_;
    /// By device of the cluster and of the plan; those that the plan leaves out have none.
    std::vector<std::string> types_, types_before_;
    std::vector<stored_parts> had_;
    std::vector<double> bytes_per_element_;
};

} // namespace heddle::cli
