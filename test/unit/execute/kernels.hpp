// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The reference kernels as random programs name them.
#pragma once

#include <heddle/execute/eigen_kernels.hpp>

namespace heddle::test {

[[nodiscard]] inline eigen_kernels<double> const& kernels() {
    static eigen_kernels<double> const all = [] {
        eigen_kernels<double> made;
        made.set("nll", made.library_kernel("nll_loss"));
        return made;
    }();
    return all;
}

} // namespace heddle::test
