// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief JSON values in little memory, and the handler of parser events that makes them.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory_resource>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::json::detail {

/// Counts how many bytes may still be used.
class allowance {
public:
    explicit allowance(std::size_t bytes) : left_(bytes) {}
    /// Takes bytes, and tells whether there were as many left.
    [[nodiscard]] bool take(std::size_t bytes) {
        if (bytes > left_) return false;
        left_ -= bytes;
        return true;
    }
    void give_back(std::size_t bytes) { left_ += bytes; }

private:
    std::size_t left_;
};

struct field;

/// A value of a document in 16 bytes; texts and items lie in the document.
class value {
public:
    value() = default;
    explicit value(bool b) : kind_(kind::boolean) { of_.boolean = b; }
    explicit value(std::int64_t i) : kind_(kind::integer) { of_.integer = i; }
    explicit value(std::uint64_t n) : kind_(kind::natural) { of_.natural = n; }
    explicit value(double r) : kind_(kind::real) { of_.real = r; }
    explicit value(std::string_view t) : kind_(kind::text), size_(static_cast<std::uint32_t>(t.size())) {
        of_.text = t.data();
    }
    explicit value(std::span<value const> items) : kind_(kind::array), size_(static_cast<std::uint32_t>(items.size())) {
        of_.items = items.data();
    }
    explicit value(std::span<field const> fields)
        : kind_(kind::object), size_(static_cast<std::uint32_t>(fields.size())) {
        of_.fields = fields.data();
    }

    [[nodiscard]] bool is_null() const { return kind_ == kind::null; }
    [[nodiscard]] bool is_boolean() const { return kind_ == kind::boolean; }
    [[nodiscard]] bool is_number_integer() const { return kind_ == kind::integer || kind_ == kind::natural; }
    [[nodiscard]] bool is_number() const { return is_number_integer() || kind_ == kind::real; }
    [[nodiscard]] bool is_string() const { return kind_ == kind::text; }
    [[nodiscard]] bool is_array() const { return kind_ == kind::array; }
    [[nodiscard]] bool is_object() const { return kind_ == kind::object; }

    // Each of these has as its precondition that the value is of this kind.
    [[nodiscard]] bool boolean() const { return of_.boolean; }
    [[nodiscard]] double number() const {
        return kind_ == kind::real      ? of_.real
               : kind_ == kind::integer ? static_cast<double>(of_.integer)
                                        : static_cast<double>(of_.natural);
    }
    /// Tells whether it is an integer that is not negative and fits.
    [[nodiscard]] bool is_natural() const { return kind_ == kind::natural; }
    [[nodiscard]] std::uint64_t natural() const { return of_.natural; }
    [[nodiscard]] std::int64_t integer() const {
        return kind_ == kind::integer ? of_.integer : static_cast<std::int64_t>(of_.natural);
    }
    [[nodiscard]] std::string_view text() const { return {of_.text, size_}; }
    [[nodiscard]] std::span<value const> items() const { return {of_.items, size_}; }
    /// The fields are sorted by key.
    [[nodiscard]] inline std::span<field const> fields() const;

    /// Returns the size of an array or object.
    [[nodiscard]] std::size_t size() const { return size_; }
    /// Returns the value of an object's field, or null.
    [[nodiscard]] inline value const* find(std::string_view key) const;

private:
    enum class kind : std::uint8_t { null, boolean, integer, natural, real, text, array, object };
    union content {
        bool boolean;
        std::int64_t integer;
        std::uint64_t natural;
        double real;
        char const* text;
        value const* items;
        field const* fields;
    };
    kind kind_ = kind::null;
    std::uint32_t size_ = 0;
    content of_{};
};
static_assert(sizeof(value) == 16);

struct field {
    std::string_view key;
    value content;
};

inline std::span<field const> value::fields() const { return {of_.fields, size_}; }
inline value const* value::find(std::string_view key) const {
    auto const found = algorithm::lower_bound(fields(), key, {}, &field::key);
    return found != fields().end() && found->key == key ? &found->content : nullptr;
}

