// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of element-wise functions.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/described_operator.hpp>

namespace heddle::detail {

/// What is particular to an element-wise function of one tensor.
struct unary_traits {
    bool linear = false;
    /// Tells what the backward pass reads.
    bool saves_operand = false, saves_result = false;
    double flops_per_element = 1;
    bool is_view = false;
};

inline description unary(call_view const& c, unary_traits const& traits) {
    tensor_id const x = c.tensor(0, "input");
    entries const access = numbered(c.shape_of(x));
    described_operator op{rule_text({access}, {access}, traits.linear ? "0" : ""), {x}};
    op.options.category = operator_class::elementwise;
    op.options.forward = flops(traits.flops_per_element * element_count(c.shape_of(x)));
    op.options.saved_operands = traits.saves_operand ? operand_numbers{0} : operand_numbers{};
    if (traits.saves_result) op.options.saved_results = {0};
    op.options.is_view = traits.is_view;
    if (auto const form = c.call().keywords.find("approximate"); form != c.call().keywords.end())
        op.options.attributes["approximate"] = just(c.text(1, "approximate", "none") == "tanh");
    if (c.call().results.empty()) return op;
    auto const type = c.call().results.front().type;
    if (type == element_type::boolean && c.type_of(x) != type) op.options.attributes["to_truth"] = just(true);
    else if (is_floating(c.type_of(x)) && !is_floating(type)) op.options.attributes["truncate"] = just(true);
    return op;
}

/// A parameter of a function: its place among the arguments, its name, and its value if it is absent.
struct function_parameter {
    std::size_t position = 1;
    char const* name = "";
    double absent = 0;
};

/// A function of each element with these parameters, whose derivative is a function of the operand.
inline description function_of(call_view const& c, double flops_per_element,
                               std::initializer_list<function_parameter> parameters = {}) {
    auto op = unary(c, {.saves_operand = true, .flops_per_element = flops_per_element});
    for (auto const& p : parameters) {
        if (c.find_tensor(p.position, p.name)) return {};
        op->options.attributes[p.name] = just(c.number(p.position, p.name).value_or(p.absent));
    }
    return op;
}
inline description power_of_tensors(call_view const& c);

/// Raises each element to a power.
inline description power(call_view const& c) {
    if (!c.find_tensor(0, "input")) return {};
    if (c.find_tensor(1, "exponent")) return power_of_tensors(c);
    return c.number(1, "exponent") ? function_of(c, 8, {{1, "exponent", 1}}) : description{};
}
/// Replaces each element that is not above a threshold by another number.
inline description threshold(call_view const& c) {
    if (!c.number(1, "threshold") || !c.number(2, "value")) return {};
    return function_of(c, 1, {{1, "threshold", 0}, {2, "value", 0}});
}
/// Limits elements by two bounds, of which either may be absent.
inline description clamp(call_view const& c) {
    if (c.find_tensor(1, "min") || c.find_tensor(2, "max")) return {};
    auto op = unary(c, {.saves_operand = true});
    for (std::size_t const position : {std::size_t{1}, std::size_t{2}}) {
        auto const* const name = position == 1 ? "min" : "max";
        if (auto const bound = c.number(position, name)) op->options.attributes[name] = just(*bound);
    }
    return op;
}
/// Limits elements by one bound, from below or from above.
inline description clamp_at(call_view const& c, char const* bound) {
    if (!c.number(1, bound)) return {};
    return function_of(c, 1, {{1, bound, 0}});
}
/// Divides by a number other than zero and rounds the quotient down.
inline description divided_whole(call_view const& c, char const* kind) {
    auto const x = c.find_tensor(0, "input");
    auto const by = c.number(1, "other");
    if (!x || c.find_tensor(1, "other") || !by || *by == 0) return {};
    auto op = unary(c, {});
    op->kind = kind;
    op->options.attributes["number"] = just(*by);
    return op;
}
inline description floored_quotient(call_view const& c) { return divided_whole(c, "floor_divide"); }
inline description remainder(call_view const& c) { return divided_whole(c, "remainder"); }
/// A function that is constant except for jumps: it gives truth values, whole numbers or signs.
inline description step_of(call_view const& c) { return unary(c, {}); }
inline description rounded(call_view const& c) { return c.find(1, "decimals") ? description{} : step_of(c); }
/// Copies elements, perhaps with another sign or of another type.
inline description linear_copy(call_view const& c) { return unary(c, {.linear = true}); }
/// Copies elements, which the backward pass takes for constants.
inline description detached(call_view const& c) {
    auto op = unary(c, {.linear = true, .is_view = true});
    op->options.stops_gradient = true;
    return op;
}

/// Sets elements to zero by a mask that is drawn for the first `drawn` dimensions of the whole tensor, so it is the
/// same on every device and the operator is linear.
inline described_operator drop(call_view const& c, double p, bool training, std::size_t drawn) {
    bool const active = training && p > 0;
    auto op = *unary(c, {.linear = true, .is_view = !active});
    tensor_shape const& dims = c.shape_of(op.operands[0]);
    drawn = std::min(drawn, dims.size());
    op.options.attributes = {{"p", just(active ? p : 0.0)}, {"drawn", just(drawn)}};
    if (active)
        op.options.extra_saved =
            bytes(element_count({dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(drawn)}));
    return op;
}
/// Drops elements, or whole channels of samples if windows of `Rank` dimensions follow.
template <std::size_t Rank>
description dropout(call_view const& c) {
    std::size_t const rank = c.shape_of(c.tensor(0, "input")).size();
    if (Rank > 0 && rank != Rank + 2) return {};
    return drop(c, c.probability(1, "p", 0.5), c.flag(2, "training", true), Rank > 0 ? 2 : rank);
}
/// Drops a branch for whole samples, or for the batch.
inline description stochastic_depth(call_view const& c) {
    return drop(c, c.probability(1, "p", 0), c.flag(3, "training", true), c.text(2, "mode", "row") == "row" ? 1 : 0);
}

/// Returns the shape that several tensors broadcast to.
inline tensor_shape broadcast(call_view const& c, std::vector<tensor_id> const& tensors) {
    tensor_shape result;
    for (tensor_id t : tensors) {
        tensor_shape const& dims = c.shape_of(t);
        if (dims.size() > result.size()) result.insert(result.begin(), dims.size() - result.size(), 1);
        for (std::size_t d = 0; d < dims.size(); ++d) {
            extent& e = result[d + result.size() - dims.size()];
            e = std::max(e, dims[d]);
        }
    }
    return result;
}

/// Returns the last of these indices, but none for a dimension of extent 1, which broadcasts.
inline entries broadcast_access(entries const& indices, tensor_shape const& dims) {
    entries access(indices.end() - static_cast<std::ptrdiff_t>(dims.size()), indices.end());
    for (std::size_t d = 0; d < dims.size(); ++d)
        if (dims[d] == 1) access[d] = "1";
    return access;
}

/// An element-wise function of broadcast operands; an operand has no index for a dimension in which its extent is 1.
inline described_operator broadcast_operator(call_view const& c, std::vector<tensor_id> tensors,
                                             std::string const& terms) {
    tensor_shape const whole = broadcast(c, tensors);
    entries const result = numbered(whole);
    std::vector<entries> operands;
    for (tensor_id t : tensors) operands.push_back(broadcast_access(result, c.shape_of(t)));
    described_operator op{rule_text(operands, {result}, terms), std::move(tensors)};
    op.options.category = operator_class::elementwise;
    op.options.forward = flops(element_count(whole));
    return op;
}

enum class arithmetic { add, subtract, multiply, divide };

/// Arithmetic on a tensor and a number. Adding a number other than zero is affine, not linear.
inline description with_number(call_view const& c, arithmetic kind, tensor_id x, double number, bool tensor_first) {
    bool const additive = kind == arithmetic::add || kind == arithmetic::subtract;
    bool const linear = additive ? number == 0 : kind == arithmetic::multiply || tensor_first;
    auto op = broadcast_operator(c, {x}, linear ? "0" : "");
    if (!linear && !additive) op.options.saved_results = {0}; // number / x
    op.options.attributes = {{"number", just(number)}, {"number_is_first", just(!tensor_first)}};
    return op;
}

template <arithmetic Kind>
description binary(call_view const& c) {
    auto const x = c.find_tensor(0, "input"), y = c.find_tensor(1, "other");
    if (c.find(2, "rounding_mode"))
        return c.text(2, "rounding_mode", "") == "floor" ? floored_quotient(c) : description{}; // linear in nothing
    auto const alpha = c.number(2, "alpha"); // the factor of what is added
    if (x && y) {
        auto op = broadcast_operator(c, {*x, *y},
                                     Kind == arithmetic::multiply ? "0*1"
                                     : Kind == arithmetic::divide ? "0"
                                                                  : "0 + 1");
        if (Kind == arithmetic::divide) op.options.saved_operands = operand_numbers{0, 1};
        if (alpha) op.options.attributes["alpha"] = just(*alpha);
        return op;
    }
    auto const number = x ? c.number(1, "other") : c.number(0, "input");
    if ((!x && !y) || !number || (alpha && !x)) return {};
    return with_number(c, Kind, x ? *x : *y, *number * alpha.value_or(1), x.has_value());
}

/// An element-wise function of two tensors that broadcast.
inline description function_of_two(call_view const& c) {
    auto const x = c.find_tensor(0, "input"), y = c.find_tensor(1, "other");
    if (!x || !y) return {};
    auto op = broadcast_operator(c, {*x, *y}, "");
    op.options.saved_operands = operand_numbers{0, 1};
    return op;
}

inline description power_of_tensors(call_view const& c) {
    auto op = broadcast_operator(c, {c.tensor(0, "input"), c.tensor(1, "exponent")}, "");
    op.kind = "power";
    op.options.saved_operands = operand_numbers{0, 1};
    op.options.saved_results = {0};
    return op;
}

/// Compares elements with each other, or with a number.
inline description compare(call_view const& c) {
    auto const x = c.find_tensor(0, "input"), y = c.find_tensor(1, "other");
    if (!x || (!y && !c.number(1, "other"))) return {};
    auto op = y ? broadcast_operator(c, {*x, *y}, "") : broadcast_operator(c, {*x}, "");
    if (!y) op.options.attributes["number"] = just(*c.number(1, "other"));
    op.options.saved_operands = operand_numbers{};
    return op;
}

/// Computes `other - alpha * input`.
inline description subtracted_from(call_view const& c) {
    auto const x = c.find_tensor(0, "input"), y = c.find_tensor(1, "other");
    auto const number = c.number(1, "other"), alpha = c.number(2, "alpha");
    if (!x || (!y && (!number || alpha))) return {};
    auto op = y ? description{broadcast_operator(c, {*y, *x}, "0 + 1")}
                : with_number(c, arithmetic::subtract, *x, *number, false);
    if (y && alpha) op->options.attributes["alpha"] = just(*alpha);
    op->kind = "sub";
    return op;
}

/// A function of truth values; it becomes an operator of this kind.
inline description truth_function(call_view const& c, char const* kind, bool of_two) {
    for (tensor_id t : c.call().operands)
        if (c.type_of(t) != element_type::boolean) return {};
    if (of_two && !c.find_tensor(1, "other")) return {};
    auto op = of_two ? compare(c) : step_of(c);
    if (op) op->kind = kind;
    return op;
}
/// One of `&`, `|`, `^` and `~`, which act on truth values or on the bits of whole numbers. What is read as `int8` may
/// be unsigned, and `~` depends on that.
inline description bit_function(call_view const& c, char const* kind, bool of_two) {
    auto const& operands = c.call().operands;
    if (algorithm::all_of(operands, [&](tensor_id t) { return c.type_of(t) == element_type::boolean; }))
        return truth_function(c, kind, of_two);
    for (tensor_id t : operands)
        if (is_floating(c.type_of(t)) || (!of_two && c.type_of(t) == element_type::int8)) return {};
    auto const* other = c.find(1, "other");
    if (of_two && (!other || !(other->as<literal::tensor>() || other->as<std::int64_t>()))) return {};
    return of_two ? compare(c) : step_of(c);
}

/// Random numbers in the shape of a tensor, drawn by the place in the whole tensor, from [0, 1) or the normal
/// distribution.
inline description drawn_like(call_view const& c) {
    auto op = step_of(c);
    op->options.stops_gradient = true;
    return op;
}
/// Draws ones with the probabilities that a tensor holds.
inline description drawn_by(call_view const& c) {
    if (c.find(1, "p")) return {};
    return drawn_like(c);
}

/// Fills the shape of a tensor with one number.
inline description filled_like(call_view const& c, std::optional<double> value) {
    if (!value) return {};
    auto op = step_of(c);
    op->kind = "full_like";
    op->options.stops_gradient = true;
    op->options.attributes = {{"value", just(*value)}};
    return op;
}

/// Multiplies elements below zero by a weight, which is one number or one for each channel.
inline description weighted_relu(call_view const& c) {
    tensor_id const x = c.tensor(0, "input"), weight = c.tensor(1, "weight");
    tensor_shape const &dims = c.shape_of(x), &weights = c.shape_of(weight);
    entries const access = numbered(dims);
    bool const single = element_count(weights) == 1;
    if (!single) c.expect_shape("weight", weight, {dims.size() < 2 ? 1 : dims[1]});
    if (weights.size() > 1) return {};
    described_operator op{rule_text({access, single ? entries(weights.size(), "1") : entries{access[1]}}, {access}),
                          {x, weight}};
    op.options.category = operator_class::elementwise;
    op.options.forward = flops(2 * element_count(dims));
    op.options.saved_operands = operand_numbers{0, 1};
    if (!single) op.options.attributes["aligned_at"] = just(1);
    return op;
}

/// Takes elements of one or the other by a mask. It is linear in both together, or in one if the other is the number
/// zero.
inline description choose(call_view const& c, literal const* mask, literal const* where, literal const* otherwise) {
    if (!mask || !mask->as<literal::tensor>() || !where || !otherwise) return {};
    std::vector<tensor_id> operands{mask->as<literal::tensor>()->id};
    if (is_floating(c.type_of(operands[0]))) c.fail("condition", "is of a floating-point type, expected truth values");
    operator_attributes attributes;
    bool linear = true;
    std::string terms;
    auto const add = [&](literal const& item, char const* name) {
        if (auto const* t = item.as<literal::tensor>()) {
            operands.push_back(t->id);
            attributes[name] = just(operands.size() - 1);
            terms += (terms.empty() ? "" : " + ") + std::to_string(operands.size() - 1);
            return true;
        }
        auto const* real = item.as<double>();
        auto const* whole = item.as<std::int64_t>();
        if (!real && !whole) return false;
        double const number = real ? *real : static_cast<double>(*whole);
        attributes[std::string(name) + "_number"] = just(number);
        linear = linear && number == 0;
        return true;
    };
    if (!add(*where, "where") || !add(*otherwise, "otherwise")) return {};
    auto op = broadcast_operator(c, operands, linear ? terms : "");
    op.options.saved_operands = operand_numbers{0};
    op.options.attributes = attributes;
    return op;
}
/// The method form: takes elements of a tensor where a condition holds.
inline description where(call_view const& c) {
    bool const method = c.call().target == "where";
    return choose(c, c.find(method ? 1 : 0, "condition"),
                  c.find(method ? 0 : 1, c.call().keywords.contains("self") ? "self" : "input"), c.find(2, "other"));
}
inline description masked_fill(call_view const& c) {
    return choose(c, c.find(1, "mask"), c.find(2, "value"), c.find(0, "input"));
}

/// Computes `x + value * a * b`, which is linear in `x` and bilinear in the others.
inline description add_product(call_view const& c) {
    auto op = broadcast_operator(c, {c.tensor(0, "input"), c.tensor(1, "tensor1"), c.tensor(2, "tensor2")}, "0 + 1*2");
    op.options.saved_operands = operand_numbers{1, 2};
    op.options.attributes["value"] = just(c.number(3, "value").value_or(1));
    return op;
}

/// Computes `x + value * a / b`, which is linear in the first two.
inline description add_quotient(call_view const& c) {
    auto op = broadcast_operator(c, {c.tensor(0, "input"), c.tensor(1, "tensor1"), c.tensor(2, "tensor2")}, "0 + 1");
    op.options.saved_operands = operand_numbers{1, 2};
    op.options.attributes["value"] = just(c.number(3, "value").value_or(1));
    return op;
}

/// Goes a part of the way from one tensor to another; the part is a number or a third tensor.
inline description interpolated(call_view const& c) {
    auto const weight = c.find_tensor(2, "weight");
    auto const part = c.number(2, "weight");
    if (!weight && !part) return {};
    std::vector<tensor_id> operands{c.tensor(0, "input"), c.tensor(1, "end")};
    if (weight) operands.push_back(*weight);
    auto op = broadcast_operator(c, std::move(operands), "0 + 1");
    op.options.saved_operands = weight ? operand_numbers{0, 1, 2} : operand_numbers{};
    if (part) op.options.attributes["weight"] = just(*part);
    return op;
}

} // namespace heddle::detail
