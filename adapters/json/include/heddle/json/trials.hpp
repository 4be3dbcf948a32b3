// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Lists of plans that are to be run, with what they took (CSV).
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::json {

/// A plan that is to be run.
struct trial {
    /// The plan's file, as seen from the list's folder, and the family that it is of, which may be empty.
    std::string plan, family{};
    seconds predicted{};
    /// What an iteration took; absent until the plan was run.
    std::optional<seconds> measured{};
};

/// Returns the list as a file has it, with a line for each trial. There is no quoting. *Precondition:* no name has a
/// comma or a line end.
[[nodiscard]] std::string to_text(std::vector<trial> const& trials);

/// Reads a list; `name` stands in messages. *Throws* `input_error` naming the line.
[[nodiscard]] std::vector<trial> parse_trials(std::string_view text, std::string const& name = "trials");

/// Returns a list with the time of one of its trials, counted from 0; all else stays as it was written.
/// *Throws* `input_error` as `parse_trials` does. *Precondition:* the list has that trial.
[[nodiscard]] std::string with_time(std::string_view text, std::size_t number, seconds time,
                                    std::string const& name = "trials");

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/json/document.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

namespace heddle::json {

namespace detail {

/// Returns what is between commas, without blanks around it; of blanks alone, what is before them.
HEDDLE_INLINE std::vector<std::string_view> cells_of(std::string_view line) {
    constexpr std::string_view blanks = " \t\r";
    std::vector<std::string_view> cells;
    for (std::size_t begin = 0; begin <= line.size();) {
        auto const end = std::min(line.find(',', begin), line.size());
        auto const cell = line.substr(begin, end - begin);
        auto const first = cell.find_first_not_of(blanks);
        cells.push_back(first == cell.npos ? cell.substr(0, 0)
                                           : cell.substr(first, cell.find_last_not_of(blanks) + 1 - first));
        begin = end + 1;
    }
    return cells;
}

/// Reads a positive time; an empty cell has none.
HEDDLE_INLINE std::optional<seconds> time_in(std::string_view cell, std::string const& place) {
    if (cell.empty()) return std::nullopt;
    double number = 0;
    auto const [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
    if (error != std::errc() || end != cell.data() + cell.size() || !(number > 0) || !std::isfinite(number))
        throw input_error(place, "'" + printable(cell, 40) + "', expected the seconds of an iteration");
    return seconds(number);
}

/// Writes a number in as few digits as give it again.
HEDDLE_INLINE std::string cell_of(double value) {
    std::array<char, 32> digits;
    return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}

/// Calls `visit(plan, seconds, place)` for each trial of a list, with its cells, which are parts of the text, and where
/// they are.
template <class Visit>
void for_each_trial(std::string_view text, std::string const& name, Visit const& visit) {
    std::vector<std::string_view> header;
    auto const column = [&](std::string_view title) {
        return static_cast<std::size_t>(std::find(header.begin(), header.end(), title) - header.begin());
    };
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    for (std::size_t begin = 0, number = 1; begin < text.size(); ++number) {
        auto const end = std::min(text.find('\n', begin), text.size());
        auto const cells = cells_of(text.substr(begin, end - begin));
        begin = end + 1;
        if (cells.front().starts_with('#') || (cells.size() == 1 && cells.front().empty())) continue;
        auto const place = name + ", line " + std::to_string(number);
        if (header.empty()) {
            header = cells;
            if (column("plan") == header.size() || column("seconds") == header.size())
                throw input_error(place, "expected a header with the columns plan and seconds");
            continue;
        }
        if (cells.size() != header.size())
            throw input_error(place, "has " + std::to_string(cells.size()) + " cells, expected " +
                                         std::to_string(header.size()) + " as in the header");
        visit(cells[column("plan")], cells[column("seconds")], place);
    }
}

} // namespace detail

HEDDLE_INLINE std::string to_text(std::vector<trial> const& trials) {
    std::string text = "plan,family,predicted,seconds\n";
    for (auto const& t : trials)
        text += t.plan + ',' + t.family + ',' + detail::cell_of(t.predicted.value) + ',' +
                (t.measured ? detail::cell_of(t.measured->value) : std::string()) + '\n';
    return text;
}

HEDDLE_INLINE std::vector<trial> parse_trials(std::string_view text, std::string const& name) {
    std::vector<trial> trials;
    detail::for_each_trial(text, name, [&](std::string_view plan, std::string_view time, std::string const& place) {
        if (plan.empty() || !is_utf8(plan)) throw input_error(place, "expected the file of a plan, in UTF-8");
        trials.push_back({.plan = std::string(plan), .measured = detail::time_in(time, place)});
    });
    return trials;
}

HEDDLE_INLINE std::string with_time(std::string_view text, std::size_t number, seconds time, std::string const& name) {
    std::string result(text);
    std::size_t here = 0;
    detail::for_each_trial(text, name, [&](std::string_view, std::string_view cell, std::string const&) {
        if (here++ == number)
            result.replace(static_cast<std::size_t>(cell.data() - text.data()), cell.size(),
                           detail::cell_of(time.value));
    });
    return result;
}

} // namespace heddle::json

#endif
