// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The time of an operator class, fitted to measured sizes as a roofline with an overhead.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>

#include <algorithm>
#include <limits>
#include <vector>

namespace heddle {

/// A kernel's flops and bytes, and the seconds measured for it.
struct timed_kernel {
    double work = 0, size = 0, time = 0;
    /// Flops per byte.
    [[nodiscard]] double intensity() const {
        return work == 0 ? 0 : size == 0 ? std::numeric_limits<double>::infinity() : work / size;
    }
};

namespace detail {

/// overhead + max(work * per_flop, size * per_byte)
struct roofline_fit {
    double overhead = 0, per_flop = 0, per_byte = 0;
    [[nodiscard]] double time(timed_kernel const& p) const {
        return overhead + std::max(p.work * per_flop, p.size * per_byte);
    }
};

[[nodiscard]] roofline_fit fit_roofline(std::vector<timed_kernel> const& points, operator_class category);

} // namespace detail

/// Fits by least squares on relative errors an overhead and a rate, a bandwidth or, if that predicts held-out sizes
/// better, both. What the points do not show is absent. One size gives no overhead. If rate and bandwidth explain the
/// points equally well, products and attention get a rate, and other classes get a bandwidth.
/// *Preconditions:* points are in order of intensity; work and sizes are not negative; times are positive; there is a
/// point.
[[nodiscard]] class_speed fit_operator(std::vector<timed_kernel> const& points, operator_class category);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/cluster/detail/relative_fit.hpp>

#include <utility>

namespace heddle {

namespace detail {

/// Fits by least squares, where the first `traffic` points in order of intensity are bound by memory, and the others by
/// arithmetic.
HEDDLE_INLINE roofline_fit fit_sides(std::vector<timed_kernel> const& points, std::size_t traffic) {
    auto const count = static_cast<Eigen::Index>(points.size());
    Eigen::MatrixXd terms(count, 3);
    Eigen::VectorXd times(count);
    for (std::size_t i = 0; i < points.size(); ++i) {
        auto const row = static_cast<Eigen::Index>(i);
        terms.row(row) << (i < traffic ? 0 : points[i].work), (i < traffic ? points[i].size : 0), 1;
        times[row] = points[i].time;
    }
    auto const found = fit_relative(std::move(terms), times);
    return {found[2], found[0], found[1]};
}

/// Tells whether kernels are taken to be bound by arithmetic if their times do not tell.
HEDDLE_INLINE bool is_arithmetic(std::vector<timed_kernel> const& points, operator_class c) {
    bool const product =
        c == operator_class::matmul || c == operator_class::convolution || c == operator_class::attention;
    bool const some_work = algorithm::any_of(points, [](auto const& p) { return p.work > 0; });
    bool const some_traffic = algorithm::any_of(points, [](auto const& p) { return p.size > 0; });
    return some_work && (product || !some_traffic);
}

/// Returns the best roofline: with one side for all points or, at level 2, with both sides and at least two points on
/// each.
HEDDLE_INLINE roofline_fit fit_roofline(std::vector<timed_kernel> const& points, int level, operator_class category) {
    auto sides = cut_positions(points.size());
    std::erase_if(sides, [&](std::size_t cut) {
        bool const one_sided = cut == 0 || cut == points.size(), thin = cut < 2 || points.size() - cut < 2;
        return !one_sided && (level == 1 || thin);
    });
    if (!is_arithmetic(points, category)) algorithm::reverse(sides);
    roofline_fit best;
    double least = std::numeric_limits<double>::infinity();
    for (auto const traffic : sides) {
        auto const found = fit_sides(points, traffic);
        double const error = squared_error(found, points);
        if (error + rounding >= least) continue;
        least = error;
        best = found;
    }
    return best;
}

HEDDLE_INLINE roofline_fit fit_roofline(std::vector<timed_kernel> const& points, operator_class category) {
    constexpr std::size_t fewest_for_both = 6;
    int const levels = points.size() < fewest_for_both ? 1 : 2;
    return fit_simplest(points, levels,
                        [&](auto const& some, int level) { return fit_roofline(some, level, category); });
}

} // namespace detail

HEDDLE_INLINE class_speed fit_operator(std::vector<timed_kernel> const& points, operator_class category) {
    auto const found = detail::fit_roofline(points, category);
    class_speed result;
    if (found.per_flop > 0) result.rate = flops_per_second(1 / found.per_flop);
    if (found.per_byte > 0) result.bandwidth = bytes_per_second(1 / found.per_byte);
    result.overhead = seconds(found.overhead);
    return result;
}

} // namespace heddle

#endif
