// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Models fitted to measurements, and how they are put into a cluster.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

struct fitted_models {
    using device_speeds = std::map<element_type, operator_speeds>;

    /// The number of ranks that the collectives were measured on.
    int ranks = 1;
    std::map<collective, collective_model> collectives{};
    /// Those of the ranks of one machine, if it is one of several, and those of one rank of each of several machines.
    measured_collectives inside{}, across{};
    /// The speeds by name of the device type.
    std::map<std::string, device_speeds> speeds{};
    /// The link between the first two ranks, and that along a line of machines.
    std::optional<network_link> link{}, link_across{};
};

/// Replaces models of a cluster; the bandwidth of a device type becomes that of its fastest class. An element type that
/// a device type lacks starts with the speeds that stand in for it: those of float32, or else the first there are. The
/// first ranks are the first devices: two of one machine or of two, and inside a machine all of the first. The link
/// between machines is that along a line of them, if one was measured.
/// *Returns* sentences on what was left out: collectives on another number of ranks, or that were measured inside a
/// machine alone, or across more machines than there are, and devices that are not in the cluster.
/// *Precondition:* `validate(c)` passed.
std::vector<std::string> put_into(cluster& c, fitted_models const& models);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::vector<std::string> put_into(cluster& c, fitted_models const& models) {
    std::vector<std::string> left_out;
    auto const devices = c.devices().size();
    if (static_cast<std::size_t>(models.ranks) == devices) {
        for (auto const& [kind, model] : models.collectives) c.measured[kind] = model;
    } else if (!models.collectives.empty() && models.ranks == models.inside.devices) {
        left_out.push_back("collectives of all " + std::to_string(devices) +
                           " devices were not measured: they follow from links");
    } else if (!models.collectives.empty()) {
        left_out.push_back("the collectives were measured on " + std::to_string(models.ranks) +
                           " ranks, the cluster has " + std::to_string(devices) + " devices: they are left out");
    }
    auto const put_line = [](measured_collectives& into, measured_collectives const& line) {
        if (line.models.empty()) return;
        if (into.devices != line.devices) into = {line.devices, {}};
        for (auto const& [kind, model] : line.models) into.models[kind] = model;
    };
    put_line(c.measured_inside, models.inside);
    int machines = 0;
    for (auto const& m : c.machines) machines += m.count * m.joined;
    if (models.link && devices > 1) (c.machines.front().planned_devices() > 1 ? c.intra : c.inter) = models.link;
    if (models.across.devices <= machines) {
        put_line(c.measured_across, models.across);
        if (models.link_across) c.inter = models.link_across;
    } else {
        left_out.push_back("collectives were measured across " + std::to_string(models.across.devices) +
                           " machines, the cluster has " + std::to_string(machines) + ": they are left out");
    }
    for (auto const& [name, by_type] : models.speeds) {
        auto const type = algorithm::find(c.types, name, &device_type::name);
        if (type == c.types.end()) {
            left_out.push_back("the cluster has no device type '" + name + "': its rates are left out");
            continue;
        }
        auto const main = type->rates.find(element_type::float32);
        rate_table const stand_in = main == type->rates.end() ? type->rates.begin()->second : main->second;
        // What only copies and adds, as optimisers do, is as fast as the fastest class passes memory.
        std::optional<bytes_per_second> fastest;
        for (auto const& [element, speeds] : by_type) {
            auto& table = type->rates.try_emplace(element, stand_in).first->second;
            for (auto const& [category, speed] : speeds.by_class) {
                table.by_class[category] = speed;
                if (speed.bandwidth) fastest = std::max(fastest.value_or(*speed.bandwidth), *speed.bandwidth);
            }
            for (auto const& [of, speed] : speeds.by_operator) table.by_operator[of] = speed;
        }
        if (fastest) type->bandwidth = *fastest;
    }
    return left_out;
}

} // namespace heddle

#endif
