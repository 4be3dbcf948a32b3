// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A JSON file, and its fields read with messages that name the place.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/json/detail/value.hpp>
#include <heddle/json/digest.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/names.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory_resource>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::json {

namespace detail {

/// Runs a reader; whatever goes wrong is thrown as an `error`.
template <class Read>
auto guarded(std::string const& name, Read&& read) {
    try {
        return std::forward<Read>(read)();
    } catch (error const&) { throw; } catch (std::bad_alloc const&) {
        throw input_error(name, "needs more memory than there is");
    } catch (std::exception const& e) { throw input_error(name, printable(e.what())); }
}

/// A file's values and what reading them may still take.
struct source {
    std::string name;
    std::pmr::monotonic_buffer_resource memory{};
    value root{};
    /// The bytes that values may take while they are read, and those of what a reader makes of them.
    static constexpr std::size_t most_of_values = std::size_t{384} << 20, most_made = std::size_t{512} << 20;
    mutable allowance left{most_made};

    source(std::string file, std::string_view text, std::size_t most = most_of_values);
};

} // namespace detail

/// A value in a document.
///
/// Every reading member throws `input_error` naming file, place, what is there and what was expected.
/// *Lifetime:* refers to the document.
class element {
public:
    /// *Precondition.* The value is one of the file's.
    element(detail::source const& file, detail::value const& value) : file_(&file), value_(&value) {}

    [[nodiscard]] detail::value const& value() const { return *value_; }

    [[noreturn]] void fail(std::string const& problem) const;
    [[noreturn]] void expected(std::string const& what) const { fail("is " + describe() + ", expected " + what); }
    /// Counts what a reader makes of a value, so that no file takes all memory.
    void takes(std::size_t bytes) const {
        if (!file_->left.take(bytes))
            fail("makes the file's content take more than " + std::to_string(detail::source::most_made) +
                 " bytes in memory, expected less");
    }

    [[nodiscard]] std::optional<element> find(std::string_view field) const {
        if (!value_->is_object()) expected("an object");
        auto const found = value_->find(field);
        if (!found) return {};
        return element(*file_, *found);
    }
    [[nodiscard]] element at(std::string_view field) const {
        if (auto found = find(field)) return *std::move(found);
        fail("lacks the field '" + std::string(field) + "'");
    }
    [[nodiscard]] std::vector<std::pair<std::string, element>> fields() const {
        if (!value_->is_object()) expected("an object");
        std::vector<std::pair<std::string, element>> result;
        takes(value_->size() * sizeof(result.front()));
        for (auto const& [key, item] : value_->fields()) result.emplace_back(key, element(*file_, item));
        return result;
    }
    /// Refuses other fields, except where the name starts with `x-`.
    void allow_only(std::initializer_list<std::string_view> names) const {
        if (!value_->is_object()) expected("an object");
        for (auto const& [key, item] : value_->fields())
            if (!key.starts_with("x-") && algorithm::find(names, key) == names.end())
                fail("has the unknown field '" + printable(key) + "'");
    }

    [[nodiscard]] std::size_t size() const {
        if (!value_->is_array()) expected("an array");
        return value_->size();
    }
    [[nodiscard]] element item(std::size_t i) const { return element(*file_, value_->items()[i]); }
    /// Calls `visit` for each item of an array. It counts what readers make of a record.
    template <class Visit>
    void for_each(Visit&& visit) const {
        constexpr std::size_t record = 256;
        for (std::size_t i = 0, n = size(); i < n; ++i) {
            auto const one = item(i);
            if (one.value().is_object()) one.takes(record);
            visit(one);
        }
    }

