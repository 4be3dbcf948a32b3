// SPDX-License-Identifier: BSL-1.0
// Defines what heddle::html only declares if HEDDLE_COMPILED is defined.
#include <heddle/all.hpp>
#include <heddle/cluster/fit.hpp>
#include <heddle/json/all.hpp>
#include <heddle/json/fit_report.hpp>

#include "from_here.hpp"

#include <heddle/html/all.hpp>
