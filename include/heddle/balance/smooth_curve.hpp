// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Smooth functions of a ratio: what is measured to be curved, where lines do not do.
#pragma once

#include <heddle/balance/ratio_problem.hpp>
#include <heddle/base/quantity.hpp>

#include <cmath>
#include <functional>
#include <utility>

namespace heddle {

/// A value and the first two derivatives there.
struct curve_point {
    double value = 0, slope = 0, curvature = 0;
};

/// A twice differentiable function on [0, 1]. Of one that `is_convex` an optimum found is global.
struct smooth_curve {
    std::function<curve_point(double)> at;
    bool is_convex = false;

    /// The line through the function at x, with its slope there.
    [[nodiscard]] affine tangent(double x) const {
        auto const point = at(x);
        return {point.value - point.slope * x, point.slope};
    }
};

/// Seconds of work on a device that reaches a part of its rate that depends on its share: `work * r / efficiency(r)`.
/// *Preconditions:* efficiency is positive on [0, 1]; `is_convex` states whether the quotient is convex.
[[nodiscard]] inline smooth_curve work_at_efficiency(seconds work, std::function<curve_point(double)> efficiency, bool is_convex) {
    auto const time = [whole = work.value, efficiency = std::move(efficiency)](double r) -> curve_point {
        auto const [e, slope, curvature] = efficiency(r);
        double const gap = e - r * slope; // e^2 times the slope of r / e
        return {whole * r / e, whole * gap / (e * e), whole * (-r * curvature * e - 2 * slope * gap) / (e * e * e)};
    };
    return {time, is_convex};
}

/// Seconds of work on a device whose efficiency saturates as 1 - exp(-r / scale): `work * r / (1 - exp(-r / scale))`, convex.
/// At a small share it takes `work * scale`, at a share of many scales `work * r`. *Precondition:* scale > 0.
[[nodiscard]] inline smooth_curve saturating_work(seconds work, double scale) {
    auto const time = [whole = work.value, scale](double r) -> curve_point {
        double const u = r / scale;
        curve_point p; // of u / (1 - exp(-u))
        if (std::abs(u) < 0.05) {
            double const v = u * u; // its series; the next term is below rounding
            p = {1 + u / 2 + v / 12 - v * v / 720 + v * v * v / 30240, 0.5 + u / 6 - u * v / 180 + u * v * v / 5040, 1.0 / 6 - v / 60 + v * v / 1008};
        } else {
            double const decay = std::exp(-u), reached = -std::expm1(-u);
            p = {u / reached, (reached - u * decay) / (reached * reached), decay * (u - 2 + (u + 2) * decay) / (reached * reached * reached)};
        }
        return {whole * scale * p.value, whole * p.slope, whole / scale * p.curvature};
    };
    return {time, true};
}

/// Seconds of an all-to-all by what a device with share r sends: of its share all but what it keeps, `latency + whole * r * (1 - r)`;
/// concave, so that an optimum is local. `whole` is the seconds that the whole tensor takes.
[[nodiscard]] inline smooth_curve exchanged_volume(seconds latency, seconds whole) {
    auto const time = [latency = latency.value, all = whole.value](double r) -> curve_point { return {latency + all * r * (1 - r), all * (1 - 2 * r), -2 * all}; };
    return {time, whole.value <= 0};
}

} // namespace heddle
