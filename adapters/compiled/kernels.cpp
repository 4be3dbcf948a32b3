// SPDX-License-Identifier: BSL-1.0
// The reference kernels, in a unit of their own.
#include <heddle/execute/eigen_kernels.hpp>

template class heddle::eigen_kernels<float>;
template class heddle::eigen_kernels<double>;
