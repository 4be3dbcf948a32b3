// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A function of one variable at a point.
#pragma once

#include <heddle/base/requirements.hpp>

namespace heddle {

/// A value and the first two derivatives there.
struct curve_point {
    double value = 0, slope = 0, curvature = 0;
};

} // namespace heddle
