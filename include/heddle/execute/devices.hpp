// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The ranks of a plan: one for each of its devices, or for each device of its groups.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/in_process.hpp>
#include <heddle/execute/mesh_communicator.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/plan/plan.hpp>

#include <cstddef>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle {

/// Calls `work(ranks)` for one rank of a plan, with `world` itself; on a mesh, with the `mesh_communicator` of this
/// rank's device; or, if the plan has device groups, with its `grouped_communicator`. All ranks call it.
/// *Precondition:* `world` has `ranks_of(what)` ranks.
template <class Scalar, point_to_point_of<Scalar> Communicator, class Work>
void on_device(plan const& what, Communicator& world, Work&& work) {
    if (what.is_on_mesh()) {
        mesh_communicator<std::remove_cvref_t<decltype(world.group(std::vector<std::size_t>{}))>> lines(world,
                                                                                                        what.mesh());
        return work(lines);
    }
    if (!what.has_groups()) return work(world);
    std::vector<std::size_t> firsts;
    for (std::size_t next = 0; auto const& d : what.devices)
        firsts.push_back(std::exchange(next, next + static_cast<std::size_t>(d.group_size)));
    auto const group = static_cast<std::size_t>(algorithm::upper_bound(firsts, world.rank()) - firsts.begin()) - 1;
    std::vector<std::size_t> members(static_cast<std::size_t>(what.devices[group].group_size));
    std::iota(members.begin(), members.end(), firsts[group]);
    auto inside = divided(world, members);
    std::optional<decltype(inside)> across;
    if (inside.rank() == 0) across = world.group(firsts);
    grouped_communicator<Scalar, decltype(inside), decltype(inside)> communicator(inside, across ? &*across : nullptr,
                                                                                  group, firsts.size());
    work(communicator);
}

/// Calls `on_device` on as many threads as a plan has ranks.
template <class Scalar, class Work>
void run_devices(plan const& what, Work&& work) {
    run_ranks(ranks_of(what), [&](in_process_communicator& world) { on_device<Scalar>(what, world, work); });
}

} // namespace heddle
