// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Prices at a plan's own shares.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/alike_devices.hpp>
#include <heddle/cost/cost_model.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/cost/relaxation.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/synthesis/stage_programs.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Holds the plan's integral shares, and the prices of all programs at hand at these shares. Devices of one class have
/// equal shares of everything, as a class that is priced at larger shares would not give a bound. A class has a clock
/// unless another of its type has as much of everything or more, and is never done sooner: of 16 samples on 32 devices,
/// the devices with one. If rounding makes many such classes, those with most to do in the plan have clocks, which gives
/// a bound for all.
class planned_prices {
public:
    planned_prices(stage_programs const& programs, plan const& p);
    /// Prices of the programs that bound those at hand. *Precondition:* there are any.
    struct of_bounding {};
    planned_prices(stage_programs const& programs, plan const& p, of_bounding);
    planned_prices(planned_prices const&) = delete;
    planned_prices& operator=(planned_prices const&) = delete;

    /// Turns weights per type, shared evenly by its devices, into weights of classes of devices. Those of a class
    /// without a clock go to the first class of its type; if its type has none, to the first of all.
    [[nodiscard]] multipliers spread(multipliers const& per_type, device_types const& types) const;

    integral_shares shares;
    alike_devices devices;
    std::size_t clocks;
    cost_model model;
    priced_graph priced;

private:
    static constexpr std::size_t most_clocks = 16;

    /// Puts devices into classes, those with clocks first, and returns how many have one.
    [[nodiscard]] std::size_t part(stage_programs const& programs, plan const& p);
    /// Returns the classes that may be the last to be done. *Complexity.* Linear in the classes times the lists.
    [[nodiscard]] std::vector<std::size_t> busiest(std::set<share_vector const*> const& lists) const;
    /// Returns the seconds of work by device.
    [[nodiscard]] static std::vector<double> loads_of(plan const& p, cluster const& c);
};

/// Tells whether all factors have the same shares.
[[nodiscard]] bool are_equal(indexed_program const& p, integral_shares const& a, integral_shares const& b);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/plan/evaluate.hpp>

namespace heddle {

HEDDLE_INLINE planned_prices::planned_prices(stage_programs const& programs, plan const& p)
    : shares(programs.program(), p.ratios, p.cuts), devices(programs.cluster()), clocks(part(programs, p)),
      model(programs.cluster(), devices.classes, main_type(programs.program()), programs.training().reduction(),
            clocks),
      priced(programs.space(), programs.graph(), programs.steps(), model, largest_shares(shares, devices.of_device),
             programs.training(), {}, nullptr, programs.constants()) {}

HEDDLE_INLINE planned_prices::planned_prices(stage_programs const& programs, plan const& p, of_bounding)
    : shares(programs.bounding()->program.program(), p.ratios, programs.bounding()->program.with_late(p.cuts)),
      devices(programs.cluster()), clocks(part(programs, p)),
      model(programs.cluster(), devices.classes, main_type(programs.program()), programs.training().reduction(),
            clocks),
      priced(*programs.bounding()->space, programs.bounding()->graph, programs.bounding()->steps, model,
             largest_shares(shares, devices.of_device), programs.training(), {}, &*programs.bounding()->links,
             programs.constants()) {}

HEDDLE_INLINE multipliers planned_prices::spread(multipliers const& per_type, device_types const& types) const {
    auto result = per_type;
    for (auto* list : {&result.time.clock, &result.time.update, &result.memory}) list->assign(clocks, 0.0);
    for (std::size_t d = 0; d < devices.of_device.size(); ++d) {
        auto const from = types.of_device[d];
        auto to = devices.of_device[d];
        if (to >= clocks)
            to = static_cast<std::size_t>(
                algorithm::find(devices.classes, devices.classes[to].type, &device_class::type) -
                devices.classes.begin());
        if (to >= clocks) to = 0;
        auto const add = [&](std::vector<double>& all, std::vector<double> const& of_types) {
            all[to] += of_types[from] / types.classes[from].count;
        };
        add(result.time.clock, per_type.time.clock);
        add(result.time.update, per_type.time.update);
        add(result.memory, per_type.memory);
    }
    return result;
}

HEDDLE_INLINE std::size_t planned_prices::part(stage_programs const& programs, plan const& p) {
    std::set<share_vector const*> seen;
    auto const& tensors = programs.program().tensors;
    for (tensor_id t = 0; t < tensors.size(); ++t)
        for (std::size_t f = 0; f < tensors[t].factors.size(); ++f)
            if (auto const& share = shares(share_ref{t, static_cast<factor_number>(f)}); seen.insert(&share).second)
                devices.refine(share);
    auto order = busiest(seen);
    std::size_t const clocks_needed = order.size();
    if (clocks_needed > most_clocks) {
        auto const loads = loads_of(p, programs.cluster());
        auto const first = devices.first_devices();
        algorithm::sort(order, {}, [&](std::size_t k) { return std::pair(-loads[first[k]], k); });
    }
    std::vector<bool> is_in_order(devices.classes.size());
    for (auto k : order) is_in_order[k] = true;
    for (std::size_t k = 0; k < is_in_order.size(); ++k)
        if (!is_in_order[k]) order.push_back(k);
    devices.renumber(order);
    return std::min(most_clocks, clocks_needed);
}

HEDDLE_INLINE std::vector<std::size_t> planned_prices::busiest(std::set<share_vector const*> const& lists) const {
    auto const first = devices.first_devices();
    std::vector<double> sums(first.size());
    for (auto const* list : lists)
        for (std::size_t k = 0; k < first.size(); ++k) sums[k] += (*list)[first[k]];
    std::vector<std::size_t> order(first.size()), result;
    std::iota(order.begin(), order.end(), std::size_t{0});
    algorithm::sort(order, {}, [&](std::size_t k) { return std::pair(-sums[k], k); });
    auto const& classes = devices.classes;
    for (auto k : order) {
        auto const outdoes = [&](std::size_t other) {
            return classes[other].type == classes[k].type && classes[other].group_size == classes[k].group_size &&
                   algorithm::all_of(lists,
                                     [&](auto const* list) { return (*list)[first[k]] <= (*list)[first[other]]; });
        };
        // Among many that none outdoes, clocks are chosen by loads.
        auto const compared = std::span(result).first(std::min(result.size(), most_clocks));
        if (!algorithm::any_of(compared, outdoes)) result.push_back(k);
    }
    algorithm::sort(result);
    return result;
}

HEDDLE_INLINE std::vector<double> planned_prices::loads_of(plan const& p, cluster const& c) {
    plan_devices const at(p, c);
    std::vector<double> of_class(at.model.class_count()), result;
    for (auto const& s : p.steps) {
        auto const cost = at.model.price(s.step, at.shares);
        for (std::size_t k = 0; k < of_class.size(); ++k)
            of_class[k] += cost.forward[k] + cost.backward[k] + cost.update[k];
    }
    for (auto k : at.alike.of_device) result.push_back(of_class[k]);
    return result;
}

HEDDLE_INLINE bool are_equal(indexed_program const& p, integral_shares const& a, integral_shares const& b) {
    for (tensor_id t = 0; t < p.tensors.size(); ++t)
        for (std::size_t f = 0; f < p.tensors[t].factors.size(); ++f)
            if (share_ref const ref{t, static_cast<factor_number>(f)}; a(ref) != b(ref)) return false;
    return true;
}

} // namespace heddle

#endif
