// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The catalogue entry of tokens that go through the experts chosen for them.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/described_operator.hpp>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::detail {

/// The activations of experts, which the attribute `activation` numbers.
inline constexpr std::array<std::string_view, 5> expert_activations{"silu", "gelu", "relu", "sigmoid", "tanh"};

/// For each token, the sum over its choices of a weight times what the chosen expert makes of it: a product, an
/// activation of all of it or of its first half, then times the second, and another product. Operands are tokens,
/// experts, weights, the matrices of all experts before and after the activation, and perhaps what is added to either
/// product.
///
/// The halves may be every other column. The activation is f(alpha x) / alpha, of halves that are at most `limit`, the
/// second of them at least its negative, and `offset` is added to the second.
///
/// Tokens may be cut, and experts; if both are, tokens are sent to where their experts are. Hidden units are summed.
inline description routed_experts(call_view const& c) {
    tensor_id const x = c.tensor(0, "input"), ids = c.tensor(1, "experts"), weights = c.tensor(2, "weights"),
                    up = c.tensor(3, "up"), down = c.tensor(4, "down");
    tensor_shape const &tokens = c.shape_of(x), &choices = c.shape_of(ids), &first = c.shape_of(up),
                       &second = c.shape_of(down);
    if (tokens.size() != 2 || choices.size() != 2 || first.size() != 3 || second.size() != 3) return {};
    c.expect_integers("experts", ids);
    bool const gated = c.flag(6, "gated", false);
    auto const name = c.text(5, "activation", "silu");
    auto const activation = algorithm::find(expert_activations, name);
    if (activation == expert_activations.end()) return {};
    extent const experts = first[0], hidden = second[1];
    c.expect_shape("experts", ids, {tokens[0], choices[1]});
    c.expect_shape("weights", weights, choices);
    c.expect_shape("up", up, {experts, tokens[1], gated ? 2 * hidden : hidden});
    c.expect_shape("down", down, {experts, hidden, second[2]});
    auto const up_bias = c.find_tensor(8, "up_bias"), down_bias = c.find_tensor(9, "down_bias");
    if (up_bias) c.expect_shape("up_bias", *up_bias, {experts, first[2]});
    if (down_bias) c.expect_shape("down_bias", *down_bias, {experts, second[2]});
    bool const interleaved = gated && c.flag(10, "interleaved", false);
    auto const whole = [](char const* index, extent e) { return entry(std::string("!") + index, e); };
    std::string const t = entry("t", tokens[0]), e = entry("e", experts), h = entry("h", hidden);
    entries const chosen{t, whole("k", choices[1])}, in{t, whole("c", tokens[1])}, out{t, whole("d", second[2])};
    std::string const halves = !gated ? h : !interleaved ? in_pieces(h) : h == "1" ? "!two" : "(h !two)";
    std::vector<entries> accesses{in, chosen, chosen, {e, in[1], halves}, {e, h, out[1]}};
    if (up_bias) accesses.push_back({e, halves});
    if (down_bias) accesses.push_back({e, out[1]});
    // What is added to the second product is weighted too, so no sum of weights can be taken apart.
    std::string rule = rule_text(accesses, {out}, down_bias ? "4 + " + std::to_string(accesses.size() - 1) : "2*4");
    if (t != "1" && e != "1") {
        auto const of_rows = [&](extent width, char const* index) {
            return "(t" + std::string(choices[1] > 1 ? " k" : "") + (width > 1 ? " " + std::string(index) : "") + ")";
        };
        rule += "; " + of_rows(tokens[1], "c") + " @ e -> " + of_rows(second[2], "d");
    }
    described_operator op{std::move(rule), {x, ids, weights, up, down}};
    auto const add = [&](std::optional<tensor_id> bias, char const* which) {
        if (!bias) return;
        op.operands.push_back(*bias);
        name_operand(op, which);
    };
    add(up_bias, "up_bias");
    add(down_bias, "down_bias");
    if (interleaved) op.options.extents = {{"two", 2}};
    double const rows = element_count(choices), of_up = 2 * rows * static_cast<double>(tokens[1] * first[2]),
                 of_down = 2 * rows * static_cast<double>(hidden * second[2]);
    bool const before = c.is_differentiable(x) || c.is_differentiable(up);
    op.options.category = operator_class::matmul;
    op.options.forward = flops(of_up + of_down);
    op.options.backward = flops((c.is_differentiable(x) ? of_up : 0) + (c.is_differentiable(up) ? of_up : 0) +
                                (before ? of_down : 0) + (c.is_differentiable(down) ? of_down : 0));
    // Rows by expert, the first product, its activation, the gated one, and what the second product makes.
    op.options.extra_saved = bytes(element_size(c.type_of(x)) * rows *
                                   static_cast<double>(tokens[1] + first[2] + (gated ? 2 : 1) * hidden + second[2]));
    op.options.saved_operands = operand_numbers{1, 2, 3, 4};
    auto& attributes = op.options.attributes;
    attributes["activation"] = just(activation - expert_activations.begin());
    attributes["gated"] = just(gated);
    if (interleaved) attributes["interleaved"] = just(true);
    if (c.text(7, "approximate", "none") == "tanh") attributes["approximate"] = just(true);
    if (auto const alpha = c.number(11, "alpha")) attributes["alpha"] = just(*alpha);
    if (auto const limit = c.number(12, "limit")) attributes["limit"] = just(*limit);
    if (auto const offset = c.number(13, "offset")) attributes["offset"] = just(*offset);
    return op;
}

} // namespace heddle::detail
