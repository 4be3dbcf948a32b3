// SPDX-License-Identifier: BSL-1.0
// The reference kernels, compiled once for the tests of adapters.
#include <heddle/execute/eigen_kernels.hpp>

template class heddle::eigen_kernels<double>;
