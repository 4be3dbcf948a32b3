// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A cluster's devices by type: a planner decides some things for all devices of a type at once.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/alike_devices.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/cost/cost_model.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace heddle {

/// Device types, divided by the size of groups, as classes in order of first device.
struct device_types : alike_devices {
    using alike_devices::alike_devices;

    /// Turns a ratio per type into one per device, segment by segment.
    [[nodiscard]] ratio_table per_device(ratio_table const& per_type) const;
    /// Turns ratios per device into ratios per type; devices of one type have equal ratios.
    [[nodiscard]] ratio_table per_type(ratio_table const& per_device) const;
};

/// Returns the element type in which most of the work is done.
[[nodiscard]] element_type main_type(indexed_program const& p);

/// Returns ratios proportional to memory.
[[nodiscard]] std::vector<double> memory_proportional(cost_model const& model);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE ratio_table device_types::per_device(ratio_table const& per_type) const {
    ratio_table result;
    for (auto const& row : per_type) {
        auto& mine = result.emplace_back();
        for (auto k : of_device) mine.push_back(row[k]);
    }
    return result;
}

HEDDLE_INLINE ratio_table device_types::per_type(ratio_table const& per_device) const {
    ratio_table result;
    for (auto const& row : per_device) {
        auto& mine = result.emplace_back(classes.size());
        for (std::size_t d = 0; d < row.size(); ++d) mine[of_device[d]] = row[d];
    }
    return result;
}

HEDDLE_INLINE element_type main_type(indexed_program const& p) {
    std::array<double, element_type_count> work{};
    for (auto const& op : p.operators)
        work[static_cast<std::size_t>(p.tensors[op.results.front()].info.type)] += op.work.forward.value;
    auto const most = algorithm::max_element(work);
    return *most > 0 ? static_cast<element_type>(most - work.begin()) : p.tensors[p.loss].info.type;
}

HEDDLE_INLINE std::vector<double> memory_proportional(cost_model const& model) {
    std::vector<double> ratios;
    double sum = 0;
    for (std::size_t k = 0; k < model.class_count(); ++k) {
        ratios.push_back(model.memory_limit(k));
        sum += ratios.back() * model.classes()[k].count;
    }
    for (auto& r : ratios) r /= sum;
    return ratios;
}

} // namespace heddle

#endif
