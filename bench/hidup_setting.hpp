// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief HiDup's machines.
#pragma once

#include <heddle/json/cluster.hpp>

namespace heddle::bench {

/// Two of four V100 each, so many gigabits per second apart.
inline cluster two_machines(double gigabits) {
    auto c = json::read_cluster(HEDDLE_EXAMPLES "/clusters/v100x4_nvlink.json");
    c.machines = {{0, 4, 2}};
    c.measured.clear();
    c.inter = network_link{bytes_per_second(gigabits / 8 * 1e9), seconds(20e-6)};
    return c;
}

} // namespace heddle::bench
