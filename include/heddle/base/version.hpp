// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which Heddle this is; the build reads it from here.
#pragma once

#include <heddle/base/requirements.hpp>

namespace heddle {

inline constexpr char const* library_version = "0.1.0";

} // namespace heddle
