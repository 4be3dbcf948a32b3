// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Degrees of pipeline, data and tensor parallelism, micro-batches, and which device does what.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace heddle {

/// The numbers of stages, of copies of the model, and of devices that share a layer. Their product is the number of
/// devices.
struct parallel_degrees {
    std::size_t pipeline = 1, data = 1, tensor = 1;

    [[nodiscard]] std::size_t device_count() const { return pipeline * data * tensor; }
    friend auto operator<=>(parallel_degrees const&, parallel_degrees const&) = default;
};

/// One way to spread a global batch over devices (AMP eq. (2), without placement and layers).
struct parallel_shape {
    parallel_degrees degrees;
    /// The samples that one copy of the model processes at a time, and how often it does so per iteration.
    std::int64_t micro_batch_size = 1, micro_batches = 1;
};

/// Returns the numbers that divide `n`, ascending. *Precondition:* n > 0. *Complexity.* O(sqrt(n)).
[[nodiscard]] std::vector<std::int64_t> divisors(std::int64_t n);

/// Returns all degrees that use exactly `devices` devices, in lexicographic order. *Throws* `input_error` if there are
/// no devices.
[[nodiscard]] std::vector<parallel_degrees> all_degrees(std::size_t devices);

/// Returns all degrees with all sizes of micro-batch that divide the batch evenly over copies and passes, ordered by
/// degrees, small micro-batches first. *Throws* `input_error`.
[[nodiscard]] std::vector<parallel_shape> all_shapes(std::size_t devices, std::int64_t global_batch);

/// Returns all degrees that leave every copy at least one sample. If copies divide the batch, the sizes of micro-batch
/// are those of `all_shapes`. Otherwise copies get numbers of samples that differ by at most one, and the sizes are
/// those for which no smaller size takes as many passes. A copy with fewer samples has a smaller last pass. *Throws*
/// `input_error`.
[[nodiscard]] std::vector<parallel_shape> spread_shapes(std::size_t devices, std::int64_t global_batch);

/// Says where every device of a grid is.
struct device_placement {
    parallel_degrees degrees;
    /// The devices by rank: first along a tensor group, then along the copies, then along the stages.
    std::vector<std::size_t> devices;

    [[nodiscard]] std::size_t device(std::size_t stage, std::size_t copy, std::size_t part) const {
        return devices[(stage * degrees.data + copy) * degrees.tensor + part];
    }
    /// Returns the devices that share the layers of a stage in a copy.
    [[nodiscard]] std::vector<std::size_t> tensor_group(std::size_t stage, std::size_t copy) const;
    /// Returns the devices that hold the same parameters, one of each copy.
    [[nodiscard]] std::vector<std::size_t> data_group(std::size_t stage, std::size_t part) const;
    /// Returns the devices that a copy's activations pass through, first stage first.
    [[nodiscard]] std::vector<std::size_t> pipeline_group(std::size_t copy, std::size_t part) const;
};

/// Returns Megatron's heuristic placement. Devices are numbered machine by machine; tensor groups are contiguous, hence
/// inside machines if they fit; then follow copies; stages are the furthest apart (AMP section 3.6).
[[nodiscard]] device_placement megatron_placement(parallel_degrees degrees);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::vector<std::int64_t> divisors(std::int64_t n) {
    std::vector<std::int64_t> low, high;
    for (std::int64_t d = 1; d <= n / d; ++d) {
        if (n % d != 0) continue;
        low.push_back(d);
        if (d != n / d) high.push_back(n / d);
    }
    low.insert(low.end(), high.rbegin(), high.rend());
    return low;
}

HEDDLE_INLINE std::vector<parallel_degrees> all_degrees(std::size_t devices) {
    if (devices == 0) throw input_error("degrees", "0 devices, expected one at least");
    std::vector<parallel_degrees> all;
    for (auto const pipeline : divisors(static_cast<std::int64_t>(devices)))
        for (auto const data : divisors(static_cast<std::int64_t>(devices) / pipeline)) {
            auto const p = static_cast<std::size_t>(pipeline), d = static_cast<std::size_t>(data);
            all.push_back({p, d, devices / p / d});
        }
    return all;
}

HEDDLE_INLINE std::vector<parallel_shape> all_shapes(std::size_t devices, std::int64_t global_batch) {
    if (global_batch < 1)
        throw input_error("global batch", std::to_string(global_batch) + " samples, expected one at least");
    std::vector<parallel_shape> all;
    for (auto const& degrees : all_degrees(devices)) {
        auto const copies = static_cast<std::int64_t>(degrees.data);
        if (global_batch % copies != 0) continue;
        for (auto const size : divisors(global_batch / copies))
            all.push_back({degrees, size, global_batch / copies / size});
    }
    return all;
}

HEDDLE_INLINE std::vector<parallel_shape> spread_shapes(std::size_t devices, std::int64_t global_batch) {
    if (global_batch < 1)
        throw input_error("global batch", std::to_string(global_batch) + " samples, expected one at least");
    std::vector<parallel_shape> all;
    for (auto const& degrees : all_degrees(devices)) {
        auto const copies = static_cast<std::int64_t>(degrees.data);
        if (copies > global_batch) continue;
        auto const samples = (global_batch + copies - 1) / copies;
        if (global_batch % copies == 0) {
            for (auto const size : divisors(samples)) all.push_back({degrees, size, samples / size});
            continue;
        }
        for (std::int64_t size = 1; size <= samples;) {
            auto const passes = (samples + size - 1) / size;
            all.push_back({degrees, size, passes});
            if (passes == 1) break;
            size = (samples + passes - 2) / (passes - 1);
        }
    }
    return all;
}

HEDDLE_INLINE std::vector<std::size_t> device_placement::tensor_group(std::size_t stage, std::size_t copy) const {
    std::vector<std::size_t> group;
    for (std::size_t part = 0; part < degrees.tensor; ++part) group.push_back(device(stage, copy, part));
    return group;
}

HEDDLE_INLINE std::vector<std::size_t> device_placement::data_group(std::size_t stage, std::size_t part) const {
    std::vector<std::size_t> group;
    for (std::size_t copy = 0; copy < degrees.data; ++copy) group.push_back(device(stage, copy, part));
    return group;
}

HEDDLE_INLINE std::vector<std::size_t> device_placement::pipeline_group(std::size_t copy, std::size_t part) const {
    std::vector<std::size_t> group;
    for (std::size_t stage = 0; stage < degrees.pipeline; ++stage) group.push_back(device(stage, copy, part));
    return group;
}

HEDDLE_INLINE device_placement megatron_placement(parallel_degrees degrees) {
    device_placement placement{degrees, std::vector<std::size_t>(degrees.device_count())};
    std::iota(placement.devices.begin(), placement.devices.end(), std::size_t{0});
    return placement;
}

} // namespace heddle

#endif
