// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a command leaves behind: all of it, or nothing.
#pragma once

#include <heddle/json/file.hpp>

#include <vector>

namespace heddle::cli {

/// Sees to it that what was printed has arrived. The reader of a pipe who has gone wants no more of it: nothing is lost
/// then.
/// *Throws* `file_error`.
void finish_printing();

/// Puts files in their places once what was printed has arrived. *Throws* `file_error`.
void deliver(std::vector<json::staged_file> files);

} // namespace heddle::cli
