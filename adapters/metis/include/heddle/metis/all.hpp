// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Everything of `heddle::metis`.
#pragma once

#include <heddle/metis/segments.hpp>
