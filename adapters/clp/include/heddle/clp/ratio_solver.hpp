// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Ratio problems as linear programs, solved by CLP.
#pragma once

#include <heddle/balance/ratio_problem.hpp>
#include <heddle/base/definitions.hpp>

#include <vector>

namespace heddle::clp {

/// Solves ratio problems in epigraph form as linear programs: of one segment reduced and row by row as needed, exactly
/// without curves and within 1e-8 of the objective with convex ones, by tangents; of several segments without curves
/// with all rows. Of the optimal ratios of one segment it returns those of the least `tie_cost`; with several, ties go
/// to ratios near the preferred ones, by a price too small to matter otherwise.
/// *Throws* what `validate` does, before it starts; `input_error` for problems that it does not take; `error` if CLP
/// fails, which would be a matter of numbers.
/// *Thread safety.* One solver may be used by one thread at a time; several solvers at once are safe.
class ratio_solver {
public:
    [[nodiscard]] static bool solves(ratio_problem const& p);

    [[nodiscard]] ratio_solution solve(ratio_problem const& p) const { return solve(p, p.preferred); }
    /// Starts at ratios supposed to be good, such as the solution of a problem alike; with several segments that makes
    /// no difference.
    [[nodiscard]] ratio_solution solve(ratio_problem const& p, std::vector<double> const& start) const;
};

static_assert(heddle::ratio_solver<ratio_solver>);

} // namespace heddle::clp

#if HEDDLE_DEFINITIONS

#include <heddle/balance/reduced_ratio_problem.hpp>
#include <heddle/balance/ties.hpp>
#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/clp/segmented_program.hpp>

#include <ClpSimplex.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

namespace heddle::clp {

namespace detail {

/// The epigraph form of a reduced ratio problem. Only those rows are written down that some solution has broken
/// (Kelley's cutting planes; this is exact if curves are piecewise linear, because their lines are finitely many).
///
/// Columns are in units of their values at the start, ratios in units of the even one, and the objective in units of
/// its own value there, because CLP's tolerances are absolute.
class linear_program {
public:
    linear_program(reduced_ratio_problem const& p, std::vector<double> const& start) : p_(p) {
        for (int count : p.counts) even_ += count;
        even_ = 1 / even_;
        scale_ = 1 / std::max(std::abs(p.objective(start)), 1e-300);
        model_.setLogLevel(0);
        model_.setPrimalTolerance(tolerance);
        model_.setDualTolerance(tolerance);
        model_.scaling(0);
        model_.setPerturbation(100);

        row_list rows;
        for (std::size_t t = 0; t < p.type_count(); ++t) {
            ratio_.push_back(add_column(0, p.lower[t] / even_, p.upper[t] / even_));
            rows.add(ratio_[t], p.counts[t] * even_);
        }
        rows.close(1, 1);
        for (auto const& stage : p.stages) {
            double const unit = positive(stage.at(start));
            stages_.push_back({add_column(stage.weight * unit * scale_, stage.floor / unit), unit});
        }
        if (p.transfers) {
            largest_ = add_column(0);
            for (int column : ratio_) {
                rows.add(largest_, 1);
                rows.add(column, -1);
                rows.close(0, infinite);
            }
            double const unit = positive(p.transfers->at(algorithm::max(start)));
            transfers_ = {add_column(unit * scale_, p.transfers->smallest() / unit), unit};
            rows.add(transfers_.column, 1);
            add_line(rows, p.transfers->tangent(algorithm::max(start)), largest_, transfers_);
        }
        auto const last_types = add_tangents(rows, start, 0.05);
        load(rows);
        model_.createStatus();
        // Starts from a basis that prices every stage at the type that is last in it at the start.
        for (std::size_t s = 0; s < stages_.size(); ++s)
            if (last_types[s] >= 0) {
                model_.setColumnStatus(stages_[s].column, ClpSimplex::basic);
                model_.setRowStatus(last_types[s], ClpSimplex::atLowerBound);
            }
    }

