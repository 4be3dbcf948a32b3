// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Devices in a grid, such as machines by the devices of each.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>

#include <cstddef>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// A number of an axis of a mesh; axis 0 is the outermost.
using axis_number = std::size_t;

/// The most axes that a mesh may have.
inline constexpr std::size_t most_axes = 4;

/// Devices in a grid of axes, outermost first. They are numbered with the last axis fastest, so that a slice, the
/// devices that share their place on the first axes, is a range of numbers.
class mesh {
public:
    /// A device's place on each axis.
    using coordinates = std::vector<std::size_t>;

    /// One device, on one axis.
    mesh() : sizes_{1} {}
    /// *Throws* `input_error` unless there are 1 to `most_axes` axes, each of a device at least.
    explicit mesh(std::vector<std::size_t> sizes);

    [[nodiscard]] std::size_t axis_count() const { return sizes_.size(); }
    [[nodiscard]] std::size_t size(axis_number axis) const { return sizes_[axis]; }
    [[nodiscard]] std::vector<std::size_t> const& sizes() const { return sizes_; }
    [[nodiscard]] std::size_t device_count() const {
        return std::accumulate(sizes_.begin(), sizes_.end(), std::size_t{1}, std::multiplies<>{});
    }
    /// Returns how many devices share a place on an axis, and on those outside it.
    [[nodiscard]] std::size_t devices_inside(axis_number axis) const {
        return std::accumulate(sizes_.begin() + static_cast<std::ptrdiff_t>(axis) + 1, sizes_.end(), std::size_t{1},
                               std::multiplies<>{});
    }
    [[nodiscard]] coordinates place_of(std::size_t device) const;
    [[nodiscard]] std::size_t device_at(coordinates const& place) const;
    /// Returns the devices that differ from this one along an axis alone, by their place on it; this one is among them.
    [[nodiscard]] std::vector<std::size_t> line(std::size_t device, axis_number axis) const;

    friend bool operator==(mesh const&, mesh const&) = default;

private:
    std::vector<std::size_t> sizes_;
};

/// Writes a mesh's sizes: `2 x 8`.
[[nodiscard]] std::string to_string(mesh const& m);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE mesh::mesh(std::vector<std::size_t> sizes) : sizes_(std::move(sizes)) {
    if (sizes_.empty() || sizes_.size() > most_axes || algorithm::find(sizes_, std::size_t{0}) != sizes_.end())
        throw input_error("mesh", "is " + (sizes_.empty() ? "of no axis" : to_string(*this)) + ", expected 1 to " +
                                      std::to_string(most_axes) + " axes, each of a device at least");
}

HEDDLE_INLINE mesh::coordinates mesh::place_of(std::size_t device) const {
    coordinates place(axis_count());
    for (axis_number a = axis_count(); a-- > 0; device /= sizes_[a]) place[a] = device % sizes_[a];
    return place;
}

HEDDLE_INLINE std::size_t mesh::device_at(coordinates const& place) const {
    std::size_t device = 0;
    for (axis_number a = 0; a < axis_count(); ++a) device = device * sizes_[a] + place[a];
    return device;
}

HEDDLE_INLINE std::vector<std::size_t> mesh::line(std::size_t device, axis_number axis) const {
    std::vector<std::size_t> devices;
    auto place = place_of(device);
    for (place[axis] = 0; place[axis] < sizes_[axis]; ++place[axis]) devices.push_back(device_at(place));
    return devices;
}

HEDDLE_INLINE std::string to_string(mesh const& m) {
    std::string text;
    for (auto size : m.sizes()) text += (text.empty() ? "" : " x ") + std::to_string(size);
    return text;
}

} // namespace heddle

#endif