    [[nodiscard]] std::string text() const {
        if (!value_->is_string()) expected("a string");
        return std::string(value_->text());
    }
    /// A string that is not empty.
    [[nodiscard]] std::string name() const {
        std::string result = text();
        if (result.empty()) expected("a name");
        return result;
    }
    [[nodiscard]] bool boolean() const {
        if (!value_->is_boolean()) expected("true or false");
        return value_->boolean();
    }
    [[nodiscard]] double number() const {
        if (!value_->is_number()) expected("a number");
        double const result = value_->number();
        if (!std::isfinite(result)) expected("a finite number");
        return result;
    }
    [[nodiscard]] double positive() const {
        double const result = number();
        if (!(result > 0)) expected("a number greater than 0");
        return result;
    }
    /// Reads a rate of work or of bytes per second.
    [[nodiscard]] double rate() const;
    [[nodiscard]] double non_negative() const {
        double const result = number();
        if (!(result >= 0)) expected("a number that is not negative");
        return result;
    }
    [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most) const {
        std::string const range = "an integer from " + std::to_string(least) + " to " + std::to_string(most);
        if (!value_->is_number_integer()) expected(range);
        bool const huge = value_->is_natural() &&
                          value_->natural() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        if (huge) expected(range);
        auto const result = value_->integer();
        if (result < least || result > most) expected(range);
        return result;
    }
    /// Reads an array of numbers of things, each below `count`.
    [[nodiscard]] std::vector<std::uint32_t> numbers_below(std::size_t count) const {
        std::vector<std::uint32_t> result;
        result.reserve(size());
        for (auto const& entry : value_->items()) {
            bool const good = entry.is_natural() && entry.natural() < count;
            if (!good) item(result.size()).expected("an integer below " + std::to_string(count));
            result.push_back(static_cast<std::uint32_t>(entry.natural()));
        }
        return result;
    }
    /// Returns the value that a table gives to this name.
    template <class T, std::size_t Size>
    [[nodiscard]] T choice(std::array<named<T>, Size> const& table) const {
        auto const found = value_->is_string() ? value_of(table, value_->text()) : std::nullopt;
        if (!found) expected("one of " + listed(table));
        return *found;
    }

private:
    [[nodiscard]] std::string describe() const;

    detail::source const* file_;
    detail::value const* value_;
};

/// A parsed JSON file of one of our formats.
class document {
public:
    /// Checks syntax, format and version. `kind` is what follows `heddle.` in the format.
    document(std::string name, std::string_view text, std::string_view kind, int newest)
        : source_(std::move(name), text), digest_(json::digest(text)) {
        version_ = read_version("heddle." + std::string(kind), newest);
    }
    document(document const&) = delete;
    document& operator=(document const&) = delete;

    [[nodiscard]] element root() const { return {source_, source_.root}; }
    [[nodiscard]] std::string const& name() const { return source_.name; }
    /// Returns 0 if the file does not say.
    [[nodiscard]] int version() const { return version_; }
    [[nodiscard]] std::string const& digest() const { return digest_; }

private:
    [[nodiscard]] int read_version(std::string const& expected_format, int newest) const {
        auto const format = root().find("format"), version = root().find("version");
        if (!format && !version) return 0;
        if (!format) root().fail("has a 'version' but no 'format', expected both or neither");
        if (!version) root().fail("has a 'format' but no 'version', expected both or neither");
        std::string const known = expected_format + " up to version " + std::to_string(newest);
        if (format->text() != expected_format) format->expected(known);
        auto const number = version->integer(1, std::numeric_limits<std::int32_t>::max());
        if (number > newest)
            root().fail("is " + expected_format + " version " + std::to_string(number) + ", expected " + known);
        return static_cast<int>(number);
    }

    detail::source source_;
    std::string digest_;
    int version_ = 0;
};

/// Returns the format that a file says it has; empty if it says none. *Throws* `input_error` for what is no JSON.
[[nodiscard]] inline std::string format_of(std::string const& name, std::string_view text) {
    detail::source const file(name, text);
    auto const* const format = file.root.is_object() ? file.root.find("format") : nullptr;
    return format && format->is_string() ? std::string(format->text()) : std::string();
}

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/json/detail/value_builder.hpp>

#include <nlohmann/json.hpp>

