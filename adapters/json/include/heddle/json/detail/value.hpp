// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief JSON values in little memory.
#pragma once

#include <heddle/base/algorithm.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

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

} // namespace heddle::json::detail
