// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The solver, which reduces problems and adds rows as they are broken, agrees with the whole linear program.
#if __has_include(<heddle/clp/ratio_solver.hpp>)
#include "unit/balance/random_ratio_problems.hpp"

#include <heddle/balance/ties.hpp>
#include <heddle/clp/ratio_solver.hpp>
#include <support/cases.hpp>

#include <ClpSimplex.hpp>
#include <CoinPackedMatrix.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

namespace {

using namespace heddle;

/// Has all rows and columns of the epigraph form, as the documentation of `ratio_problem` states it; times are not
/// negative.
class whole_program {
public:
    explicit whole_program(ratio_problem const& p) : p_(p) {
        std::vector<double> even(p.type_count());
        double devices = 0;
        for (int c : p.counts) devices += c;
        for (auto& r : even) r = 1 / devices;
        scale_ = 1 / std::max(p.objective(even), 1e-300);
        std::vector<std::pair<int, double>> sum;
        for (int c : p.counts) sum.push_back({column(0, 0, 1), c});
        row(sum, 1, 1);
        int const largest = column(0, 0);
        for (int t = 0; t < types(); ++t) row({{largest, 1}, {t, -1}}, 0, unlimited);
        for (auto const& t : p.transfers) maximum(t.pieces, largest, column(1, 0));
        for (auto const& stage : p.stages) {
            int const time = column(1, 0);
            for (int t = 0; t < types(); ++t) {
                auto const& work = stage[static_cast<std::size_t>(t)];
                std::vector<std::pair<int, double>> last{{time, 1}, {t, -work.straight.slope * scale_}};
                for (auto const& pieces : work.bent) {
                    int const bent = column(0, 0);
                    maximum(pieces, t, bent);
                    last.push_back({bent, -1});
                }
                row(last, work.straight.constant * scale_, unlimited);
            }
        }
        for (int t = 0; t < types() && !p.memory.empty(); ++t) {
            auto const n = static_cast<std::size_t>(t);
            row({{t, p.memory[n].slope / p.memory_limits[n]}}, -unlimited,
                1 - p.memory[n].constant / p.memory_limits[n]);
        }
    }

    /// Returns the least objective, without its constant, in units of the objective of even ratios.
    std::optional<double> least() { return solve(); }
    /// Returns the least distance to the preferred ratios for an objective of at most `most`.
    std::optional<double> least_distance(double most) {
        std::vector<std::pair<int, double>> objective;
        for (int c = 0; c < static_cast<int>(costs_.size()); ++c)
            if (double& cost = costs_[static_cast<std::size_t>(c)]; cost != 0)
                objective.push_back({c, std::exchange(cost, 0)});
        if (!objective.empty()) row(objective, -unlimited, most);
        for (int t = 0; t < types(); ++t) {
            double const wanted = p_.preferred[static_cast<std::size_t>(t)];
            int const distance = column(p_.counts[static_cast<std::size_t>(t)], 0);
            row({{distance, 1}, {t, -1}}, -wanted, unlimited);
            row({{distance, 1}, {t, 1}}, wanted, unlimited);
        }
        return solve();
    }
    [[nodiscard]] double scale() const { return scale_; }

private:
    static constexpr double unlimited = std::numeric_limits<double>::max();
    [[nodiscard]] int types() const { return static_cast<int>(p_.type_count()); }
    int column(double cost, double lower, double upper = unlimited) {
        costs_.push_back(cost);
        lower_.push_back(lower);
        upper_.push_back(upper);
        return static_cast<int>(costs_.size()) - 1;
    }
    void row(std::vector<std::pair<int, double>> const& entries, double lower, double upper) {
        for (auto const& [c, value] : entries) {
            rows_.push_back(static_cast<int>(row_lower_.size()));
            columns_.push_back(c);
            values_.push_back(value);
        }
        row_lower_.push_back(lower);
        row_upper_.push_back(upper);
    }
    void maximum(convex_pieces const& pieces, int of, int result) {
        for (auto a : pieces) row({{result, 1}, {of, -a.slope * scale_}}, a.constant * scale_, unlimited);
    }
    std::optional<double> solve() {
        CoinPackedMatrix const matrix(true, rows_.data(), columns_.data(), values_.data(),
                                      static_cast<CoinBigIndex>(values_.size()));
        ClpSimplex model;
        model.setLogLevel(0);
        model.setPrimalTolerance(1e-9);
        model.setDualTolerance(1e-9);
        model.loadProblem(matrix, lower_.data(), upper_.data(), costs_.data(), row_lower_.data(), row_upper_.data());
        model.dual();
        if (!model.isProvenOptimal()) return std::nullopt;
        return model.getObjValue();
    }

