// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of reductions over dimensions.
#pragma once

#include <heddle/program/detail/lookup_operators.hpp>
#include <heddle/program/detail/pointwise_operators.hpp>

namespace heddle::detail {

/// Returns which dimensions a reduction is over: all, unless the call names some.
inline std::vector<bool> reduced_dimensions(call_view const& c, std::size_t rank, std::size_t position = 1) {
    auto const dimensions = c.integers(position, "dim");
    std::vector<bool> reduced(rank, dimensions.empty());
    for (auto dimension : dimensions) reduced[c.axis(dimension, rank)] = true;
    return reduced;
}

/// A sum, or a mean, which divides by global extents, is linear; other reductions need their dimensions whole.
inline description reduction_over(call_view const& c, bool linear, std::size_t position, std::size_t keep_position,
                                  std::size_t results = 1) {
    tensor_id const x = c.tensor(0, "input");
    tensor_shape const& dims = c.shape_of(x);
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
    described_operator op{rule_text({access}, std::vector<entries>(results, result), linear ? "0" : ""), {x}};
    op.options.category = operator_class::reduction;
    if (!linear) op.options.attributes["dim"] = axes;
    return op;
}
inline description reduce(call_view const& c) { return reduction_over(c, true, 1, 2); }

/// Reduces whole dimensions, and saves what the derivative depends on.
inline description reduce_whole_at(call_view const& c, std::size_t position, std::size_t keep_position,
                                   std::size_t results = 1) {
    if (c.result_count() != results) return {};
    auto op = reduction_over(c, false, position, keep_position, results);
    op->options.saved_operands = operand_numbers{0};
    op->options.saved_results = {0};
    return op;
}
inline description reduce_whole(call_view const& c) { return reduce_whole_at(c, 1, 2); }

/// Finds an extreme of all elements, or of a dimension; then the second result is where it is.
inline description extreme_of(call_view const& c) {
    bool const largest = c.call().target.ends_with("max");
    if (c.find_tensor(1, "other")) {
        auto op = function_of_two(c);
        if (op) op->kind = largest ? "maximum" : "minimum";
        return op;
    }
    if (c.result_count() != 2) return reduce_whole(c);
    std::size_t const rank = c.shape_of(c.tensor(0, "input")).size();
    if (rank == 0) return {};
    bool const keeps = c.flag(2, "keepdim", false);
    return ranked(c, c.axis(c.integer(1, "dim"), rank), keeps ? kept_dimension::one : kept_dimension::none, largest);
}
/// Finds where the largest or smallest element is, in a dimension or among all elements.
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

/// Gates half of a dimension by the other half.
inline description gated_linear(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    tensor_shape dims = c.shape_of(x);
    entries from = numbered(dims), to = from;
    std::size_t const axis = c.axis(c.integer(1, "dim", -1), dims.size());
    if (dims[axis] % 2 != 0) c.fail("dim", "has " + std::to_string(dims[axis]) + " places, expected an even number");
    dims[axis] /= 2;
    to[axis] = entry(to[axis], dims[axis]);
    from[axis] = in_pieces(to[axis]);
    described_operator op{rule_text({from}, {to}), {x}};
    op.options.category = operator_class::elementwise;
    op.options.results = {dims};
    op.options.forward = flops(6 * element_count(dims));
    op.options.saved_operands = operand_numbers{0};
    op.options.attributes["dim"] = just(axis);
    return op;
}

/// Variance and standard deviation. By default they are those of a sample, divided by one less. Arguments are the
/// dimensions, whether to divide by less (or by how much), and whether dimensions are kept; if all elements are
/// reduced, only the second. The second of two results is the mean.
template <std::size_t Results>
description variance(call_view const& c) {
    bool const over_all = c.call().arguments.size() > 1 && c.call().arguments[1].as<bool>();
    std::size_t const position = over_all ? 1 : 2;
    auto op = over_all ? reduce_whole_at(c, c.call().arguments.size(), c.call().arguments.size(), Results)
                       : reduce_whole_at(c, 1, 3, Results);
    if (!op) return {};
    bool const by_number = c.call().keywords.contains("correction") || c.number(position, "correction");
    double const correction = by_number                            ? c.number(position, "correction").value_or(1)
                              : c.flag(position, "unbiased", true) ? 1
                                                                   : 0;
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

} // namespace heddle::detail
