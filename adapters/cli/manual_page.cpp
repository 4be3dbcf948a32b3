// SPDX-License-Identifier: BSL-1.0
// Writes the table of options as a manual page.
#include "option_table.hpp"

#include <heddle/base/version.hpp>

#include <string>

namespace heddle::cli {

namespace {

/// Keeps a text from being read as requests or as special characters.
std::string escaped(std::string const& text) {
    std::string result;
    for (char const c : text) {
        if (c == '\\') result += "\\e";
        else if (c == '-') result += "\\-";
        else if (c == '\'') result += "\\(aq";
        else result += c;
    }
    return result.starts_with('.') ? "\\&" + result : result;
}

} // namespace

std::string manual_page(CLI::App const& app) {
    std::string page = std::string(".TH HEDDLE 1 \"\" \"heddle ") + library_version + "\" \"User Commands\"\n" +
                       ".SH NAME\nheddle \\- plan how the training of a neural network is split over unequal devices\n"
                       ".SH SYNOPSIS\n.B heddle\n.I COMMAND\n.RI [ OPTIONS ]\n"
                       ".SH DESCRIPTION\n" +
                       escaped(app.get_description()) +
                       ".\nFiles are JSON, and any of them may be compressed with gzip.\n.SH COMMANDS\n";
    for (auto const& command : pages_of(app)) {
        page += ".SS heddle " + escaped(command.name) + "\n" + escaped(command.description) + ".\n";
        for (auto const& section : command.sections) {
            if (section.title != "Options" && !section.rows.empty()) page += ".PP\n" + escaped(section.title) + ":\n";
            for (auto const& row : section.rows) {
                page += ".TP\n.B " + escaped(row.name);
                if (!row.value.empty() && !row.has_place()) page += " \\fI" + escaped(row.value) + "\\fR";
                page += "\n" + escaped(row.text()) + ".\n";
            }
        }
    }
    return page + ".SH EXIT STATUS\n"
                  ".TP\n0\nDone.\n"
                  ".TP\n1\nA file or a value is bad, or cannot be read or written.\n"
                  ".TP\n2\nThe arguments are not understood.\n"
                  ".TP\n3\nNo plan is possible, or the plan does not fit.\n"
                  ".TP\n4\nA limit ended the search before a plan was found.\n"
                  ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nIf it is not empty, reports on a terminal have no colour.\n";
}

} // namespace heddle::cli
