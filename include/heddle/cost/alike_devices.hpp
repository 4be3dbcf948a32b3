// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Devices that are priced as one class: of one type, in groups of one size, with equal shares.
#pragma once

#include <heddle/cluster/cluster.hpp>
#include <heddle/cost/cost_model.hpp>

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace heddle {

/// Classes in order of first device, unless they are renumbered.
struct alike_devices {
    std::vector<device_class> classes;
    std::vector<std::size_t> of_device;

    /// By type and size of group.
    explicit alike_devices(cluster const& c) {
        auto const types = c.devices();
        auto const sizes = c.group_sizes();
        std::map<std::pair<std::size_t, int>, std::size_t> number;
        for (std::size_t d = 0; d < types.size(); ++d) {
            auto const [at, is_new] = number.try_emplace({types[d], sizes[d]}, classes.size());
            if (is_new) classes.push_back({types[d], 0, sizes[d]});
            ++classes[at->second].count;
            of_device.push_back(at->second);
        }
    }

    /// Tells apart devices of a class that have unequal amounts of something. *Complexity.* O(n log n) in the devices.
    template <class Amounts>
    void refine(Amounts const& by_device) {
        using amount = typename Amounts::value_type;
        std::map<std::pair<std::size_t, amount>, std::size_t> number;
        std::vector<device_class> finer;
        auto last = number.end(); // neighbours are often alike
        for (std::size_t d = 0; d < of_device.size(); ++d) {
            auto const& before = classes[of_device[d]];
            if (std::pair const key(of_device[d], by_device[d]); last == number.end() || last->first != key) {
                auto const [at, is_new] = number.try_emplace(key, finer.size());
                if (is_new) finer.push_back({before.type, 0, before.group_size});
                last = at;
            }
            ++finer[last->second].count;
            of_device[d] = last->second;
        }
        classes = std::move(finer);
    }

    /// Numbers the classes anew: the class `order[k]` becomes class k.
    void renumber(std::vector<std::size_t> const& order) {
        std::vector<std::size_t> number(order.size());
        std::vector<device_class> ordered;
        for (std::size_t k = 0; k < order.size(); ++k) {
            number[order[k]] = k;
            ordered.push_back(classes[order[k]]);
        }
        for (auto& k : of_device) k = number[k];
        classes = std::move(ordered);
    }

    /// One device of each class, the first.
    [[nodiscard]] std::vector<std::size_t> first_devices() const {
        std::vector<std::size_t> first(classes.size());
        for (std::size_t d = of_device.size(); d-- > 0;) first[of_device[d]] = d;
        return first;
    }
};

} // namespace heddle
