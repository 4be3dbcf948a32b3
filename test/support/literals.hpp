// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Arguments of traced calls, in few letters.
#pragma once

#include <heddle/program/traced_call.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

inline literal T(tensor_id id) { return {literal::tensor{id}}; }
inline literal text(char const* s) { return {std::string(s)}; }
inline literal number(std::int64_t i) { return {i}; }
inline literal real(double d) { return {d}; }
inline literal flag(bool b) { return {b}; }
inline literal list(std::vector<literal> items) { return {literal::list(std::move(items))}; }
inline literal ints(std::vector<std::int64_t> const& values) {
    literal::list items;
    for (auto v : values) items.push_back(number(v));
    return {std::move(items)};
}
inline literal slice(std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                     std::optional<std::int64_t> step = {}) {
    return {literal::slice{start, stop, step}};
}
inline literal whole() { return {literal::slice{}}; }
inline literal none() { return {}; }

} // namespace heddle::test
