// SPDX-License-Identifier: BSL-1.0
// From here on headers define what they declare; those that were included before have declared it alone.
#include <heddle/base/definitions.hpp>

#undef HEDDLE_DEFINITIONS
#define HEDDLE_DEFINITIONS 1
#define HEDDLE_INLINE
