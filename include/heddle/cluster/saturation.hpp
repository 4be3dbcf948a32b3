// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Efficiency by size: small kernels reach only a part of the rate that large ones reach.
#pragma once

#include <heddle/base/curve_point.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>

#include <cmath>

namespace heddle {

/// A kernel reaches the part 1 - (1 - least) exp(-flops / scale) of its rate: `least` if it is small, all of it if its
/// flops are many times `scale`.
///
/// If `least` is 0, the time is convex in the flops, and at least that of `scale` flops. Otherwise it is concave at
/// first: two halves of a small kernel take longer than all of it even without launch times.
struct saturation {
    flops scale;
    double least = 0;

    /// Returns the flops that the full rate does in the time of `work`.
    [[nodiscard]] flops at_full_rate(flops work) const;
    /// Returns `at_full_rate` in units of the scale, with its slope and curvature: u / (1 - (1 - least) exp(-u)) at u
    /// >= 0.
    [[nodiscard]] curve_point at(double u) const;
    [[nodiscard]] bool is_convex() const { return least == 0; }
    friend bool operator==(saturation const&, saturation const&) = default;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE flops saturation::at_full_rate(flops work) const {
    double const part = least - (1 - least) * std::expm1(-(work / scale));
    return part > 0 ? work / part : scale;
}

HEDDLE_INLINE curve_point saturation::at(double u) const {
    if (least == 0 && u < 0.05) { // its series; the next term is below rounding
        double const v = u * u;
        return {1 + u / 2 + v / 12 - v * v / 720 + v * v * v / 30240, 0.5 + u / 6 - u * v / 180 + u * v * v / 5040,
                1.0 / 6 - v / 60 + v * v / 1008};
    }
    double const missed = (1 - least) * std::exp(-u), part = least - (1 - least) * std::expm1(-u),
                 gap = part - u * missed; // part^2 times the slope
    return {u / part, gap / (part * part), missed * (u * part - 2 * gap) / (part * part * part)};
}

} // namespace heddle

#endif
