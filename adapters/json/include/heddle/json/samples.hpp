// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Reads measurements of collectives and operators (CSV).
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/sample.hpp>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::json {

using heddle::sample;

/// Reads samples from text; `name` stands in messages.
/// *Throws* `input_error`.
[[nodiscard]] std::vector<sample> parse_samples(std::string_view text, std::string const& name = "samples");

/// Reads a file of samples.
/// *Throws* `file_error` if it cannot be read, `input_error` naming line and column if it is wrong.
[[nodiscard]] std::vector<sample> read_samples(std::filesystem::path const& path);

/// Returns samples as a file has them. There is no quoting: of a kind of operator whose name has a comma or a line end
/// the name is left out, and the sample is of its class alone.
[[nodiscard]] std::string to_text(std::vector<sample> const& samples);

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/json/document.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <variant>

namespace heddle::json {

namespace detail {

class samples_reader {
public:
    samples_reader(std::string const& name, std::string_view text) : name_(name), rest_(text) {
        if (rest_.starts_with("\xef\xbb\xbf")) rest_.remove_prefix(3);
    }

    std::vector<sample> read() {
        std::vector<sample> result;
        while (next_line()) {
            if (result.size() == most_samples)
                fail("", "is one of more than " + std::to_string(most_samples) + " samples");
            if (number_of_lines_read_ > 1) result.push_back(read_sample());
            else read_header();
        }
        if (number_of_lines_read_ == 0) throw input_error(name_, "is empty, expected the header " + headers());
        return result;
    }

    static constexpr std::string_view header_line =
        "what,device,ranks,dtype,flops,bytes,seconds,operator,pass,bytes_beside,kernels_beside,axis";
    /// What a collective along a line of machines has in its last column.
    static constexpr std::string_view across_machines = "machines";

private:
    static constexpr std::size_t most_samples = std::size_t{1} << 20;
    enum column { what, device, ranks, dtype, work, size, time, kind, pass, beside, kernels_beside, axis, all_columns };
    static constexpr std::array<char const*, all_columns> columns{"what",  "device",       "ranks",          "dtype",
                                                                  "flops", "bytes",        "seconds",        "operator",
                                                                  "pass",  "bytes_beside", "kernels_beside", "axis"};
    /// The least columns that a file has, whose samples tell no kinds of operators.
    static constexpr std::size_t least_columns = kind;

    static std::string headers() {
        return "'" + std::string(header_line) + "', which may end before ',axis' or ',operator'";
    }

    void read_header() {
        column_count_ = static_cast<std::size_t>(algorithm::count(line_, ',')) + 1;
        bool const is_known =
            line_ == header_line || ((column_count_ == least_columns || column_count_ == axis) &&
                                     header_line.starts_with(line_) && header_line[line_.size()] == ',');
        if (!is_known) fail("", "is '" + printable(std::string(line_)) + "', expected the header " + headers());
    }

    /// The next line that is neither empty nor a comment.
    bool next_line() {
        while (!rest_.empty()) {
            ++line_number_;
            line_ = rest_.substr(0, rest_.find('\n'));
            rest_.remove_prefix(std::min(rest_.size(), line_.size() + 1));
            if (line_.ends_with('\r')) line_.remove_suffix(1);
            if (line_.empty() || line_.starts_with('#')) continue;
            ++number_of_lines_read_;
            return true;
        }
        return false;
    }

    [[noreturn]] void fail(std::string const& where, std::string const& problem) const {
        throw input_error(name_ + ": line " + std::to_string(line_number_) + (where.empty() ? "" : ", " + where),
                          problem);
    }
    [[noreturn]] void expected(column c, std::string const& what_instead) const {
        std::string const found = cells_[c].empty() ? "empty" : "'" + printable(std::string(cells_[c]), 60) + "'";
        fail(columns[c], "is " + found + ", expected " + what_instead);
    }

    void split() {
        std::string_view rest = line_;
        for (std::size_t c = 0; c < column_count_; ++c) {
            auto const comma = rest.find(',');
            if ((comma == std::string_view::npos) != (c + 1 == column_count_))
                fail("", "has another number of columns than " + std::to_string(column_count_));
            cells_[c] = rest.substr(0, comma);
            rest.remove_prefix(std::min(rest.size(), cells_[c].size() + 1));
        }
    }

    [[nodiscard]] double number(column c, bool positive) const {
        std::string const what_instead = positive ? "a number greater than 0" : "a number that is not negative";
        double value = 0;
        char const* const end = cells_[c].data() + cells_[c].size();
        auto const [stop, error] = std::from_chars(cells_[c].data(), end, value);
        if (cells_[c].empty() || error != std::errc() || stop != end || !std::isfinite(value) || value < 0 ||
            (positive && value == 0))
            expected(c, what_instead);
        return value;
    }

    [[nodiscard]] int integer(column c, int least, int most) const {
        int value = 0;
        char const* const end = cells_[c].data() + cells_[c].size();
        auto const [stop, error] = std::from_chars(cells_[c].data(), end, value);
        if (cells_[c].empty() || error != std::errc() || stop != end || value < least || value > most)
            expected(c, "an integer from " + std::to_string(least) + " to " + std::to_string(most));
        return value;
    }

    void expect_empty(column c, char const* of) const {
        if (!cells_[c].empty()) expected(c, std::string("nothing for ") + of);
    }

    void read_collective(sample& s) const {
        for (auto const c : {device, work, kind, pass, beside, kernels_beside}) expect_empty(c, "a collective");
        s.is_across = !cells_[axis].empty();
        s.ranks = integer(ranks, s.is_across ? 2 : 1, 65536);
        if (s.is_across && cells_[axis] != across_machines)
            expected(axis, "nothing or " + std::string(across_machines));
    }

    void read_operator(sample& s) const {
        for (auto const c : {ranks, axis}) expect_empty(c, "an operator");
        s.device = cells_[device];
        if (s.device.empty() || !is_utf8(s.device)) expected(device, "the name of a device type, in UTF-8");
        if (!s.type) expected(dtype, "the element type of the operands");
        if (!cells_[work].empty()) s.work = flops(number(work, false));
        if (cells_[kind].empty()) {
            expect_empty(pass, "no kind of operator");
        } else {
            if (!is_utf8(cells_[kind])) expected(kind, "the name of a kind of operator, in UTF-8");
            if (cells_[pass] != "forward" && cells_[pass] != "backward") expected(pass, "forward or backward");
            s.of = {std::string(cells_[kind]), cells_[pass] == "backward"};
        }
        if (!cells_[beside].empty()) s.beside = bytes(number(beside, false));
        if (!cells_[kernels_beside].empty()) s.kernels_beside = integer(kernels_beside, 0, 65536);
    }

    [[nodiscard]] sample read_sample() {
        split();
        sample s;
        if (!cells_[dtype].empty()) {
            s.type = value_of(element_types, cells_[dtype]);
            if (!s.type) expected(dtype, "one of " + listed(element_types));
        }
        if (auto const kind = value_of(collectives, cells_[what])) {
            s.what = *kind;
            read_collective(s);
        } else if (auto const category = value_of(operator_classes, cells_[what])) {
            s.what = *category;
            read_operator(s);
        } else {
            expected(what, "one of " + listed(collectives) + ", " + listed(operator_classes));
        }
        s.size = bytes(number(size, false));
        s.time = seconds(number(time, true));
        return s;
    }

    std::string name_;
    std::string_view rest_, line_;
    std::array<std::string_view, all_columns> cells_;
    std::size_t column_count_ = 0, line_number_ = 0, number_of_lines_read_ = 0;
};

} // namespace detail

HEDDLE_INLINE std::vector<sample> parse_samples(std::string_view text, std::string const& name) {
    return detail::guarded(name, [&] { return detail::samples_reader(name, text).read(); });
}

HEDDLE_INLINE std::vector<sample> read_samples(std::filesystem::path const& path) {
    return parse_samples(detail::guarded(path.string(), [&] { return read_text(path); }), path.string());
}

HEDDLE_INLINE std::string to_text(std::vector<sample> const& samples) {
    std::string text(detail::samples_reader::header_line);
    auto const number = [](double value) { return nlohmann::json(value).dump(); };
    for (auto const& s : samples) {
        bool const is_operator = std::holds_alternative<operator_class>(s.what);
        text += "\n" + std::string(is_operator ? name_of(operator_classes, std::get<operator_class>(s.what))
                                               : name_of(collectives, std::get<collective>(s.what)));
        text += "," + s.device + "," + (is_operator ? "" : std::to_string(s.ranks));
        text += "," + std::string(s.type ? name_of(element_types, *s.type) : "");
        text += "," + (is_operator ? number(s.work.value) : "");
        text += "," + number(s.size.value) + "," + number(s.time.value);
        bool const has_name = s.of && s.of->kind.find_first_of(",\r\n") == std::string::npos;
        text += has_name ? "," + s.of->kind + "," + s.of->pass() : ",,";
        text += s.kernels_beside > 0 ? "," + number(s.beside.value) + "," + std::to_string(s.kernels_beside) : ",,";
        text += "," + std::string(s.is_across ? detail::samples_reader::across_machines : "");
    }
    return text + "\n";
}

} // namespace heddle::json

#endif
