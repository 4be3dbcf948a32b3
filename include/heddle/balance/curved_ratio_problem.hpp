// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Ratio problems with smooth terms: measured efficiencies and the true volume of an all-to-all.
#pragma once

#include <heddle/balance/reduced_ratio_problem.hpp>
#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>

#include <algorithm>
#include <concepts>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Time of one device of a type in a stage: lines and what bends, and smooth curves, of its ratio.
struct curved_work {
    std::size_t type = 0;
    stage_work linear;
    std::vector<smooth_curve> curves;

    [[nodiscard]] double at(double ratio) const;
};

/// Lasts as long as the longest work in it; a type may have several, such as the pieces of a collective's model.
using curved_stage = std::vector<curved_work>;

/// Minimise the objective of `linear` and the times of the curved stages together, under the constraints of `linear`.
struct curved_ratio_problem {
    ratio_problem linear;
    std::vector<curved_stage> stages;

    [[nodiscard]] bool is_convex() const;
    [[nodiscard]] double objective(std::span<double const> ratios) const;
    [[nodiscard]] bool fits(std::span<double const> ratios, double tolerance = 1e-9) const {
        return linear.fits(ratios, tolerance);
    }
};

struct curved_ratio_solution : ratio_solution {
    /// Whether no feasible ratios anywhere are better, or only none nearby.
    bool is_global = false;
};

/// Solves curved ratio problems.
///
/// *Axioms.* If `feasible`, the ratios keep every constraint and no feasible ratios near them have a smaller objective
/// (within the solver's tolerance, at most 1e-7 relative); if `is_global`, none anywhere has. A convex problem is
/// solved globally. A solver that refuses some problems says which by a member `solves(p)`.
template <class Solver>
concept curved_ratio_solver = requires(Solver& solver, curved_ratio_problem const& p) {
    { solver.solve(p) } -> std::convertible_to<curved_ratio_solution>;
};

/// Whether a solver takes a problem.
template <class Solver>
[[nodiscard]] bool solves(Solver& solver, curved_ratio_problem const& p) {
    if constexpr (requires {
                      { solver.solves(p) } -> std::convertible_to<bool>;
                  })
        return solver.solves(p);
    else return curved_ratio_solver<Solver>;
}

/// Throws `input_error` naming the first thing in a curved ratio problem that cannot be; curves are looked at in 65
/// points of [0, 1].
void validate(curved_ratio_problem const& p);

/// As `reduce` of the linear part; curved stages are kept as they are. *Throws* what `validate` does.
[[nodiscard]] reduced_ratio_problem reduce(curved_ratio_problem const& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE double curved_work::at(double ratio) const {
    double sum = linear.at(ratio);
    for (auto const& c : curves) sum += c.at(ratio).value;
    return sum;
}

HEDDLE_INLINE bool curved_ratio_problem::is_convex() const {
    return algorithm::all_of(stages, [](auto const& stage) {
        return algorithm::all_of(
            stage, [](auto const& work) { return algorithm::all_of(work.curves, &smooth_curve::is_convex); });
    });
}

HEDDLE_INLINE double curved_ratio_problem::objective(std::span<double const> ratios) const {
    double sum = linear.objective(ratios);
    for (auto const& stage : stages) {
        double most = 0;
        for (auto const& work : stage) most = std::max(most, work.at(ratios[work.type]));
        sum += most;
    }
    return sum;
}

HEDDLE_INLINE void validate(curved_ratio_problem const& p) {
    validate(p.linear);
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        std::string const place = "ratio problem, curved stage " + std::to_string(s);
        for (auto const& work : p.stages[s]) {
            if (work.type >= p.linear.type_count()) throw input_error(place, "names an unknown type");
            heddle::detail::check_work(work.linear, place);
            for (auto const& curve : work.curves) {
                if (!curve.at) throw input_error(place, "a curve without a function");
                for (int n = 0; n <= 64; ++n) {
                    auto const point = curve.at(n / 64.0);
                    if (!std::isfinite(point.value) || !std::isfinite(point.slope) || !std::isfinite(point.curvature))
                        throw input_error(place, "a curve is not finite at " + std::to_string(n / 64.0));
                    if (curve.is_convex && point.curvature < -1e-9 * (std::abs(point.value) + std::abs(point.slope)))
                        throw input_error(place, "a curve said to be convex is not, at " + std::to_string(n / 64.0));
                }
            }
        }
    }
}

HEDDLE_INLINE reduced_ratio_problem reduce(curved_ratio_problem const& p) {
    validate(p);
    auto result = reduce(p.linear);
    if (!result.is_feasible()) return result;
    for (auto const& stage : p.stages) {
        auto& reduced = result.stages.emplace_back();
        for (auto const& work : stage)
            reduced.types.push_back(
                {work.type,
                 {work.linear.straight, work.linear.bent, result.lower[work.type], result.upper[work.type]},
                 work.curves});
    }
    return result;
}

} // namespace heddle

#endif
