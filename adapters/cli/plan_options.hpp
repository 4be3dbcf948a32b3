// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The options of `heddle plan`.
#pragma once

#include "commands.hpp"

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace heddle::cli {

/// Adds the option that names a TorchScript module's inputs.
void add_input_option(CLI::App& command, std::vector<std::string>& inputs);

/// Adds the options to the command; those that the chosen planner does not have are refused once all are parsed.
void add_plan_options(CLI::App& command, plan_arguments& plan);

} // namespace heddle::cli
