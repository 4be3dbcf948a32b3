// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of tensors that are made of numbers alone: each element by its place in the whole.
#pragma once

#include <heddle/program/detail/described_operator.hpp>

#include <cmath>

namespace heddle::detail {

/// Without operands, of the call's shape; parallel along every dimension.
inline described_operator source_of(call_view const& c, char const* kind, operator_attributes attributes) {
    tensor_shape const& dims = c.result_shape();
    described_operator op{rule_text({}, {numbered(dims)}), {}};
    op.kind = kind;
    op.options.results = {dims};
    op.options.category = operator_class::elementwise;
    op.options.forward = flops(element_count(dims));
    op.options.attributes = std::move(attributes);
    return op;
}

/// Describes a tensor that has one number everywhere.
inline description filled(call_view const& c, std::optional<double> value) {
    if (!value || c.result_count() != 1) return {};
    return source_of(c, "full", {{"value", just(*value)}});
}
/// A number, also one of a type that is written as true or false.
inline std::optional<double> value_at(call_view const& c, std::size_t position, std::string_view name) {
    auto const* found = c.find(position, name);
    if (found && found->as<bool>()) return *found->as<bool>() ? 1 : 0;
    return c.number(position, name);
}

/// Numbers at equal distances.
inline description counted(call_view const& c, double start, double step, double count) {
    tensor_shape const& dims = c.result_shape();
    if (dims.size() != 1 || !std::isfinite(start) || !std::isfinite(step) || c.result_count() != 1) return {};
    if (static_cast<double>(dims[0]) != count)
        c.fail("end", "gives " + std::to_string(static_cast<std::int64_t>(count)) + " numbers, the result has shape " +
                          to_text(dims));
    return source_of(c, "arange", {{"start", just(start)}, {"step", just(step)}});
}
/// From `start`, or zero, up to `end`, which is left out.
inline description range_of(call_view const& c) {
    auto const& keywords = c.call().keywords;
    bool const begins = keywords.contains("start") || c.call().arguments.size() > 1; // a single number is the end
    auto const start = begins ? c.number(0, "start") : std::optional(0.0), end = c.number(begins ? 1 : 0, "end");
    auto const step = c.find(2, "step") ? c.number(2, "step") : std::optional(1.0);
    if (!start || !end || !step || *step == 0) return {};
    return counted(c, *start, *step, std::ceil((*end - *start) / *step));
}
inline description linear_space(call_view const& c) {
    auto const start = c.number(0, "start"), end = c.number(1, "end"), steps = c.number(2, "steps");
    if (!start || !end || !steps || *steps < 1) return {};
    return counted(c, *start, *steps > 1 ? (*end - *start) / (*steps - 1) : 0, *steps);
}

/// Random numbers, drawn by the place.
inline description drawn(call_view const& c, char const* kind) {
    if (c.result_count() != 1) return {};
    return source_of(c, kind, {});
}

} // namespace heddle::detail
