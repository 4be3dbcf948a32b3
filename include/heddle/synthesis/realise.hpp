// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Turns a path through the cuts and ratios into a plan with integral shards.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/theory/cut_move.hpp>
#include <heddle/theory/cut_space.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Returns the program of a path as a plan's steps; `steps` are those of the space's instructions.
[[nodiscard]] std::vector<plan_step> steps_of(move_list const& path, cut_space const& space,
                                              std::span<step_work const> steps);

/// Returns the devices of plans on a cluster.
[[nodiscard]] std::vector<plan_device> devices_of(cluster const& c);

namespace detail {

/// Returns, for each cut, the bytes that one of its atoms takes on a device.
std::vector<double> bytes_per_atom(plan const& p);

/// Moves atoms off devices that exceed their memory to those with the most room; cuts that hold the most bytes go
/// first. It gives up when no cut helps, which does not prove that there is no solution: only an integer search could.
plan_cost relieve_memory(plan& p, cluster const& c);

/// Puts remainders of classes on the same devices if that is cheaper: what is then short waits for one device, not for
/// two.
void try_counts_together(plan& p, plan_cost& cost, cluster const& c);

/// Decides the ways of collectives that are not decided yet, as is best at the plan's shares.
void decide(plan& p, cluster const& c);

/// Decides the ways of all collectives anew, and returns what the plan then costs.
plan_cost decide_again(plan& p, cluster const& c);

/// Moves atoms of one class from the fullest devices of a type to the emptiest of another, or of the same type, as long
/// as the plan becomes cheaper and still fits. It moves one, two, four, ... or all of the type's atoms, or all that one
/// device has. Returns whether it moved any. Every evaluation takes from `work` as many steps as there are on all
/// devices; moving ends when none are left.
bool move_atoms(plan& p, cluster const& c, std::vector<std::size_t> const& type_of, std::size_t& work);

} // namespace detail

/// The stages of a path, by the first of their steps.
[[nodiscard]] std::vector<std::size_t> stages_of(move_list const& path, cut_space const& space);

/// A plan of some steps at ratios per device: atoms apportioned, memory relieved, cost re-evaluated device by device.
/// Status and bound are left to the caller.
[[nodiscard]] std::pair<plan, plan_cost> realise(indexed_program const& program, std::vector<plan_step> steps,
                                                 std::vector<std::size_t> stages, cluster const& c, ratio_table ratios,
                                                 training_options const& training);

/// As above, for a path.
[[nodiscard]] std::pair<plan, plan_cost> realise(move_list const& path, cut_space const& space,
                                                 std::span<step_work const> steps, cluster const& c, ratio_table ratios,
                                                 training_options const& training);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/cost/priced_graph.hpp>

