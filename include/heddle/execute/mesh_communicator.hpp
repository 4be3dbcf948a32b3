// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The ranks of a mesh, and the lines of them along its axes.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/mesh.hpp>
#include <heddle/execute/communicator.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle {

/// One device's end of a mesh: a communicator for the line through it along each axis, in which its rank is its place.
template <class Line>
class mesh_communicator {
public:
    /// All ranks of `world`, one for each device of the mesh, call it; each forms its lines.
    template <class World>
    mesh_communicator(World& world, heddle::mesh m) : mesh_(std::move(m)), device_(world.rank()) {
        for (axis_number a = 0; a < mesh_.axis_count(); ++a) lines_.push_back(divided(world, mesh_.line(device_, a)));
    }

    [[nodiscard]] heddle::mesh const& mesh() const { return mesh_; }
    [[nodiscard]] std::size_t device() const { return device_; }
    [[nodiscard]] Line& line(axis_number axis) { return lines_[axis]; }

private:
    heddle::mesh mesh_;
    std::size_t device_;
    std::vector<Line> lines_;
};

/// The ranks that run a plan, seen by one of them: one line, or a mesh of lines.
template <class Ranks, class Scalar>
concept ranks_of_plan = communicator_of<Ranks, Scalar> || requires(Ranks& r, axis_number axis) {
    { r.mesh() } -> std::convertible_to<mesh>;
    { r.device() } -> std::convertible_to<std::size_t>;
    { r.line(axis) } -> communicator_of<Scalar>;
};

namespace detail {

template <class Ranks>
concept has_lines = requires(Ranks& r, axis_number axis) { r.line(axis); };

/// Returns the line along an axis. If they are no mesh, all are one line.
template <class Ranks>
[[nodiscard]] auto& line_along(Ranks& r, axis_number axis) {
    if constexpr (has_lines<Ranks>) return r.line(axis);
    else return (void)axis, r;
}
template <class Ranks>
using line_of = std::remove_reference_t<decltype(line_along(std::declval<Ranks&>(), 0))>;

template <class Ranks>
[[nodiscard]] mesh mesh_of(Ranks& r) {
    if constexpr (has_lines<Ranks>) return r.mesh();
    else return mesh({static_cast<std::size_t>(r.size())});
}
template <class Ranks>
[[nodiscard]] std::size_t device_of(Ranks& r) {
    if constexpr (has_lines<Ranks>) return r.device();
    else return static_cast<std::size_t>(r.rank());
}

} // namespace detail

} // namespace heddle
