// SPDX-License-Identifier: BSL-1.0
// All that headers only declare where HEDDLE_COMPILED is defined.
#include <heddle/heddle.hpp>
