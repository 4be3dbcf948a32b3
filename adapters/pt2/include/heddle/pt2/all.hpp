// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief All of heddle::pt2.
#pragma once

#include <heddle/pt2/archive.hpp>
#include <heddle/pt2/model.hpp>
