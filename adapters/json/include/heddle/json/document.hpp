// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A JSON file, and its fields read with messages that name the place.
#pragma once

#include <heddle/json/digest.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/names.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::json {

namespace detail {

/// Text from a file, fit for one line of a message.
inline std::string printable(std::string text, std::size_t longest = 160) {
    if (text.size() > longest) {
        while (longest > 0 && (static_cast<unsigned char>(text[longest]) & 0xc0) == 0x80) --longest; // not inside a character
        text = text.substr(0, longest) + "...";
    }
    for (char& c : text)
        if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
    return text;
}

/// Runs a reader; whatever goes wrong leaves it as an `error`.
template <class Read>
auto guarded(std::string const& name, Read&& read) {
    try {
        return std::forward<Read>(read)();
    } catch (error const&) {
        throw;
    } catch (std::bad_alloc const&) {
        throw input_error(name, "needs more memory than there is");
    } catch (std::exception const& e) {
        throw input_error(name, printable(e.what()));
    }
}

/// Refuses what the parser would take: deep nesting, and a field named twice.
class parse_checks {
public:
    static constexpr int deepest = 64;

    bool operator()(int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
        using enum nlohmann::json::parse_event_t;
        if ((event == object_start || event == array_start) && depth >= deepest)
            throw input_error("", "is nested more than " + std::to_string(deepest) + " deep");
        if (event == object_start) {
            if (open_++ == keys_.size()) keys_.emplace_back();
            keys_[open_ - 1].clear();
        } else if (event == key) {
            keys_[open_ - 1].push_back(parsed.get_ref<std::string const&>());
        } else if (event == object_end && keys_[--open_].size() != parsed.size()) {
            auto& names = keys_[open_];
            std::ranges::sort(names);
            throw input_error("", "an object has the field '" + printable(*std::ranges::adjacent_find(names)) + "' twice");
        }
        return true;
    }

private:
    std::vector<std::vector<std::string>> keys_;
    std::size_t open_ = 0;
};

inline std::string line_and_column(std::string_view text, std::size_t byte) {
    std::string_view const before = text.substr(0, std::min(text.size(), byte == 0 ? 0 : byte - 1));
    auto const line = std::ranges::count(before, '\n') + 1;
    std::size_t const start = before.rfind('\n');
    auto const column = before.size() - (start == std::string_view::npos ? 0 : start + 1) + 1;
    return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

/// What the parser says, without its own prefix.
inline std::string parser_text(std::string_view what) {
    for (std::string_view const start : {"syntax error ", "] "})
        if (auto const found = what.find(start); found != std::string_view::npos)
            return printable(std::string(what.substr(found + (start == "] " ? 2 : 0))));
    return printable(std::string(what));
}

inline nlohmann::json parse(std::string const& name, std::string_view text) {
    try {
        return nlohmann::json::parse(text, parse_checks());
    } catch (input_error const& e) {
        throw input_error(name, e.what());
    } catch (nlohmann::json::parse_error const& e) {
        throw input_error(name + ", " + line_and_column(text, e.byte), parser_text(e.what()));
    } catch (nlohmann::json::exception const& e) {
        throw input_error(name, parser_text(e.what()));
    }
}

} // namespace detail

/// A value in a document and the way there, such as `nodes[12].out.shape[1]`.
///
/// Every reading member throws `input_error` naming file, place, what is there and what was expected.
/// *Lifetime:* refers to the document.
class element {
public:
    element(std::string const& file, nlohmann::json const& value, std::string place = {}) : file_(&file), value_(&value), place_(std::move(place)) {}

    [[nodiscard]] nlohmann::json const& value() const { return *value_; }
    [[nodiscard]] std::string const& place() const { return place_; }

    [[noreturn]] void fail(std::string const& problem) const {
        throw input_error(place_.empty() ? *file_ : *file_ + ": " + detail::printable(place_), detail::printable(problem, 400));
    }
    [[noreturn]] void expected(std::string const& what) const { fail("is " + describe() + ", expected " + what); }

    [[nodiscard]] std::optional<element> find(std::string_view field) const {
        if (!value_->is_object()) expected("an object");
        auto const found = value_->find(field);
        if (found == value_->end()) return {};
        return element(*file_, *found, path_to(field));
    }
    [[nodiscard]] element at(std::string_view field) const {
        if (auto found = find(field)) return *std::move(found);
        fail("lacks the field '" + std::string(field) + "'");
    }
    [[nodiscard]] std::vector<std::pair<std::string, element>> fields() const {
        if (!value_->is_object()) expected("an object");
        std::vector<std::pair<std::string, element>> result;
        for (auto const& [key, item] : value_->items()) result.emplace_back(key, element(*file_, item, path_to(key)));
        return result;
    }
    /// Refuses other fields, except where the name starts with `x-`.
    void allow_only(std::initializer_list<std::string_view> names) const {
        for (auto const& [key, item] : fields())
            if (!key.starts_with("x-") && std::ranges::find(names, key) == names.end()) fail("has the unknown field '" + key + "'");
    }

