// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A reduced ratio problem as a smooth program for Ipopt.
#pragma once

#include <heddle/balance/reduced_ratio_problem.hpp>
#include <heddle/balance/ties.hpp>
#include <heddle/base/algorithm.hpp>

#include <IpTNLP.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::ipopt::detail {

/// The epigraph form has a column per ratio and per stage, and a row per line of a type in a stage, plus its curves.
/// Columns and objective are in units of their values at the start, ratios in units of the even one. With `most`, it
/// minimises the `tie_cost` of the ratios at which the objective is at most that.
class epigraph : public Ipopt::TNLP {
public:
    using Index = Ipopt::Index;
    using Number = Ipopt::Number;

    epigraph(reduced_ratio_problem const& p, std::vector<double> const& start, std::optional<double> most = {})
        : p_(p) {
        for (int count : p.counts) even_ += count;
        even_ = 1 / even_;
        double const scale = 1 / positive(std::abs(p.objective(start)));
        std::vector<entry> sum;
        for (std::size_t t = 0; t < p.type_count(); ++t)
            sum.push_back(
                {add_column(0, p.lower[t] / even_, p.upper[t] / even_, start[t] / even_), p.counts[t] * even_});
        add_row({sum, 1, 1, nullptr, 1});
        for (auto const& stage : p.stages) {
            double const time = stage.at(start), unit = positive(time);
            Index const last = add_column(stage.weight * unit * scale, stage.floor / unit, infinite, time / unit);
            for (auto const& curve : stage.types)
                for (auto line : curve.linear.lines())
                    add_line(last, unit, line, static_cast<Index>(curve.type), curve.curves.empty() ? nullptr : &curve);
        }
        if (p.transfers) {
            double const most_at_start = algorithm::max(start),
                         unit = positive(std::abs(p.transfers->at(most_at_start)));
            Index const largest = add_column(0, 0, infinite, most_at_start / even_);
            for (std::size_t t = 0; t < p.type_count(); ++t)
                add_row({{{largest, 1}, {static_cast<Index>(t), -1}}, 0, infinite, nullptr, 1});
            Index const time = add_column(unit * scale, -infinite, infinite, p.transfers->at(most_at_start) / unit);
            for (auto line : p.transfers->lines()) add_line(time, unit, line, largest, nullptr);
        }
        if (most) aim_at_preferred(start, (*most - p.constant) * scale);
    }

    /// Returns the ratios found, if Ipopt found any.
    [[nodiscard]] std::optional<std::vector<double>> const& ratios() const { return ratios_; }

    bool get_nlp_info(Index& columns, Index& rows, Index& jacobian, Index& hessian, IndexStyleEnum& style) override {
        columns = size(costs_);
        rows = size(rows_);
        jacobian = 0;
        for (auto const& row : rows_) jacobian += size(row.entries);
        hessian = size(p_.counts);
        style = C_STYLE;
        return true;
    }
    bool get_bounds_info(Index, Number* lower, Number* upper, Index, Number* row_lower, Number* row_upper) override {
        algorithm::copy(lower_, lower);
        algorithm::copy(upper_, upper);
        for (auto const& row : rows_) {
            *row_lower++ = row.lower;
            *row_upper++ = row.upper;
        }
        return true;
    }
    bool get_starting_point(Index, bool, Number* x, bool, Number*, Number*, Index, bool, Number*) override {
        algorithm::copy(start_, x);
        return true;
    }
    bool eval_f(Index, Number const* x, bool, Number& value) override {
        value = 0;
        for (std::size_t c = 0; c < costs_.size(); ++c) value += costs_[c] * x[c];
        for (std::size_t t = 0; t < squares_.size(); ++t) value += squares_[t] * off(t, x) * off(t, x);
        return true;
    }
    bool eval_grad_f(Index, Number const* x, bool, Number* gradient) override {
        algorithm::copy(costs_, gradient);
        for (std::size_t t = 0; t < squares_.size(); ++t) gradient[t] += 2 * squares_[t] * off(t, x);
        return true;
    }
    bool eval_g(Index, Number const* x, bool, Index, Number* values) override {
        for (auto const& row : rows_) {
            double sum = 0;
            for (auto const& [column, value] : row.entries) sum += value * x[column];
            if (row.curves) sum -= curves_at(row, x).value / row.unit;
            *values++ = sum;
        }
        return true;
    }
    bool eval_jac_g(Index, Number const* x, bool, Index, Index, Index* rows, Index* columns, Number* values) override {
        for (std::size_t r = 0; r < rows_.size(); ++r) {
            double const slope = values && rows_[r].curves ? curves_at(rows_[r], x).slope * even_ / rows_[r].unit : 0;
            for (auto const& [column, value] : rows_[r].entries) {
                if (values)
                    *values++ =
                        value - (rows_[r].curves && column == static_cast<Index>(rows_[r].curves->type) ? slope : 0);
                else {
                    *rows++ = static_cast<Index>(r);
                    *columns++ = column;
                }
            }
        }
        return true;
    }
    bool eval_h(Index, Number const* x, bool, Number weight, Index, Number const* multipliers, bool, Index, Index* rows,
                Index* columns, Number* values) override {
        for (Index t = 0; t < size(p_.counts); ++t) {
            if (values) values[t] = squares_.empty() ? 0 : 2 * weight * squares_[static_cast<std::size_t>(t)];
            else rows[t] = columns[t] = t;
        }
        for (std::size_t r = 0; values && r < rows_.size(); ++r)
            if (auto const* curves = rows_[r].curves)
                values[curves->type] -=
                    multipliers[r] * curves_at(rows_[r], x).curvature * even_ * even_ / rows_[r].unit;
        return true;
    }
    void finalize_solution(Ipopt::SolverReturn status, Index, Number const* x, Number const*, Number const*, Index,
                           Number const*, Number const*, Number, Ipopt::IpoptData const*,
                           Ipopt::IpoptCalculatedQuantities*) override {
        if (status != Ipopt::SUCCESS && status != Ipopt::STOP_AT_ACCEPTABLE_POINT) return;
        std::vector<double> found;
        for (std::size_t t = 0; t < p_.type_count(); ++t) found.push_back(x[t] * even_);
        ratios_ = p_.clamped(std::move(found));
    }

private:
    static constexpr double infinite = 1e20; // Ipopt's

