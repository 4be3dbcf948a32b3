// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Forms, by the letters that the pages use.
#pragma once

#include <heddle/theory/form.hpp>

namespace heddle::test {

inline constexpr form R = form::replicated(), P = form::partial(), M = form::mirrored(), S0 = form::shard(0),
                      S1 = form::shard(1);

} // namespace heddle::test
