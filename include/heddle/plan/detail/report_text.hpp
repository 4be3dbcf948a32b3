// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Text of fixed width, for reports of plans.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/search/outcome.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::detail {

/// The columns of a report, and of its details.
inline constexpr std::size_t report_width = 80, details_width = 100;

/// Returns `decimals` digits after the point, independent of the locale, or an exponent if that would not be readable.
std::string fixed(double value, int decimals);

/// Returns how many decimals leave six significant digits.
int decimals_for(double value);

inline std::size_t width_of(std::string_view text) {
    return static_cast<std::size_t>(
        algorithm::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

/// Returns one line of at most `width` characters. It keeps the end of the text, since names differ there.
std::string clip(std::string text, std::size_t width);

/// Breaks text at spaces into lines of at most `width` characters; a word that is longer is clipped.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

/// Rows of cells in aligned columns.
class text_columns {
public:
    /// `alignment` has one letter per column, `l` or `r`, for where its text is aligned.
    explicit text_columns(std::string_view alignment) : alignment_(alignment) {}

    void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

    /// Cells of column `flexible` are wrapped so that lines fit.
    [[nodiscard]] std::string print(std::size_t indent, std::size_t flexible, std::size_t width = report_width) const;

private:
    std::string alignment_;
    std::vector<std::vector<std::string>> rows_;
};

/// Appends a label and text that is broken at spaces; later lines begin under the first.
void add_paragraph(std::string& text, std::string const& label, std::string_view words);

/// For example `7 devices`.
inline std::string count(std::size_t n, std::string const& what, char const* plural = "s") {
    return std::to_string(n) + ' ' + what + (n == 1 ? "" : plural);
}

/// For example `0-3` for the numbers from the first to before the end, and `0` for one.
inline std::string range_text(std::size_t first, std::size_t end) {
    return std::to_string(first) + (end > first + 1 ? "-" + std::to_string(end - 1) : "");
}

/// For example `0-3,7`, of ascending numbers.
std::string ranges_text(std::vector<std::size_t> const& numbers, std::string const& separator = ",");

/// For example `1.25 times the plan`.
std::string times_text(double seconds, double cost);

/// Lists the seconds of strategies by name, beside those of a plan; nothing is shown if memory forbids the strategy.
std::string baseline_table(std::map<std::string, std::optional<double>> const& baselines, double cost, int decimals);

/// Returns `among` followed by the space, or nothing if the space is not known.
inline std::string among(std::string const& space) { return space.empty() ? "" : " among " + space; }

/// For example `optimal among one-axis programs`, `limit (time)` or `limit (time; nothing found)`.
std::string status_text(search::status status, search::limit_kind which, bool exists, std::string const& space);

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

#include <heddle/search/result.hpp>

namespace heddle::detail {

HEDDLE_INLINE std::string ranges_text(std::vector<std::size_t> const& numbers, std::string const& separator) {
    std::string text;
    for (std::size_t at = 0; at < numbers.size();) {
        std::size_t end = at + 1;
        while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
        text += (text.empty() ? "" : separator) + range_text(numbers[at], numbers[end - 1] + 1);
        at = end;
    }
    return text;
}

HEDDLE_INLINE std::string fixed(double value, int decimals) {
    std::array<char, 64> buffer{};
    bool const readable = std::abs(value) < 1e15;
    auto const end =
        readable
            ? std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, decimals).ptr
            : std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::general, 6).ptr;
    std::string text(buffer.data(), end);
    if (text.starts_with('-') && text.find_first_not_of("-0.") == std::string::npos) text.erase(0, 1);
    return text;
}

HEDDLE_INLINE int decimals_for(double value) {
    if (!std::isfinite(value) || value <= 0) return 6;
    return std::clamp(5 - static_cast<int>(std::floor(std::log10(value))), 0, 12);
}

HEDDLE_INLINE std::string clip(std::string text, std::size_t width) {
    text = printable(text, text.size());
    std::size_t const size = width_of(text);
    if (size <= width) return text;
    std::size_t begin = 0;
    for (std::size_t left = size - width + 2; begin < text.size(); ++begin)
        if ((static_cast<unsigned char>(text[begin]) & 0xc0) != 0x80 && left-- == 0) break;
    return ".." + text.substr(begin);
}

HEDDLE_INLINE std::vector<std::string> wrap(std::string_view text, std::size_t width) {
    if (width_of(text) <= width) return {clip(std::string(text), width)};
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < text.size();) {
        std::size_t const end = std::min(text.find(' ', begin), text.size());
        std::string const word = clip(std::string(text.substr(begin, end - begin)), width);
        begin = end + 1;
        if (word.empty()) continue;
        if (lines.empty() || width_of(lines.back()) + 1 + width_of(word) > width) lines.push_back(word);
        else lines.back() += ' ' + word;
    }
    if (lines.empty()) lines.emplace_back();
    return lines;
}

HEDDLE_INLINE std::string text_columns::print(std::size_t indent, std::size_t flexible, std::size_t width) const {
    std::vector<std::size_t> widths(alignment_.size());
    for (auto const& row : rows_)
        for (std::size_t k = 0; k < row.size(); ++k) widths[k] = std::max(widths[k], width_of(row[k]));
    std::size_t total = indent + 2 * (widths.size() - 1);
    for (auto w : widths) total += w;
    if (total > width)
        widths[flexible] -= std::min(widths[flexible] - std::min<std::size_t>(widths[flexible], 8), total - width);
    std::string text;
    for (auto const& row : rows_) {
        auto const lines = flexible < row.size() ? wrap(row[flexible], widths[flexible]) : std::vector<std::string>{""};
        for (std::size_t n = 0; n < lines.size(); ++n) {
            std::string line(indent, ' ');
            for (std::size_t k = 0; k < row.size(); ++k) {
                std::string const cell = k == flexible ? lines[n] : n == 0 ? clip(row[k], widths[k]) : std::string();
                std::string const fill(widths[k] - width_of(cell), ' ');
                line += alignment_[k] == 'r' ? fill + cell : cell + fill;
                line += "  ";
            }
            line.erase(line.find_last_not_of(' ') + 1);
            text += line + '\n';
        }
    }
    return text;
}

HEDDLE_INLINE void add_paragraph(std::string& text, std::string const& label, std::string_view words) {
    std::string before = label;
    for (auto const& line : wrap(words, report_width - label.size())) {
        text += before + line;
        text.erase(text.find_last_not_of(' ') + 1);
        text += '\n';
        before.assign(label.size(), ' ');
    }
}

HEDDLE_INLINE std::string times_text(double seconds, double cost) {
    double const times = seconds / cost;
    if (!(cost > 0) || std::isnan(times)) return "";
    return (std::isfinite(times) ? fixed(times, 2) : "more than " + fixed(std::numeric_limits<double>::max(), 2)) +
           " times the plan";
}

HEDDLE_INLINE std::string baseline_table(std::map<std::string, std::optional<double>> const& baselines, double cost,
                                         int decimals) {
    text_columns table("lrl");
    table.add({"", "seconds", ""});
    for (auto const& [name, seconds] : baselines) {
        if (!seconds) table.add({name, "-", "no program fits"});
        else table.add({name, fixed(*seconds, decimals), times_text(*seconds, cost)});
    }
    return table.print(2, 0);
}

HEDDLE_INLINE std::string status_text(search::status status, search::limit_kind which, bool exists,
                                      std::string const& space) {
    std::string text = search::name(status);
    if (status == search::status::limit)
        text += std::string(" (") + search::name(which) + (exists ? ")" : "; nothing found)");
    return text + among(space);
}

} // namespace heddle::detail

#endif
