// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Forms of tensors as `--pin` and `--forbid` ask for them.
#pragma once

#include "commands.hpp"

#include <heddle/program/program.hpp>
#include <heddle/synthesis/mesh_search_options.hpp>
#include <heddle/synthesis/pins.hpp>

#include <cstddef>
#include <vector>

namespace heddle::cli {

/// Reads `NAME=FORM` of all that is pinned and forbidden. *Throws* `input_error` for a name or a form that there is
/// not.
[[nodiscard]] std::vector<pinned_tensor> form_rules_of(program const& p, hap_arguments const& arguments);

/// Reads `NAME=FORM,FORM` of all that is pinned and forbidden on a mesh of so many axes, outermost first; `any` is no
/// form.
/// *Throws* as above, if a form is not given for each axis, one is forbidden on other than one axis, or axes are too
/// many for pins.
[[nodiscard]] pins_of_axes mesh_form_rules_of(program const& p, hap_arguments const& arguments, std::size_t axes);

} // namespace heddle::cli
