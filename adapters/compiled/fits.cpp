// SPDX-License-Identifier: BSL-1.0
// Defines what fits models to measurements, on Eigen.
#include <heddle/all.hpp>

#include "from_here.hpp"

#include <heddle/cluster/fit.hpp>
#include <heddle/cluster/fit_parameters.hpp>
