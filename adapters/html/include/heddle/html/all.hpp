// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Everything of `heddle::html`.
#pragma once

#include <heddle/html/fit_page.hpp>
#include <heddle/html/plan_page.hpp>