    [[nodiscard]] std::size_t size() const {
        if (!value_->is_array()) expected("an array");
        return value_->size();
    }
    [[nodiscard]] element item(std::size_t i) const { return element(*file_, value_->at(i), place_ + "[" + std::to_string(i) + "]"); }
    /// Calls `visit` for each item of an array.
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (std::size_t i = 0, n = size(); i < n; ++i) visit(item(i));
    }

    [[nodiscard]] std::string text() const {
        if (!value_->is_string()) expected("a string");
        return value_->get<std::string>();
    }
    /// A string that is not empty.
    [[nodiscard]] std::string name() const {
        std::string result = text();
        if (result.empty()) expected("a name");
        return result;
    }
    [[nodiscard]] bool boolean() const {
        if (!value_->is_boolean()) expected("true or false");
        return value_->get<bool>();
    }
    [[nodiscard]] double number() const {
        if (!value_->is_number()) expected("a number");
        double const result = value_->get<double>();
        if (!std::isfinite(result)) expected("a finite number");
        return result;
    }
    [[nodiscard]] double positive() const {
        double const result = number();
        if (!(result > 0)) expected("a number greater than 0");
        return result;
    }
    [[nodiscard]] double non_negative() const {
        double const result = number();
        if (!(result >= 0)) expected("a number that is not negative");
        return result;
    }
    [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most) const {
        std::string const range = "an integer from " + std::to_string(least) + " to " + std::to_string(most);
        if (!value_->is_number_integer()) expected(range);
        bool const huge = value_->is_number_unsigned() && value_->get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        if (huge) expected(range);
        auto const result = value_->get<std::int64_t>();
        if (result < least || result > most) expected(range);
        return result;
    }
    /// An array of numbers of things, each below `count`.
    [[nodiscard]] std::vector<std::uint32_t> numbers_below(std::size_t count) const {
        std::vector<std::uint32_t> result;
        result.reserve(size());
        for (auto const& entry : *value_) {
            bool const good = entry.is_number_unsigned() && entry.get<std::uint64_t>() < count;
            if (!good) item(result.size()).expected("an integer below " + std::to_string(count));
            result.push_back(entry.get<std::uint32_t>());
        }
        return result;
    }
    /// The value a table gives to this name.
    template <class T, std::size_t Size>
    [[nodiscard]] T choice(std::array<named<T>, Size> const& table) const {
        auto const found = value_->is_string() ? value_of(table, value_->get_ref<std::string const&>()) : std::nullopt;
        if (!found) expected("one of " + listed(table));
        return *found;
    }

private:
    [[nodiscard]] std::string path_to(std::string_view field) const {
        bool const plain = field.find_first_of(". []'") == std::string_view::npos;
        if (!plain) return place_ + "['" + std::string(field) + "']";
        return place_.empty() ? std::string(field) : place_ + "." + std::string(field);
    }
    [[nodiscard]] std::string describe() const {
        if (value_->is_array()) return "an array of " + std::to_string(value_->size());
        if (value_->is_object()) return "an object";
        return detail::printable(value_->dump(), 60);
    }

    std::string const* file_;
    nlohmann::json const* value_;
    std::string place_;
};

/// A parsed JSON file of one of our formats.
class document {
public:
    /// Checks syntax, format and version. `kind` is what follows `heddle.` in the format.
    document(std::string name, std::string_view text, std::string_view kind, int newest)
        : name_(std::move(name)), digest_(json::digest(text)), root_(detail::parse(name_, text)) {
        version_ = read_version("heddle." + std::string(kind), newest);
    }
    document(document const&) = delete;
    document& operator=(document const&) = delete;

    [[nodiscard]] element root() const { return {name_, root_}; }
    [[nodiscard]] std::string const& name() const { return name_; }
    /// 0 where the file does not say.
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
        if (number > newest) root().fail("is " + expected_format + " version " + std::to_string(number) + ", expected " + known);
        return static_cast<int>(number);
    }

    std::string name_, digest_;
    nlohmann::json root_;
    int version_ = 0;
};

/// The format that a file says it has; empty where it says none. *Throws* `input_error` for what is no JSON.
[[nodiscard]] inline std::string format_of(std::string const& name, std::string_view text) {
    auto const root = detail::parse(name, text);
    auto const format = root.is_object() ? root.find("format") : root.end();
    return format != root.end() && format->is_string() ? format->get<std::string>() : std::string();
}

} // namespace heddle::json
