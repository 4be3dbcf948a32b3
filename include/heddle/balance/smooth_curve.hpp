// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Smooth functions of a ratio, for what is measured to be curved and lines do not describe.
#pragma once

#include <heddle/balance/convex_curve.hpp>
#include <heddle/base/curve_point.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/cost/saturated_work.hpp>

#include <cmath>
#include <functional>
#include <utility>

namespace heddle {

/// A twice differentiable function on [0, 1]. If it `is_convex`, a local optimum is a global one.
struct smooth_curve {
    std::function<curve_point(double)> at;
    bool is_convex = false;

    /// Returns the line through the function at x that has its slope there.
    [[nodiscard]] affine tangent(double x) const;
};

/// Seconds of work on a device whose efficiency depends on its share: `work * r / efficiency(r)`.
/// *Preconditions:* the efficiency is positive on [0, 1]; `is_convex` states whether the quotient is convex.
[[nodiscard]] smooth_curve work_at_efficiency(seconds work, std::function<curve_point(double)> efficiency,
                                              bool is_convex);

/// Returns the larger of a curve and a line, rounded off where they meet: it is above the larger by `width / 2` there
/// and by less elsewhere. It is convex if the curve is.
/// *Precondition:* width > 0.
[[nodiscard]] smooth_curve larger_of(smooth_curve curve, affine line, double width);

/// Returns the curve of a cost model's work.
[[nodiscard]] inline smooth_curve curve_of(saturated_work const& work) {
    return {[work](double r) { return work.at(r); }, work.efficiency.is_convex()};
}

/// Seconds of work on a device whose efficiency saturates as 1 - (1 - least) exp(-r / scale): `work * r / efficiency`.
/// It is convex if `least` is 0; at a small share it then is `work * scale`, and at a share of many scales `work * r`.
/// *Preconditions:* scale > 0; 0 <= least < 1.
[[nodiscard]] inline smooth_curve saturating_work(seconds work, double scale, double least = 0) {
    return curve_of({work.value, 1 / scale, {flops(scale), least}});
}

/// Seconds of an all-to-all in which a device with share r sends all of its share except what it keeps: `latency +
/// whole * r * (1 - r)`. This is concave, so an optimum is local. `whole` is the seconds that the whole tensor takes.
[[nodiscard]] smooth_curve exchanged_volume(seconds latency, seconds whole);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE affine smooth_curve::tangent(double x) const {
    auto const point = at(x);
    return {point.value - point.slope * x, point.slope};
}

HEDDLE_INLINE smooth_curve work_at_efficiency(seconds work, std::function<curve_point(double)> efficiency,
                                              bool is_convex) {
    auto const time = [whole = work.value, efficiency = std::move(efficiency)](double r) -> curve_point {
        auto const [e, slope, curvature] = efficiency(r);
        double const gap = e - r * slope; // e^2 times the slope of r / e
        return {whole * r / e, whole * gap / (e * e), whole * (-r * curvature * e - 2 * slope * gap) / (e * e * e)};
    };
    return {time, is_convex};
}

HEDDLE_INLINE smooth_curve larger_of(smooth_curve curve, affine line, double width) {
    bool const is_convex = curve.is_convex;
    auto const larger = [f = std::move(curve.at), line, width](double x) -> curve_point {
        auto const p = f(x);
        double const off = p.value - line.at(x), slope = p.slope - line.slope, root = std::hypot(off, width),
                     part = off / root;
        return {(p.value + line.at(x) + root) / 2, (p.slope + line.slope + part * slope) / 2,
                ((1 + part) * p.curvature + slope * slope * (1 - part * part) / root) / 2};
    };
    return {larger, is_convex};
}

HEDDLE_INLINE smooth_curve exchanged_volume(seconds latency, seconds whole) {
    auto const time = [latency = latency.value, all = whole.value](double r) -> curve_point {
        return {latency + all * r * (1 - r), all * (1 - 2 * r), -2 * all};
    };
    return {time, whole.value <= 0};
}

} // namespace heddle

#endif
