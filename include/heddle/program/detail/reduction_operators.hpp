// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of reductions over dimensions and of pools, resizing and padding.
#pragma once

#include <heddle/program/detail/place_operators.hpp>

#include <cmath>

namespace heddle::detail {

/// Which dimensions a reduction is over: all, unless it says.
inline std::vector<bool> reduced_dimensions(call_view const& c, std::size_t rank, std::size_t position = 1) {
    std::vector<bool> reduced(rank, !c.find(position, "dim"));
    for (auto dimension : c.integers(position, "dim")) reduced[c.axis(dimension, rank)] = true;
    return reduced;
}

/// Sum or mean, which divides by global extents, is linear; other reductions need their dimensions whole.
inline description reduction_over(call_view const& c, bool linear, std::size_t position = 1) {
    tensor_id const x = c.tensor(0, "input");
    shape const& dims = c.shape_of(x);
    auto const reduced = reduced_dimensions(c, dims.size(), position);
    bool const keep = c.flag(position + 1, "keepdim", false);
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
inline description reduce(call_view const& c) { return reduction_over(c, true); }

/// Saves what its derivative is a function of.
inline description reduce_whole(call_view const& c) {
    if (c.result_count() != 1) return {};
    auto op = reduction_over(c, false);
    op->options.saved_operands = operand_numbers{0};
    op->options.saved_results = {0};
    return op;
}
/// Of all elements, or of a dimension, where they are too.
inline description extreme_of(call_view const& c) {
    if (c.find_tensor(1, "other")) return {}; // of two tensors
    if (c.result_count() != 2) return reduce_whole(c);
    std::size_t const rank = c.shape_of(c.tensor(0, "input")).size();
    if (rank == 0) return {};
    bool const keeps = c.flag(2, "keepdim", false), largest = c.call().target.ends_with("max");
    return ranked(c, c.axis(c.integer(1, "dim"), rank), keeps ? kept_dimension::one : kept_dimension::none, largest);
}
/// Variance and standard deviation, by default of a sample: divided by one less.
inline description variance(call_view const& c) {
    if (c.call().arguments.size() > 1 && c.call().arguments[1].as<bool>()) return {}; // over all, and no dimension in its place
    auto op = reduce_whole(c);
    if (!op) return {};
    bool const unbiased = c.flag(2, "unbiased", true);
    op->options.attributes["correction"] = just(c.number(4, "correction").value_or(unbiased ? 1 : 0));
    op->options.forward = flops(4 * element_count(c.shape_of(op->operands[0])));
    return op;
}
/// The Euclidean norm of a vector.
inline description vector_norm(call_view const& c) {
    auto const* order = c.find(1, "p");
    if (order && order->as<std::string>() && *order->as<std::string>() != "fro") return {};
    if (order && !order->as<std::string>() && c.number(1, "p") != 2) return {};
    auto op = reduction_over(c, false, 2);
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
    op.options.category = operator_class::reduction;
    op.options.attributes["dim"] = just(axis);
    return op;
}

/// The last `rank` dimensions are blocked: windows overlap.
inline described_operator pool(call_view const& c, std::size_t rank, bool linear, double window) {
    tensor_id const x = c.tensor(0, "input");
    shape const &dims = c.shape_of(x), &result = c.result_shape();
    entries from = numbered(dims), to = from;
    for (std::size_t d = dims.size() < rank ? 0 : dims.size() - rank; d < dims.size(); ++d) {
        from[d] = "_";
        to[d] = d < result.size() ? entry("_", result[d]) : "_";
    }
    described_operator op{rule_text({from}, {to}, linear ? "0" : ""), {x}};
    op.options.category = operator_class::reduction;
    op.options.forward = flops(std::max(element_count(dims), window * element_count(result)));
    op.options.attributes["rank"] = just(rank);
    return op;
}

inline double window_of(call_view const& c, std::size_t rank) {
    double product = 1;
    for (double side : sides(c, 1, "kernel_size", rank)) product *= side;
    return product;
}

inline void set_windows(call_view const& c, described_operator& op, std::size_t rank) {
    op.options.attributes["kernel_size"] = sides(c, 1, "kernel_size", rank);
    op.options.attributes["stride"] = sides(c, 2, "stride", rank);
    op.options.attributes["padding"] = sides(c, 3, "padding", rank);
}

template <std::size_t Rank>
description max_pool(call_view const& c) {
    if (c.result_count() != 1) return {};
    auto op = pool(c, Rank, false, window_of(c, Rank));
    op.options.saved_operands = operand_numbers{0};
    op.options.extra_saved = bytes(8 * element_count(c.result_shape())); // places of the maxima
    set_windows(c, op, Rank);
    op.options.attributes["dilation"] = sides(c, 4, "dilation", Rank);
    return op;
}

template <std::size_t Rank>
description average_pool(call_view const& c) {
    auto op = pool(c, Rank, true, window_of(c, Rank));
    set_windows(c, op, Rank);
    op.options.attributes["count_include_pad"] = just(c.flag(5, "count_include_pad", true));
    if (auto const divisor = c.number(6, "divisor_override")) op.options.attributes["divisor_override"] = just(*divisor);
    return op;
}
template <std::size_t Rank>
description adaptive_average_pool(call_view const& c) { return pool(c, Rank, true, 1); }
template <std::size_t Rank>
description adaptive_max_pool(call_view const& c) {
    if (c.result_count() != 1) return {};
    auto op = pool(c, Rank, false, 1);
    op.options.saved_operands = operand_numbers{0};
    op.options.extra_saved = bytes(8 * element_count(c.result_shape()));
    return op;
}

/// Resizing to the nearest element, or in each dimension by a line between two neighbours or a cubic of four. The places of results follow from both
/// sizes, or from the factors that were given: where these do not divide evenly, sizes are rounded down and the two differ.
inline description interpolate(call_view const& c) {
    shape const& dims = c.shape_of(c.tensor(0, "input"));
    std::string const mode = c.text(3, "mode", "nearest");
    int const neighbours = mode == "nearest" ? 1 : mode == "linear" || mode == "bilinear" || mode == "trilinear" ? 2 : mode == "bicubic" ? 4 : 0;
    if (dims.size() < 3 || c.result_shape().size() != dims.size() || neighbours == 0) return {};
    if (c.flag(6, "antialias", false)) return {};
    auto op = pool(c, dims.size() - 2, true, std::pow(neighbours, dims.size() - 2));
    op.options.attributes["neighbours"] = just(neighbours);
    op.options.attributes["align_corners"] = just(c.flag(4, "align_corners", false));
    if (auto factors = c.numbers(2, "scale_factor"); !factors.empty() && !c.flag(5, "recompute_scale_factor", false)) {
        if (factors.size() == 1) factors.resize(dims.size() - 2, factors.front());
        if (factors.size() != dims.size() - 2) c.fail("scale_factor", "expected one number or " + std::to_string(dims.size() - 2));
        op.options.attributes["factors"] = std::move(factors);
    }
    return op;
}

} // namespace heddle::detail
