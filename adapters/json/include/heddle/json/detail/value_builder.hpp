// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The handler of parser events that makes JSON values.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/json/detail/value.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::json::detail {

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
