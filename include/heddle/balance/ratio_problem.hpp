// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Sharding ratios of a fixed program as a convex problem in one ratio per device type.
///
/// HAP section 5.1, with both directions, constants and memory kept. Devices of one type have equal
/// ratios: the problem is convex and symmetric in them, so some optimum has.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/cost/cost_model.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// constant + slope * x.
struct affine {
    double constant = 0, slope = 0;
    [[nodiscard]] double at(double x) const { return constant + slope * x; }
    affine& operator+=(affine other) {
        constant += other.constant;
        slope += other.slope;
        return *this;
    }
    friend bool operator==(affine, affine) = default;
};

/// Maximum of affine functions.
using convex_pieces = std::vector<affine>;

/// Time of one type in one stage: an affine part plus kernels whose roofline bends within [0, 1].
struct stage_work {
    affine straight;
    std::vector<convex_pieces> bent;

    [[nodiscard]] double at(double ratio) const;
    stage_work& operator+=(stage_work const& other);
    friend bool operator==(stage_work const&, stage_work const&) = default;
};

/// Minimise, over one ratio r_t >= 0 per type with sum_t count_t r_t = 1,
/// `constant + sum over stages of max_t work(r_t) + sum over transfers of max over pieces at max_t r_t`
/// so that `memory_t(r_t) <= limit_t`.
struct ratio_problem {
    std::vector<int> counts;
    /// Ratios to prefer among equals: proportional to computing speed.
    std::vector<double> preferred;
    double constant = 0;
    /// Per stage, per type.
    std::vector<std::vector<stage_work>> stages;
    /// Transfers as functions of the largest ratio.
    std::vector<convex_pieces> transfers;
    /// Bytes of a device of each type. Communication buffers count where their size is the same at all ratios.
    std::vector<affine> memory;
    std::vector<double> memory_limits;

    [[nodiscard]] std::size_t type_count() const { return counts.size(); }

    /// The objective at ratios that need not fit into memory.
    [[nodiscard]] double objective(std::span<double const> ratios) const;
    [[nodiscard]] bool fits(std::span<double const> ratios, double tolerance = 1e-9) const;
};

namespace detail {

inline void check_finite(affine a, std::string const& place) {
    if (!std::isfinite(a.constant) || !std::isfinite(a.slope)) throw input_error(place, "expected finite numbers");
}
void check_pieces(convex_pieces const& pieces, std::string const& place);
void check_work(stage_work const& work, std::string const& place);

} // namespace detail

/// Throws `input_error` naming the first thing in a ratio problem that cannot be.
void validate(ratio_problem const& p);

struct ratio_solution {
    bool feasible = false;
    /// One per type.
    std::vector<double> ratios;
    double objective = 0;
};

/// Solves ratio problems.
///
/// *Axioms.* If `feasible`, the ratios keep every constraint and no feasible ratios have a smaller objective (within
/// the solver's tolerance, at most 1e-7 relative); among equal ones they are nearest to `preferred`, see `tie_cost`.
template <class Solver>
concept ratio_solver = requires(Solver& solver, ratio_problem const& p) {
    { solver.solve(p) } -> std::convertible_to<ratio_solution>;
};

/// Ratios proportional to each type's speed on matrix products, per device; of a group, to that of all its devices.
[[nodiscard]] std::vector<double> compute_proportional(cost_model const& model, element_type type);

/// Equal ratios.
[[nodiscard]] inline std::vector<double> even(cost_model const& model) {
    return std::vector<double>(model.class_count(), 1.0 / model.ranks());
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE double stage_work::at(double ratio) const {
    double sum = straight.at(ratio);
    for (auto const& pieces : bent) sum += algorithm::max(pieces, {}, [&](affine a) { return a.at(ratio); }).at(ratio);
    return sum;
}

HEDDLE_INLINE stage_work& stage_work::operator+=(stage_work const& other) {
    straight += other.straight;
    bent.insert(bent.end(), other.bent.begin(), other.bent.end());
    return *this;
}

HEDDLE_INLINE double ratio_problem::objective(std::span<double const> ratios) const {
    double sum = constant;
    for (auto const& stage : stages) {
        double most = 0;
        for (std::size_t t = 0; t < stage.size(); ++t) most = std::max(most, stage[t].at(ratios[t]));
        sum += most;
    }
    double const largest = algorithm::max(ratios);
    for (auto const& pieces : transfers)
        sum += algorithm::max(pieces, {}, [&](affine a) { return a.at(largest); }).at(largest);
    return sum;
}

HEDDLE_INLINE bool ratio_problem::fits(std::span<double const> ratios, double tolerance) const {
    for (std::size_t t = 0; t < memory.size(); ++t)
        if (memory[t].at(ratios[t]) > memory_limits[t] * (1 + tolerance)) return false;
    return true;
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE void check_pieces(convex_pieces const& pieces, std::string const& place) {
    if (pieces.empty()) throw input_error(place, "a maximum of no functions, expected at least one");
    for (auto a : pieces) check_finite(a, place);
}

HEDDLE_INLINE void check_work(stage_work const& work, std::string const& place) {
    check_finite(work.straight, place);
    for (auto const& pieces : work.bent) check_pieces(pieces, place);
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE void validate(ratio_problem const& p) {
    auto const types = p.type_count();
    auto const place = [](char const* list, std::size_t n) {
        return std::string("ratio problem, ") + list + " " + std::to_string(n);
    };
    if (types == 0) throw input_error("ratio problem, counts", "there is none, expected at least one device type");
    if (p.preferred.size() != types) throw input_error("ratio problem, preferred", "expected one ratio per type");
    if (!p.memory.empty() && (p.memory.size() != types || p.memory_limits.size() != types))
        throw input_error("ratio problem, memory", "expected one row and one limit per type, or no row");
    for (std::size_t t = 0; t < types; ++t) {
        if (p.counts[t] < 1) throw input_error(place("type", t), "expected at least one device");
        if (!(std::isfinite(p.preferred[t]) && p.preferred[t] >= 0))
            throw input_error(place("type", t), "expected a preferred ratio, not negative");
        if (p.memory.empty()) continue;
        detail::check_finite(p.memory[t], place("memory of type", t));
        if (std::isnan(p.memory_limits[t])) throw input_error(place("memory of type", t), "expected a limit");
    }
    if (!std::isfinite(p.constant)) throw input_error("ratio problem, constant", "expected a finite number");
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        auto const stage = place("stage", s);
        if (p.stages[s].size() != types) throw input_error(stage, "expected the work of every type");
        for (auto const& work : p.stages[s]) detail::check_work(work, stage);
    }
    for (std::size_t n = 0; n < p.transfers.size(); ++n) detail::check_pieces(p.transfers[n], place("transfer", n));
}

HEDDLE_INLINE std::vector<double> compute_proportional(cost_model const& model, element_type type) {
    std::vector<double> ratios;
    double sum = 0;
    for (std::size_t t = 0; t < model.class_count(); ++t) {
        ratios.push_back(model.speed(t, type, operator_class::matmul).rate * model.classes()[t].group_size);
        sum += ratios.back() * model.classes()[t].count;
    }
    for (auto& r : ratios) r /= sum;
    return ratios;
}

} // namespace heddle

#endif
