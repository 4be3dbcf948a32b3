// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which machine holds which stage: all placements, orders of machines, and tilings.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/degrees.hpp>
#include <heddle/pipeline/strategy_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Tells what follows a tensor group on a machine: the next copy of the stage (Megatron) or the next stage of the copy.
enum class placement_order : unsigned char { copies_first, stages_first };

/// The placements whose tensor groups lie inside machines, as profiles are of one machine. Devices of a machine are
/// alike, so a placement says for each tensor group, called a unit, which machine it is on.
///
/// *Precondition:* the problem is valid and the tensor degree divides every machine's devices. *Lifetime:* refers to
/// the problem.
class placement_space {
public:
    placement_space(strategy_problem const& p, std::size_t tensor);

    /// Places units on machines in the given order, and fills each machine before the next.
    [[nodiscard]] device_placement in_order(parallel_degrees degrees, std::span<std::size_t const> machines,
                                            placement_order order) const;

    /// Returns the orders of machines that differ, at most `limit` of them, lexicographically from 0, 1, ... on.
    [[nodiscard]] std::vector<std::vector<std::size_t>> machine_orders(std::size_t limit) const;

    /// Returns all placements that differ by more than exchanges of like machines, or nothing if there are more than
    /// `limit`.
    [[nodiscard]] std::optional<std::vector<device_placement>> all(parallel_degrees degrees, std::size_t limit) const;

    /// All placements if there are no more than `most`; else those in so many orders of machines, with copies next to
    /// each other and with stages next to each other, each once.
    [[nodiscard]] std::vector<device_placement> some(parallel_degrees degrees, std::size_t most,
                                                     std::size_t orders) const;

    /// Generalises the tiling of AMP's Algorithm 2. Machines are the columns of a mesh whose cells are units. Each
    /// stage in turn covers a block of as many cells as there are copies, in the first free column from its first free
    /// cell on, `heights[stage]` cells high. Returns nothing if a block does not fit. (With two devices per block it is
    /// a domino, upright or lying.)
    /// *Precondition:* heights divide the copies.
    [[nodiscard]] std::optional<device_placement> tile(parallel_degrees degrees, std::span<std::size_t const> machines,
                                                       std::span<std::size_t const> heights) const;

private:
    [[nodiscard]] std::size_t unit_count(std::size_t machine) const {
        return problem_.machines[machine].devices / tensor_;
    }

    [[nodiscard]] bool alike(std::size_t a, std::size_t b) const;

    /// Returns the first machine of each kind.
    [[nodiscard]] std::vector<std::size_t> first_of_kind() const;

    [[nodiscard]] device_placement on_machines(parallel_degrees degrees, std::span<std::size_t const> units) const;

    /// A machine may be begun only after all like machines before it.
    bool extend(parallel_degrees degrees, std::vector<std::size_t>& units, std::size_t at,
                std::vector<std::size_t>& left, std::size_t limit, std::vector<device_placement>& found) const;

