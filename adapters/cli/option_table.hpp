// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The commands and their options as a table, from which help, manual and completions are written.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace heddle::cli {

struct option_row {
    /// With hyphens; of what has a place instead of a name, that place's name.
    std::string name;
    /// What it takes and in which unit, such as `BYTES`; empty for flags.
    std::string value;
    std::vector<std::string> choices{};
    std::string description{}, range{}, default_value{};
    bool is_required = false, may_repeat = false;

    [[nodiscard]] bool has_place() const { return !name.starts_with('-'); }
    [[nodiscard]] bool takes_path() const { return value == "FILE" || value == "FOLDER"; }
    /// The description with choices, range and default.
    [[nodiscard]] std::string text() const;
};

struct option_section {
    std::string title;
    std::vector<option_row> rows;
};

struct command_page {
    /// Empty for `heddle` itself.
    std::string name;
    std::string description;
    std::vector<option_section> sections;
};

/// Returns the page of one command.
[[nodiscard]] command_page page_of(CLI::App const& command);
/// Returns the pages of all commands of `app`.
[[nodiscard]] std::vector<command_page> pages_of(CLI::App const& app);

/// Writes help within 80 columns: a command's options, or all commands.
class help_formatter : public CLI::FormatterBase {
public:
    [[nodiscard]] std::string make_help(CLI::App const* app, std::string name, CLI::AppFormatMode mode) const override;
};

/// Returns the manual page as `man` reads it.
[[nodiscard]] std::string manual_page(CLI::App const& app);

/// Returns the script that completes commands, options and their choices in a shell: `bash`, `zsh` or `fish`.
[[nodiscard]] std::string completion_for(std::string const& shell, CLI::App const& app);

} // namespace heddle::cli
