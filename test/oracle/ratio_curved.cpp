// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Curved ratio problems agree with a grid, and with the linear problem if their curves are lines.
#if __has_include(<heddle/clp/ratio_solver.hpp>)
#include "unit/balance/random_ratio_problems.hpp"

#include <heddle/balance/reduced_ratio_problem.hpp>
#include <heddle/balance/ties.hpp>
#include <heddle/clp/ratio_solver.hpp>
#include <support/cases.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

namespace {

using namespace heddle;

ratio_problem random_curved_problem(test::random_source& random, int most_types) {
    auto p = test::random_ratio_problem(random, {.most_types = most_types, .most_stages = 4});
    double const scale = 1 + p.objective(std::vector<double>(p.type_count(), 0.5));
    for (int n = random.between(1, 4); n-- > 0;) {
        auto& stage = p.stages.emplace_back();
        for (std::size_t t = 0; t < p.type_count(); ++t) {
            stage_work work{{0, scale * random.unit()}};
            for (int k = random.between(0, 2); k-- > 0;)
                work.curves.push_back(
                    saturating_work(seconds(scale * random.between(0.1, 3.0)), random.log_between(0.01, 2)));
            stage.push_back(std::move(work));
        }
    }
    return p;
}

} // namespace

TEST_CASE("convex curved problems have no better ratios nearby or on a grid") {
    int feasible = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(300u); ++seed) {
        test::random_source random(seed);
        auto const p = random_curved_problem(random, 6);
        CAPTURE(seed);
        auto const found = clp::ratio_solver().solve(p);
        auto const reduced = reduce(p);
        REQUIRE(found.feasible == reduced.is_feasible());
        if (!found.feasible) continue;
        ++feasible;
        CHECK(found.objective == p.objective(found.ratios));
        CHECK(p.fits(found.ratios, 1e-8));
        double const least = found.objective * (1 - 3e-8);
        for (int n = 0; n < 200; ++n) {
            auto const other = reduced.clamped(test::random_ratios(random, p));
            CHECK(p.objective(other) >= least);
            std::vector<double> near; // convexity makes a better neighbour of any better point
            double const part = random.log_between(1e-4, 1);
            for (std::size_t t = 0; t < other.size(); ++t)
                near.push_back(found.ratios[t] + part * (other[t] - found.ratios[t]));
            CHECK(p.objective(near) >= least);
        }
        if (p.type_count() != 2) continue;
        for (int n = 0; n <= 4000; ++n) {
            std::vector<double> const ratios{n / 4000.0 / p.counts[0], (1 - n / 4000.0) / p.counts[1]};
            if (p.fits(ratios)) CHECK(p.objective(ratios) >= least);
        }
    }
    CHECK(feasible > test::cases(150));
}

TEST_CASE("curves that are lines make the linear problem") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        test::random_source random(seed);
        auto const linear = test::random_ratio_problem(random, {.most_bent = 0});
        auto p = linear;
        p.stages.clear();
        for (auto const& stage : linear.stages) {
            auto& curved = p.stages.emplace_back();
            for (std::size_t t = 0; t < stage.size(); ++t) {
                affine const line = stage[t].straight;
                curved.push_back(
                    {.curves = {{[line](double r) { return curve_point{line.at(r), line.slope, 0}; }, true}}});
            }
        }
        CAPTURE(seed);
        auto const expected = clp::ratio_solver().solve(linear);
        auto const found = clp::ratio_solver().solve(p);
        REQUIRE(found.feasible == expected.feasible);
        if (!found.feasible) continue;
        CHECK(found.objective == doctest::Approx(expected.objective).epsilon(1e-8));
        CHECK(distance_to_preferred(linear, found.ratios) ==
              doctest::Approx(distance_to_preferred(linear, expected.ratios)).epsilon(1e-4));
    }
}

TEST_CASE("a linear program is not asked for what is not convex, nor for curves of several segments") {
    clp::ratio_solver const solver;
    ratio_problem p{.counts = {1, 1}, .preferred = {0.5, 0.5}};
    p.stages = {{{.curves = {exchanged_volume(seconds(0), seconds(1))}}, {}}};
    CHECK_FALSE(solves(solver, p));
    CHECK_THROWS_WITH_AS((void)solver.solve(p), doctest::Contains("not convex"), input_error);
    p.stages = {{{.curves = {saturating_work(seconds(1), 0.1)}}, {}, {}, {}}};
    p.preferred = {0.5, 0.5, 0.5, 0.5};
    p.segments = 2;
    CHECK_FALSE(solves(solver, p));
    CHECK_THROWS_WITH_AS((void)solver.solve(p), doctest::Contains("expected none where there are segments"),
                         input_error);
}
#endif
