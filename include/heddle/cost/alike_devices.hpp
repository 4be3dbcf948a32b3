// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Devices that are priced as one class: they are of one type, in groups of one size, and have equal shares.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/cost/cost_model.hpp>

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace heddle {

/// Classes are in the order of their first devices unless they are renumbered.
struct alike_devices {
    std::vector<device_class> classes;
    std::vector<std::size_t> of_device;

    /// Puts devices into classes by their type and the size of their group.
    explicit alike_devices(cluster const& c);

    /// Divides classes in which devices have unequal amounts of something. *Complexity.* O(n log n) in the devices if
    /// there are few amounts; otherwise quadratic in their number.
    template <class Amounts>
    void refine(Amounts const& by_device) {
        struct known {
            typename Amounts::value_type amount;
            std::size_t number;
        };
        std::vector<std::vector<known>> within(classes.size()); // sorted by amount
        std::vector<std::size_t> last(classes.size());
        std::vector<device_class> finer;
        for (std::size_t d = 0; d < of_device.size(); ++d) {
            auto const before = of_device[d];
            auto& alike = within[before];
            auto& n = last[before]; // neighbours are often alike
            if (alike.empty() || alike[n].amount != by_device[d]) {
                auto const at = algorithm::lower_bound(alike, by_device[d], {}, &known::amount);
                n = static_cast<std::size_t>(at - alike.begin());
                if (at == alike.end() || at->amount != by_device[d]) {
                    alike.insert(at, {by_device[d], finer.size()});
                    finer.push_back({classes[before].type, 0, classes[before].group_size});
                }
            }
            of_device[d] = alike[n].number;
            ++finer[alike[n].number].count;
        }
        classes = std::move(finer);
    }

    /// Renumbers the classes: the class `order[k]` becomes class k.
    void renumber(std::vector<std::size_t> const& order);

    /// Returns the first device of each class.
    [[nodiscard]] std::vector<std::size_t> first_devices() const;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE alike_devices::alike_devices(cluster const& c) {
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

HEDDLE_INLINE void alike_devices::renumber(std::vector<std::size_t> const& order) {
    std::vector<std::size_t> number(order.size());
    std::vector<device_class> ordered;
    for (std::size_t k = 0; k < order.size(); ++k) {
        number[order[k]] = k;
        ordered.push_back(classes[order[k]]);
    }
    for (auto& k : of_device) k = number[k];
    classes = std::move(ordered);
}

HEDDLE_INLINE std::vector<std::size_t> alike_devices::first_devices() const {
    std::vector<std::size_t> first(classes.size());
    for (std::size_t d = of_device.size(); d-- > 0;) first[of_device[d]] = d;
    return first;
}

} // namespace heddle

#endif
