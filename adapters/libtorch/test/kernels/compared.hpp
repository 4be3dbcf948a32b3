// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Libtorch's kernels on dense tensors, each call beside the reference kernels.
#pragma once

#include <unit/execute/operator_case.hpp>

#include <string>
#include <string_view>

namespace heddle::test {

/// Runs every call by libtorch. *Throws* `error` if what comes out is not what the reference kernels give, but for
/// rounding.
[[nodiscard]] case_kernels libtorch_kernels();

[[nodiscard]] bool libtorch_has_kernel(std::string_view kind);

} // namespace heddle::test
