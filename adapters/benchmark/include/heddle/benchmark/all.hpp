// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief All of heddle::benchmark.
#pragma once

#include <heddle/benchmark/planner.hpp>
#include <heddle/benchmark/search.hpp>
