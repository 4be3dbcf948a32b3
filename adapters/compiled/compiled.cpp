// SPDX-License-Identifier: BSL-1.0
// Defines all that headers only declare if HEDDLE_COMPILED is defined.
#include <heddle/all.hpp>
