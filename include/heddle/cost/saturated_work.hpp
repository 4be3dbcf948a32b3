// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Arithmetic whose efficiency depends on a device's share of it.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/saturation.hpp>

#include <vector>

namespace heddle {

/// Seconds: constant + slope * share.
struct work_line {
    double constant = 0, slope = 0;
    [[nodiscard]] double at(double share) const { return constant + slope * share; }
};

/// The seconds of a kernel's arithmetic as a function of a device's share of it.
struct saturated_work {
    /// The seconds of the whole kernel at the full rate.
    double seconds = 0;
    /// The work of the whole kernel in units of the scale of `efficiency`.
    double scales = 1;
    saturation efficiency;

    [[nodiscard]] curve_point at(double share) const;
    /// Returns lines that are nowhere above the time at a share of [0, 1]: tangents within 2 % of it if it is convex,
    /// otherwise the line from nothing to the whole kernel, which is below because efficiency only rises.
    [[nodiscard]] std::vector<work_line> lines_below() const;
    friend bool operator==(saturated_work const&, saturated_work const&) = default;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE curve_point saturated_work::at(double share) const {
    auto const [value, slope, curvature] = efficiency.at(scales * share);
    return {seconds / scales * value, seconds * slope, seconds * scales * curvature};
}

HEDDLE_INLINE std::vector<work_line> saturated_work::lines_below() const {
    if (!efficiency.is_convex()) return {{0, at(1).value}};
    std::vector<work_line> lines;
    auto const add_tangent = [&](double share) {
        auto const point = at(share);
        lines.push_back({point.value - point.slope * share, point.slope});
    };
    add_tangent(0);
    for (double u = 1; u < scales && u < 10; u *= 2) add_tangent(u / scales);
    add_tangent(1);
    return lines;
}

} // namespace heddle

#endif
