// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The options of writing plans of any kind.
#pragma once

#include <heddle/base/requirements.hpp>

namespace heddle::json {

struct write_options {
    /// Writes how long the search took; without it equal plans give equal text.
    bool times = true;
};

} // namespace heddle::json
