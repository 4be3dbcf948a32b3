// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs from libtorch, and operators run by it. What is for modules of its C++ frontend is included by
/// itself: `trace_module.hpp`, `module_rank.hpp`.
#pragma once

#include <heddle/libtorch/kernels.hpp>
#include <heddle/libtorch/trace.hpp>
