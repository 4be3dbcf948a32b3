// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The kernels that ranks of one machine train by.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/libtorch/kernels.hpp>

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstddef>
#include <thread>

namespace heddle::cli {

/// Lets ranks that share a machine share its processors.
template <class Scalar>
[[nodiscard]] libtorch::kernels<Scalar> const& kernels_for(std::size_t ranks) {
    static libtorch::kernels<Scalar> const all;
    auto const processors = std::max(1U, std::thread::hardware_concurrency());
    at::set_num_threads(std::max(1, static_cast<int>(processors / ranks)));
    return all;
}

/// *Throws* `error`.
[[noreturn]] inline void refuse_gpu() {
    throw error("this heddle was built without CUDA, with a libtorch that has none or without NCCL; build it with a "
                "libtorch that has CUDA, such as that of PyTorch's wheels (-DTorch_DIR=...), or train on the CPU");
}

} // namespace heddle::cli
