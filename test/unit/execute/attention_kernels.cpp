// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

using namespace heddle;
using namespace heddle::test;

TEST_CASE("scaled dot-product attention is right, and splits as its rule says") {
    auto const attention = [](tensor_shape q, tensor_shape k, tensor_shape v, tensor_shape y) {
        return operator_case{"torch.nn.functional.scaled_dot_product_attention",
                             {std::move(q), std::move(k), std::move(v)},
                             {T(0), T(1), T(2)},
                             {},
                             {std::move(y)}};
    };
    check(attention({2, 3, 4, 2}, {2, 3, 5, 2}, {2, 3, 5, 3}, {2, 3, 4, 3}));
    check(attention({4, 2}, {5, 2}, {5, 3}, {4, 3}));
    check(attention({2, 3, 4, 2}, {2, 1, 5, 2}, {2, 1, 5, 3}, {2, 3, 4, 3}));
    auto causal = attention({2, 4, 3}, {2, 4, 3}, {2, 4, 3}, {2, 4, 3});
    causal.keywords = {{"is_causal", flag(true)}, {"scale", real(0.7)}};
    check(causal);
    for (extent const keys : {3, 7}) { // fewer than queries, and more
        auto uneven = attention({2, 5, 3}, {2, keys, 3}, {2, keys, 3}, {2, 5, 3});
        uneven.keywords = {{"is_causal", flag(true)}};
        check(uneven);
    }
    auto heads = attention({2, 6, 5, 2}, {2, 3, 4, 2}, {2, 3, 4, 2}, {2, 6, 5, 2});
    heads.keywords = {{"is_causal", flag(true)}, {"enable_gqa", flag(true)}, {"dropout_p", real(0.3)}};
    check(heads);
    auto dropout = attention({3, 2, 4, 2}, {3, 2, 5, 2}, {3, 2, 5, 2}, {3, 2, 4, 2});
    dropout.keywords = {{"dropout_p", real(0.3)}};
    check(dropout);
}

TEST_CASE("scaled dot-product attention takes masks and grouped queries") {
    auto const attention = [](tensor_shape mask, extent key_heads) {
        operator_case c{"torch.nn.functional.scaled_dot_product_attention",
                        {{2, 6, 3, 2}, {2, key_heads, 4, 2}, {2, key_heads, 4, 3}},
                        {T(0), T(1), T(2)},
                        {},
                        {{2, 6, 3, 3}}};
        if (!mask.empty()) {
            c.operands.push_back(std::move(mask));
            c.arguments.push_back(T(3));
        }
        if (key_heads < 6) c.keywords["enable_gqa"] = flag(true);
        return c;
    };
    for (extent const heads : {6, 2, 1}) check(attention({6, 3, 4}, heads));
    for (auto const& mask : {tensor_shape{}, tensor_shape{3, 4}, tensor_shape{1, 4}, tensor_shape{2, 1, 3, 1}})
        check(attention(mask, 3));
    auto allowed = attention({2, 1, 3, 4}, 3);
    allowed.domains[3] = {1, 2, element_type::boolean}; // all take part
    check(allowed);
    operator_check const all(allowed, 4);
    operator_check free(attention({}, 3), 4);
    CHECK(all.results()[0].data.size() == free.results()[0].data.size());
    // Key-value head h serves query heads 3 h to 3 h + 2: with one key for all, each gets its value.
    operator_check one({"torch.nn.functional.scaled_dot_product_attention",
                        {{1, 6, 1, 2}, {1, 2, 1, 2}, {1, 2, 1, 1}},
                        {T(0), T(1), T(2)},
                        {{"enable_gqa", flag(true)}},
                        {{1, 6, 1, 1}}},
                       1);
    for (extent h = 0; h < 6; ++h) CHECK(one.results()[0][h] == doctest::Approx(one.operands()[2][h / 3]));
    // Attention to nothing gives zeros, as that of PyTorch from 2.5 on.
    auto forbidden = attention({2, 1, 3, 4}, 3);
    forbidden.domains[3] = {0, 1, element_type::boolean};
    check(forbidden);
    operator_check const none(forbidden, 4);
    CHECK(std::ranges::all_of(none.results()[0].data, [](double e) { return e == 0; }));
    // Only the key that the mask sets takes part.
    operator_case chosen{"torch.nn.functional.scaled_dot_product_attention",
                         {{1, 2}, {3, 2}, {3, 2}, {1, 3}},
                         {T(0), T(1), T(2), T(3)},
                         {},
                         {{1, 2}}};
    chosen.domains[3] = {1, 2, element_type::boolean};
    operator_check single(chosen, 1);
    CHECK(single.results()[0][0] <=
          std::max({single.operands()[2][0], single.operands()[2][2], single.operands()[2][4]}));
}
