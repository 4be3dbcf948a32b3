// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which of equally good ratios to take: the library's choice, the same for every solver.
#pragma once

#include <heddle/balance/ratio_problem.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// How much of the objective counts as equal, relative to it.
inline constexpr double tie_tolerance = 1e-9;

/// Sum over devices of how far their ratios are from the preferred ones.
template <class Problem>
[[nodiscard]] double distance_to_preferred(Problem const& p, std::span<double const> ratios) {
    double sum = 0;
    for (std::size_t t = 0; t < p.type_count(); ++t) sum += p.counts[t] * std::abs(ratios[t] - p.preferred[t]);
    return sum;
}

/// Of the ratios as good as `optimal`, within a tolerance, the nearest to the preferred ones.
/// `nearest_within(most)` gives feasible ratios of the least distance whose objective is at most `most`, or none where it fails; it is
/// called only where the nearest of all feasible ratios are not optimal themselves.
template <class Problem, class NearestWithin>
[[nodiscard]] std::vector<double> break_ties(Problem const& p, std::vector<double> optimal, NearestWithin&& nearest_within, double tolerance = tie_tolerance) {
    double const least = p.objective(optimal), most = least + tolerance * std::abs(least);
    auto nearest = p.clamped(p.preferred);
    if (p.objective(nearest) <= most) return nearest;
    std::optional<std::vector<double>> nearer = nearest_within(most);
    bool const is_better = nearer && p.objective(*nearer) <= most + 10 * tolerance * std::abs(least) &&
                           distance_to_preferred(p, *nearer) < distance_to_preferred(p, optimal);
    return is_better ? std::move(*nearer) : std::move(optimal);
}

} // namespace heddle
