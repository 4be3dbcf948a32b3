// SPDX-License-Identifier: BSL-1.0
#include "unit/balance/random_ratio_problems.hpp"

#include <heddle/balance/reduced_ratio_problem.hpp>
#include <heddle/balance/ties.hpp>

#include <doctest/doctest.h>

#include <cmath>

namespace {

using namespace heddle;

ratio_problem two_type_problem() {
    ratio_problem p;
    p.counts = {1, 2};
    p.preferred = {0.5, 0.25};
    return p;
}

} // namespace

TEST_CASE("a curve keeps the lines that are somewhere the largest") {
    // max(4 x, 1) + max(2, 1 + 2 x, 3 x - 5) + 1 on [0, 1]
    std::vector<convex_pieces> const bent{{{0, 4}, {1, 0}}, {{2, 0}, {1, 2}, {-5, 3}}};
    convex_curve const curve({1, 0}, bent, 0, 1);
    REQUIRE(curve.lines().size() == 3);
    CHECK(curve.lines()[0] == affine{4, 0});
    CHECK(curve.lines()[1] == affine{3, 4});
    CHECK(curve.lines()[2] == affine{2, 6});
    CHECK(curve.at(0) == 4);
    CHECK(curve.at(0.25) == 4);
    CHECK(curve.at(0.5) == 5);
    CHECK(curve.at(1) == 8);
    CHECK(curve.smallest() == 4);
    CHECK(curve.largest() == 8);
    CHECK(convex_curve({1, 0}, bent, 0.6, 1).lines().size() == 1);
}

TEST_CASE("the least of a curve that falls and rises is at its bend") {
    std::vector<convex_pieces> const bent{{{3, -2}, {0, 1}}};
    convex_curve const curve({}, bent, 0, 4);
    CHECK(curve.smallest() == 1);
    CHECK(curve.largest() == 4);
    CHECK(convex_curve({}, bent, 0, 0.5).smallest() == 2);
}

TEST_CASE("a curve is the sum of its maxima at every point") {
    for (std::uint64_t seed = 1; seed <= 500; ++seed) {
        test::random_source random(seed);
        auto p = test::random_ratio_problem(random, {.most_types = 1, .most_stages = 1, .most_bent = 8});
        if (p.stages.empty()) continue;
        CAPTURE(seed);
        auto const& work = p.stages[0][0];
        double const low = random.unit() / 2, high = low + random.unit() / 2;
        convex_curve const curve(work.straight, work.bent, low, high);
        for (int n = 0; n <= 50; ++n) {
            double const x = low + (high - low) * n / 50;
            CHECK(curve.at(x) == doctest::Approx(work.at(x)).epsilon(1e-12));
        }
        for (std::size_t n = 1; n < curve.lines().size(); ++n)
            CHECK(curve.lines()[n].slope > curve.lines()[n - 1].slope);
    }
}

TEST_CASE("equal stages become one, what is never last goes, memory becomes bounds") {
    auto p = two_type_problem();
    p.constant = 1;
    std::vector<stage_work> const often{{{0, 6}}, {{1, 2}}}, never{{{8, 0}}, {{0, 8}}}, seldom{{{5, 0}}, {{4, 4}}};
    p.stages = {often, never, often, seldom, often};
    p.memory = {{10, 100}, {10, 100}};
    p.memory_limits = {90, 1000};
    auto const reduced = reduce(p);
    REQUIRE(reduced.stages.size() == 2);
    CHECK(reduced.stages[0].weight == 3);
    CHECK(reduced.stages[0].floor == 1);
    CHECK(reduced.stages[0].types.size() == 2);
    CHECK(reduced.stages[1].floor == 5);
    REQUIRE(reduced.stages[1].types.size() == 1);
    CHECK(reduced.stages[1].types[0].type == 1);
    CHECK(reduced.constant == 1 + 8);
    CHECK(reduced.upper[0] == doctest::Approx(0.8));
    CHECK(reduced.upper[1] == doctest::Approx(0.5));
    CHECK_FALSE(reduced.transfers);
    CHECK(reduced.is_feasible());
    p.memory_limits = {40, 40};
    CHECK_FALSE(reduce(p).is_feasible());
}

