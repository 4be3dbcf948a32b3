// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Sharding ratios of a fixed program as an optimisation problem in one ratio per segment and device type.
///
/// HAP, sections 5.1 and 5.2, with both directions, constants, memory and what moves between segments kept. Devices of
/// one type have equal ratios: a convex problem is symmetric in them, so some optimum has.
#pragma once

#include <heddle/balance/smooth_curve.hpp>
#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/cost/cost_model.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Seconds of a device in a stage, as a function of its ratio: the sum of an affine part, of kernels whose roofline
/// bends within [0, 1], and of smooth curves.
struct stage_work {
    affine straight{};
    std::vector<convex_pieces> bent{};
    std::vector<smooth_curve> curves{};

    [[nodiscard]] double at(double ratio) const;
    stage_work& operator+=(stage_work const& other);
};

/// Seconds of a transfer, as a function of the largest ratio of a segment, or where the transfer is between two, of
/// both.
struct transfer_work {
    convex_pieces pieces{};
    std::size_t from = 0, to = 0;

    friend bool operator==(transfer_work const&, transfer_work const&) = default;
};

/// Minimise, over ratios r >= 0 of every segment g and type t with sum_t count_t r_gt = 1 in each segment,
/// `constant + sum over stages of max_t (sum_g work_gt(r_gt)) + sum over transfers of their time`
/// so that `sum_g memory_gt(r_gt) <= limit_t` for every type.
///
/// Whatever is per segment and type is a list of all types of the first segment, then of the second, and so on; without
/// segments it is one entry per type.
struct ratio_problem {
    /// Devices of each type.
    std::vector<int> counts{};
    /// Per segment and type, ratios to prefer among equals: proportional to computing speed.
    std::vector<double> preferred{};
    std::size_t segments = 1;
    double constant = 0;
    /// Per stage, the work per segment and type.
    std::vector<std::vector<stage_work>> stages{};
    std::vector<transfer_work> transfers{};
    /// Bytes of a device, per segment and type; none where memory is no matter. Communication buffers count where their
    /// size is the same at all ratios.
    std::vector<affine> memory{};
    /// Per type.
    std::vector<double> memory_limits{};

    [[nodiscard]] std::size_t type_count() const { return counts.size(); }
    [[nodiscard]] bool has_curves() const;
    /// Whether all curves are convex: then an optimum is global.
    [[nodiscard]] bool is_convex() const;

    /// The objective at ratios, per segment and type, that need not fit into memory.
    [[nodiscard]] double objective(std::span<double const> ratios) const;
    [[nodiscard]] bool fits(std::span<double const> ratios, double tolerance = 1e-9) const;
};

/// Throws `input_error` naming the first thing in a ratio problem that cannot be; curves are looked at in 65 points of
/// [0, 1].
void validate(ratio_problem const& p);

struct ratio_solution {
    bool feasible = false;
    /// Per segment and type.
    std::vector<double> ratios{};
    double objective = 0;
};

/// Solves ratio problems.
///
/// *Axioms.* If `feasible`, the ratios keep every constraint and no feasible ratios near them have a smaller objective
/// (within the solver's tolerance, at most 1e-6 relative); of a convex problem none anywhere have. Among equal ones of
/// one segment they are nearest to `preferred`, see `tie_cost`.
///
/// A solver says by a member `solves(p)` which problems it takes, see below, and has a member `solve(p, start)` if it
/// can make use of ratios that are supposed to be good.
template <class Solver>
concept ratio_solver = requires(Solver& solver, ratio_problem const& p) {
    { solver.solve(p) } -> std::convertible_to<ratio_solution>;
};

/// Whether a solver takes a problem: what its member `solves(p)` says; without one it takes problems of one segment
/// without curves. All solvers take those.
template <ratio_solver Solver>
[[nodiscard]] bool solves(Solver& solver, ratio_problem const& p) {
    if constexpr (requires {
                      { solver.solves(p) } -> std::convertible_to<bool>;
                  })
        return solver.solves(p);
    else return p.segments == 1 && !p.has_curves();
}

