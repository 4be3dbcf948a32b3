// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of attention.
#pragma once

#include <heddle/program/detail/described_operator.hpp>

namespace heddle::detail {

/// softmax(q k^T + mask) v over the last two dimensions; linear in v.
///
/// Rows of queries are parallel: each has a row of scores for all keys, which are whole.
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
    std::vector<entries> operands{access("(g r)", "s", "!d", q), access("g", "!t", "!d", k),
                                  access("g", "!t", "!e", v)};
    if (auto const mask = c.find_tensor(3, "attn_mask")) {
        tensor_shape const& dims = c.shape_of(*mask);
        if (dims.size() > rank || dims.size() < 2) return {};
        op.operands.push_back(*mask);
        operands.push_back(access("(g r)", "s", "!t", dims));
        name_operand(op, "mask");
        op.options.attributes["mask_is_boolean"] = just(c.type_of(*mask) == element_type::boolean);
    } else if (c.find(3, "attn_mask")) {
        return {};
    }
    op.rule = rule_text(operands, {access("(g r)", "s", "!e", result)}, "2");
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
