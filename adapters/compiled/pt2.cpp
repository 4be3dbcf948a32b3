// SPDX-License-Identifier: BSL-1.0
// Defines what heddle::pt2 only declares if HEDDLE_COMPILED is defined.
#include <heddle/all.hpp>
#include <heddle/json/all.hpp>

#include "from_here.hpp"

#include <heddle/pt2/all.hpp>