    ratio_problem const& p_;
    double scale_ = 1;
    std::vector<double> costs_, lower_, upper_, values_, row_lower_, row_upper_;
    std::vector<int> rows_, columns_;
};

} // namespace

TEST_CASE("the solver finds what the whole linear program does") {
    int feasible = 0, tied = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(1500u); ++seed) {
        test::random_source random(seed);
        bool const large = seed % 25 == 0;
        auto const p = test::random_ratio_problem(
            random, large ? test::ratio_problem_limits{.most_types = 24, .most_stages = 60, .most_bent = 8}
                          : test::ratio_problem_limits{});
        CAPTURE(seed);
        whole_program whole(p);
        auto const least = whole.least();
        clp::ratio_solver const solver;
        auto const found = solver.solve(p);
        REQUIRE(found.feasible == least.has_value());
        if (!least) continue;
        ++feasible;
        double const expected = *least / whole.scale() + p.constant;
        CHECK(found.objective == doctest::Approx(expected).epsilon(2e-8));
        CHECK(found.objective == p.objective(found.ratios));
        CHECK(p.fits(found.ratios, 1e-8));

        // No ratios that are as good are nearer to the preferred ones.
        double const distance = distance_to_preferred(p, found.ratios);
        if (auto const nearest = whole.least_distance(*least)) {
            CHECK(distance <= *nearest + 1e-5);
            tied += *nearest < 1e-6;
        }

        // The result does not depend on where the search starts.
        for (auto const& start : {found.ratios, test::random_ratios(random, p)}) {
            auto const again = solver.solve(p, start);
            REQUIRE(again.feasible);
            CHECK(again.objective == doctest::Approx(found.objective).epsilon(1e-8));
            CHECK(distance_to_preferred(p, again.ratios) == doctest::Approx(distance).epsilon(1e-4));
        }
    }
    MESSAGE("feasible " << feasible << ", preferred ratios optimal " << tied);
    CHECK(feasible > test::cases(700));
    CHECK(tied > test::cases(20));
}

TEST_CASE("ratios follow the types, in whatever order those are and wherever the search starts") {
    for (std::uint64_t seed = 1; seed <= test::cases(500u); ++seed) {
        test::random_source random(seed);
        auto const p = test::random_ratio_problem(random);
        auto const types = p.type_count();
        auto turned = p; // type t becomes type (t + 1) % types
        auto const turn = [](auto& list) {
            if (!list.empty()) std::ranges::rotate(list, list.end() - 1);
        };
        turn(turned.counts);
        turn(turned.preferred);
        for (auto& stage : turned.stages) turn(stage);
        turn(turned.memory);
        turn(turned.memory_limits);
        CAPTURE(seed);
        auto const found = clp::ratio_solver().solve(p),
                   other = clp::ratio_solver().solve(turned, test::random_ratios(random, turned));
        REQUIRE(found.feasible == other.feasible);
        if (!found.feasible) continue;
        double devices = 0;
        for (int count : p.counts) devices += count;
        for (std::size_t t = 0; t < types; ++t)
            CHECK(std::abs(found.ratios[t] - other.ratios[(t + 1) % types]) < 1e-4 / devices);
    }
}
#endif
