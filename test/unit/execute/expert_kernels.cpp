// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

using namespace heddle;
using namespace heddle::test;

namespace {

operator_case experts(extent tokens, extent choices, extent count, bool gated, char const* activation) {
    constexpr extent width = 3, hidden = 4, out = 2;
    return {"heddle.routed_experts",
            {{tokens, width},
             {tokens, choices},
             {tokens, choices},
             {count, width, gated ? 2 * hidden : hidden},
             {count, hidden, out}},
            {T(0), T(1), T(2), T(3), T(4)},
            {{"gated", flag(gated)}, {"activation", text(activation)}},
            {{tokens, out}},
            {{1, domain::below(static_cast<int>(count))}}};
}

} // namespace

TEST_CASE("experts are two products with an activation between them, and weights") {
    for (bool const gated : {false, true})
        for (char const* activation : {"silu", "gelu", "relu", "sigmoid", "tanh"}) {
            CAPTURE(activation);
            CAPTURE(gated);
            check(experts(6, 2, 4, gated, activation));
        }
    check(experts(1, 1, 1, true, "silu"));
    check(experts(4, 3, 2, false, "tanh")); // the same expert twice

    auto approximate = experts(3, 2, 2, true, "gelu");
    approximate.keywords["approximate"] = text("tanh");
    check(approximate);

    operator_check one(experts(2, 1, 1, false, "relu"), 1);
    auto const& x = one.operands();
    for (extent t = 0; t < 2; ++t)
        for (extent d = 0; d < 2; ++d) {
            double sum = 0;
            for (extent h = 0; h < 4; ++h) {
                double inside = 0;
                for (extent c = 0; c < 3; ++c) inside += x[0][t * 3 + c] * x[3][c * 4 + h];
                sum += std::max(inside, 0.0) * x[4][h * 2 + d];
            }
            CHECK(one.results()[0][t * 2 + d] == doctest::Approx(x[2][t] * sum));
        }
}

TEST_CASE("experts add to their products, and take halves of every other column within limits") {
    auto const with = [](bool gated, std::vector<char const*> const& biases,
                         std::map<std::string, literal, std::less<>> const& named) {
        auto c = experts(6, 2, 4, gated, "silu");
        for (std::string const bias : biases) {
            c.keywords[bias] = T(static_cast<tensor_id>(c.operands.size()));
            c.operands.push_back({4, bias == "down_bias" ? 2 : c.operands[3][2]});
        }
        c.keywords.insert(named.begin(), named.end());
        return c;
    };
    std::map<std::string, literal, std::less<>> const clamped{
        {"interleaved", flag(true)}, {"alpha", real(1.7)}, {"limit", real(0.4)}, {"offset", real(1)}};
    for (bool const gated : {false, true})
        for (std::vector<char const*> const& biases :
             {std::vector<char const*>{"up_bias"}, {"down_bias"}, {"up_bias", "down_bias"}})
            check(with(gated, biases, {}));
    check(with(true, {}, clamped));
    check(with(true, {"up_bias", "down_bias"}, clamped));
    check(with(true, {}, {{"interleaved", flag(true)}}));

    operator_check one(with(true, {"up_bias", "down_bias"}, clamped), 3);
    auto const& x = one.operands();
    auto const at = [](double value, double low) { return std::clamp(value, low, 0.4); };
    for (extent t = 0; t < 6; ++t)
        for (extent d = 0; d < 2; ++d) {
            double sum = 0;
            for (extent k = 2 * t; k < 2 * t + 2; ++k) {
                auto const e = static_cast<extent>(x[1][k]);
                double made = x[6][e * 2 + d];
                for (extent h = 0; h < 4; ++h) {
                    double halves[2];
                    for (extent half = 0; half < 2; ++half) {
                        halves[half] = x[5][e * 8 + 2 * h + half];
                        for (extent c = 0; c < 3; ++c)
                            halves[half] += x[0][t * 3 + c] * x[3][(e * 3 + c) * 8 + 2 * h + half];
                    }
                    double const gate = at(halves[0], -1e9);
                    made += gate / (1 + std::exp(-1.7 * gate)) * (at(halves[1], -0.4) + 1) * x[4][(e * 4 + h) * 2 + d];
                }
                sum += x[2][k] * made;
            }
            CHECK(one.results()[0][t * 2 + d] == doctest::Approx(sum));
        }
}

TEST_CASE("an expert that is not there is refused when it is chosen") {
    auto c = experts(3, 1, 2, true, "silu");
    c.domains[1] = {2, 3, element_type::int64};
    CHECK_THROWS_WITH_AS(operator_check(c, 1), "operator 'op': chooses expert 2 of 2", input_error);
}
