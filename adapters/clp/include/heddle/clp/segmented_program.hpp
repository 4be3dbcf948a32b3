// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The ratios of several segments as one linear program.
#pragma once

#include <heddle/balance/segmented_ratio_problem.hpp>

#include <ClpSimplex.hpp>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::clp::detail {

/// The epigraph form: a column for every ratio, stage, bent kernel, largest ratio of a segment and transfer that
/// depends on one. Ratios are in units of the even one and seconds in units of the objective at the preferred ratios:
/// CLP's tolerances are absolute.
class segmented_program {
public:
    explicit segmented_program(segmented_ratio_problem const& p) : p_(p) {
        auto const& first = p.segments.front();
        for (int count : first.counts) even_ += count;
        even_ = 1 / even_;
        std::size_t const segments = p.segments.size(), types = p.type_count();
        double const start = p.objective(ratio_table(segments, first.preferred));
        unit_ = start > 0 ? start : 1;
        constexpr double tie_price = 1e-7;
        for (std::size_t g = 0; g < segments; ++g) {
            auto& mine = ratio_.emplace_back();
            for (std::size_t t = 0; t < types; ++t) {
                mine.push_back(add_column(0));
                add(mine[t], first.counts[t] * even_);
            }
            close(1, 1);
            for (std::size_t t = 0; t < types; ++t) {
                double const price = tie_price * first.counts[t] * even_ / static_cast<double>(segments);
                int const above = add_column(price), below = add_column(price);
                add(mine[t], 1);
                add(above, -1);
                add(below, 1);
                close(first.preferred[t] / even_, first.preferred[t] / even_);
            }
            largest_.push_back(add_column(0));
            for (int column : mine) {
                add(largest_[g], 1);
                add(column, -1);
                close(0, infinite);
            }
            for (auto const& pieces : p.segments[g].transfers) above_all(add_column(1), pieces, {largest_[g]});
        }
        for (auto const& e : p.exchanges) above_all(add_column(1), e.pieces, {largest_[e.from], largest_[e.to]});
        for (std::size_t s = 0; s < first.stages.size(); ++s) add_stage(s);
        for (std::size_t t = 0; t < types; ++t) add_memory(t);
        load();
    }

    /// By segment and type, or none where nothing fits.
    std::optional<ratio_table> minimise() {
        model_.dual();
        if (!model_.isProvenOptimal()) model_.primal();
        if (model_.isProvenPrimalInfeasible()) return std::nullopt;
        if (!model_.isProvenOptimal())
            throw error("ratio problem: CLP finds no optimum of " + std::to_string(p_.segments.size()) + " segments");
        ratio_table result;
        for (auto const& columns : ratio_) {
            auto& row = result.emplace_back();
            double sum = 0;
            for (std::size_t t = 0; t < columns.size(); ++t) {
                row.push_back(std::max(0.0, model_.getColSolution()[columns[t]] * even_));
                sum += row.back() * p_.segments.front().counts[t];
            }
            for (auto& r : row) r /= sum; // CLP keeps rows within a tolerance
        }
        return result;
    }

private:
    static constexpr double infinite = std::numeric_limits<double>::max();

    int add_column(double cost) {
        costs_.push_back(cost);
        return static_cast<int>(costs_.size()) - 1;
    }
    /// Into the row that is open.
    void add(int column, double value) {
        columns_.push_back(column);
        values_.push_back(value);
    }
    void close(double low, double high) {
        lower_.push_back(low);
        upper_.push_back(high);
        starts_.push_back(static_cast<CoinBigIndex>(columns_.size()));
    }
    /// column >= every piece at every x, in seconds of the objective's unit.
    void above_all(int column, convex_pieces const& pieces, std::initializer_list<int> xs) {
        for (auto const& line : pieces)
            for (int x : xs) {
                add(column, 1);
                add(x, -line.slope * even_ / unit_);
                close(line.constant / unit_, infinite);
            }
    }
    void add_stage(std::size_t s) {
        int const last = add_column(1);
        for (std::size_t t = 0; t < p_.type_count(); ++t) {
            double constant = 0;
            std::vector<std::pair<int, double>> terms;
            for (std::size_t g = 0; g < p_.segments.size(); ++g) {
                auto const& work = p_.segments[g].stages[s][t];
                constant += work.straight.constant;
                if (work.straight.slope != 0) terms.push_back({ratio_[g][t], work.straight.slope * even_ / unit_});
                for (auto const& pieces : work.bent) {
                    int const kernel = add_column(0);
                    above_all(kernel, pieces, {ratio_[g][t]});
                    terms.push_back({kernel, 1});
                }
            }
            if (terms.empty() && constant <= 0) continue;
            add(last, 1);
            for (auto const& [column, value] : terms) add(column, -value);
            close(constant / unit_, infinite);
        }
    }
    void add_memory(std::size_t t) {
        double const limit = p_.segments.front().memory_limits[t];
        double room = limit;
        for (std::size_t g = 0; g < p_.segments.size(); ++g) {
            affine const used = p_.segments[g].memory[t];
            room -= used.constant;
            add(ratio_[g][t], used.slope * even_ / limit);
        }
        close(-infinite, room / limit);
    }
    void load() {
        model_.setLogLevel(0);
        model_.setPrimalTolerance(1e-9);
        model_.setDualTolerance(1e-9);
        model_.resize(0, static_cast<int>(costs_.size()));
        for (std::size_t c = 0; c < costs_.size(); ++c) {
            model_.setObjectiveCoefficient(static_cast<int>(c), costs_[c]);
            model_.setColumnBounds(static_cast<int>(c), 0, infinite);
        }
        model_.addRows(static_cast<int>(lower_.size()), lower_.data(), upper_.data(), starts_.data(), columns_.data(),
                       values_.data());
    }

    segmented_ratio_problem const& p_;
    double even_ = 0, unit_ = 1;
    std::vector<double> costs_, lower_, upper_, values_;
    std::vector<CoinBigIndex> starts_{0};
    std::vector<int> columns_;
    std::vector<std::vector<int>> ratio_;
    std::vector<int> largest_;
    ClpSimplex model_;
};

} // namespace heddle::clp::detail
