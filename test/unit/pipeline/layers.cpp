// SPDX-License-Identifier: BSL-1.0
#include "support/block_programs.hpp"
#include "support/random_programs.hpp"

#include <heddle/pipeline/layers.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace {

using namespace heddle;
using operators_before = std::vector<operator_id>;
using names = std::vector<std::string>;

} // namespace

TEST_CASE("repeated blocks are layers, and so is what is before and behind them") {
    auto const layers = repeated_layers(index_program(test::residual_blocks(4, 6, 3)));
    CHECK(layers.cuts == operators_before{0, 1, 5, 9, 13, 15});
    CHECK(layers.names == names{"stem", "blocks.0", "blocks.1", "blocks.2", "head"});
    CHECK(layers.layer_of(0) == 0);
    CHECK(layers.layer_of(8) == 2);
    CHECK(layers.layer_of(9) == 3);
    CHECK(repeated_layers(index_program(test::residual_blocks(4, 6, 1))).size() == 1);
}

TEST_CASE("blocks of several kinds are found one after the other") {
    program_builder b;
    auto x = b.input("x", {4, 6});
    auto const linear = [&](extent to, char const* kind) {
        x = b.apply("linear", "(b k), (n k) -> (b n); 0*1",
                    {x, b.parameter(std::string(kind) + ".weight", {to, b.tensor(x).shape[1]})});
        x = b.apply("relu", "(b n) -> (b n)", {x}, {.saved_results = {0}});
    };
    for (int n = 0; n < 3; ++n) linear(6, "narrow");
    linear(8, "widening");
    for (int n = 0; n < 2; ++n) linear(8, "wide");
    auto const p = index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {x})));
    CHECK(repeated_layers(p).cuts == operators_before{0, 2, 4, 6, 8, 10, 12, 13});
}

TEST_CASE("layers follow the modules of parameters, all or those of some prefixes") {
    auto const p = index_program(test::residual_blocks(4, 6, 3));
    CHECK(layers_by_name(p).cuts == operators_before{0, 1, 5, 9, 13, 15});
    CHECK(layers_by_name(p, {"stem", "blocks", "head"}).cuts == operators_before{0, 1, 13, 15});
    CHECK(layers_by_name(p, {"blocks.1", "blocks"}).cuts == operators_before{0, 5, 9, 15});
    CHECK_THROWS_WITH_AS((void)layers_by_name(p, {"stem", "tail"}),
                         "layers: no operator's parameter has a name that begins with 'tail'", input_error);
}

TEST_CASE("what skips several layers passes every cut between") {
    auto const p = index_program(test::residual_blocks(4, 6, 2, true));
    bytes const value(4 * 6 * 4);
    auto const across = bytes_across(p);
    REQUIRE(across.size() == p.operators.size() + 1);
    CHECK(across[0].value == 0);
    CHECK(across[1] == value); // stem, block: one tensor with two users
    CHECK(across[2] == value + 4 * value);
    CHECK(across[5] == 2 * value); // block, block; and the skip
    CHECK(across[9] == 2 * value);
    CHECK(across[10] == value);
    CHECK(across.back().value == 0);
    for (operator_id cut = 0; cut <= p.operators.size(); ++cut) {
        bytes sum;
        for (auto t : values_across(p, cut)) sum += p.tensors[t].info.size();
        CHECK(sum == across[cut]);
    }
}

TEST_CASE("balanced layers are an enumeration's: fewest bytes among those balanced up to the slack") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = index_program(test::random_program(random));
        std::size_t const n = p.operators.size();
        std::vector<seconds> costs;
        for (std::size_t o = 0; o < n; ++o) costs.emplace_back(random.chance(0.2) ? 0 : random.between(1, 9));
        auto const count = static_cast<std::size_t>(random.between(1, static_cast<int>(std::min<std::size_t>(n, 4))));
        double const slack = random.chance(0.5) ? 0 : 0.3;
        auto const across = bytes_across(p);
        auto const measure = [&](operators_before const& c) {
            double most = 0, sum = 0;
            for (std::size_t l = 0; l + 1 < c.size(); ++l) {
                double cost = 0;
                for (auto o = c[l]; o < c[l + 1]; ++o) cost += costs[o].value;
                most = std::max(most, cost);
                if (l > 0) sum += across[c[l]].value;
            }
            return std::pair(most, sum);
        };
        std::vector<std::pair<double, double>> all;
        operators_before chosen{0};
        std::function<void()> const enumerate = [&] {
            if (chosen.size() == count) {
                chosen.push_back(static_cast<operator_id>(n));
                all.push_back(measure(chosen));
                return chosen.pop_back();
            }
            for (auto next = chosen.back() + 1; next + count - chosen.size() <= n; ++next) {
                chosen.push_back(next);
                enumerate();
                chosen.pop_back();
            }
        };
        enumerate();
        double least = std::numeric_limits<double>::infinity(), fewest = least;
        for (auto const& [most, sum] : all) least = std::min(least, most);
        for (auto const& [most, sum] : all)
            if (most <= least * (1 + slack) * (1 + 1e-9)) fewest = std::min(fewest, sum);
        auto const [most, sum] = measure(balanced_layers(p, costs, count, slack).cuts);
        CHECK(most <= least * (1 + slack) * (1 + 1e-9));
        CHECK(sum == fewest);
    }
}

TEST_CASE("cuts that are none are refused") {
    auto const p = index_program(test::residual_blocks(4, 6, 1));
    for (auto const& bad : {operators_before{}, operators_before{0}, operators_before{1, 7},
                            operators_before{0, 3, 3, 7}, operators_before{0, 8}})
        CHECK_THROWS_AS((void)layers_at(p, bad), input_error);
    std::vector<seconds> const costs(7, seconds(1));
    CHECK_THROWS_AS((void)balanced_layers(p, costs, 8), input_error);
    CHECK_THROWS_AS((void)balanced_layers(p, costs, 0), input_error);
    CHECK_THROWS_AS((void)balanced_layers(p, std::span(costs).first(6), 2), input_error);
}
