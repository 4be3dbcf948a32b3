// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a verifier says.
#pragma once

#include <heddle/base/requirements.hpp>

#include <string>

namespace heddle {

struct verification {
    bool valid = true;
    /// The first thing found wrong, with its place.
    std::string problem;
    explicit operator bool() const { return valid; }
};

} // namespace heddle