namespace heddle {

HEDDLE_INLINE std::vector<plan_step> steps_of(move_list const& path, cut_space const& space,
                                              std::span<step_work const> steps) {
    std::vector<plan_step> result;
    for (std::size_t level = 0; level < path.size(); ++level) {
        auto const& move = space.moves()[path[level]];
        auto const op = space.operator_of(level, path[level]);
        auto const place = [&](share_ref& ref) {
            if (ref.is_split()) ref.tensor = space.at(op, ref.tensor);
        };
        for (auto i : move.instructions) {
            auto& made = result.emplace_back(plan_step{space.at(op, space.instructions()[i]), steps[i], {}});
            place(made.step.share);
            for_each_transfer(made.step, [&](transfer& t) { place(t.from), place(t.to); });
            if (made.instruction.is<instruction::compute>())
                for (auto const& [t, f] : move.saved) made.saved.push_back({space.at(op, t), f});
        }
    }
    return result;
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE std::vector<double> bytes_per_atom(plan const& p) {
    std::map<cut_factor, std::size_t> cut_of;
    for (std::size_t k = 0; k < p.cuts.size(); ++k)
        for (auto const& m : p.cuts[k].members) cut_of[m] = k;
    std::vector<double> bytes(p.cuts.size());
    auto const add = [&](tensor_id t, factor_number f, double size) {
        if (auto const found = cut_of.find({t, f}); found != cut_of.end()) bytes[found->second] += size;
    };
    for (auto const& s : p.steps) {
        if (s.step.share.is_split())
            add(s.step.share.tensor, s.step.share.factor, s.step.stored.split.value + s.step.saved.split.value);
        for (auto const& [t, f] : s.saved)
            if (f[0].is_shard()) add(t, f[0].factor(), p.tensors[t].size().value);
    }
    for (std::size_t k = 0; k < p.cuts.size(); ++k) bytes[k] /= static_cast<double>(p.cuts[k].atoms);
    return bytes;
}

HEDDLE_INLINE plan_cost relieve_memory(plan& p, cluster const& c) {
    auto cost = evaluate(p, c);
    if (cost.fits) return cost;
    double left = 0; // whoever has the atoms, but for parts of a group's and the largest of regions
    for (std::size_t d = 0; d < p.devices.size(); ++d)
        left += p.devices[d].memory_limit.value - (cost.memory[d].total() - cost.memory[d].communication);
    if (left < 0 && !p.has_groups() && p.provenance.training.recomputes == recomputation::none) return cost;
    std::vector<std::pair<double, std::size_t>> by_weight;
    for (double const weight : bytes_per_atom(p)) by_weight.push_back({weight, by_weight.size()});
    algorithm::sort(by_weight, [&](auto const& a, auto const& b) {
        return a.first * static_cast<double>(p.cuts[a.second].atoms) >
               b.first * static_cast<double>(p.cuts[b.second].atoms);
    });
    auto const room = [&](std::size_t d) { return p.devices[d].memory_limit.value - cost.memory[d].total(); };
    for (std::size_t attempt = 0; attempt < 4 * p.devices.size() && !cost.fits; ++attempt) {
        std::size_t worst = 0, best = 0;
        for (std::size_t d = 1; d < p.devices.size(); ++d) {
            if (room(d) < room(worst)) worst = d;
            if (room(d) > room(best)) best = d;
        }
        double excess = -room(worst), space = room(best);
        bool moved = false;
        for (auto const& [weight, k] : by_weight) {
            if (weight <= 0 || excess <= 0) continue;
            auto& counts = p.cuts[k].counts;
            auto const wanted =
                std::min({std::ceil(excess / weight), static_cast<double>(counts[worst]), std::floor(space / weight)});
            if (wanted < 1) continue;
            counts[worst] -= static_cast<extent>(wanted);
            counts[best] += static_cast<extent>(wanted);
            excess -= wanted * weight;
            space -= wanted * weight;
            moved = true;
        }
        if (!moved) break;
        cost = evaluate(p, c);
    }
    return cost;
}

HEDDLE_INLINE void try_counts_together(plan& p, plan_cost& cost, cluster const& c) {
    std::map<std::pair<segment_number, extent>, std::vector<extent>> alone;
    std::vector<std::vector<extent>> apart;
    for (auto& cut : p.cuts) {
        auto& counts = alone[{cut.segment, cut.atoms}];
        if (counts.empty()) counts = apportion(cut.atoms, p.ratios.at(cut.segment));
        apart.push_back(std::exchange(cut.counts, counts));
    }
    if (algorithm::equal(p.cuts, apart, {}, &atom_class::counts)) return;
    auto together = relieve_memory(p, c);
    if (together.fits && (!cost.fits || together.time.total() < cost.time.total() * (1 - 1e-9))) {
        cost = std::move(together);
        return;
    }
    for (std::size_t k = 0; k < p.cuts.size(); ++k) p.cuts[k].counts = std::move(apart[k]);
}

HEDDLE_INLINE void decide(plan& p, cluster const& c) {
    plan_devices const devices(p, c);
    for (auto& s : p.steps) s.step = devices.model.decided(std::move(s.step), devices.shares);
}

HEDDLE_INLINE plan_cost decide_again(plan& p, cluster const& c) {
    for (auto& s : p.steps) for_each_transfer(s.step, [](transfer& t) { t.how = {}; });
    decide(p, c);
    return evaluate(p, c);
}

HEDDLE_INLINE bool move_atoms(plan& p, cluster const& c, std::vector<std::size_t> const& type_of, std::size_t& work) {
    std::size_t const each = 1 + p.steps.size() * p.devices.size(), types = algorithm::max(type_of) + 1;
    bool improved = false;
    auto const attempt = [&](std::size_t k, std::vector<extent> const& counts) {
        if (work < each || counts == p.cuts[k].counts) return false;
        work -= each;
        auto moved = p;
        moved.cuts[k].counts = counts;
        auto const cost = decide_again(moved, c);
        if (!cost.fits || cost.time.total() >= p.cost() * (1 - 1e-9)) return false;
        moved.time = cost.time;
        moved.memory = cost.memory;
        p = std::move(moved);
        return improved = true;
    };
    auto const pick = [&](std::vector<extent> const& counts, std::size_t type, bool fullest) {
        std::size_t best = counts.size();
        for (std::size_t d = 0; d < counts.size(); ++d)
            if (type_of[d] == type &&
                (best == counts.size() || (fullest ? counts[d] > counts[best] : counts[d] < counts[best])))
                best = d;
        return best;
    };
    auto const move_some = [&](std::size_t k, std::size_t from, std::size_t to) {
        auto counts = p.cuts[k].counts;
        for (std::size_t moved = 1;; ++moved) {
            auto const a = pick(counts, from, true), b = pick(counts, to, false);
            if (a == b || counts[a] == 0) return attempt(k, counts);
            --counts[a], ++counts[b];
            if (std::has_single_bit(moved) && attempt(k, counts)) return true;
            if (from == to) return false;
        }
    };
    auto const move_all_of_one = [&](std::size_t k, std::size_t from, std::size_t to) {
        auto counts = p.cuts[k].counts;
        auto const a = pick(counts, from, true), b = pick(counts, to, false);
        if (a == b || counts[a] < 2) return false;
        counts[b] += std::exchange(counts[a], 0);
        return attempt(k, counts);
    };
    for (bool again = true; std::exchange(again, false) && work >= each;)
        for (std::size_t k = 0; k < p.cuts.size(); ++k)
            for (std::size_t from = 0; from < types; ++from)
                for (std::size_t to = 0; to < types; ++to) {
                    again |= move_some(k, from, to);
                    again |= move_all_of_one(k, from, to);
                }
    return improved;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::vector<std::size_t> stages_of(move_list const& path, cut_space const& space) {
    std::vector<std::size_t> stages;
    for (std::size_t level = 0, n = 0; level < path.size(); n += space.moves()[path[level++]].instructions.size())
        if (space.moves()[path[level]].begins_stage) stages.push_back(n);
    return stages;
}

HEDDLE_INLINE std::vector<plan_device> devices_of(cluster const& c) {
    std::vector<plan_device> result;
    auto const types = c.devices();
    auto const sizes = c.group_sizes();
    for (std::size_t d = 0; d < types.size(); ++d)
        result.push_back({c.types[types[d]].name, c.types[types[d]].memory, sizes[d]});
    return result;
}

HEDDLE_INLINE std::pair<plan, plan_cost> realise(indexed_program const& program, std::vector<plan_step> steps,
                                                 std::vector<std::size_t> stages, cluster const& c, ratio_table ratios,
                                                 training_options const& training) {
    plan p = blank_plan(program);
    p.provenance.training = training;
    p.devices = devices_of(c);
    p.steps = std::move(steps);
    for (auto& s : p.steps) s.step.counted = 1;
    p.stages = std::move(stages);
    std::vector<instruction> instructions;
    for (auto const& s : p.steps) instructions.push_back(s.instruction);
    p.ratios = std::move(ratios);
    p.cuts = atom_classes(program, instructions);
    apportion(p.cuts, p.ratios);
    auto cost = detail::relieve_memory(p, c);
    detail::try_counts_together(p, cost, c);
    detail::decide(p, c);
    p.time = cost.time;
    p.memory = cost.memory;
    return {std::move(p), std::move(cost)};
}

HEDDLE_INLINE std::pair<plan, plan_cost> realise(move_list const& path, cut_space const& space,
                                                 std::span<step_work const> steps, cluster const& c, ratio_table ratios,
                                                 training_options const& training) {
    return realise(space.program(), steps_of(path, space, steps), stages_of(path, space), c, std::move(ratios),
                   training);
}

} // namespace heddle

#endif