    /// Returns ratios of the least objective; nothing if CLP fails.
    std::optional<std::vector<double>> minimise() {
        optimise();
        return cut();
    }
    /// Tells whether the solution that `minimise` found is known to be the only one: no column or row outside the basis
    /// is free of charge. Curves tell nothing: if they are almost lines, their tangents meet anywhere.
    [[nodiscard]] bool is_unique() {
        for (auto const& stage : p_.stages)
            if (!algorithm::all_of(stage.types, [](auto const& t) { return t.curves.empty(); })) return false;
        auto const charged = [](ClpSimplex::Status status, double cost) {
            return status == ClpSimplex::basic || status == ClpSimplex::isFixed || std::abs(cost) > 1e-7;
        };
        for (int c = 0; c < model_.numberColumns(); ++c)
            if (!charged(model_.getColumnStatus(c), model_.getReducedCost()[c]) &&
                model_.getColLower()[c] < model_.getColUpper()[c])
                return false;
        for (int r = 0; r < model_.numberRows(); ++r)
            if (!charged(model_.getRowStatus(r), model_.getRowPrice()[r]) &&
                model_.getRowLower()[r] < model_.getRowUpper()[r])
                return false;
        return true;
    }
    /// Returns the ratios of the least `tie_cost` whose objective is at most `most`. It must be the last call on a
    /// program.
    std::optional<std::vector<double>> nearest_within(double most) {
        row_list rows;
        for (int c = 0; c < model_.numberColumns(); ++c)
            if (double const cost = model_.objective()[c]; cost != 0) {
                rows.add(c, cost);
                model_.setObjectiveCoefficient(c, 0);
            }
        rows.close(-infinite, (most - p_.constant) * scale_);
        // Per type there are, in units of the square of an even ratio, distances above and below, and a square, which
        // tangents approach from below.
        double const square = tie_square * even_;
        for (std::size_t t = 0; t < ratio_.size(); ++t) {
            int const above = append_column(p_.counts[t] / square), below = append_column(p_.counts[t] / square);
            squares_.push_back({append_column(p_.counts[t] * square_unit), square_unit});
            rows.add(ratio_[t], 1);
            rows.add(above, -1);
            rows.add(below, 1);
            rows.close(wanted(t), wanted(t));
        }
        rows.add_to(model_);
        optimise();
        return cut();
    }

private:
    static constexpr double infinite = std::numeric_limits<double>::max(), tolerance = 1e-9;
    /// The unit is small, so that a square within the tolerance is that of a ratio within 2e-6 of an even one.
    static constexpr double square_unit = 1e-3;

    struct scaled_column {
        int column = -1;
        double unit = 1;
    };

    /// Rows on their way into a model.
    struct row_list {
        std::vector<double> lower, upper, values;
        std::vector<CoinBigIndex> starts{0};
        std::vector<int> columns;

        void add(int column, double value) {
            columns.push_back(column);
            values.push_back(value);
        }
        void close(double low, double high) {
            lower.push_back(low);
            upper.push_back(high);
            starts.push_back(static_cast<CoinBigIndex>(columns.size()));
        }
        [[nodiscard]] int size() const { return static_cast<int>(lower.size()); }
        void add_to(ClpSimplex& model) const {
            model.addRows(size(), lower.data(), upper.data(), starts.data(), columns.data(), values.data());
        }
    };

    static double positive(double unit) { return unit > 0 ? unit : 1; }

    int add_column(double cost, double lower = 0, double upper = infinite) {
        costs_.push_back(cost);
        lower_.push_back(lower);
        upper_.push_back(upper);
        return static_cast<int>(costs_.size()) - 1;
    }
    /// Appends a column to the model as it is loaded.
    int append_column(double cost) {
        model_.addColumn(0, nullptr, nullptr, 0, infinite, cost);
        return model_.numberColumns() - 1;
    }
    void load(row_list const& rows) {
        int const size = static_cast<int>(costs_.size());
        model_.resize(0, size);
        for (int c = 0; c < size; ++c) {
            auto const n = static_cast<std::size_t>(c);
            model_.setObjectiveCoefficient(c, costs_[n]);
            model_.setColumnBounds(c, lower_[n], upper_[n]);
        }
        rows.add_to(model_);
    }

    /// of >= line(x), in their units.
    void add_line(row_list& rows, affine line, int x, scaled_column of) const {
        rows.add(x, -line.slope * even_ / of.unit);
        rows.close(line.constant / of.unit, infinite);
    }
    void add_tangent(row_list& rows, std::size_t stage, reduced_ratio_problem::type_curve const& curve,
                     double ratio) const {
        rows.add(stages_[stage].column, 1);
        add_line(rows, curve.tangent(ratio), ratio_[curve.type], stages_[stage]);
    }
    /// Adds tangents of all types that are within a part of the last type in a stage. Returns each stage's row of the
    /// last type, or -1 if the stage is at its floor.
    std::vector<int> add_tangents(row_list& rows, std::vector<double> const& ratios, double part) const {
        std::vector<int> last_rows;
        for (std::size_t s = 0; s < p_.stages.size(); ++s) {
            double const last = p_.stages[s].at(ratios);
            int& last_row = last_rows.emplace_back(-1);
            for (auto const& curve : p_.stages[s].types) {
                double const time = curve.at(ratios[curve.type]);
                if (time < (1 - part) * last) continue;
                if (time == last) last_row = rows.size();
                add_tangent(rows, s, curve, ratios[curve.type]);
            }
        }
        return last_rows;
    }