/// Builds a document's value from the parser's events. While reading it refuses what is too large, too deep, or has a
/// field twice.
class value_builder : public nlohmann::json_sax<nlohmann::json> {
public:
    static constexpr std::size_t deepest = 64;
    /// `place` turns a number of bytes read into a place for a message; at most `most` bytes are used for values and
    /// texts.
    value_builder(std::string const& file, std::pmr::memory_resource& memory,
                  std::function<std::string(std::size_t)> place, std::size_t most)
        : file_(file), memory_(memory), place_(std::move(place)), most_(most), left_(most) {}

    [[nodiscard]] value result() const { return pending_.front(); }

    bool null() override { return add(value()); }
    bool boolean(bool b) override { return add(value(b)); }
    bool number_integer(number_integer_t i) override { return add(value(i)); }
    bool number_unsigned(number_unsigned_t n) override { return add(value(n)); }
    bool number_float(number_float_t r, string_t const&) override { return add(value(r)); }
    bool string(string_t& text) override { return add(value(copy(text))); }
    bool binary(binary_t&) override { return false; } // not in text
    bool key(string_t& text) override { return add(value(copy(text))); }
    bool start_object(std::size_t) override { return open(); }
    bool start_array(std::size_t) override { return open(); }

    bool end_array() override {
        auto const items = unclosed();
        auto* const stored = allocate<value>(items.size());
        algorithm::copy(items, stored);
        return close(value(std::span<value const>(stored, items.size())));
    }
    bool end_object() override {
        auto const pairs = unclosed();
        std::size_t const count = pairs.size() / 2;
        auto* const stored = allocate<field>(count);
        for (std::size_t i = 0; i < count; ++i) stored[i] = {pairs[2 * i].text(), pairs[2 * i + 1]};
        std::span<field> const fields(stored, count);
        algorithm::sort(fields, {}, &field::key);
        auto const twice = std::ranges::adjacent_find(fields, {}, &field::key);
        if (twice != fields.end())
            throw input_error(file_, "an object has the field '" + printable(twice->key) + "' twice");
        return close(value(std::span<field const>(fields)));
    }

    bool parse_error(std::size_t position, std::string const&, nlohmann::json::exception const& problem) override {
        throw input_error(file_ + ", " + place_(position), parser_text(problem.what()));
    }

private:
    /// What the parser says, without its own prefix.
    static std::string parser_text(std::string_view what) {
        for (std::string_view const start : {"syntax error ", "] "})
            if (auto const found = what.find(start); found != std::string_view::npos)
                return printable(what.substr(found + (start == "] " ? 2 : 0)));
        return printable(what);
    }

    void take(std::size_t bytes) {
        if (!left_.take(bytes))
            throw input_error(file_,
                              "has values of more than " + std::to_string(most_) + " bytes in memory, expected fewer");
    }
    template <class T>
    T* allocate(std::size_t count) {
        take(count * sizeof(T));
        return static_cast<T*>(memory_.allocate(std::max<std::size_t>(1, count) * sizeof(T), alignof(T)));
    }
    std::string_view copy(std::string_view text) {
        auto* const stored = allocate<char>(text.size());
        std::memcpy(stored, text.data(), text.size());
        return {stored, text.size()};
    }

    bool add(value v) {
        take(sizeof(value));
        pending_.push_back(v);
        return true;
    }
    bool open() {
        if (open_.size() >= deepest)
            throw input_error(file_, "is nested more than " + std::to_string(deepest) + " deep");
        open_.push_back(pending_.size());
        return true;
    }
    [[nodiscard]] std::span<value const> unclosed() const { return std::span(pending_).subspan(open_.back()); }
    bool close(value container) {
        left_.give_back(unclosed().size() * sizeof(value));
        pending_.resize(open_.back());
        open_.pop_back();
        return add(container);
    }

    std::string const& file_;
    std::pmr::memory_resource& memory_;
    std::function<std::string(std::size_t)> place_;
    std::size_t most_;
    allowance left_;
    /// Values and keys of the containers that are not closed, and where each of these begins.
    std::vector<value> pending_;
    std::vector<std::size_t> open_;
};

} // namespace heddle::json::detail
