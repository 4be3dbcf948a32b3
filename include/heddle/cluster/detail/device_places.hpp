// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The machine of each device.
#pragma once

#include <heddle/cluster/cluster.hpp>

#include <cstddef>
#include <vector>

namespace heddle::detail {

/// For each device of a cluster, its machine and that machine's group, whether or not devices are planned as groups.
struct device_places {
    std::vector<std::size_t> machine, group_of_machine;
    explicit device_places(cluster const& c) {
        std::size_t next = 0;
        for (std::size_t g = 0; g < c.machines.size(); ++g)
            for (int n = 0; n < c.machines[g].count; ++n, ++next) {
                auto const devices = static_cast<std::size_t>(c.machines[g].devices);
                machine.insert(machine.end(), devices, next);
                group_of_machine.insert(group_of_machine.end(), devices, g);
            }
    }
};

} // namespace heddle::detail
