// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief HiDup's machines and models.
#pragma once

#include <heddle/json/cluster.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <optional>

namespace heddle::bench {

/// Makes two machines of four V100 each, with links of this many gigabits per second between them.
inline cluster two_machines(double gigabits) {
    auto c = json::read_cluster(HEDDLE_EXAMPLES "/clusters/v100x4_nvlink.json");
    c.machines = {{0, 4, 2}};
    c.measured.clear();
    c.inter = network_link{bytes_per_second(gigabits / 8 * 1e9), seconds(20e-6)};
    return c;
}

/// Returns the folder of HiDup's models, models/ of $HEDDLE_REFERENCE_DATA, if all of these are there. Otherwise says
/// that the bench is skipped.
inline std::optional<std::filesystem::path> hidup_models(std::initializer_list<char const*> files) {
    char const* const data = std::getenv("HEDDLE_REFERENCE_DATA");
    auto const folder = std::filesystem::path(data ? data : "") / "models";
    bool is_there = data;
    for (char const* const file : files) is_there = is_there && std::filesystem::exists(folder / file);
    if (is_there) return folder;
    std::puts("HEDDLE_REFERENCE_DATA is not set, or has no HiDup models: skipped");
    return {};
}

} // namespace heddle::bench
