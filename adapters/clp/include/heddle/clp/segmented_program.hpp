// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The ratios of several segments as one linear program.
#pragma once

#include <heddle/balance/ratio_problem.hpp>

#include <ClpSimplex.hpp>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle::clp::detail {

/// The epigraph form has a column for every ratio, stage, bent kernel, largest ratio of a segment, and transfer that
/// depends on one. Ratios are in units of the even one and seconds in units of the objective at the preferred ratios,
/// because CLP's tolerances are absolute.
class segmented_program {
public:
    explicit segmented_program(ratio_problem const& p) : p_(p) {
        for (int count : p.counts) even_ += count;
        even_ = 1 / even_;
        std::size_t const types = p.type_count();
        double const start = p.objective(p.preferred);
        unit_ = start > 0 ? start : 1;
        constexpr double tie_price = 1e-7;
        for (std::size_t g = 0; g < p.segments; ++g) {
            for (std::size_t t = 0; t < types; ++t) {
                ratio_.push_back(add_column(0));
                add(ratio_.back(), p.counts[t] * even_);
            }
            close(1, 1);
            std::span const mine(ratio_.end() - std::ssize(p.counts), ratio_.end());
            for (std::size_t t = 0; t < types; ++t) {
                double const price = tie_price * p.counts[t] * even_ / static_cast<double>(p.segments);
                int const above = add_column(price), below = add_column(price);
                add(mine[t], 1);
                add(above, -1);
                add(below, 1);
                double const wanted = p.preferred[g * types + t] / even_;
                close(wanted, wanted);
            }
            largest_.push_back(add_column(0));
            for (int column : mine) {
                add(largest_[g], 1);
                add(column, -1);
                close(0, infinite);
            }
            for (auto const& t : p.transfers)
                if (t.from == g && t.to == g) above_all(add_column(1), t.pieces, {largest_[g]});
        }
        for (auto const& t : p.transfers)
            if (t.from != t.to) above_all(add_column(1), t.pieces, {largest_[t.from], largest_[t.to]});
        for (auto const& stage : p.stages) add_stage(stage);
        for (std::size_t t = 0; t < p.memory_limits.size(); ++t) add_memory(t);
        load();
    }

    /// Ratios of the least objective, or none where nothing fits.
    std::optional<std::vector<double>> minimise() {
        model_.dual();
        if (!model_.isProvenOptimal()) model_.primal();
        if (model_.isProvenPrimalInfeasible()) return std::nullopt;
        if (!model_.isProvenOptimal())
            throw error("ratio problem: CLP finds no optimum of " + std::to_string(p_.segments) + " segments");
        std::vector<double> result;
        std::size_t const types = p_.type_count();
        for (std::size_t g = 0; g < p_.segments; ++g) {
            double sum = 0;
            for (std::size_t t = 0; t < types; ++t) {
                result.push_back(std::max(0.0, model_.getColSolution()[ratio_[g * types + t]] * even_));
                sum += result.back() * p_.counts[t];
            }
            for (auto& r : std::span(result).last(types)) r /= sum; // CLP keeps rows within a tolerance
        }
        return result;
    }

private:
    static constexpr double infinite = std::numeric_limits<double>::max();

    int add_column(double cost) {
        costs_.push_back(cost);
        return static_cast<int>(costs_.size()) - 1;
    }
    /// Adds to the row that is open.
    void add(int column, double value) {
        columns_.push_back(column);
        values_.push_back(value);
    }
    void close(double low, double high) {
        lower_.push_back(low);
        upper_.push_back(high);
        starts_.push_back(static_cast<CoinBigIndex>(columns_.size()));
    }
    /// Requires column >= every piece at every x, in seconds of the objective's unit.
    void above_all(int column, convex_pieces const& pieces, std::initializer_list<int> xs) {
        for (auto const& line : pieces)
            for (int x : xs) {
                add(column, 1);
                add(x, -line.slope * even_ / unit_);
                close(line.constant / unit_, infinite);
            }
    }
    void add_stage(std::vector<stage_work> const& stage) {
        int const last = add_column(1);
        for (std::size_t t = 0; t < p_.type_count(); ++t) {
            double constant = 0;
            std::vector<std::pair<int, double>> terms;
            for (std::size_t n = t; n < stage.size(); n += p_.type_count()) {
                auto const& work = stage[n];
                constant += work.straight.constant;
                if (work.straight.slope != 0) terms.push_back({ratio_[n], work.straight.slope * even_ / unit_});
                for (auto const& pieces : work.bent) {
                    int const kernel = add_column(0);
                    above_all(kernel, pieces, {ratio_[n]});
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
        double const limit = p_.memory_limits[t];
        double room = limit;
        for (std::size_t n = t; n < p_.memory.size(); n += p_.type_count()) {
            affine const used = p_.memory[n];
            room -= used.constant;
            add(ratio_[n], used.slope * even_ / limit);
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

    ratio_problem const& p_;
    double even_ = 0, unit_ = 1;
    std::vector<double> costs_, lower_, upper_, values_;
    std::vector<CoinBigIndex> starts_{0};
    std::vector<int> columns_;
    /// Per segment and type.
    std::vector<int> ratio_;
    std::vector<int> largest_;
    ClpSimplex model_;
};

} // namespace heddle::clp::detail
