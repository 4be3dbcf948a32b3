// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries over windows: convolutions, pools, resizing.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/place_operators.hpp>

#include <cmath>
#include <limits>

namespace heddle::detail {

/// Where windows lie along one dimension.
struct window_line {
    extent size = 1, stride = 1, padding = 0, dilation = 1;

    /// Returns how many places of an operand lie from the first to the last of a window.
    [[nodiscard]] extent reach() const { return dilation * (size - 1) + 1; }
    /// Returns how many windows there are on this many places: those that fit and, with `ceil`, one more that overhangs
    /// but begins before the end.
    [[nodiscard]] extent count(extent places, bool ceil = false) const {
        extent const rest = places + 2 * padding - reach() + (ceil ? stride - 1 : 0);
        if (rest < 0) return 0;
        extent const last = rest / stride;
        return ceil && last * stride >= places + padding ? last : last + 1;
    }
};

/// Returns the windows of these sides, which must be numbers of 31 bits, so that no place overflows. Absent sides are
/// those of `window_line`.
[[nodiscard]] inline std::vector<window_line> window_lines(call_view const& c, std::vector<double> const& sizes,
                                                           std::vector<double> const& strides,
                                                           std::vector<double> const& paddings,
                                                           std::vector<double> const& dilations) {
    constexpr double most = std::numeric_limits<std::int32_t>::max();
    std::vector<window_line> lines(sizes.size());
    auto const set = [&](std::string_view name, std::vector<double> const& values, extent window_line::* side,
                         double least) {
        for (std::size_t d = 0; d < values.size(); ++d) {
            c.expect_within(name, static_cast<std::int64_t>(std::clamp(values[d], -most, most + 1)),
                            static_cast<std::int64_t>(least), static_cast<std::int64_t>(most));
            lines[d].*side = static_cast<extent>(values[d]);
        }
    };
    set("kernel_size", sizes, &window_line::size, 1);
    set("stride", strides, &window_line::stride, 1);
    set("padding", paddings, &window_line::padding, 0);
    set("dilation", dilations, &window_line::dilation, 1);
    return lines;
}

/// Returns where the windows of a convolution lie, by the attributes of its operator.
inline std::vector<window_line> convolution_windows(call_view const& c, described_operator const& op,
                                                    std::size_t rank) {
    tensor_shape const& weight = c.shape_of(op.operands[1]);
    auto const numbers = [&](char const* name) {
        auto const found = op.options.attributes.find(name);
        return found == op.options.attributes.end() ? std::vector<double>{} : found->second;
    };
    return window_lines(c, {weight.end() - static_cast<std::ptrdiff_t>(rank), weight.end()}, numbers("stride"),
                        numbers("padding"), numbers("dilation"));
}

/// A convolution over windows of `rank` dimensions, or its adjoint, in which each input element adds a window to the
/// output. There may be no batch.
inline description windows_product(call_view const& c, std::size_t rank, bool adjoint) {
    described_operator op{{}, {c.tensor(0, "input"), c.tensor(1, "weight")}};
    tensor_shape const &input = c.shape_of(op.operands[0]), &weight = c.shape_of(op.operands[1]),
                       &output = c.result_shape();
    bool const batched = input.size() == rank + 2;
    if (weight.size() != rank + 2 || input.size() + 1 < weight.size() || input.size() > weight.size() ||
        output.size() != input.size())
        return {};
    extent const groups = c.integer(6, "groups", 1);
    std::size_t const channels = batched ? 1 : 0;
    c.expect_within("groups", groups, 1, input[channels]);
    extent const in = adjoint ? weight[0] : weight[1] * groups, out = adjoint ? weight[1] * groups : weight[0];
    if (in != input[channels])
        c.fail("weight", "takes " + std::to_string(in) + " channels in " + std::to_string(groups) +
                             " groups, the input has " + std::to_string(input[channels]));
    entries x = blocked(input), w = blocked(weight), result = blocked(output);
    if (batched) x[0] = result[0] = entry("b", input[0]);
    x[channels] = groups > 1 ? "(g i)" : entry("i", in);
    result[channels] = groups > 1 ? "(g o)" : entry("o", out);
    w[0] = adjoint ? x[channels] : result[channels];
    w[1] = adjoint ? entry("o", weight[1]) : entry("i", weight[1]);
    std::vector<entries> operands{x, w};
    if (auto const bias = c.find_tensor(2, "bias")) {
        op.operands.push_back(*bias);
        operands.push_back({result[channels]});
    }
    op.rule = rule_text(operands, {result}, operands.size() == 3 ? "0*1 + 2" : "0*1");
    op.options.category = operator_class::convolution;
    op.options.attributes = {{"stride", sides(c, 3, "stride", rank)},
                             {"dilation", sides(c, adjoint ? 7 : 5, "dilation", rank)},
                             {"groups", just(groups)}};
    if (groups > 1) op.options.extents = {{"g", groups}};
    op.options.forward =
        flops(2 * element_count(adjoint ? input : output) * element_count(weight) / static_cast<double>(weight[0]));
    return op;
}

template <std::size_t Rank>
description convolution(call_view const& c) {
    auto op = windows_product(c, Rank, false);
    if (!op) return {};
    auto& attributes = op->options.attributes;
    auto const* padding = c.find(4, "padding");
    bool const by_name = padding && padding->as<std::string>(), same = by_name && *padding->as<std::string>() == "same";
    if (!by_name) attributes["padding"] = sides(c, 4, "padding", Rank);
    auto lines = convolution_windows(c, *op, Rank);
    tensor_shape result = c.result_shape();
    for (std::size_t d = 0; d < Rank; ++d) {
        extent const places = c.shape_of(op->operands[0])[result.size() - Rank + d];
        if (same)
            attributes["padding"].push_back(
                static_cast<double>((lines[d].reach() - 1) / 2)); // what an odd total leaves over is at the end
        result[result.size() - Rank + d] = same ? places : lines[d].count(places);
        if (same && lines[d].stride != 1)
            c.fail("padding", "is 'same' with stride " + std::to_string(lines[d].stride) + ", expected stride 1");
    }
    op->options.results = {result};
    return op;
}
template <std::size_t Rank>
description convolution_transpose(call_view const& c) {
    auto op = windows_product(c, Rank, true);
    if (!op) return {};
    op->options.attributes["padding"] = sides(c, 4, "padding", Rank);
    auto const lines = convolution_windows(c, *op, Rank);
    auto more = sides(c, 5, "output_padding", Rank);
    more.resize(Rank);
    tensor_shape result = c.result_shape();
    for (std::size_t d = 0; d < Rank; ++d) {
        auto const& line = lines[d];
        extent const added = static_cast<extent>(more[d]),
                     places = c.shape_of(op->operands[0])[result.size() - Rank + d];
        c.expect_within("output_padding", added, 0, std::max(line.stride, line.dilation) - 1);
        result[result.size() - Rank + d] = (places - 1) * line.stride - 2 * line.padding + line.reach() + added;
    }
    op->options.results = {result};
    return op;
}

/// Pools the last dimensions. They are blocked, since windows overlap, and become `windows`.
inline described_operator pool(call_view const& c, tensor_shape const& windows, bool linear, double window,
                               std::size_t results = 1) {
    tensor_id const x = c.tensor(0, "input");
    std::size_t const rank = windows.size();
    tensor_shape const& dims = c.shape_of(x);
    if (dims.size() < rank)
        c.fail("input", "has shape " + to_text(dims) + ", expected at least " + std::to_string(rank) + " dimensions");
    tensor_shape result = dims;
    algorithm::copy(windows, result.end() - static_cast<std::ptrdiff_t>(rank));
    entries from = numbered(dims), to = from;
    for (std::size_t d = dims.size() - rank; d < dims.size(); ++d) {
        from[d] = "_";
        to[d] = entry("_", result[d]);
    }
    described_operator op{rule_text({from}, std::vector<entries>(results, to), linear ? "0" : ""), {x}};
    op.options.results.assign(results, result);
    op.options.category = operator_class::reduction;
    op.options.forward = flops(std::max(element_count(dims), window * element_count(result)));
    op.options.attributes["rank"] = just(rank);
    return op;
}

/// The last `rank` dimensions of the operand.
inline tensor_shape pooled_dimensions(call_view const& c, std::size_t rank) {
    tensor_shape const& dims = c.shape_of(c.tensor(0, "input"));
    return {dims.end() - static_cast<std::ptrdiff_t>(std::min(rank, dims.size())), dims.end()};
}

/// A pool whose windows the arguments give.
inline described_operator window_pool(call_view const& c, std::size_t rank, bool linear,
                                      std::vector<double> const& dilation, bool ceil, std::size_t results = 1) {
    auto const size = sides(c, 1, "kernel_size", rank), stride = sides(c, 2, "stride", rank),
               padding = sides(c, 3, "padding", rank);
    if (size.size() != rank) c.fail("kernel_size", "expected one integer or " + std::to_string(rank));
    auto const lines = window_lines(c, size, stride.empty() ? size : stride, padding, dilation);
    tensor_shape result = pooled_dimensions(c, rank);
    double window = 1;
    for (std::size_t d = 0; d < result.size(); ++d) {
        c.expect_within("padding", lines[d].padding, 0, lines[d].size / 2);
        window *= static_cast<double>(std::min(lines[d].size, result[d] + 2 * lines[d].padding)); // the rest overhangs
        result[d] = lines[d].count(result[d], ceil);
    }
    auto op = pool(c, result, linear, window, results);
    op.options.attributes["kernel_size"] = size;
    op.options.attributes["stride"] = stride;
    op.options.attributes["padding"] = padding;
    return op;
}

/// Keeps where the maxima are, either as a second result or beside the operator.
inline void save_places(call_view const& c, described_operator& op) {
    op.options.saved_operands = operand_numbers{0};
    if (c.result_count() > 1) op.options.saved_results = {1};
    else op.options.extra_saved = bytes(8 * element_count(c.result_shape()));
}

template <std::size_t Rank>
description max_pool(call_view const& c) {
    if (c.result_count() > 2) return {};
    auto const dilation = sides(c, 4, "dilation", Rank);
    auto op = window_pool(c, Rank, false, dilation, c.flag(5, "ceil_mode", false), c.result_count());
    save_places(c, op);
    op.options.attributes["dilation"] = dilation;
    return op;
}

template <std::size_t Rank>
description average_pool(call_view const& c) {
    auto op = window_pool(c, Rank, true, {}, c.flag(4, "ceil_mode", false));
    op.options.attributes["count_include_pad"] = just(c.flag(5, "count_include_pad", true));
    if (auto const divisor = c.number(6, "divisor_override"))
        op.options.attributes["divisor_override"] = just(*divisor);
    return op;
}
/// Returns as many windows as the argument says; if it says none, as many as places.
inline tensor_shape adaptive_windows(call_view const& c, std::size_t rank, char const* name = "output_size") {
    tensor_shape result = pooled_dimensions(c, rank);
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
description adaptive_average_pool(call_view const& c) {
    return pool(c, adaptive_windows(c, Rank), true, 1);
}
template <std::size_t Rank>
description adaptive_max_pool(call_view const& c) {
    if (c.result_count() > 2) return {};
    auto op = pool(c, adaptive_windows(c, Rank), false, 1, c.result_count());
    save_places(c, op);
    return op;
}

/// Returns by how much each dimension is resized; nothing if a size is given.
inline std::vector<double> resize_factors(call_view const& c, std::size_t rank) {
    auto factors = c.numbers(2, "scale_factor");
    if (factors.size() == 1) factors.resize(rank, factors.front());
    if (!factors.empty() && factors.size() != rank)
        c.fail("scale_factor", "expected one number or " + std::to_string(rank));
    return factors;
}

/// Returns the sizes that are given, or those that factors give, rounded down.
inline tensor_shape resized_dimensions(call_view const& c, std::vector<double> const& factors, std::size_t rank) {
    if (c.find(1, "size")) return adaptive_windows(c, rank, "size");
    tensor_shape const& stated = c.result_shape();
    tensor_shape result(stated.end() - static_cast<std::ptrdiff_t>(rank), stated.end());
    for (std::size_t d = 0; d < factors.size(); ++d) {
        double const size = std::floor(factors[d] * static_cast<double>(pooled_dimensions(c, rank)[d]));
        if (!(size >= 1 && size <= std::numeric_limits<std::int32_t>::max()))
            c.fail("scale_factor", "is " + std::to_string(factors[d]) + ", which leaves no size");
        result[d] = static_cast<extent>(size);
    }
    return result;
}

/// Resizes to the nearest element, or in each dimension by a line between two neighbours or a cubic through four. The
/// places of results follow from both sizes, or from the given factors; if these give no whole sizes, sizes are rounded
/// down and the two differ.
inline description interpolate(call_view const& c) {
    tensor_shape const& dims = c.shape_of(c.tensor(0, "input"));
    std::string const mode = c.text(3, "mode", "nearest");
    int const neighbours = mode == "nearest"                                               ? 1
                           : mode == "linear" || mode == "bilinear" || mode == "trilinear" ? 2
                           : mode == "bicubic"                                             ? 4
                                                                                           : 0;
    if (dims.size() < 3 || c.result_shape().size() != dims.size() || neighbours == 0) return {};
    if (c.flag(6, "antialias", false)) return {};
    auto factors = resize_factors(c, dims.size() - 2);
    auto op = pool(c, resized_dimensions(c, factors, dims.size() - 2), true, std::pow(neighbours, dims.size() - 2));
    op.options.attributes["neighbours"] = just(neighbours);
    op.options.attributes["align_corners"] = just(c.flag(4, "align_corners", false));
    if (!factors.empty() && !c.flag(5, "recompute_scale_factor", false))
        op.options.attributes["factors"] = std::move(factors);
    return op;
}

} // namespace heddle::detail
