// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Forms of tensors as `--pin` and `--forbid` ask for them.
#pragma once

#include "commands.hpp"

#include <heddle/program/program.hpp>
#include <heddle/synthesis/pins.hpp>

#include <array>
#include <vector>

namespace heddle::cli {

/// Reads `NAME=FORM` of all that is pinned and forbidden. *Throws* `input_error` for a name or a form that there is
/// not.
[[nodiscard]] std::vector<pinned_tensor> form_rules_of(program const& p, hap_arguments const& arguments);

/// Reads `NAME=FORM,FORM` of all that is pinned and forbidden on a mesh, by axis, outermost first; `any` is no form.
/// *Throws* as above, if a form is not given for each axis, or one is forbidden on other than one axis.
[[nodiscard]] std::array<std::vector<pinned_tensor>, 2> mesh_form_rules_of(program const& p,
                                                                           hap_arguments const& arguments);

} // namespace heddle::cli
