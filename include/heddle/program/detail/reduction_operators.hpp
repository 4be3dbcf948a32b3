// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of reductions over dimensions and of pools, resizing and padding.
#pragma once

#include <heddle/program/detail/place_operators.hpp>

#include <cmath>
#include <limits>

namespace heddle::detail {

/// Which dimensions a reduction is over: all, unless it names some.
inline std::vector<bool> reduced_dimensions(call_view const& c, std::size_t rank, std::size_t position = 1) {
    auto const dimensions = c.integers(position, "dim");
    std::vector<bool> reduced(rank, dimensions.empty());
    for (auto dimension : dimensions) reduced[c.axis(dimension, rank)] = true;
    return reduced;
}

/// Sum or mean, which divides by global extents, is linear; other reductions need their dimensions whole.
inline description reduction_over(call_view const& c, bool linear, std::size_t position, std::size_t keep_position) {
    tensor_id const x = c.tensor(0, "input");
    shape const& dims = c.shape_of(x);
    auto const reduced = reduced_dimensions(c, dims.size(), position);
    bool const keep = c.flag(keep_position, "keepdim", false);
    entries access = numbered(dims), result;
    std::vector<double> axes;
    for (std::size_t d = 0; d < dims.size(); ++d) {
        if (!reduced[d]) result.push_back(access[d]);
        else if (keep) result.emplace_back("1");
        if (reduced[d]) axes.push_back(static_cast<double>(d));
        if (reduced[d] && !linear) access[d] = entry("_", dims[d]);
    }
    described_operator op{rule_text({access}, {result}, linear ? "0" : ""), {x}};
    op.options.category = operator_class::reduction;
    if (!linear) op.options.attributes["dim"] = axes;
    return op;
}
inline description reduce(call_view const& c) { return reduction_over(c, true, 1, 2); }

/// Saves what its derivative is a function of.
inline description reduce_whole_at(call_view const& c, std::size_t position, std::size_t keep_position) {
    if (c.result_count() != 1) return {};
    auto op = reduction_over(c, false, position, keep_position);
    op->options.saved_operands = operand_numbers{0};
    op->options.saved_results = {0};
    return op;
}
inline description reduce_whole(call_view const& c) { return reduce_whole_at(c, 1, 2); }

/// Of all elements, or of a dimension, where they are too.
inline description extreme_of(call_view const& c) {
    bool const largest = c.call().target.ends_with("max");
    if (c.find_tensor(1, "other")) {
        auto op = extreme(c);
        if (op) op->kind = largest ? "maximum" : "minimum";
        return op;
    }
    if (c.result_count() != 2) return reduce_whole(c);
    std::size_t const rank = c.shape_of(c.tensor(0, "input")).size();
    if (rank == 0) return {};
    bool const keeps = c.flag(2, "keepdim", false);
    return ranked(c, c.axis(c.integer(1, "dim"), rank), keeps ? kept_dimension::one : kept_dimension::none, largest);
}
/// Where the largest or smallest is, in a dimension or among all elements.
inline description place_of_extreme(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    entries from = numbered(c.shape_of(x)), to = from;
    described_operator op{{}, {x}};
    if (c.find(1, "dim")) {
        std::size_t const axis = c.axis(c.integer(1, "dim"), from.size());
        from[axis] = entry("_", c.shape_of(x)[axis]);
        if (c.flag(2, "keepdim", false)) to[axis] = "1";
        else to.erase(to.begin() + static_cast<std::ptrdiff_t>(axis));
        op.options.attributes["dim"] = just(axis);
    } else {
        if (c.flag(2, "keepdim", false)) return {};
        from = blocked_from(from, 0);
        to.clear();
    }
    op.rule = rule_text({from}, {to});
    op.options.category = operator_class::reduction;
    op.options.saved_operands = operand_numbers{};
    return op;
}

/// Half of a dimension, gated by the other half.
inline description gated_linear(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    shape dims = c.shape_of(x);
    entries from = numbered(dims), to = from;
    std::size_t const axis = c.axis(c.integer(1, "dim", -1), dims.size());
    if (dims[axis] % 2 != 0) c.fail("dim", "has " + std::to_string(dims[axis]) + " places, expected an even number");
    from[axis] = "_";
    dims[axis] /= 2;
    to[axis] = entry("_", dims[axis]);
    described_operator op{rule_text({from}, {to}), {x}};
    op.options.category = operator_class::elementwise;
    op.options.results = {dims};
    op.options.forward = flops(6 * element_count(dims));
    op.options.saved_operands = operand_numbers{0};
    op.options.attributes["dim"] = just(axis);
    return op;
}

/// Variance and standard deviation, by default of a sample: divided by one less. Dimensions, whether it is so (or by how much less), and whether they are
/// kept; of all elements, the second alone.
inline description variance(call_view const& c) {
    bool const over_all = c.call().arguments.size() > 1 && c.call().arguments[1].as<bool>();
    std::size_t const position = over_all ? 1 : 2;
    auto op = over_all ? reduce_whole_at(c, c.call().arguments.size(), c.call().arguments.size()) : reduce_whole_at(c, 1, 3);
    if (!op) return {};
    bool const by_number = c.call().keywords.contains("correction") || c.number(position, "correction");
    double const correction = by_number ? c.number(position, "correction").value_or(1) : c.flag(position, "unbiased", true) ? 1 : 0;
    op->options.attributes["correction"] = just(correction);
    op->options.forward = flops(4 * element_count(c.shape_of(op->operands[0])));
    return op;
}
/// The Euclidean norm of a vector.
inline description vector_norm(call_view const& c) {
    auto const* order = c.find(1, "p");
    if (order && order->as<std::string>() && *order->as<std::string>() != "fro") return {};
    if (order && !order->as<std::string>() && c.number(1, "p") != 2) return {};
    auto op = reduction_over(c, false, 2, 3);
    op->options.saved_operands = operand_numbers{0};
    op->options.saved_results = {0};
    return op;
}
inline description cumulative_sum(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    entries access = numbered(c.shape_of(x));
    std::size_t const axis = c.axis(c.integer(1, "dim"), access.size());
    access[axis] = entry("_", c.shape_of(x)[axis]);
    described_operator op{rule_text({access}, {access}, "0"), {x}};
    op.options.results = {c.shape_of(x)};
    op.options.category = operator_class::reduction;
    op.options.attributes["dim"] = just(axis);
    return op;
}

/// The last dimensions are blocked, for windows overlap, and become these.
inline described_operator pool(call_view const& c, shape const& windows, bool linear, double window) {
    tensor_id const x = c.tensor(0, "input");
    std::size_t const rank = windows.size();
    shape const& dims = c.shape_of(x);
    if (dims.size() < rank) c.fail("input", "has shape " + to_text(dims) + ", expected at least " + std::to_string(rank) + " dimensions");
    shape result = dims;
    std::ranges::copy(windows, result.end() - static_cast<std::ptrdiff_t>(rank));
    entries from = numbered(dims), to = from;
    for (std::size_t d = dims.size() - rank; d < dims.size(); ++d) {
        from[d] = "_";
        to[d] = entry("_", result[d]);
    }
    described_operator op{rule_text({from}, {to}, linear ? "0" : ""), {x}};
    op.options.results = {result};
    op.options.category = operator_class::reduction;
    op.options.forward = flops(std::max(element_count(dims), window * element_count(result)));
    op.options.attributes["rank"] = just(rank);
    return op;
}

/// The last `rank` dimensions of the operand.
inline shape pooled_dimensions(call_view const& c, std::size_t rank) {
    shape const& dims = c.shape_of(c.tensor(0, "input"));
    return {dims.end() - static_cast<std::ptrdiff_t>(std::min(rank, dims.size())), dims.end()};
}

/// A pool whose windows the arguments say.
inline described_operator window_pool(call_view const& c, std::size_t rank, bool linear, std::vector<double> const& dilation, bool ceil) {
    auto const size = sides(c, 1, "kernel_size", rank), stride = sides(c, 2, "stride", rank), padding = sides(c, 3, "padding", rank);
    if (size.size() != rank) c.fail("kernel_size", "expected one integer or " + std::to_string(rank));
    double window = 1;
    for (double side : size) window *= side;
    auto const lines = window_lines(c, size, stride.empty() ? size : stride, padding, dilation);
    shape result = pooled_dimensions(c, rank);
    for (std::size_t d = 0; d < result.size(); ++d) {
        c.expect_within("padding", lines[d].padding, 0, lines[d].size / 2);
        result[d] = lines[d].count(result[d], ceil);
    }
    auto op = pool(c, result, linear, window);
    op.options.attributes["kernel_size"] = size;
    op.options.attributes["stride"] = stride;
    op.options.attributes["padding"] = padding;
    return op;
}

template <std::size_t Rank>
description max_pool(call_view const& c) {
    if (c.result_count() != 1) return {};
    auto const dilation = sides(c, 4, "dilation", Rank);
    auto op = window_pool(c, Rank, false, dilation, c.flag(5, "ceil_mode", false));
    op.options.saved_operands = operand_numbers{0};
    op.options.extra_saved = bytes(8 * element_count(c.result_shape())); // places of the maxima
    op.options.attributes["dilation"] = dilation;
    return op;
}

template <std::size_t Rank>
description average_pool(call_view const& c) {
    auto op = window_pool(c, Rank, true, {}, c.flag(4, "ceil_mode", false));
    op.options.attributes["count_include_pad"] = just(c.flag(5, "count_include_pad", true));
    if (auto const divisor = c.number(6, "divisor_override")) op.options.attributes["divisor_override"] = just(*divisor);
    return op;
}
/// As many windows as the argument says; where it says none, as many as places.
inline shape adaptive_windows(call_view const& c, std::size_t rank, char const* name = "output_size") {
    shape result = pooled_dimensions(c, rank);
    auto const* found = c.find(1, name);
    auto const* list = found ? found->as<literal::list>() : nullptr;
    if (list && list->size() == 1) found = &list->front(), list = nullptr; // [n] stands for all of them
    if (list && list->size() != result.size()) c.fail(name, "expected one integer or " + std::to_string(rank));
    for (std::size_t d = 0; found && d < result.size(); ++d) {
        literal const& size = list ? (*list)[d] : *found;
        if (size.is_none()) continue;
        if (!size.as<std::int64_t>()) c.fail(name, "expected integers");
        result[d] = *size.as<std::int64_t>();
    }
    return result;
}
template <std::size_t Rank>
description adaptive_average_pool(call_view const& c) { return pool(c, adaptive_windows(c, Rank), true, 1); }
template <std::size_t Rank>
description adaptive_max_pool(call_view const& c) {
    if (c.result_count() != 1) return {};
    auto op = pool(c, adaptive_windows(c, Rank), false, 1);
    op.options.saved_operands = operand_numbers{0};
    op.options.extra_saved = bytes(8 * element_count(c.result_shape()));
    return op;
}

/// By dimension, by how much it is resized; none where a size is given.
inline std::vector<double> resize_factors(call_view const& c, std::size_t rank) {
    auto factors = c.numbers(2, "scale_factor");
    if (factors.size() == 1) factors.resize(rank, factors.front());
    if (!factors.empty() && factors.size() != rank) c.fail("scale_factor", "expected one number or " + std::to_string(rank));
    return factors;
}

/// The sizes that are given, or that factors give, rounded down.
inline shape resized_dimensions(call_view const& c, std::vector<double> const& factors, std::size_t rank) {
    if (c.find(1, "size")) return adaptive_windows(c, rank, "size");
    shape const& stated = c.result_shape();
    shape result(stated.end() - static_cast<std::ptrdiff_t>(rank), stated.end());
    for (std::size_t d = 0; d < factors.size(); ++d) {
        double const size = std::floor(factors[d] * static_cast<double>(pooled_dimensions(c, rank)[d]));
        if (!(size >= 1 && size <= std::numeric_limits<std::int32_t>::max())) c.fail("scale_factor", "is " + std::to_string(factors[d]) + ", which leaves no size");
        result[d] = static_cast<extent>(size);
    }
    return result;
}

/// Resizing to the nearest element, or in each dimension by a line between two neighbours or a cubic of four. The places of results follow from both
/// sizes, or from the factors that were given: where these do not divide evenly, sizes are rounded down and the two differ.
inline description interpolate(call_view const& c) {
    shape const& dims = c.shape_of(c.tensor(0, "input"));
    std::string const mode = c.text(3, "mode", "nearest");
    int const neighbours = mode == "nearest" ? 1 : mode == "linear" || mode == "bilinear" || mode == "trilinear" ? 2 : mode == "bicubic" ? 4 : 0;
    if (dims.size() < 3 || c.result_shape().size() != dims.size() || neighbours == 0) return {};
    if (c.flag(6, "antialias", false)) return {};
    auto factors = resize_factors(c, dims.size() - 2);
    auto op = pool(c, resized_dimensions(c, factors, dims.size() - 2), true, std::pow(neighbours, dims.size() - 2));
    op.options.attributes["neighbours"] = just(neighbours);
    op.options.attributes["align_corners"] = just(c.flag(4, "align_corners", false));
    if (!factors.empty() && !c.flag(5, "recompute_scale_factor", false)) op.options.attributes["factors"] = std::move(factors);
    return op;
}

} // namespace heddle::detail
