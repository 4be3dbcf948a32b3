// SPDX-License-Identifier: BSL-1.0
#include "support/forms.hpp"

#include <heddle/cost/atoms.hpp>

#include <heddle/program/program.hpp>
#include <heddle/theory/theory.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

namespace {

using namespace heddle;
using extents = std::vector<extent>;

using test::R;

/// The computation of an operator split along the loop that cuts this factor of its first operand.
instruction::compute split(indexed_program const& p, operator_id o, factor_number f) {
    for (auto const& i : computations(p, o))
        if (i.operands[0] == tensor_form::shard(f)) return i;
    FAIL("no such computation");
    return {};
}

} // namespace

TEST_CASE("apportion gives whole atoms near the ratios") {
    std::vector<double> const thirds{1.0 / 3, 1.0 / 3, 1.0 / 3}, uneven{0.5, 0.3, 0.2};
    CHECK(apportion(9, thirds) == extents{3, 3, 3});
    CHECK(apportion(10, uneven) == extents{5, 3, 2});
    CHECK(apportion(7, uneven) == extents{4, 2, 1}); // 3.5 2.1 1.4: the first has the largest remainder
    CHECK(apportion(1, uneven) == extents{1, 0, 0});
    CHECK(apportion(2, std::vector{0.1, 0.45, 0.45}) == extents{0, 1, 1});
    CHECK(apportion(8, thirds) == extents{3, 3, 2}); // equal remainders: the first
}

TEST_CASE("apportion gives nothing to a ratio of zero") {
    CHECK(apportion(3, std::vector{0.0, 1.0}) == extents{0, 3});
    CHECK(apportion(5, std::vector{0.5, 0.0, 0.5}) == extents{3, 0, 2});
}

TEST_CASE("apportion always distributes all atoms, each device within one of its part") {
    for (int n = 1; n <= 40; ++n)
        for (int a = 1; a <= 5; ++a)
            for (int b = 1; b <= 5; ++b) {
                std::vector<double> const ratios{a / (a + b + 2.0), b / (a + b + 2.0), 2 / (a + b + 2.0)};
                auto const counts = apportion(n, ratios);
                CAPTURE(n);
                CHECK(std::accumulate(counts.begin(), counts.end(), extent{0}) == n);
                for (std::size_t d = 0; d < 3; ++d)
                    CHECK(std::abs(static_cast<double>(counts[d]) - ratios[d] * n) < 1 + 1e-9);
            }
}

TEST_CASE("remainders are carried from class to class") {
    std::vector<double> const halves{0.5, 0.5};
    std::vector<double> carry{0, 0};
    CHECK(apportion(1, halves, &carry) == extents{1, 0});
    CHECK(carry == std::vector{-0.5, 0.5});
    CHECK(apportion(1, halves, &carry) == extents{0, 1});
    CHECK(carry == std::vector{0.0, 0.0});

    std::vector<atom_class> classes(4);
    for (auto& c : classes) c.atoms = 3;
    apportion(classes, {halves});
    extents sums{0, 0};
    for (auto const& c : classes)
        for (std::size_t d = 0; d < 2; ++d) sums[d] += c.counts[d];
    CHECK(sums == extents{6, 6});
}

TEST_CASE("factors tied by the loop a computation is split along are one class") {
    program_builder b;
    auto const x = b.input("x", {8, 6}), w = b.parameter("w", {12, 6}), v = b.parameter("v", {4, 12});
    auto const h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w});
    auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, v});
    auto const p = index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {y})));

    SUBCASE("data parallel: the batch is one class") {
        std::vector<instruction> const steps{instruction::read(x, tensor_form::shard(0)),
                                             instruction::read(w, R),
                                             split(p, 0, 0),
                                             instruction::read(v, R),
                                             split(p, 1, 0),
                                             split(p, 2, 0)};
        auto const classes = atom_classes(p, steps);
        REQUIRE(classes.size() == 1);
        CHECK(classes[0].atoms == 8);
        CHECK(classes[0].members == std::vector<cut_factor>{{x, 0}, {h, 0}, {y, 0}});
    }
    SUBCASE("a conversion does not tie what it leads from to what it leads to") {
        std::vector<instruction> const steps{instruction::read(w, tensor_form::shard(1)),
                                             instruction::convert(w, tensor_form::shard(1), tensor_form::shard(0))};
        auto const classes = atom_classes(p, steps);
        REQUIRE(classes.size() == 2);
        CHECK(classes[0].atoms == 6);
        CHECK(classes[1].atoms == 12);
    }
    SUBCASE("whole copies are in no class") {
        std::vector<instruction> const steps{instruction::read(w, R)};
        CHECK(atom_classes(p, steps).empty());
    }
}

TEST_CASE("atoms are the greatest common divisor of the members' extents") {
    program_builder b;
    auto const x = b.input("x", {12}), w = b.parameter("w", {8});
    auto const y = b.apply("outer", "(i), (j) -> (); 0*1", {x, w});
    auto p = index_program(b.finish(y));
    // One loop over a factor of 12 and one of 8, as heads and key-value heads share one.
    split_loop loop{4, true, {0, 0}, {no_factor}};
    p.operators[0].loops = {loop};
    auto const classes = atom_classes(p, std::vector<instruction>{split(p, 0, 0)});
    REQUIRE(classes.size() == 1);
    CHECK(classes[0].atoms == 4);
}

TEST_CASE("shares are those of the class, else those of the factor alone") {
    program_builder b;
    auto const x = b.input("x", {4, 3}), w = b.parameter("w", {5, 3});
    auto const p = index_program(b.finish(b.apply("loss", "(b k), (n k) -> (); 0*1", {x, w})));
    atom_class const cut{4, {{x, 0}}, {3, 1}};
    integral_shares const shares(p, {0.5, 0.5}, std::vector{cut});
    CHECK(shares({x, 0}) == share_vector{0.75, 0.25});
    CHECK(shares({w, 0}) == share_vector{3.0 / 5, 2.0 / 5});
    largest_shares const largest(integral_shares(p, {0.2, 0.3, 0.5}), {0, 0, 1});
    // 5 atoms: 1, 1.5, 2.5 give 1, 2, 2.
    CHECK(largest({w, 0}) == share_vector{2.0 / 5, 2.0 / 5});
}
