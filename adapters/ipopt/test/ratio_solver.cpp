// SPDX-License-Identifier: BSL-1.0
#include "unit/balance/random_ratio_problems.hpp"

#include <heddle/ipopt/all.hpp>
#if __has_include(<heddle/clp/ratio_solver.hpp>)
#include <heddle/clp/ratio_solver.hpp>
#include <support/cases.hpp>
#endif

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

namespace {

using namespace heddle;

/// The least objective of two types, on a grid.
double grid_optimum(ratio_problem const& p) {
    double best = std::numeric_limits<double>::infinity();
    for (int n = 0; n <= 20000; ++n) {
        std::vector<double> const ratios{n / 20000.0 / p.counts[0], (1 - n / 20000.0) / p.counts[1]};
        if (p.fits(ratios)) best = std::min(best, p.objective(ratios));
    }
    return best;
}

/// What a call writes to a stream of the process.
template <class Call>
std::string written(std::FILE* stream, Call&& call) {
    std::FILE* const file = std::tmpfile();
    std::fflush(stream);
    int const kept = dup(fileno(stream));
    dup2(fileno(file), fileno(stream));
    call();
    std::fflush(stream);
    dup2(kept, fileno(stream));
    close(kept);
    std::rewind(file);
    std::string text;
    for (int c; (c = std::fgetc(file)) != EOF;) text.push_back(static_cast<char>(c));
    std::fclose(file);
    return text;
}

} // namespace

TEST_CASE("Ipopt is silent") {
    test::random_source random(6);
    auto const p = test::random_ratio_problem(random);
    ratio_solution found;
    auto const solve = [&] { found = ipopt::ratio_solver().solve(p); };
    CHECK(written(stdout, solve).empty());
    CHECK(written(stderr, solve).empty());
    CHECK(found.feasible);
    CHECK(written(stdout, [] { std::puts("heard"); }) == "heard\n");
}

TEST_CASE("threads find what one thread does") {
    constexpr std::uint64_t seeds = 24;
    auto const solve = [](std::uint64_t seed) {
        test::random_source random(seed);
        return ipopt::ratio_solver().solve(test::random_ratio_problem(random));
    };
    std::vector<ratio_solution> expected, found(seeds);
    for (std::uint64_t seed = 0; seed < seeds; ++seed) expected.push_back(solve(seed + 1));
    std::vector<std::thread> threads;
    for (std::uint64_t first = 0; first < 4; ++first)
        threads.emplace_back([&, first] {
            for (auto seed = first; seed < seeds; seed += 4) found[seed] = solve(seed + 1);
        });
    for (auto& thread : threads) thread.join();
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        CAPTURE(seed);
        CHECK(found[seed].feasible == expected[seed].feasible);
        CHECK(found[seed].ratios == expected[seed].ratios);
    }
}

TEST_CASE("the derivatives of the smooth program are its own") {
    ratio_problem p;
    p.counts = {1, 2};
    p.preferred = {0.4, 0.3};
    p.stages = {{{.straight = {1, 2}, .curves = {saturating_work(seconds(2), 0.3)}},
                 {.curves = {exchanged_volume(seconds(1), seconds(3)), saturating_work(seconds(1), 0.1)}}}};
    p.transfers = {{{{1, 2}, {0, 4}}}};
    auto const reduced = reduce(p);
    for (bool const with_budget : {false, true}) {
        ipopt::detail::epigraph program(reduced, {0.5, 0.25}, with_budget ? std::optional(3.0) : std::nullopt);
        int n = 0, m = 0, jacobian = 0, hessian = 0;
        Ipopt::TNLP::IndexStyleEnum style{};
        program.get_nlp_info(n, m, jacobian, hessian, style);
        auto const columns = static_cast<std::size_t>(n), rows = static_cast<std::size_t>(m);
        std::vector<double> x(columns, 0.8), multipliers;
        for (std::size_t r = 0; r < rows; ++r) multipliers.push_back(1 + 0.1 * static_cast<double>(r));
        std::vector<int> at_row(static_cast<std::size_t>(jacobian)),
            at_column = at_row, of_row(static_cast<std::size_t>(hessian)), of_column = of_row;
        program.eval_jac_g(n, nullptr, false, m, jacobian, at_row.data(), at_column.data(), nullptr);
        program.eval_h(n, nullptr, false, 1, m, nullptr, false, hessian, of_row.data(), of_column.data(), nullptr);
        auto const values = [&] {
            std::vector<double> g(rows);
            program.eval_g(n, x.data(), true, m, g.data());
            return g;
        };
        auto const slopes = [&] {
            std::vector<double> v(at_row.size()), dense(rows * columns, 0.0);
            program.eval_jac_g(n, x.data(), true, m, jacobian, nullptr, nullptr, v.data());
            for (std::size_t k = 0; k < v.size(); ++k)
                dense[static_cast<std::size_t>(at_row[k]) * columns + static_cast<std::size_t>(at_column[k])] += v[k];
            return dense;
        };
        std::vector<double> curvatures(of_row.size());
        double const weight = 7;
        program.eval_h(n, x.data(), true, weight, m, multipliers.data(), true, hessian, nullptr, nullptr,
                       curvatures.data());
        auto const objective = [&] {
            double value = 0;
            program.eval_f(n, x.data(), true, value);
            return value;
        };
        auto const gradient = [&] {
            std::vector<double> g(columns);
            program.eval_grad_f(n, x.data(), true, g.data());
            return g;
        };
        auto const here = slopes(), gradient_here = gradient();
        double const h = 1e-6;
        for (std::size_t c = 0; c < columns; ++c) {
            x[c] += h;
            double const objective_after = objective();
            auto const after = values(), slopes_after = slopes(), gradient_after = gradient();
            x[c] -= 2 * h;
            double const objective_before = objective();
            auto const before = values(), slopes_before = slopes(), gradient_before = gradient();
            x[c] += h;
            CHECK((objective_after - objective_before) / (2 * h) == doctest::Approx(gradient_here[c]).epsilon(1e-6));
            for (std::size_t r = 0; r < rows; ++r)
                CHECK((after[r] - before[r]) / (2 * h) == doctest::Approx(here[r * columns + c]).epsilon(1e-6));
            for (std::size_t d = 0; d < columns; ++d) {
                double expected = weight * (gradient_after[d] - gradient_before[d]) / (2 * h), given = 0;
                for (std::size_t r = 0; r < rows; ++r)
                    expected +=
                        multipliers[r] * (slopes_after[r * columns + d] - slopes_before[r * columns + d]) / (2 * h);
                for (std::size_t k = 0; k < curvatures.size(); ++k)
                    if (static_cast<std::size_t>(of_row[k]) == c && static_cast<std::size_t>(of_column[k]) == d)
                        given += curvatures[k];
                CHECK(given == doctest::Approx(expected).epsilon(1e-5));
            }
        }
    }
}