namespace heddle::json {

namespace detail {

[[nodiscard]] HEDDLE_INLINE std::string line_and_column(std::string_view text, std::size_t byte) {
    std::string_view const before = text.substr(0, std::min(text.size(), byte == 0 ? 0 : byte - 1));
    auto const line = algorithm::count(before, '\n') + 1;
    std::size_t const start = before.rfind('\n');
    auto const column = before.size() - (start == std::string_view::npos ? 0 : start + 1) + 1;
    return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

/// Refuses a text or number so long that the parser would need a multiple of a file's size.
HEDDLE_INLINE void check_tokens(std::string const& file, std::string_view text) {
    constexpr std::size_t longest = std::size_t{1} << 20;
    constexpr auto ends_token = [](char c) {
        return c == ',' || c == ':' || c == '{' || c == '}' || c == '[' || c == ']' || c == ' ' || c == '\n' ||
               c == '\r' || c == '\t';
    };
    bool in_text = false;
    for (std::size_t begin = 0, i = 0; i < text.size(); ++i) {
        if (i - begin > longest)
            throw input_error(file + ", " + line_and_column(text, begin),
                              "is longer than " + std::to_string(longest) +
                                  " bytes, expected a shorter text or number");
        char const c = text[i];
        if (in_text && c == '\\') {
            ++i;
        } else if (c == '"') {
            in_text = !in_text;
            begin = i + 1;
        } else if (!in_text && ends_token(c)) {
            begin = i + 1;
        }
    }
}

HEDDLE_INLINE source::source(std::string file, std::string_view text, std::size_t most) : name(std::move(file)) {
    check_tokens(name, text);
    value_builder builder(name, memory, [&](std::size_t byte) { return line_and_column(text, byte); }, most);
    nlohmann::json::sax_parse(text, &builder);
    root = builder.result();
}

/// Finds the way from a value to one inside it, such as `nodes[12].out.shape[1]`. Only messages need it.
[[nodiscard]] HEDDLE_INLINE std::optional<std::string> way_to(value const& sought, value const& from) {
    if (&sought == &from) return std::string();
    auto const behind = [](std::string const& step, std::string const& rest) {
        return step + (rest.empty() || rest.starts_with('[') ? "" : ".") + rest;
    };
    if (from.is_array())
        for (std::size_t i = 0; i < from.size(); ++i)
            if (auto const rest = way_to(sought, from.items()[i])) return behind("[" + std::to_string(i) + "]", *rest);
    if (from.is_object())
        for (auto const& [key, content] : from.fields())
            if (auto const rest = way_to(sought, content)) {
                bool const plain = !key.empty() && key.find_first_of(". []'") == std::string_view::npos;
                return behind(plain ? std::string(key) : "['" + std::string(key) + "']", *rest);
            }
    return {};
}

} // namespace detail

HEDDLE_INLINE void element::fail(std::string const& problem) const {
    auto const place = detail::way_to(*value_, file_->root).value_or("");
    throw input_error(place.empty() ? file_->name : file_->name + ": " + printable(place), printable(problem, 400));
}

HEDDLE_INLINE double element::rate() const {
    double const result = positive();
    if (result < least_rate) expected("a rate of at least " + nlohmann::json(least_rate).dump());
    return result;
}

HEDDLE_INLINE std::string element::describe() const {
    if (value_->is_array()) return "an array of " + std::to_string(value_->size());
    if (value_->is_object()) return "an object";
    using scalar = nlohmann::json;
    scalar const found = value_->is_null()              ? scalar()
                         : value_->is_boolean()         ? scalar(value_->boolean())
                         : value_->is_string()          ? scalar(std::string(value_->text().substr(0, 256)))
                         : !value_->is_number_integer() ? scalar(value_->number())
                         : value_->is_natural()         ? scalar(value_->natural())
                                                        : scalar(value_->integer());
    return printable(found.dump(-1, ' ', false, scalar::error_handler_t::replace), 60);
}

} // namespace heddle::json

#endif // HEDDLE_DEFINITIONS