    strategy_problem const& problem_;
    std::size_t tensor_;
    /// The first device of each machine, and the first machine that is like it.
    std::vector<std::size_t> first_device_, kind_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE placement_space::placement_space(strategy_problem const& p, std::size_t tensor)
    : problem_(p), tensor_(tensor) {
    std::size_t device = 0;
    for (std::size_t m = 0; m < p.machines.size(); ++m) {
        first_device_.push_back(device);
        device += p.machines[m].devices;
        std::size_t like = 0;
        while (!alike(like, m)) ++like;
        kind_.push_back(like);
    }
}

HEDDLE_INLINE device_placement placement_space::in_order(parallel_degrees degrees,
                                                         std::span<std::size_t const> machines,
                                                         placement_order order) const {
    std::vector<std::size_t> units(degrees.pipeline * degrees.data);
    std::size_t next = 0;
    for (auto const m : machines)
        for (std::size_t u = 0; u < unit_count(m); ++u, ++next) {
            bool const copies = order == placement_order::copies_first;
            auto const stage = copies ? next / degrees.data : next % degrees.pipeline,
                       copy = copies ? next % degrees.data : next / degrees.pipeline;
            units[stage * degrees.data + copy] = m;
        }
    return on_machines(degrees, units);
}

HEDDLE_INLINE std::vector<std::vector<std::size_t>> placement_space::machine_orders(std::size_t limit) const {
    auto kinds = kind_;
    algorithm::sort(kinds);
    std::vector<std::vector<std::size_t>> orders;
    do {
        auto next = first_of_kind();
        auto& order = orders.emplace_back();
        for (auto const kind : kinds) {
            order.push_back(next[kind]);
            do ++next[kind];
            while (next[kind] < kind_.size() && kind_[next[kind]] != kind);
        }
    } while (orders.size() < limit && std::ranges::next_permutation(kinds).found);
    return orders;
}

HEDDLE_INLINE std::optional<std::vector<device_placement>> placement_space::all(parallel_degrees degrees,
                                                                                std::size_t limit) const {
    std::vector<device_placement> found;
    std::vector<std::size_t> units(degrees.pipeline * degrees.data), left;
    for (std::size_t m = 0; m < kind_.size(); ++m) left.push_back(unit_count(m));
    bool const complete = extend(degrees, units, 0, left, limit, found);
    return complete ? std::optional(std::move(found)) : std::nullopt;
}

HEDDLE_INLINE std::vector<device_placement> placement_space::some(parallel_degrees degrees, std::size_t most,
                                                                  std::size_t orders) const {
    if (auto every = all(degrees, most)) return *std::move(every);
    std::vector<device_placement> found;
    std::set<std::vector<std::size_t>> seen;
    for (auto const& machines : machine_orders(orders))
        for (auto const order : {placement_order::copies_first, placement_order::stages_first})
            if (auto p = in_order(degrees, machines, order); seen.insert(p.devices).second)
                found.push_back(std::move(p));
    return found;
}

HEDDLE_INLINE std::optional<device_placement> placement_space::tile(parallel_degrees degrees,
                                                                    std::span<std::size_t const> machines,
                                                                    std::span<std::size_t const> heights) const {
    std::vector<std::vector<bool>> covered;
    for (auto const m : machines) covered.emplace_back(unit_count(m));
    std::vector<std::size_t> units(degrees.pipeline * degrees.data);
    for (std::size_t stage = 0, column = 0; stage < degrees.pipeline; ++stage) {
        while (algorithm::find(covered[column], false) == covered[column].end()) ++column;
        auto const row = static_cast<std::size_t>(algorithm::find(covered[column], false) - covered[column].begin());
        for (std::size_t copy = 0; copy < degrees.data; ++copy) {
            auto const c = column + copy / heights[stage], r = row + copy % heights[stage];
            if (c >= covered.size() || r >= covered[c].size() || covered[c][r]) return {};
            covered[c][r] = true;
            units[stage * degrees.data + copy] = machines[c];
        }
    }
    return on_machines(degrees, units);
}

HEDDLE_INLINE bool placement_space::alike(std::size_t a, std::size_t b) const {
    auto const same = [](network_link const& x, network_link const& y) {
        return x.bandwidth == y.bandwidth && x.latency == y.latency;
    };
    auto const &x = problem_.machines[a], &y = problem_.machines[b];
    return a == b || (problem_.bandwidths.empty() && x.type == y.type && x.devices == y.devices &&
                      same(x.inside, y.inside) && same(x.outside, y.outside));
}

HEDDLE_INLINE std::vector<std::size_t> placement_space::first_of_kind() const {
    std::vector<std::size_t> first(kind_.size());
    std::iota(first.begin(), first.end(), std::size_t{0});
    return first;
}

HEDDLE_INLINE device_placement placement_space::on_machines(parallel_degrees degrees,
                                                            std::span<std::size_t const> units) const {
    device_placement out{degrees, {}};
    auto next = first_device_;
    for (auto const m : units)
        for (std::size_t part = 0; part < tensor_; ++part) out.devices.push_back(next[m]++);
    return out;
}

HEDDLE_INLINE bool placement_space::extend(parallel_degrees degrees, std::vector<std::size_t>& units, std::size_t at,
                                           std::vector<std::size_t>& left, std::size_t limit,
                                           std::vector<device_placement>& found) const {
    if (at == units.size()) {
        if (found.size() == limit) return false;
        found.push_back(on_machines(degrees, units));
        return true;
    }
    std::vector<bool> untouched_kind(kind_.size());
    for (std::size_t m = 0; m < kind_.size(); ++m) {
        bool const untouched = left[m] == unit_count(m);
        if (left[m] == 0 || (untouched && untouched_kind[kind_[m]])) continue;
        if (untouched) untouched_kind[kind_[m]] = true;
        units[at] = m;
        --left[m];
        bool const complete = extend(degrees, units, at + 1, left, limit, found);
        ++left[m];
        if (!complete) return false;
    }
    return true;
}

} // namespace heddle

#endif
