// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of attention.
#pragma once

#include <heddle/program/detail/described_operator.hpp>

namespace heddle::detail {

/// The sizes of one multi-head attention: q is (s b e), the inner width is heads * (width / heads).
struct attention_sizes {
    double s, t, b, e, width, out, heads;

    [[nodiscard]] flops forward() const {
        double const projections = 2 * b * e * width * (s + 2 * t) + 2 * b * s * width * out;
        return flops(projections + 4 * b * s * t * width);
    }
    /// Returns what the backward pass reads besides operands: q, k, v, the context, and the probabilities; with
    /// dropout, the probabilities after it as well.
    [[nodiscard]] bytes saved(bool dropout, int size) const {
        return bytes((b * width * (2 * s + 2 * t) + (dropout ? 2 : 1) * b * heads * s * t) * size);
    }
};

/// Operands and their accesses, which are added one by one.
struct operand_list {
    std::vector<tensor_id> tensors;
    std::vector<entries> accesses;
    /// The numbers of the optional operands.
    operator_attributes attributes{};

    /// Returns the operand's number, or nothing if there is no tensor.
    std::string add(std::optional<tensor_id> tensor, entries access, char const* optional = nullptr) {
        if (!tensor) return {};
        if (optional) attributes[optional] = just(tensors.size());
        tensors.push_back(*tensor);
        accesses.push_back(std::move(access));
        return std::to_string(tensors.size() - 1);
    }
};

inline bool is_plain_attention(call_view const& c) {
    bool const extended = c.find(7, "bias_k") || c.find(8, "bias_v") || c.flag(9, "add_zero_attn", false) ||
                          c.find(21, "static_k") || c.find(22, "static_v");
    if (extended || !c.find_tensor(5, "in_proj_weight")) return false;
    return c.shape_of(c.tensor(0, "query")).size() == 3 && c.shape_of(c.tensor(1, "key")).size() == 3 &&
           !c.result_shape().empty();
}

inline void set_attention_work(call_view const& c, operator_options& options) {
    auto const size = [](extent e) { return static_cast<double>(e); };
    tensor_shape const &q = c.shape_of(c.tensor(0, "query")), &k = c.shape_of(c.tensor(1, "key"));
    double const packed = element_count(c.shape_of(c.tensor(5, "in_proj_weight")));
    attention_sizes const sizes{size(q[0]),
                                size(k[0]),
                                size(q[1]),
                                size(q[2]),
                                packed / size(q[2]) / 3,
                                size(c.result_shape().back()),
                                size(c.integer(4, "num_heads"))};
    bool const dropout = c.flag(13, "training", true) && c.number(10, "dropout_p").value_or(0) > 0;
    options.category = operator_class::attention;
    options.forward = sizes.forward();
    options.backward = 2 * sizes.forward();
    options.extra_saved = sizes.saved(dropout, element_size(c.type_of(c.tensor(0, "query"))));
}

/// Attention with a packed input projection.
///
/// The output projection makes the result linear in its weight and bias: a sum over the heads, in
/// which the bias is a term without heads. Splitting the heads therefore leaves a partial result
/// and needs a partial bias; the other operands that have heads belong to the weight's term.
/// The attention weights, if they are a second result, are a sum over the heads too, but linear in no operand, so they
/// are a term of their own.
inline description multi_head_attention(call_view const& c) {
    if (!is_plain_attention(c) || (c.result_count() > 1 && !c.flag(23, "average_attn_weights", true))) return {};
    extent const heads = c.integer(4, "num_heads");
    if (heads < 1) c.fail("num_heads", "is " + std::to_string(heads) + ", expected at least 1");
    tensor_shape const &q = c.shape_of(c.tensor(0, "query")), &k = c.shape_of(c.tensor(1, "key"));
    bool const with_weights = c.result_count() > 1;
    std::string const b = entry("b", q[1]), s = entry("!s", q[0]), t = entry("!t", k[0]), e = entry("!e", q[2]);
    std::string const o = entry("!o", c.result_shape().back());
    operand_list list;
    list.add(c.tensor(0, "query"), {s, b, e});
    list.add(c.tensor(1, "key"), {t, b, e});
    list.add(c.tensor(2, "value"), {t, b, e});
    list.add(c.tensor(5, "in_proj_weight"), {"(!three h !d)", e});
    list.add(c.find_tensor(6, "in_proj_bias"), {"(!three h !d)"}, "in_proj_bias");
    std::string const weight = list.add(c.tensor(11, "out_proj_weight"), {o, "(h !d)"});
    std::string const bias = list.add(c.find_tensor(12, "out_proj_bias"), {o}, "out_proj_bias");
    auto const padding = c.find_tensor(14, "key_padding_mask"), mask = c.find_tensor(16, "attn_mask");
    list.add(padding, {b, t}, "padding_mask");
    if (mask)
        list.add(mask, c.shape_of(*mask).size() == 2 ? entries{s, t} : entries{b == "1" ? "h" : "(b h)", s, t}, "mask");
    described_operator op{{}, list.tensors};
    if (padding) op.options.attributes["padding_mask_is_boolean"] = just(c.type_of(*padding) == element_type::boolean);
    if (mask) op.options.attributes["mask_is_boolean"] = just(c.type_of(*mask) == element_type::boolean);
    std::vector<entries> results{{s, b, o}};
    if (with_weights) results.push_back({b, s, t});
    op.rule =
        rule_text(list.accesses, results, (with_weights ? "_ + " : "") + weight + (bias.empty() ? "" : " + " + bias));
    op.options.extents = {{"three", 3}, {"h", heads}};
    set_attention_work(c, op.options);
    op.options.attributes.insert(list.attributes.begin(), list.attributes.end());
    op.options.attributes["p"] = just(c.flag(13, "training", true) ? c.probability(10, "dropout_p", 0) : 0);
    op.options.saved_operands = operand_numbers{0, 1, 2, 3, static_cast<std::uint8_t>(std::stoi(weight))};
    return op;
}

/// softmax(q k^T + mask) v over the last two dimensions; linear in v.
///
/// Grouped queries: each head of keys and values, `g`, serves `r` heads of queries.
inline description dot_product_attention(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "query"), c.tensor(1, "key"), c.tensor(2, "value")}};
    tensor_shape const &q = c.shape_of(op.operands[0]), &k = c.shape_of(op.operands[1]),
                       &v = c.shape_of(op.operands[2]), &result = c.result_shape();
    std::size_t const rank = q.size();
    if (rank < 2 || k.size() != rank || v.size() != rank || result.size() != rank) return {};
    bool const grouped = rank > 2 && c.flag(7, "enable_gqa", false) && k[rank - 3] > 1 && k[rank - 3] < q[rank - 3];
    if (grouped && (q[rank - 3] % k[rank - 3] != 0 || v[rank - 3] != k[rank - 3]))
        c.fail("enable_gqa", "groups " + std::to_string(q[rank - 3]) + " heads of queries by " +
                                 std::to_string(k[rank - 3]) + " of keys and " + std::to_string(v[rank - 3]) +
                                 " of values");
    // Leading dimensions broadcast, so they are numbered from the last one on.
    auto const access = [&](char const* heads, char const* rows, char const* columns, tensor_shape const& dims) {
        entries made;
        for (std::size_t d = 0, left = dims.size(); d < dims.size(); ++d, --left)
            made.push_back(entry(left == 1              ? columns
                                 : left == 2            ? rows
                                 : left == 3 && grouped ? heads
                                                        : "i" + std::to_string(left),
                                 dims[d]));
        return made;
    };
    std::vector<entries> operands{access("(g r)", "!s", "!d", q), access("g", "!t", "!d", k),
                                  access("g", "!t", "!e", v)};
    if (auto const mask = c.find_tensor(3, "attn_mask")) {
        tensor_shape const& dims = c.shape_of(*mask);
        if (dims.size() > rank || dims.size() < 2) return {};
        op.operands.push_back(*mask);
        operands.push_back(access("(g r)", "!s", "!t", dims));
        name_operand(op, "mask");
        op.options.attributes["mask_is_boolean"] = just(c.type_of(*mask) == element_type::boolean);
    } else if (c.find(3, "attn_mask")) {
        return {};
    }
    op.rule = rule_text(operands, {access("(g r)", "!s", "!e", result)}, "2");
    if (grouped) op.options.extents = {{"g", k[rank - 3]}};
    double const scores = element_count(result) / static_cast<double>(result.back()) * static_cast<double>(k[rank - 2]);
    op.options.category = operator_class::attention;
    op.options.forward = flops(2 * scores * static_cast<double>(q.back() + v.back()));
    op.options.backward = 2 * *op.options.forward;
    op.options.extra_saved = bytes(scores * element_size(c.type_of(op.operands[0])));
    op.options.saved_operands = operand_numbers{0, 1, 2};
    if (op.operands.size() > 3) op.options.saved_operands->push_back(3);
    op.options.attributes["p"] = just(c.probability(4, "dropout_p", 0));
    op.options.attributes["is_causal"] = just(c.flag(5, "is_causal", false));
    if (auto const scale = c.number(6, "scale")) op.options.attributes["scale"] = just(*scale);
    return op;
}

} // namespace heddle::detail
