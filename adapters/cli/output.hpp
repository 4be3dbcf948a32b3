// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a command leaves behind: all of it, or nothing.
#pragma once

#include <heddle/json/file.hpp>

#include <string_view>
#include <vector>

namespace heddle::cli {

/// Prints a report, on a terminal with its titles in bold, unless the environment has `NO_COLOR` or a dumb terminal.
void print_report(std::string_view text);

/// Makes sure that what was printed has arrived. If the reader of a pipe has gone, it wants no more, and nothing is
/// lost.
/// *Throws* `file_error`.
void finish_printing();

/// Puts files in their places once what was printed has arrived. *Throws* `file_error`.
void deliver(std::vector<json::staged_file> files);

} // namespace heddle::cli
