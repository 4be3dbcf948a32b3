// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Everything of `heddle::ipopt`.
#pragma once

#include <heddle/ipopt/ratio_solver.hpp>
