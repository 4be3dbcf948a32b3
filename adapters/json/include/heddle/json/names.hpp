// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the files call element types, operator classes, collectives and outcomes.
#pragma once

#include <heddle/cluster/cluster.hpp>
#include <heddle/program/tensor.hpp>
#include <heddle/search/result.hpp>

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::json {

template <class T>
struct named {
    std::string_view name;
    T value;
};

inline constexpr std::array element_types{
    named{"float16", element_type::float16}, named{"bfloat16", element_type::bfloat16},
    named{"float32", element_type::float32}, named{"float64", element_type::float64},
    named{"int8", element_type::int8},       named{"int32", element_type::int32},
    named{"int64", element_type::int64},     named{"bool", element_type::boolean}};

inline constexpr std::array operator_classes{named{"matmul", operator_class::matmul},
                                             named{"convolution", operator_class::convolution},
                                             named{"attention", operator_class::attention},
                                             named{"normalisation", operator_class::normalisation},
                                             named{"elementwise", operator_class::elementwise},
                                             named{"reduction", operator_class::reduction},
                                             named{"other", operator_class::other}};

inline constexpr std::array unevens{named{"padded", uneven::padded}, named{"grouped", uneven::grouped}};

inline constexpr std::array collectives{
    named{"all_reduce", collective::all_reduce}, named{"all_gather", collective::all_gather},
    named{"reduce_scatter", collective::reduce_scatter}, named{"all_to_all", collective::all_to_all},
    named{"broadcast", collective::broadcast}};

inline constexpr std::array statuses{named{"optimal", search::status::optimal},
                                     named{"feasible", search::status::feasible}, named{"limit", search::status::limit},
                                     named{"infeasible", search::status::infeasible}};

inline constexpr std::array limits{
    named{"labels", search::limit_kind::labels},   named{"comparisons", search::limit_kind::comparisons},
    named{"memory", search::limit_kind::memory},   named{"time", search::limit_kind::time},
    named{"stopped", search::limit_kind::stopped}, named{"width", search::limit_kind::width}};

static_assert(operator_classes.size() == operator_class_count && collectives.size() == collective_count);

template <class T, std::size_t Size>
[[nodiscard]] constexpr std::optional<T> value_of(std::array<named<T>, Size> const& table, std::string_view name) {
    for (auto const& entry : table)
        if (entry.name == name) return entry.value;
    return {};
}

/// *Precondition:* the table has the value.
template <class T, std::size_t Size>
[[nodiscard]] constexpr std::string_view name_of(std::array<named<T>, Size> const& table, T value) {
    for (auto const& entry : table)
        if (entry.value == value) return entry.name;
    return {};
}

/// All names, for messages.
template <class T, std::size_t Size>
[[nodiscard]] std::string listed(std::array<named<T>, Size> const& table) {
    std::string text;
    for (auto const& entry : table) text += (text.empty() ? "" : ", ") + std::string(entry.name);
    return text;
}

} // namespace heddle::json
