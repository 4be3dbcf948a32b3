// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The options of `heddle train` and `heddle profile`, which the command and the program that it becomes both
/// read.
#pragma once

#include "commands.hpp"

#include <CLI/CLI.hpp>

namespace heddle::cli {

/// Adds the command `train` with its options. *Lifetime:* they refer to the arguments.
CLI::App* add_train_options(CLI::App& app, train_arguments& arguments);
/// As above, of `profile`.
CLI::App* add_profile_options(CLI::App& app, profile_arguments& arguments);

} // namespace heddle::cli
