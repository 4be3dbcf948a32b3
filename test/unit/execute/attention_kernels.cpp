// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

using namespace heddle;
using namespace heddle::test;

namespace {

struct attention_options {
    double dropout = 0;
    bool in_bias = true, out_bias = true, with_weights = false, self = false;
    extent heads = 3, size = 2;
    std::optional<shape> mask{}, padding{};
    bool boolean = false;
};

operator_case attention(attention_options const& o) {
    extent const s = o.self ? 4 : 3, t = 4, b = 2, e = 5, width = o.heads * o.size;
    operator_case c{"torch.nn.functional.multi_head_attention_forward", {{s, b, e}}, {}, {}, {{s, b, e}}};
    auto const add = [&](char const* name, shape dims) {
        c.keywords[name] = T(static_cast<tensor_id>(c.operands.size()));
        c.operands.push_back(std::move(dims));
        return c.operands.size() - 1;
    };
    c.keywords["query"] = T(0);
    add("key", {t, b, e});
    add("value", {t, b, e});
    add("in_proj_weight", {3 * width, e});
    if (o.in_bias) add("in_proj_bias", {3 * width});
    add("out_proj_weight", {e, width});
    if (o.out_bias) add("out_proj_bias", {e});
    if (o.padding) {
        auto const k = add("key_padding_mask", *o.padding);
        if (o.boolean) c.domains[k] = {0, 1.2, element_type::boolean};
    }
    if (o.mask) {
        auto const k = add("attn_mask", *o.mask);
        if (o.boolean) c.domains[k] = {0, 1.2, element_type::boolean};
    }
    c.keywords["num_heads"] = number(o.heads);
    c.keywords["dropout_p"] = real(o.dropout);
    if (o.with_weights) c.results.push_back({b, s, t});
    return c;
}

} // namespace

TEST_CASE("multi-head attention: batch, heads, bias") {
    check(attention({}));
    check(attention({.in_bias = false}));
    check(attention({.out_bias = false}));
    check(attention({.in_bias = false, .out_bias = false, .heads = 1}));
    check(attention({.heads = 4, .size = 1}));
    check(attention({.with_weights = true}));
}

TEST_CASE("multi-head attention: masks and dropout") {
    check(attention({.dropout = 0.3}));
    check(attention({.dropout = 0.3, .with_weights = true}));
    check(attention({.mask = shape{3, 4}}));
    check(attention({.mask = shape{6, 3, 4}}));
    check(attention({.padding = shape{2, 4}}));
    check(attention({.mask = shape{3, 4}, .padding = shape{2, 4}}));
}

TEST_CASE("multi-head attention: boolean masks forbid") {
    auto c = attention({.mask = shape{3, 4}, .padding = shape{2, 4}, .boolean = true});
    c.domains[7] = {0, 1, element_type::boolean}; // a row that is all forbidden has no weights
    check(c);
    operator_check free(attention({.heads = 1}), 5), masked(attention({.heads = 1, .mask = shape{3, 4}}), 5);
    CHECK(free.results()[0].dims == masked.results()[0].dims);
}

TEST_CASE("scaled dot-product attention") {
    auto const attention = [](shape q, shape k, shape v, shape y) {
        return operator_case{"torch.nn.functional.scaled_dot_product_attention", {std::move(q), std::move(k), std::move(v)}, {T(0), T(1), T(2)}, {}, {std::move(y)}};
    };
    check(attention({2, 3, 4, 2}, {2, 3, 5, 2}, {2, 3, 5, 3}, {2, 3, 4, 3}));
    check(attention({4, 2}, {5, 2}, {5, 3}, {4, 3}));
    check(attention({2, 3, 4, 2}, {2, 1, 5, 2}, {2, 1, 5, 3}, {2, 3, 4, 3}));
    auto causal = attention({2, 4, 3}, {2, 4, 3}, {2, 4, 3}, {2, 4, 3});
    causal.keywords = {{"is_causal", flag(true)}, {"scale", real(0.7)}};
    check(causal);
    auto dropout = attention({3, 2, 4, 2}, {3, 2, 5, 2}, {3, 2, 5, 2}, {3, 2, 4, 2});
    dropout.keywords = {{"dropout_p", real(0.3)}};
    check(dropout);
}
