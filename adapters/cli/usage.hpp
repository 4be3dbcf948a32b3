// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the command line says about itself: help, and what may have been meant.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace heddle::cli {

/// Adds the commands `completion` and `help`, which print how to use the others, once all of them are there.
void add_help(CLI::App& app);

/// Returns one line on what is wrong with the arguments, with the command or option that may have been meant and where
/// to read on.
std::string explain(CLI::App const& app, CLI::ParseError const& e);

} // namespace heddle::cli
