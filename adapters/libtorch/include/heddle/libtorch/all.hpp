// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs from libtorch.
#pragma once

#include <heddle/libtorch/trace.hpp>
