// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the devices of one group send each other, and how long it takes them.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>

#include <array>
#include <cstdint>

namespace heddle {

/// A kind of communication inside a device group; `first` is the member that takes part in the collectives across
/// groups.
///
/// HAP (EuroSys '24), section 6: a collective of groups has three steps, to the first device, across, and from it.
enum class inside_step : std::uint8_t {
    none,
    reduce,         ///< the sum of all members' tensors to the first
    gather,         ///< all members' parts to the first
    broadcast,      ///< the first's tensor to all
    scatter,        ///< parts of the first's tensor to all
    all_reduce,     ///< the sum of all members' tensors to all
    all_gather,     ///< all members' parts to all
    reduce_scatter, ///< to each its part of the sum of all members' tensors
    all_to_all      ///< from each its part along one factor, to each its part along another
};
inline constexpr std::size_t inside_step_count = 9;

[[nodiscard]] constexpr char const* name(inside_step kind) {
    constexpr std::array names{"none",       "reduce",     "gather",         "broadcast", "scatter",
                               "all_reduce", "all_gather", "reduce_scatter", "all_to_all"};
    return names[static_cast<std::size_t>(kind)];
}

/// Returns the step that a collective along an axis inside a machine is.
[[nodiscard]] constexpr inside_step inside_step_of(collective kind) {
    switch (kind) {
    case collective::all_reduce: return inside_step::all_reduce;
    case collective::all_gather: return inside_step::all_gather;
    case collective::reduce_scatter: return inside_step::reduce_scatter;
    case collective::all_to_all: return inside_step::all_to_all;
    case collective::broadcast: break;
    }
    return inside_step::broadcast;
}

/// Returns the collective that takes as long as a step. Parts to or from the first device all pass its link.
[[nodiscard]] constexpr collective collective_of(inside_step kind) {
    switch (kind) {
    case inside_step::gather:
    case inside_step::all_gather: return collective::all_gather;
    case inside_step::scatter:
    case inside_step::reduce_scatter: return collective::reduce_scatter;
    case inside_step::all_reduce: return collective::all_reduce;
    case inside_step::all_to_all: return collective::all_to_all;
    case inside_step::none:
    case inside_step::reduce:
    case inside_step::broadcast: break;
    }
    return collective::broadcast;
}

/// Returns the time of a step among `members` devices over one link, as a line in the bytes of the whole tensor. Whole
/// tensors go to or from the first device by a tree; the rest are rings.
[[nodiscard]] collective_model::piece time_inside(inside_step kind, int members, network_link const& link);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE collective_model::piece time_inside(inside_step kind, int members, network_link const& link) {
    if (kind == inside_step::none) return {};
    auto line = line_inside(collective_of(kind), members, link);
    if (kind == inside_step::all_to_all) line.slope = line.slope / members; // which is in bytes of a part
    return line;
}

} // namespace heddle

#endif
