// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans that are to be tried, and the list in which their times are noted.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::cli {

/// A line of the list: a plan's file, what was predicted for it, and the seconds of an iteration once it was run.
struct trial {
    std::string plan, family{};
    double predicted = 0;
    std::optional<double> seconds{};
};

/// Returns the list as a file has it (CSV): a header, and a line for each trial.
[[nodiscard]] std::string to_text(std::vector<trial> const& trials);

/// Reads a list. It has columns `plan` and `seconds`, in any order; others are ignored, and so are empty lines. There
/// is no quoting. *Throws* `input_error` that names the line.
[[nodiscard]] std::vector<trial> parse_trials(std::string_view text, std::string const& name);

/// Returns the file of one of the plans to be tried, counted from 1, beside that of the best.
[[nodiscard]] std::filesystem::path file_of_trial(std::filesystem::path const& best, std::size_t number);

} // namespace heddle::cli
