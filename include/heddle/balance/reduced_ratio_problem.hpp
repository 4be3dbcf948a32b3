// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A ratio problem of one segment without what repeats and what cannot matter: what solvers work on.
#pragma once

#include <heddle/balance/convex_curve.hpp>
#include <heddle/balance/ratio_problem.hpp>
#include <heddle/balance/smooth_curve.hpp>
#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>

#include <boost/container_hash/hash.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace heddle {

/// Is equivalent to the `ratio_problem` that it is made from, in at most as many terms. At all ratios within `lower`
/// and `upper` that sum to one the objectives are equal; no other ratios fit into memory.
struct reduced_ratio_problem {
    /// The time of a type in a stage.
    struct type_curve {
        std::size_t type = 0;
        convex_curve linear;
        std::vector<smooth_curve> curves{};

        [[nodiscard]] double at(double ratio) const;
        /// Returns a line through the time at a ratio. If all curves are convex, it is nowhere above the time.
        [[nodiscard]] affine tangent(double ratio) const;
    };
    /// A stage costs `weight * max(floor, max over types of their times)`.
    struct stage {
        double weight = 1, floor = 0;
        /// Only of types that can be above the floor; all of them in a stage with curves.
        std::vector<type_curve> types;

        [[nodiscard]] double at(std::span<double const> ratios) const;
    };

    std::vector<int> counts;
    std::vector<double> preferred, lower, upper;
    double constant = 0;
    std::vector<stage> stages;
    /// The sum of all transfers as a function of the largest ratio; absent if they are constant.
    std::optional<convex_curve> transfers;

    [[nodiscard]] std::size_t type_count() const { return counts.size(); }
    [[nodiscard]] double objective(std::span<double const> ratios) const;
    /// Tells whether any ratios fit into memory.
    [[nodiscard]] bool is_feasible() const;
    /// Returns the feasible ratios that are nearest to `ratios` by `tie_cost` (or by anything strictly convex that is
    /// the same for every device): all are moved by the same amount, but none out of its bounds. *Precondition:*
    /// `is_feasible()`.
    /// *Complexity.* O(n log n) in the types.
    [[nodiscard]] std::vector<double> clamped(std::vector<double> ratios) const;
};

namespace detail {

/// Both take stages without curves.
std::size_t hash_of(std::vector<stage_work> const& stage);
bool is_same(std::vector<stage_work> const& a, std::vector<stage_work> const& b);

/// Sets the bounds of the ratios that fit into memory, with the tolerance of `ratio_problem::fits`.
void bound_by_memory(ratio_problem const& p, reduced_ratio_problem& into);

} // namespace detail

