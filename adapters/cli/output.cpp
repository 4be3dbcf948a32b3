// SPDX-License-Identifier: BSL-1.0
// Ends a command: standard output, then files.
#include "output.hpp"

#include <heddle/base/error.hpp>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace heddle::cli {

namespace {

/// Tells whether the reader of standard output wants colour (no-color.org).
bool has_colour() {
    auto const value = [](char const* name) {
        char const* const text = std::getenv(name);
        return std::string_view(text ? text : "");
    };
    return isatty(STDOUT_FILENO) == 1 && value("NO_COLOR").empty() && value("TERM") != "dumb";
}

/// Returns the style of a report's line: titles, which follow an empty line, and the outcome.
std::string_view style_of(std::string_view line, bool follows_empty) {
    if (line.starts_with("seconds per iteration")) return "\x1b[1;32m";
    if (line.starts_with("reason") || line.starts_with("status                 limit") ||
        line.starts_with("status                 infeasible"))
        return "\x1b[1;31m";
    return follows_empty && !line.empty() && line.front() != ' ' ? "\x1b[1m" : "";
}

} // namespace

void print_report(std::string_view text) {
    if (!has_colour()) {
        std::cout << text;
        return;
    }
    bool follows_empty = false;
    while (!text.empty()) {
        auto const line = text.substr(0, text.find('\n'));
        auto const style = style_of(line, follows_empty);
        std::cout << style << line << (style.empty() ? "" : "\x1b[0m") << '\n';
        follows_empty = line.empty();
        text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
}

void finish_printing() {
    std::cout.flush();
    bool const is_flushed = std::fflush(stdout) == 0;
    if (is_flushed && std::cout && std::ferror(stdout) == 0) return;
    pollfd out{STDOUT_FILENO, 0, 0};
    bool const has_no_reader = poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
    if (!has_no_reader) throw file_error("standard output cannot be written");
}

void deliver(std::vector<json::staged_file> files) {
    finish_printing();
    for (auto& f : files) f.commit();
}

} // namespace heddle::cli
