// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans that hold other activations than the ones they were made of: of more micro-batches, or fewer, as they
/// are made again.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>

namespace heddle::detail {

/// Tells whether a device of a plan has less than a tenth of its memory left.
[[nodiscard]] bool is_tight(plan const& p);

/// Returns the plan for a program with other names, with so many micro-batches in flight, whose activations may be
/// recomputed; what it costs is not known then.
[[nodiscard]] plan with_in_flight(plan p, indexed_program of, int in_flight,
                                  recomputation recomputes = recomputation::none);

/// Returns a plan that recomputes, with as many of its regions held as memory allows, later ones first, and its cost.
/// A plan that does not fit is returned as it is. *Complexity.* O(log n) prices for n regions.
[[nodiscard]] plan holding_more(plan p, indexed_program of, cluster const& on);

/// Takes from a plan what is known of those that were searched with it.
void forget_others(plan& p);

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

#include <heddle/cost/mesh_step.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/theory/batch.hpp>
#include <heddle/theory/mesh_instruction.hpp>
#include <heddle/theory/recomputation.hpp>

namespace heddle::detail {

/// Gives the transfers of a step the ways in which those of another move shards, which are the same but for what runs
/// again: that moves them as before.
HEDDLE_INLINE void take_ways(step_work& s, step_work const& from, bool is_conversion) {
    auto const take = [](transfer_list const& given, transfer_list& to) {
        for (std::size_t n = 0; n < std::min(given.size(), to.size()); ++n) to[n].how = given[n].how;
    };
    take(from.forward_transfers, s.forward_transfers);
    take(from.backward_transfers, s.backward_transfers);
    take(from.deferred_transfers, s.deferred_transfers);
    take(from.update_transfers, s.update_transfers);
    if (!s.runs_again || !is_conversion) return;
    std::size_t const before = s.backward_transfers.size() - s.forward_transfers.size();
    for (std::size_t n = 0; n < s.forward_transfers.size(); ++n)
        s.backward_transfers[before + n].how = s.forward_transfers[n].how;
}

/// Gives a plan the regions of a program. If nothing runs again then, it recomputes nothing.
HEDDLE_INLINE void take_regions(plan& p, indexed_program const& of) {
    auto& training = p.provenance.training;
    for (std::size_t t = 0; t < p.tensors.size(); ++t) p.tensors[t].region = of.tensors[t].region;
    auto const on = p.mesh();
    saved_so_far saved(of);
    for (auto& s : p.steps) {
        auto const all = s.on_mesh();
        auto made = make_step(of, all, on, training);
        take_ways(made, s.step, !s.instruction.is<instruction::compute>());
        made.counted = 1;
        s.step = std::move(made);
        s.saved = saved.by(all);
    }
    bool const runs_again = algorithm::any_of(p.steps, [](plan_step const& s) { return s.step.runs_again; });
    if (runs_again || training.recomputes == recomputation::none) return;
    training.recomputes = recomputation::none;
    auto held = of;
    for (auto& t : held.tensors) t.region = no_region;
    take_regions(p, held);
}

HEDDLE_INLINE void forget_others(plan& p) {
    p.status = search::status::feasible;
    p.which_limit = search::limit_kind::none;
    p.lower_bound = 0;
    p.global_lower_bound.reset();
    p.trajectory.clear();
}

HEDDLE_INLINE bool is_tight(plan const& p) {
    constexpr double most = 0.9;
    for (std::size_t d = 0; d < p.memory.size(); ++d)
        if (p.memory[d].total() > most * p.devices[d].memory_limit.value) return true;
    return false;
}

HEDDLE_INLINE plan with_in_flight(plan p, indexed_program of, int in_flight, recomputation recomputes) {
    for (std::size_t t = 0; t < p.tensors.size(); ++t) p.tensors[t].name = of.tensors[t].info.name;
    for (std::size_t o = 0; o < p.operators.size(); ++o) p.operators[o] = of.operators[o].name;
    auto& training = p.provenance.training;
    bool const is_as_it_was =
        training.recomputes == recomputes && (recomputes == recomputation::none || training.in_flight == in_flight);
    training.in_flight = in_flight;
    training.recomputes = recomputes;
    if (!is_as_it_was) forget_others(p);
    recompute(of, recomputes, in_flight);
    take_regions(p, of);
    return p;
}

HEDDLE_INLINE plan holding_more(plan p, indexed_program of, cluster const& on) {
    region_number first = p.provenance.training.runs_again(0) ? 0 : 1, end = first;
    for (auto const& t : p.tensors) end = std::max(end, static_cast<region_number>(t.region + 1));
    if (!p.exists() || end == first) return p;
    if (p.has_groups()) split_inside(of);
    auto const before = p.tensors;
    auto const held = [&](int until) {
        auto result = p;
        for (std::size_t t = 0; t < before.size(); ++t) {
            auto const region = before[t].region;
            of.tensors[t].region = region >= first && region < until ? no_region : region;
        }
        take_regions(result, of);
        auto const cost = evaluate(result, on);
        result.time = cost.time;
        result.memory = cost.memory;
        forget_others(result);
        return cost.fits ? result : plan();
    };
    int fits = first, exceeds = end + 1;
    while (exceeds - fits > 1) {
        int const middle = (fits + exceeds) / 2;
        if (auto found = held(middle); found.exists()) fits = middle, p = std::move(found);
        else exceeds = middle;
    }
    return p;
}

} // namespace heddle::detail

#endif