TEST_CASE("for the true volume of an all-to-all the best of local optima is that of a grid") {
    for (std::uint64_t seed = 1; seed <= test::cases(60u); ++seed) {
        test::random_source random(seed);
        ratio_problem p;
        p.counts = {random.between(1, 3), random.between(1, 3)};
        p.preferred.assign(2, 1.0 / (p.counts[0] + p.counts[1]));
        p.stages = {{{{random.unit(), random.between(0.5, 4.0)}}, {{random.unit(), random.between(0.5, 4.0)}}}};
        auto const volume = exchanged_volume(seconds(random.unit()), seconds(random.between(0.5, 8.0)));
        p.stages.push_back({{.curves = {volume}}, {.curves = {volume}}});
        CAPTURE(seed);
        auto const found = ipopt::ratio_solver().solve(p);
        REQUIRE(found.feasible);
        CHECK(found.objective == p.objective(found.ratios));
        CHECK(found.objective <= grid_optimum(p) * (1 + 1e-6));
    }
}

TEST_CASE("one type has no choice, and little memory none at all") {
    ratio_problem p;
    p.counts = {4};
    p.preferred = {0.25};
    p.stages = {{{{1, 8}}}};
    auto const found = ipopt::ratio_solver().solve(p);
    REQUIRE(found.feasible);
    CHECK(found.objective == doctest::Approx(3));
    p.memory = {{10, 100}};
    p.memory_limits = {34};
    CHECK_FALSE(ipopt::ratio_solver().solve(p).feasible);
    p.memory_limits.clear();
    CHECK_THROWS_AS((void)ipopt::ratio_solver().solve(p), input_error);
}

TEST_CASE("several segments are refused") {
    ratio_problem const p{.counts = {1}, .preferred = {1, 1}, .segments = 2};
    ipopt::ratio_solver const solver;
    CHECK_FALSE(solves(solver, p));
    CHECK_THROWS_WITH_AS((void)solver.solve(p), doctest::Contains("there are several"), input_error);
}

#if __has_include(<heddle/clp/ratio_solver.hpp>)
TEST_CASE("both solvers agree on linear problems, and choose the same ratios among equals") {
    for (std::uint64_t seed = 1; seed <= test::cases(200u); ++seed) {
        test::random_source random(seed);
        auto const p = test::random_ratio_problem(random);
        CAPTURE(seed);
        auto const exact = clp::ratio_solver().solve(p);
        auto const found = ipopt::ratio_solver().solve(p);
        REQUIRE(found.feasible == exact.feasible);
        if (!found.feasible) continue;
        CHECK(found.objective == doctest::Approx(exact.objective).epsilon(1e-7));
        double devices = 0;
        for (int count : p.counts) devices += count;
        for (std::size_t t = 0; t < p.type_count(); ++t)
            CHECK(std::abs(found.ratios[t] - exact.ratios[t]) < 1e-4 / devices);
    }
}

TEST_CASE("both solvers agree on convex curved problems") {
    for (std::uint64_t seed = 1; seed <= test::cases(100u); ++seed) {
        test::random_source random(seed);
        auto p = test::random_ratio_problem(random, {.most_stages = 3});
        double const scale = 1 + p.objective(std::vector<double>(p.type_count(), 0.5));
        auto& stage = p.stages.emplace_back(p.type_count());
        for (auto& work : stage)
            work.curves = {saturating_work(seconds(scale * random.between(0.5, 3.0)), random.log_between(0.02, 1))};
        CAPTURE(seed);
        auto const tangents = clp::ratio_solver().solve(p);
        auto const found = ipopt::ratio_solver().solve(p);
        REQUIRE(found.feasible == tangents.feasible);
        if (found.feasible) CHECK(found.objective == doctest::Approx(tangents.objective).epsilon(1e-7));
    }
}
#endif
