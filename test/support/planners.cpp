// SPDX-License-Identifier: BSL-1.0
#define HEDDLE_PLANNER template
#include "planners.hpp"
