// SPDX-License-Identifier: BSL-1.0
#include "emulation.hpp"
#include "operator_case.hpp"

#include <heddle/plan/verify.hpp>
#include <support/random_plans.hpp>

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

/// Tokens, some experts and their loss.
struct routed {
    program whole;
    indexed_program indexed;
    operator_id op = 0;
};

routed routed_program(extent tokens, extent choices, extent count, bool gated, bool biased) {
    program_builder b;
    auto const x = b.parameter("x", {tokens, 3}), w = b.parameter("w", {tokens, choices});
    auto const ids = b.input("ids", {tokens, choices}, element_type::int64);
    auto const up = b.parameter("up", {count, 3, gated ? 10 : 5}), down = b.parameter("down", {count, 5, 4});
    traced_call call{"experts",
                     "heddle.routed_experts",
                     {T(x), T(ids), T(w), T(up), T(down)},
                     {{"gated", flag(gated)}},
                     {x, ids, w, up, down},
                     {{{tokens, 4}, element_type::float32}}};
    if (biased)
        for (auto const& [name, width] : {std::pair("up_bias", gated ? 10 : 5), std::pair("down_bias", 4)}) {
            call.operands.push_back(b.parameter(name, {count, width}));
            call.keywords[name] = T(call.operands.back());
        }
    auto const y = add_call(b, call).results[0];
    auto const z = b.input("z", {tokens, 4});
    auto p = b.finish(b.apply("einsum", "(t d), (t d) -> (); 0*1", {y, z}));
    auto indexed = index_program(p);
    return {std::move(p), std::move(indexed)};
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

TEST_CASE("tokens that are sent to their experts come back as the single device has them") {
    std::map<std::string, int> seen;
    for (std::uint64_t seed = 1; seed <= 120; ++seed) {
        CAPTURE(seed);
        random_source random(seed);
        extent const tokens = random.between(2, 9), choices = random.between(1, 3), count = random.between(2, 6);
        auto const made = routed_program(tokens, choices, count, random.chance(0.5), random.chance(0.5));
        auto const& p = made.indexed;
        std::vector<instruction::compute> ways;
        for (auto const& i : computations(p, 0))
            if (i.loop >= 0 && p.operators[0].loops[static_cast<std::size_t>(i.loop)].exchanges()) ways.push_back(i);
        REQUIRE(ways.size() == 1);
        auto const& way = ways[0];
        auto const shards = [&](std::size_t k) { return way.operands[k]; };
        std::vector<instruction> steps;
        for (std::size_t k = 0; k < p.operators[0].operands.size(); ++k)
            steps.push_back(instruction::read(p.operators[0].operands[k], shards(k)));
        steps.push_back(way);
        auto const z = p.operators[1].operands[1];
        steps.push_back(instruction::read(z, tensor_form::shard(0)));
        steps.push_back(instruction::compute{1, {way.results[0], tensor_form::shard(0)}, {tensor_form::partial()}, 0});
        auto const ranks = static_cast<std::size_t>(random.between(1, 5));
        auto const plan = plan_of(p, steps, {std::vector<double>(ranks, 1.0 / static_cast<double>(ranks))},
                                  [&](atom_class const& cut) {
                                      std::vector<extent> counts(ranks);
                                      for (extent n = 0; n < cut.atoms; ++n) ++counts[random.below(ranks)];
                                      return counts;
                                  });
        REQUIRE(plan.cuts.size() == 2); // tokens, and experts
        for (auto const& cut : plan.cuts)
            if (std::ranges::find(cut.counts, 0) != cut.counts.end()) ++seen["empty"];
        auto const verified = verify(p, plan);
        CHECK_MESSAGE(verified, verified.problem);
        auto const shown = emulate(made.whole, plan, seed);
        CHECK_MESSAGE(shown, shown.problem);
        CHECK(shown.worst_error <= 1e-12);
        if (ranks > 1) CHECK(shown.executed[static_cast<std::size_t>(collective::all_to_all)] > bytes(0));
    }
    CHECK(seen["empty"] > 20);
}
