// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs from libtorch, and operators run by it.
#pragma once

#include <heddle/libtorch/kernels.hpp>
#include <heddle/libtorch/trace.hpp>
