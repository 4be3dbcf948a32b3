// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Device types that are ready for use: published peaks times the part of them that programs reach.
///
/// What the V100 reaches in float32 is fitted to measurements (`bench/fit_traces.cpp`). It is a guess that convolutions
/// reach what matrix products do. For all other devices and element types everything is a guess: the peaks are the
/// maker's, and the parts of them and the overheads are the V100's. Where the plan matters, measure and fit (`heddle
/// fit`).
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::presets {

/// What the maker publishes. Rates are dense, without sparsity; a rate is 0 if there is no such unit.
struct published_peaks {
    std::string_view name;
    bytes memory;
    bytes_per_second bandwidth;
    flops_per_second float32, float16, bfloat16;
};

/// Source: NVIDIA's data sheets and architecture white papers of these products. Half precision is that of the tensor
/// cores, if there are any, accumulated in float32; float32 is that of the ordinary cores. The V100 is the SXM2 of 32
/// GB, the P100 the SXM2, the A100 the SXM4 of 80 GB and the H100 the SXM5.
inline constexpr published_peaks v100{
    "V100", bytes(32e9), bytes_per_second(900e9), flops_per_second(15.7e12), flops_per_second(125e12), {}};
inline constexpr published_peaks p100{
    "P100", bytes(16e9), bytes_per_second(732e9), flops_per_second(10.6e12), flops_per_second(21.2e12), {}};
inline constexpr published_peaks t4{
    "T4", bytes(16e9), bytes_per_second(320e9), flops_per_second(8.1e12), flops_per_second(65e12), {}};
inline constexpr published_peaks a100{"A100",
                                      bytes(80e9),
                                      bytes_per_second(2039e9),
                                      flops_per_second(19.5e12),
                                      flops_per_second(312e12),
                                      flops_per_second(312e12)};
inline constexpr published_peaks rtx_4090{"RTX 4090",
                                          bytes(24e9),
                                          bytes_per_second(1008e9),
                                          flops_per_second(82.6e12),
                                          flops_per_second(165.2e12),
                                          flops_per_second(165.2e12)};
inline constexpr published_peaks h100{"H100",
                                      bytes(80e9),
                                      bytes_per_second(3350e9),
                                      flops_per_second(67e12),
                                      flops_per_second(989.4e12),
                                      flops_per_second(989.4e12)};
inline constexpr std::array all{v100, p100, t4, a100, rtx_4090, h100};

/// What the V100 reaches in float32: parts of the peaks, and seconds. Small products reach less of the rate, which
/// their overhead stands for. Layer norms and softmax come close to neither peak; their rate is per byte/s of the peak
/// bandwidth.
struct reached_parts {
    double arithmetic, bandwidth, normalisation;
    seconds overhead, matmul_overhead;
};
/// These are fitted to 6 sizes of matrix products (errors on held-out sizes: median 6 %, worst 18 %), 11 of copies (3
/// %, 6 %) and 4 of layer norms and softmax (34 %, 38 %), traced on a V100-SXM2-32GB.
inline constexpr reached_parts reached{0.892, 0.828, 0.437, seconds(2.97e-6), seconds(55.9e-6)};

/// Makes a device type with the preset's name. Except for the V100's float32 it is a guess.
[[nodiscard]] device_type make(published_peaks const& peaks);

/// Returns the preset of a name, if there is one.
[[nodiscard]] std::optional<device_type> find(std::string_view name);

} // namespace heddle::presets

#if HEDDLE_DEFINITIONS

namespace heddle::presets {

HEDDLE_INLINE device_type make(published_peaks const& peaks) {
    device_type type{std::string(peaks.name), peaks.memory, reached.bandwidth * peaks.bandwidth, reached.overhead, {}};
    auto const add = [&](element_type element, flops_per_second peak) {
        if (peak == flops_per_second(0)) return;
        flops_per_second const rate = reached.arithmetic * peak;
        class_speed const product{rate, {}, reached.matmul_overhead};
        class_speed const norm{flops_per_second(reached.normalisation * peaks.bandwidth.value), {}, {}};
        type.rates[element] = {rate, {{operator_class::matmul, product}, {operator_class::normalisation, norm}}};
    };
    add(element_type::float32, peaks.float32);
    add(element_type::float16, peaks.float16);
    add(element_type::bfloat16, peaks.bfloat16);
    return type;
}

HEDDLE_INLINE std::optional<device_type> find(std::string_view name) {
    for (auto const& peaks : all)
        if (peaks.name == name) return make(peaks);
    return {};
}

} // namespace heddle::presets

#endif