TEST_CASE("a reduced problem has the objective of the whole one, where that fits") {
    int reduced_stages = 0, stages = 0, checked = 0;
    for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
        test::random_source random(seed);
        auto const p = test::random_ratio_problem(random);
        auto const reduced = reduce(p);
        CAPTURE(seed);
        stages += static_cast<int>(p.stages.size());
        reduced_stages += static_cast<int>(reduced.stages.size());
        for (int n = 0; n < 10; ++n) {
            auto const ratios = test::random_ratios(random, p);
            bool within = reduced.is_feasible();
            for (std::size_t t = 0; within && t < ratios.size(); ++t)
                within = ratios[t] >= reduced.lower[t] && ratios[t] <= reduced.upper[t] + 1e-15;
            CHECK(within == p.fits(ratios));
            if (!within) continue;
            ++checked;
            CHECK(reduced.objective(ratios) == doctest::Approx(p.objective(ratios)).epsilon(1e-12));
        }
        if (!reduced.is_feasible()) continue;
        auto const inside = reduced.clamped(p.preferred);
        CHECK(p.fits(inside, 2e-9));
        double sum = 0;
        for (std::size_t t = 0; t < inside.size(); ++t) sum += p.counts[t] * inside[t];
        CHECK(sum == doctest::Approx(1).epsilon(1e-12));
    }
    CHECK(reduced_stages < stages);
    CHECK(checked > 1000);
}

TEST_CASE("ties are broken where there are any") {
    auto p = two_type_problem();
    p.stages = {{{{4, 0}}, {{0, 8}}}}; // equal for all r_1 <= 1/2
    auto const reduced = reduce(p);
    bool asked = false;
    auto const none = [&](double) {
        asked = true;
        return std::optional<std::vector<double>>{};
    };
    CHECK(break_ties(reduced, {1, 0}, none) == p.preferred);
    CHECK_FALSE(asked);

    p.stages = {{{{1, 4}}, {{0, 0}}}}; // only r_0 = 0 is optimal
    auto const other = reduce(p);
    CHECK(break_ties(other, {0, 0.5}, none) == std::vector{0, 0.5});
    CHECK(asked);
    SUBCASE("what costs more is refused") {
        CHECK(break_ties(other, {0, 0.5}, [](double) { return std::optional(std::vector{0.5, 0.25}); }) ==
              std::vector{0, 0.5});
    }
}

TEST_CASE("the nearest feasible ratios to the preferred ones are within the bounds and sum to one") {
    auto p = two_type_problem();
    p.memory = {{0, 1}, {0, 1}};
    p.memory_limits = {0.2, 1};
    auto const near = reduce(p).clamped(p.preferred);
    CHECK(near[0] == doctest::Approx(0.2));
    CHECK(near[1] == doctest::Approx(0.4));
}

TEST_CASE("of all feasible ratios the nearest to the preferred ones are unique") {
    int feasible = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        test::random_source random(seed);
        auto p = test::random_ratio_problem(random, {.most_stages = 0});
        for (auto& r : p.preferred) r *= random.between(0.0, 2.0);
        auto const reduced = reduce(p);
        if (!reduced.is_feasible()) continue;
        ++feasible;
        CAPTURE(seed);
        auto const nearest = reduced.clamped(p.preferred);
        auto const again = reduced.clamped(nearest);
        double sum = 0;
        for (std::size_t t = 0; t < nearest.size(); ++t) {
            CHECK(nearest[t] >= reduced.lower[t]);
            CHECK(nearest[t] <= reduced.upper[t]);
            CHECK(std::abs(again[t] - nearest[t]) < 1e-14);
            sum += p.counts[t] * nearest[t];
        }
        CHECK(sum == doctest::Approx(1).epsilon(1e-12));
        for (int n = 0; n < 100; ++n) {
            auto near = reduced.clamped(test::random_ratios(random, p));
            double const part = random.log_between(1e-3, 1);
            for (std::size_t t = 0; t < near.size(); ++t) near[t] = nearest[t] + part * (near[t] - nearest[t]);
            CHECK(tie_cost(p, nearest) <= tie_cost(p, near) + 1e-15);
        }
    }
    CHECK(feasible > 150);
}

TEST_CASE("a distance that several types could bear is spread over their devices") {
    ratio_problem p;
    p.counts = {1, 1, 2};
    p.preferred = {0.4, 0.3, 0.15};
    p.memory = {{0, 1}, {0, 1}, {0, 1}};
    p.memory_limits = {0.1, 1, 1};
    auto const near = reduce(p).clamped(p.preferred);
    CHECK(near[0] == doctest::Approx(0.1));
    CHECK(near[1] == doctest::Approx(0.4));
    CHECK(near[2] == doctest::Approx(0.25));
}