/// Returns ratios proportional to the speed of a device of each type on matrix products; a group has the speed of all
/// its devices.
[[nodiscard]] std::vector<double> compute_proportional(cost_model const& model, element_type type);

/// Returns equal ratios.
[[nodiscard]] inline std::vector<double> even_ratios(cost_model const& model) {
    return std::vector<double>(model.class_count(), 1.0 / model.ranks());
}

namespace detail {

bool has_curves(std::vector<stage_work> const& stage);

/// Throw `input_error` at a place.
void check_finite(affine a, std::string const& place);
void check_pieces(convex_pieces const& pieces, std::string const& place);
void check_curve(smooth_curve const& curve, std::string const& place);
void check_work(stage_work const& work, std::string const& place);

/// A solver without its type: ratios of a problem that it takes and solves.
using ratio_function = std::function<std::optional<std::vector<double>>(ratio_problem const&)>;

/// Returns a solver's ratios, if it solves a problem. *Lifetime:* refers to the solver.
template <ratio_solver Solver>
[[nodiscard]] ratio_function solve_with(Solver& solver) {
    return [&solver](ratio_problem const& p) -> std::optional<std::vector<double>> {
        if (!solves(solver, p)) return std::nullopt;
        auto found = solver.solve(p);
        if (!found.feasible) return std::nullopt;
        return std::move(found.ratios);
    };
}

} // namespace detail

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE double stage_work::at(double ratio) const {
    double sum = straight.at(ratio);
    for (auto const& pieces : bent) sum += largest_at(pieces, ratio);
    for (auto const& curve : curves) sum += curve.at(ratio).value;
    return sum;
}

HEDDLE_INLINE stage_work& stage_work::operator+=(stage_work const& other) {
    straight += other.straight;
    bent.insert(bent.end(), other.bent.begin(), other.bent.end());
    curves.insert(curves.end(), other.curves.begin(), other.curves.end());
    return *this;
}

HEDDLE_INLINE bool ratio_problem::has_curves() const { return algorithm::any_of(stages, detail::has_curves); }

HEDDLE_INLINE bool ratio_problem::is_convex() const {
    return algorithm::all_of(stages, [](auto const& stage) {
        return algorithm::all_of(
            stage, [](stage_work const& work) { return algorithm::all_of(work.curves, &smooth_curve::is_convex); });
    });
}

HEDDLE_INLINE double ratio_problem::objective(std::span<double const> ratios) const {
    auto const types = type_count();
    auto const time_of = [&](transfer_work const& t) {
        auto const largest_of = [&](std::size_t segment) {
            return algorithm::max(ratios.subspan(segment * types, types));
        };
        return largest_at(t.pieces, std::max(largest_of(t.from), largest_of(t.to)));
    };
    double sum = constant;
    for (auto const& t : transfers)
        if (t.from == t.to) sum += time_of(t);
    for (auto const& stage : stages) {
        double last = 0;
        for (std::size_t t = 0; t < types; ++t) {
            double time = 0;
            for (std::size_t n = t; n < stage.size(); n += types) time += stage[n].at(ratios[n]);
            last = std::max(last, time);
        }
        sum += last;
    }
    for (auto const& t : transfers)
        if (t.from != t.to) sum += time_of(t);
    return sum;
}

HEDDLE_INLINE bool ratio_problem::fits(std::span<double const> ratios, double tolerance) const {
    for (std::size_t t = 0; t < memory_limits.size(); ++t) {
        double used = 0;
        for (std::size_t n = t; n < memory.size(); n += type_count()) used += memory[n].at(ratios[n]);
        if (used > memory_limits[t] * (1 + tolerance)) return false;
    }
    return true;
}

