// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Ratio problems as linear programs, solved by CLP.
#pragma once

#include <heddle/balance/ratio_problem.hpp>

#include <ClpSimplex.hpp>
#include <CoinPackedMatrix.hpp>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace heddle::clp {

namespace detail {

/// Rows and columns gathered before they become a CLP model.
class linear_program {
public:
    static constexpr double infinite = std::numeric_limits<double>::infinity();

    int add_column(double cost, double lower = 0, double upper = infinite) {
        costs_.push_back(cost);
        lower_.push_back(lower);
        upper_.push_back(upper);
        return static_cast<int>(costs_.size()) - 1;
    }
    void add_row(std::vector<std::pair<int, double>> const& entries, double lower, double upper) {
        for (auto const& [column, value] : entries) {
            rows_.push_back(row_count());
            columns_.push_back(column);
            values_.push_back(value);
        }
        row_lower_.push_back(lower);
        row_upper_.push_back(upper);
    }
    void load(ClpSimplex& model) const {
        CoinPackedMatrix const matrix(true, rows_.data(), columns_.data(), values_.data(), static_cast<CoinBigIndex>(values_.size()));
        auto const clip = [](std::vector<double> bounds) {
            for (auto& b : bounds)
                if (std::isinf(b)) b = std::copysign(std::numeric_limits<double>::max(), b);
            return bounds;
        };
        model.setLogLevel(0);
        model.loadProblem(matrix, clip(lower_).data(), clip(upper_).data(), costs_.data(), clip(row_lower_).data(), clip(row_upper_).data());
    }
    [[nodiscard]] int column_count() const { return static_cast<int>(costs_.size()); }
    std::vector<double>& costs() { return costs_; }

private:
    [[nodiscard]] int row_count() const { return static_cast<int>(row_lower_.size()); }

    std::vector<double> costs_, lower_, upper_, values_, row_lower_, row_upper_;
    std::vector<int> rows_, columns_;
};

} // namespace detail

/// Solves ratio problems exactly, by their epigraph form: a column per stage, per bent kernel and per
/// bent transfer, a row per piece. Of the optimal ratios it returns those nearest, in sum of
/// distances, to the preferred ones, by a second solve within 1e-9 of the optimum.
/// *Thread safety.* One solver may be used by one thread at a time; several solvers at once are safe.
class ratio_solver {
public:
    [[nodiscard]] ratio_solution solve(ratio_problem const& p) {
        // Seconds are scaled so that the even split costs about one: CLP's tolerances are absolute.
        std::vector<double> const even(p.type_count(), 1.0 / total(p.counts));
        double const scale = 1 / std::max(p.objective(even), 1e-300);
        detail::linear_program program;
        std::vector<int> ratio;
        std::vector<std::pair<int, double>> sum;
        for (int count : p.counts) {
            ratio.push_back(program.add_column(0, 0, 1));
            sum.push_back({ratio.back(), count});
        }
        program.add_row(sum, 1, 1);
        add_objective(program, p, ratio, scale);
        for (std::size_t t = 0; t < p.memory.size(); ++t) {
            double const limit = p.memory_limits[t];
            program.add_row({{ratio[t], p.memory[t].slope / limit}}, -program.infinite, 1 - p.memory[t].constant / limit);
        }

        ClpSimplex model;
        program.load(model);
        model.dual();
        if (!model.isProvenOptimal()) return {};
        std::vector<double> ratios = ratios_of(model, p);
        if (auto nearer = nearest_to_preferred(program, p, ratio, model.getObjValue())) ratios = std::move(*nearer);
        return {true, ratios, p.objective(ratios)};
    }

private:
    static void add_objective(detail::linear_program& program, ratio_problem const& p, std::vector<int> const& ratio, double scale) {
        auto const infinite = detail::linear_program::infinite;
        int const largest = program.add_column(0);
        for (std::size_t t = 0; t < ratio.size(); ++t) program.add_row({{largest, 1}, {ratio[t], -1}}, 0, infinite);
        for (auto const& pieces : p.transfers) {
            if (pieces.size() == 1) { program.costs()[static_cast<std::size_t>(largest)] += pieces[0].slope * scale; continue; }
            int const time = program.add_column(1);
            for (auto const& a : pieces) program.add_row({{time, 1}, {largest, -a.slope * scale}}, a.constant * scale, infinite);
        }
        for (auto const& stage : p.stages) {
            int const time = program.add_column(1);
            for (std::size_t t = 0; t < stage.size(); ++t) {
                std::vector<std::pair<int, double>> row{{time, 1}, {ratio[t], -stage[t].straight.slope * scale}};
                for (auto const& pieces : stage[t].bent) {
                    int const bent = program.add_column(0);
                    for (auto const& a : pieces) program.add_row({{bent, 1}, {ratio[t], -a.slope * scale}}, a.constant * scale, infinite);
                    row.push_back({bent, -1});
                }
                program.add_row(row, stage[t].straight.constant * scale, infinite);
            }
        }
    }

    /// Minimises the distance to the preferred ratios with the objective held at its optimum.
    static std::optional<std::vector<double>> nearest_to_preferred(detail::linear_program program, ratio_problem const& p,
                                                                   std::vector<int> const& ratio, double optimum) {
        auto const infinite = detail::linear_program::infinite;
        std::vector<std::pair<int, double>> objective;
        for (int c = 0; c < program.column_count(); ++c)
            if (double& cost = program.costs()[static_cast<std::size_t>(c)]; cost != 0) objective.push_back({c, std::exchange(cost, 0.0)});
        program.add_row(objective, -infinite, optimum + 1e-9 * std::max(1.0, std::abs(optimum)));
        for (std::size_t t = 0; t < ratio.size(); ++t) {
            int const distance = program.add_column(p.counts[t]);
            program.add_row({{distance, 1}, {ratio[t], -1}}, -p.preferred[t], infinite);
            program.add_row({{distance, 1}, {ratio[t], 1}}, p.preferred[t], infinite);
        }
        ClpSimplex model;
        program.load(model);
        model.dual();
        if (!model.isProvenOptimal()) return std::nullopt;
        return ratios_of(model, p);
    }

    /// The ratios of a solution, freed of rounding below zero and summing to one.
    static std::vector<double> ratios_of(ClpSimplex const& model, ratio_problem const& p) {
        std::vector<double> ratios;
        double sum = 0;
        for (std::size_t t = 0; t < p.type_count(); ++t) {
            ratios.push_back(std::max(0.0, model.getColSolution()[t]));
            sum += ratios[t] * p.counts[t];
        }
        for (auto& r : ratios) r /= sum;
        return ratios;
    }

    static double total(std::vector<int> const& counts) {
        double sum = 0;
        for (int c : counts) sum += c;
        return sum;
    }
};

static_assert(heddle::ratio_solver<ratio_solver>);

} // namespace heddle::clp