    using entry = std::pair<Index, double>;
    struct constraint {
        std::vector<entry> entries;
        double lower = 0, upper = 0;
        /// Their sum is subtracted, in units.
        reduced_ratio_problem::type_curve const* curves = nullptr;
        double unit = 1;
    };

    template <class List>
    static Index size(List const& list) {
        return static_cast<Index>(list.size());
    }
    static double positive(double unit) { return unit > 0 ? unit : 1; }

    Index add_column(double cost, double lower, double upper, double start) {
        costs_.push_back(cost);
        lower_.push_back(lower);
        upper_.push_back(upper);
        start_.push_back(start);
        return size(costs_) - 1;
    }
    void add_row(constraint r) { rows_.push_back(std::move(r)); }
    /// of >= line(x) + curves(x), in their units.
    void add_line(Index of, double unit, affine line, Index x, reduced_ratio_problem::type_curve const* curves) {
        add_row({{{of, 1}, {x, -line.slope * even_ / unit}}, line.constant / unit, infinite, curves, unit});
    }
    void aim_at_preferred(std::vector<double> const& start, double most) {
        constraint budget{{}, -infinite, most, nullptr, 1};
        for (Index c = 0; c < size(costs_); ++c)
            if (double& cost = costs_[static_cast<std::size_t>(c)]; cost != 0)
                budget.entries.push_back({c, std::exchange(cost, 0.0)});
        add_row(std::move(budget));
        for (std::size_t t = 0; t < p_.type_count(); ++t) {
            double const wanted = p_.preferred[t] / even_, by = start[t] / even_ - wanted, cost = p_.counts[t];
            Index const above = add_column(cost, 0, infinite, std::max(0.0, by)),
                        below = add_column(cost, 0, infinite, std::max(0.0, -by));
            squares_.push_back(cost * tie_square * even_);
            add_row({{{static_cast<Index>(t), 1}, {above, -1}, {below, 1}}, wanted, wanted, nullptr, 1});
        }
    }
    [[nodiscard]] double off(std::size_t t, Number const* x) const { return x[t] - p_.preferred[t] / even_; }
    [[nodiscard]] curve_point curves_at(constraint const& r, Number const* x) const {
        curve_point sum;
        for (auto const& c : r.curves->curves) {
            auto const at = c.at(x[r.curves->type] * even_);
            sum.value += at.value;
            sum.slope += at.slope;
            sum.curvature += at.curvature;
        }
        return sum;
    }

    reduced_ratio_problem const& p_;
    double even_ = 0;
    std::vector<double> costs_, lower_, upper_, start_;
    /// The costs of the squares of the ratios' distances to the preferred ones; empty if they cost nothing.
    std::vector<double> squares_;
    std::vector<constraint> rows_;
    std::optional<std::vector<double>> ratios_;
};

} // namespace heddle::ipopt::detail
