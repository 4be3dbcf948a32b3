// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A cluster's devices by type: what a planner decides for all of a type at once.
#pragma once

#include <heddle/cost/atoms.hpp>
#include <heddle/cost/cost_model.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace heddle {

/// Device types, of groups of one size, as classes in order of first device.
struct device_types {
    std::vector<device_class> classes;
    std::vector<std::size_t> of_device;

    explicit device_types(cluster const& c) {
        auto const types = c.devices();
        auto const sizes = c.group_sizes();
        for (std::size_t d = 0; d < types.size(); ++d) {
            auto const found = std::ranges::find_if(classes, [&](device_class const& k) { return k.type == types[d] && k.group_size == sizes[d]; });
            of_device.push_back(static_cast<std::size_t>(found - classes.begin()));
            if (found == classes.end()) classes.push_back({types[d], 1, sizes[d]});
            else ++found->count;
        }
    }

    /// Parts the classes so that the devices of each have equal shares of every factor; `shares` keeps what it gives.
    template <class Shares>
    void part_by_shares(indexed_program const& p, Shares const& shares) {
        std::set<share_vector const*> seen;
        for (tensor_id t = 0; t < p.tensors.size(); ++t)
            for (std::size_t f = 0; f < p.tensors[t].factors.size(); ++f) {
                share_vector const& share = shares(share_ref{t, static_cast<factor_number>(f)});
                if (seen.insert(&share).second) part_by(share);
            }
    }

    /// From a ratio per type to one per device, segment by segment.
    [[nodiscard]] ratio_table per_device(ratio_table const& per_type) const {
        ratio_table result;
        for (auto const& row : per_type) {
            auto& mine = result.emplace_back();
            for (auto k : of_device) mine.push_back(row[k]);
        }
        return result;
    }
    /// The reverse, where devices of one type have equal ratios.
    [[nodiscard]] ratio_table per_type(ratio_table const& per_device) const {
        ratio_table result;
        for (auto const& row : per_device) {
            auto& mine = result.emplace_back(classes.size());
            for (std::size_t d = 0; d < row.size(); ++d) mine[of_device[d]] = row[d];
        }
        return result;
    }

private:
    void part_by(share_vector const& share) {
        std::map<std::pair<std::size_t, double>, std::size_t> numbers;
        std::vector<device_class> parts;
        for (std::size_t d = 0; d < of_device.size(); ++d) {
            auto const [slot, is_new] = numbers.try_emplace({of_device[d], share[d]}, parts.size());
            if (is_new) parts.push_back({classes[of_device[d]].type, 0, classes[of_device[d]].group_size});
            ++parts[slot->second].count;
            of_device[d] = slot->second;
        }
        classes = std::move(parts);
    }
};

/// The element type that most of the work is done in.
[[nodiscard]] inline element_type main_type(indexed_program const& p) {
    std::array<double, element_type_count> work{};
    for (auto const& op : p.operators) work[static_cast<std::size_t>(p.tensors[op.results.front()].info.type)] += op.work.forward.value;
    auto const most = std::ranges::max_element(work);
    return *most > 0 ? static_cast<element_type>(most - work.begin()) : p.tensors[p.loss].info.type;
}

/// Ratios proportional to memory.
[[nodiscard]] inline std::vector<double> memory_proportional(cost_model const& model) {
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
