// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The ranks of a mesh, and the lines of them along its axes.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/mesh.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/in_process.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace heddle {

/// One device's end of a mesh: a communicator for the line through it along each axis, in which its rank is its place.
template <class Line>
class mesh_communicator {
public:
    /// All ranks of `world`, one for each device of the mesh, call it; each forms its lines.
    template <class World>
    mesh_communicator(World& world, mesh const& m) : device_(world.rank()) {
        for (axis_number a = 0; a < m.axis_count(); ++a) lines_.push_back(world.group(m.line(device_, a)));
    }

    [[nodiscard]] std::size_t device() const { return device_; }
    [[nodiscard]] Line& line(axis_number axis) { return lines_[axis]; }

private:
    std::size_t device_;
    std::vector<Line> lines_;
};

/// Calls `work(communicator)` with the `mesh_communicator` of each device, on as many threads.
template <class Work>
void run_mesh(mesh const& m, Work&& work) {
    run_ranks(m.device_count(), [&](in_process_communicator& world) {
        mesh_communicator<in_process_communicator> communicator(world, m);
        work(communicator);
    });
}

} // namespace heddle