/// Reduces a ratio problem of one segment: equal stages become one with a weight, a type's lines in a stage one curve
/// without those that are nowhere the largest, types that are never last in a stage go, and so do stages that take the
/// same time at all ratios; memory becomes bounds. Stages with smooth curves come after all others, each as it is.
/// *Throws* what `validate` does, and `input_error` if there are several segments.
/// *Complexity.* O(n log n) in the size of the problem.
[[nodiscard]] reduced_ratio_problem reduce(ratio_problem const& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE double reduced_ratio_problem::type_curve::at(double ratio) const {
    double sum = linear.at(ratio);
    for (auto const& c : curves) sum += c.at(ratio).value;
    return sum;
}

HEDDLE_INLINE affine reduced_ratio_problem::type_curve::tangent(double ratio) const {
    affine sum = linear.tangent(ratio);
    for (auto const& c : curves) sum += c.tangent(ratio);
    return sum;
}

HEDDLE_INLINE double reduced_ratio_problem::stage::at(std::span<double const> ratios) const {
    double most = floor;
    for (auto const& t : types) most = std::max(most, t.at(ratios[t.type]));
    return most;
}

HEDDLE_INLINE double reduced_ratio_problem::objective(std::span<double const> ratios) const {
    double sum = constant;
    for (auto const& s : stages) sum += s.weight * s.at(ratios);
    if (transfers) sum += transfers->at(algorithm::max(ratios));
    return sum;
}

HEDDLE_INLINE bool reduced_ratio_problem::is_feasible() const {
    double least = 0, most = 0;
    for (std::size_t t = 0; t < counts.size(); ++t) {
        if (lower[t] > upper[t]) return false;
        least += counts[t] * lower[t];
        most += counts[t] * upper[t];
    }
    return least <= 1 + 1e-12 && most >= 1 - 1e-12;
}

HEDDLE_INLINE std::vector<double> reduced_ratio_problem::clamped(std::vector<double> ratios) const {
    auto const moved = [&](std::size_t t, double by) { return std::clamp(ratios[t] + by, lower[t], upper[t]); };
    auto const sum = [&](double by) {
        double total = 0;
        for (std::size_t t = 0; t < counts.size(); ++t) total += counts[t] * moved(t, by);
        return total;
    };
    double by = 0;
    if (sum(0) != 1) {
        std::vector<double> bends; // of the sum, as a function of the amount
        for (std::size_t t = 0; t < counts.size(); ++t)
            bends.insert(bends.end(), {lower[t] - ratios[t], upper[t] - ratios[t]});
        algorithm::sort(bends);
        auto const above = std::ranges::partition_point(bends, [&](double bend) { return sum(bend) <= 1; });
        if (above == bends.begin()) by = bends.front();
        else if (above == bends.end()) by = bends.back();
        else {
            double const before = *std::prev(above), low = sum(before);
            by = before + (*above - before) * (1 - low) / (sum(*above) - low);
        }
    }
    for (std::size_t t = 0; t < counts.size(); ++t) ratios[t] = moved(t, by);
    return ratios;
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE std::size_t hash_of(std::vector<stage_work> const& stage) {
    std::size_t seed = 0;
    auto const add = [&](affine a) {
        boost::hash_combine(seed, a.constant);
        boost::hash_combine(seed, a.slope);
    };
    for (auto const& work : stage) {
        add(work.straight);
        for (auto const& pieces : work.bent)
            for (auto const& a : pieces) add(a);
    }
    return seed;
}

HEDDLE_INLINE bool is_same(std::vector<stage_work> const& a, std::vector<stage_work> const& b) {
    return algorithm::equal(a, b,
                            [](auto const& x, auto const& y) { return x.straight == y.straight && x.bent == y.bent; });
}

HEDDLE_INLINE void bound_by_memory(ratio_problem const& p, reduced_ratio_problem& into) {
    for (std::size_t t = 0; t < p.type_count(); ++t) {
        into.lower.push_back(0);
        into.upper.push_back(1.0 / p.counts[t]);
        if (p.memory.empty()) continue;
        affine const used = p.memory[t];
        double const room = p.memory_limits[t] * (1 + 1e-9) - used.constant;
        if (used.slope > 0) into.upper[t] = std::min(into.upper[t], room / used.slope);
        else if (used.slope < 0) into.lower[t] = std::max(into.lower[t], room / used.slope);
        else if (room < 0) into.upper[t] = -1;
    }
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE reduced_ratio_problem reduce(ratio_problem const& p) {
    validate(p);
    if (p.segments > 1) throw input_error("ratio problem, segments", "there are several, expected one");
    reduced_ratio_problem result;
    result.counts = p.counts;
    result.preferred = p.preferred;
    result.constant = p.constant;
    detail::bound_by_memory(p, result);
    if (!result.is_feasible()) return result;

    std::vector<std::pair<std::size_t, double>> distinct;    // stage, weight
    std::unordered_multimap<std::size_t, std::size_t> known; // hash, position in `distinct`
    std::vector<std::size_t> curved;
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        if (detail::has_curves(p.stages[s])) {
            curved.push_back(s);
            continue;
        }
        auto const hash = detail::hash_of(p.stages[s]);
        auto const [first, last] = known.equal_range(hash);
        auto const same = std::find_if(first, last, [&](auto const& k) {
            return detail::is_same(p.stages[distinct[k.second].first], p.stages[s]);
        });
        if (same != last) {
            distinct[same->second].second += 1;
            continue;
        }
        known.emplace(hash, distinct.size());
        distinct.push_back({s, 1.0});
    }
    auto const types_of = [&](std::size_t s) {
        std::vector<reduced_ratio_problem::type_curve> types;
        for (std::size_t t = 0; t < p.type_count(); ++t) {
            auto const& work = p.stages[s][t];
            types.push_back({t, {work.straight, work.bent, result.lower[t], result.upper[t]}, work.curves});
        }
        return types;
    };
    for (auto const& [s, weight] : distinct) {
        reduced_ratio_problem::stage stage{weight, 0, types_of(s)};
        for (auto const& t : stage.types) stage.floor = std::max(stage.floor, t.linear.smallest());
        std::erase_if(stage.types, [&](auto const& t) { return t.linear.largest() <= stage.floor; });
        if (stage.types.empty()) result.constant += weight * stage.floor;
        else result.stages.push_back(std::move(stage));
    }
    for (auto s : curved) result.stages.push_back({1, 0, types_of(s)});
    if (!p.transfers.empty()) {
        double devices = 0;
        for (int count : p.counts) devices += count;
        std::vector<convex_pieces> bent;
        for (auto const& t : p.transfers) bent.push_back(t.pieces);
        convex_curve transfers({}, bent, std::max(1 / devices, algorithm::max(result.lower)),
                               algorithm::max(result.upper));
        if (transfers.lines().size() == 1 && transfers.lines()[0].slope == 0)
            result.constant += transfers.lines()[0].constant;
        else result.transfers = std::move(transfers);
    }
    return result;
}

} // namespace heddle

#endif
