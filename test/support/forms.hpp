// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Forms, by the letters that the pages use.
#pragma once

#include <heddle/theory/form.hpp>

namespace heddle::test {

inline constexpr tensor_form R = tensor_form::replicated(), P = tensor_form::partial(), M = tensor_form::mirrored(),
                             S0 = tensor_form::shard(0), S1 = tensor_form::shard(1);

} // namespace heddle::test
