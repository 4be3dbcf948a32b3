// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The factors of a tensor's dimensions, which are what shards are cut along.
#pragma once

#include <heddle/program/tensor.hpp>

#include <cstdint>
#include <vector>

namespace heddle {

/// Names a part of a program whose shards follow ratios of their own.
using segment_number = std::uint16_t;

/// One factor of a dimension. Cutting the major factor gives contiguous shards; cutting any other gives strided ones.
/// If several segments touch a tensor, it has all its factors once for each of them in turn, since each segment cuts at
/// points of its own.
struct factor {
    std::uint16_t dimension = 0;
    heddle::extent extent = 1;
    /// The number of elements of the dimension that one step of the factor spans.
    heddle::extent stride = 1;
    segment_number segment = 0;
    /// If the dimension is made of pieces that lie side by side, how many elements of each piece one step spans: a
    /// shard is the same share of every piece. The stride is their sum, and the factor is all of the dimension.
    std::vector<heddle::extent> widths{};
    friend bool operator==(factor const&, factor const&) = default;
};

/// Tells whether two factors are the same elements, whatever their segments.
[[nodiscard]] inline bool is_same_place(factor const& a, factor const& b) {
    return a.dimension == b.dimension && a.extent == b.extent && a.stride == b.stride && a.widths == b.widths;
}

/// The position of a factor in a tensor's list, or `no_factor`.
using factor_number = std::int16_t;
inline constexpr factor_number no_factor = -1;

} // namespace heddle
