// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Everything of `heddle::clp`.
#pragma once

#include <heddle/clp/ratio_solver.hpp>