HEDDLE_INLINE void validate(ratio_problem const& p) {
    auto const types = p.type_count(), ratios = p.segments * types;
    auto const place = [](char const* list, std::size_t n) {
        return std::string("ratio problem, ") + list + " " + std::to_string(n);
    };
    if (types == 0) throw input_error("ratio problem, counts", "there is none, expected at least one device type");
    if (p.segments == 0) throw input_error("ratio problem, segments", "there is none, expected at least one");
    if (p.preferred.size() != ratios)
        throw input_error("ratio problem, preferred", "expected one ratio per type of every segment");
    bool const has_memory = !p.memory.empty();
    if (has_memory && (p.memory.size() != ratios || p.memory_limits.size() != types))
        throw input_error("ratio problem, memory",
                          "expected one row per type of every segment and one limit per type, or no row");
    for (std::size_t t = 0; t < types; ++t) {
        if (p.counts[t] < 1) throw input_error(place("type", t), "expected at least one device");
        if (has_memory && std::isnan(p.memory_limits[t]))
            throw input_error(place("memory of type", t), "expected a limit");
    }
    for (std::size_t n = 0; n < ratios; ++n) {
        if (!(std::isfinite(p.preferred[n]) && p.preferred[n] >= 0))
            throw input_error(place("type", n % types), "expected a preferred ratio, not negative");
        if (has_memory) detail::check_finite(p.memory[n], place("memory of type", n % types));
    }
    if (!std::isfinite(p.constant)) throw input_error("ratio problem, constant", "expected a finite number");
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        auto const stage = place("stage", s);
        if (p.stages[s].size() != ratios) throw input_error(stage, "expected the work of every type in every segment");
        for (auto const& work : p.stages[s]) detail::check_work(work, stage);
    }
    for (std::size_t n = 0; n < p.transfers.size(); ++n) {
        auto const transfer = place("transfer", n);
        detail::check_pieces(p.transfers[n].pieces, transfer);
        if (std::max(p.transfers[n].from, p.transfers[n].to) >= p.segments)
            throw input_error(transfer, "expected segments that are there");
    }
}

HEDDLE_INLINE std::vector<double> compute_proportional(cost_model const& model, element_type type) {
    std::vector<double> ratios;
    double sum = 0;
    for (std::size_t t = 0; t < model.class_count(); ++t) {
        ratios.push_back(model.speed(t, {type, operator_class::matmul}).rate * model.classes()[t].group_size);
        sum += ratios.back() * model.classes()[t].count;
    }
    for (auto& r : ratios) r /= sum;
    return ratios;
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE bool has_curves(std::vector<stage_work> const& stage) {
    return algorithm::any_of(stage, [](stage_work const& work) { return !work.curves.empty(); });
}

HEDDLE_INLINE void check_finite(affine a, std::string const& place) {
    if (!std::isfinite(a.constant) || !std::isfinite(a.slope)) throw input_error(place, "expected finite numbers");
}

HEDDLE_INLINE void check_pieces(convex_pieces const& pieces, std::string const& place) {
    if (pieces.empty()) throw input_error(place, "a maximum of no functions, expected at least one");
    for (auto a : pieces) check_finite(a, place);
}

HEDDLE_INLINE void check_curve(smooth_curve const& curve, std::string const& place) {
    if (!curve.at) throw input_error(place, "a curve without a function");
    for (int n = 0; n <= 64; ++n) {
        auto const point = curve.at(n / 64.0);
        if (!std::isfinite(point.value) || !std::isfinite(point.slope) || !std::isfinite(point.curvature))
            throw input_error(place, "a curve is not finite at " + std::to_string(n / 64.0));
        if (curve.is_convex && point.curvature < -1e-9 * (std::abs(point.value) + std::abs(point.slope)))
            throw input_error(place, "a curve said to be convex is not, at " + std::to_string(n / 64.0));
    }
}

HEDDLE_INLINE void check_work(stage_work const& work, std::string const& place) {
    check_finite(work.straight, place);
    for (auto const& pieces : work.bent) check_pieces(pieces, place);
    for (auto const& curve : work.curves) check_curve(curve, place);
}

} // namespace heddle::detail

#endif