    /// Solves again with the rows that the solution breaks until it breaks none: in each round the worst of every stage
    /// and of every type.
    std::optional<std::vector<double>> cut() {
        for (;;) {
            if (!model_.isProvenOptimal()) return std::nullopt;
            auto ratios = solution();
            row_list rows;
            struct broken {
                std::size_t stage = 0;
                reduced_ratio_problem::type_curve const* curve = nullptr;
                double by = 0;
            };
            std::vector<broken> of_type(p_.type_count());
            for (std::size_t s = 0; s < stages_.size(); ++s) {
                double const allowed = value(stages_[s].column) + 2 * tolerance;
                broken worst;
                for (auto const& curve : p_.stages[s].types) {
                    double const by = curve.at(ratios[curve.type]) / stages_[s].unit - allowed;
                    if (by > worst.by) worst = {s, &curve, by};
                    if (by > of_type[curve.type].by) of_type[curve.type] = {s, &curve, by};
                }
                if (worst.curve) {
                    add_tangent(rows, s, *worst.curve, ratios[worst.curve->type]);
                    if (of_type[worst.curve->type].curve == worst.curve) of_type[worst.curve->type].curve = nullptr;
                }
            }
            for (auto const& b : of_type)
                if (b.curve) add_tangent(rows, b.stage, *b.curve, ratios[b.curve->type]);
            if (p_.transfers) {
                double const largest = value(largest_) * even_;
                affine const tangent = p_.transfers->tangent(largest);
                if (tangent.at(largest) / transfers_.unit > value(transfers_.column) + 2 * tolerance) {
                    rows.add(transfers_.column, 1);
                    add_line(rows, tangent, largest_, transfers_);
                }
            }
            for (std::size_t t = 0; t < squares_.size(); ++t) {
                double const at = ratios[t] / even_, off = at - wanted(t);
                if (off * off / square_unit <= value(squares_[t].column) + 2 * tolerance) continue;
                rows.add(squares_[t].column, 1);
                add_line(rows, {off * (off - 2 * at), 2 * off / even_}, ratio_[t], squares_[t]);
            }
            if (rows.size() == 0) return p_.clamped(std::move(ratios));
            rows.add_to(model_);
            optimise();
        }
    }
    void optimise() {
        model_.dual();
        if (!model_.isProvenOptimal()) model_.primal();
    }
    [[nodiscard]] double wanted(std::size_t t) const { return p_.preferred[t] / even_; }
    [[nodiscard]] double value(int column) const { return model_.getColSolution()[column]; }
    [[nodiscard]] std::vector<double> solution() const {
        std::vector<double> ratios;
        for (int column : ratio_) ratios.push_back(value(column) * even_);
        return ratios;
    }

    reduced_ratio_problem const& p_;
    double even_ = 0, scale_ = 1;
    std::vector<double> costs_, lower_, upper_;
    std::vector<int> ratio_;
    std::vector<scaled_column> stages_, squares_;
    int largest_ = -1;
    scaled_column transfers_;
    ClpSimplex model_;
};

inline std::optional<std::vector<double>> solve_reduced(reduced_ratio_problem const& p,
                                                        std::vector<double> const& start) {
    if (start.size() != p.type_count()) throw input_error("ratio problem, start", "expected one ratio per type");
    if (!p.is_feasible()) return std::nullopt;
    linear_program program(p, p.clamped(start));
    auto optimal = program.minimise();
    if (!optimal) throw error("ratio problem: CLP finds no optimum, though one exists");
    if (program.is_unique()) return optimal;
    return break_ties(p, std::move(*optimal), [&](double most) { return program.nearest_within(most); });
}

inline std::optional<std::vector<double>> solve_segments(ratio_problem const& p) {
    validate(p);
    return segmented_program(p).minimise();
}

} // namespace detail

HEDDLE_INLINE bool ratio_solver::solves(ratio_problem const& p) {
    return p.segments == 1 ? p.is_convex() : !p.has_curves();
}

HEDDLE_INLINE ratio_solution ratio_solver::solve(ratio_problem const& p, std::vector<double> const& start) const {
    if (!solves(p))
        throw input_error("ratio problem, stages",
                          p.segments == 1 ? "a curve is not convex, expected convex ones for a linear program"
                                          : "there are curves, expected none where there are segments");
    auto const ratios = p.segments == 1 ? detail::solve_reduced(reduce(p), start) : detail::solve_segments(p);
    if (!ratios) return {};
    return {true, *ratios, p.objective(*ratios)};
}

} // namespace heddle::clp

#endif
