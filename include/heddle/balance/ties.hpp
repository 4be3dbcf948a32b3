// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which of equally good ratios are taken; the choice is the library's, and the same for every solver.
#pragma once

#include <heddle/balance/ratio_problem.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Objectives whose relative distance is at most this count as equal.
inline constexpr double tie_tolerance = 1e-9;

/// The weight of the square of a distance beside the distance itself.
inline constexpr double tie_square = 1e-3;

/// Returns the sum over devices of how far their ratios are from the preferred ones.
template <class Problem>
[[nodiscard]] double distance_to_preferred(Problem const& p, std::span<double const> ratios) {
    double sum = 0;
    for (std::size_t t = 0; t < p.type_count(); ++t) sum += p.counts[t] * std::abs(ratios[t] - p.preferred[t]);
    return sum;
}

/// Returns the distance of the ratios to the preferred ones plus `tie_square` times the sum over devices of its square;
/// among equally good ratios those with the least are taken. Where several ratios are nearest, the square spreads the
/// distance over them. The function is strictly convex, so it has one least point in any convex set.
template <class Problem>
[[nodiscard]] double tie_cost(Problem const& p, std::span<double const> ratios) {
    double squares = 0;
    for (std::size_t t = 0; t < p.type_count(); ++t)
        squares += p.counts[t] * (ratios[t] - p.preferred[t]) * (ratios[t] - p.preferred[t]);
    return distance_to_preferred(p, ratios) + tie_square * squares;
}

/// Returns the ratios of the least `tie_cost` among those as good as `optimal`, within `tie_tolerance`.
/// `nearest_within(most)` returns the ratios of the least `tie_cost` among all feasible ones whose objective is at most
/// `most`, or nothing if it fails. It is called only if the nearest of all feasible ratios are not optimal.
template <class Problem, class NearestWithin>
[[nodiscard]] std::vector<double> break_ties(Problem const& p, std::vector<double> optimal,
                                             NearestWithin&& nearest_within) {
    double const least = p.objective(optimal), slack = tie_tolerance * std::abs(least), most = least + slack;
    auto nearest = p.clamped(p.preferred);
    if (p.objective(nearest) <= most) return nearest;
    std::optional<std::vector<double>> nearer = nearest_within(most);
    bool const is_better =
        nearer && p.objective(*nearer) <= most + 10 * slack && tie_cost(p, *nearer) < tie_cost(p, optimal);
    return is_better ? std::move(*nearer) : std::move(optimal);
}

} // namespace heddle
