// SPDX-License-Identifier: BSL-1.0
// Defines what heddle::clp only declares if HEDDLE_COMPILED is defined.
#include <heddle/all.hpp>

#include "from_here.hpp"

#include <heddle/clp/all.hpp>
