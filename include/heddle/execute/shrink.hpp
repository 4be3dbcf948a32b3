// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A plan and its program with smaller dimensions but all of their structure, so that models too large to run
/// can be run.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/cost/work.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// A program and a plan of it.
struct planned_program {
    heddle::program program;
    heddle::plan plan;
    /// Tells whether every cut has the atoms and counts with which it was planned.
    bool has_planned_counts = true;
};

struct shrink_options {
    /// If the planned atoms make it larger than this, the finest cuts are made coarser, until it is a quarter of it:
    /// there is nothing more to lose then, and kernels need memory too.
    bytes memory{2e8};
};

namespace detail {

/// Returns the cuts with as many atoms as the least of their divisors from `most` on that leaves every device that has
/// atoms some, and with shares rounded.
[[nodiscard]] std::vector<atom_class> coarser(std::vector<atom_class> cuts, extent most);

/// The ways in which shards move, of a step of the same instruction.
void copy_ways(step_work const& from, step_work& to);

/// Returns a plan of `p` with these cuts for a program that differs from `p` in extents alone; nothing if it differs in
/// structure. Both are as devices see them. Predictions are left out.
[[nodiscard]] std::optional<plan> plan_of_smaller(indexed_program const& p, indexed_program const& small,
                                                  plan const& what, std::vector<atom_class> cuts);

/// Returns, for micro-batches that take turns, what these cuts of one of them require of the whole batch: `count` times
/// the extent of everything of which each has a part, and more than one place of it for each. Returns nothing if a
/// micro-batch has another structure than the whole batch.
[[nodiscard]] std::optional<std::vector<atom_class>> cuts_of_whole_batch(program const& p, int count,
                                                                         std::vector<atom_class> const& cuts);

/// Shrinks to extents as small as these cuts allow; returns nothing if the structure would change.
[[nodiscard]] std::optional<planned_program> shrink_to(program const& p, indexed_program const& indexed,
                                                       plan const& what, std::vector<atom_class> cuts);

} // namespace detail

/// Scales dimensions down and keeps every operator, rule, form and conversion, and the atoms of every cut with their
/// counts, so that ranks hold the same shares of everything. What a plan cuts into A atoms has the extent A; other
/// dimensions shrink to 3 if nothing needs more; those that kernels relate in unknown ways stay whole.
///
/// The plan's predictions are left out, as they are for the large program. If micro-batches take turns, as many remain,
/// each with a part of the batch.
/// *Precondition:* `verify(p, what)`. `verify` accepts the result; if nothing can be shrunk, the result equals the
/// arguments.
/// *Complexity.* That of indexing the program, times the number of dimensions that must stay whole because of others.
[[nodiscard]] planned_program shrink(program const& p, plan const& what, shrink_options const& options = {});

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/cost/mesh_cuts.hpp>
#include <heddle/cost/mesh_step.hpp>
#include <heddle/execute/detail/size_ties.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/program/equal_structure.hpp>
#include <heddle/theory/micro_batch.hpp>

namespace heddle::detail {

HEDDLE_INLINE std::vector<atom_class> coarser(std::vector<atom_class> cuts, extent most) {
    for (auto& cut : cuts) {
        std::vector<double> shares;
        for (extent count : cut.counts) shares.push_back(static_cast<double>(count) / static_cast<double>(cut.atoms));
        for (extent atoms = std::max<extent>(most, 1); atoms < cut.atoms; ++atoms) {
            if (cut.atoms % atoms != 0) continue;
            auto counts = apportion(atoms, shares);
            if (!algorithm::equal(counts, cut.counts, [](extent few, extent all) { return (few > 0) == (all > 0); }))
                continue;
            auto const all = std::exchange(cut.atoms, atoms);
            cut.counts = std::move(counts);
            divide_inside(cut, [&](axis_number a, extent left) {
                shares.clear();
                for (extent count : cut.parts(a, all))
                    shares.push_back(static_cast<double>(count) / static_cast<double>(all));
                return apportion(left, shares);
            });
            break;
        }
    }
    return cuts;
}

HEDDLE_INLINE void copy_ways(step_work const& from, step_work& to) {
    std::vector<std::optional<uneven>> ways;
    for_each_transfer(from, [&](transfer const& t) { ways.push_back(t.how); });
    auto next = ways.begin();
    for_each_transfer(to, [&](transfer& t) {
        if (next != ways.end()) t.how = *next++;
    });
}

HEDDLE_INLINE std::optional<plan> plan_of_smaller(indexed_program const& p, indexed_program const& small,
                                                  plan const& what, std::vector<atom_class> cuts) {
    if (!have_equal_structure(p, small)) return {};
    plan made = blank_plan(small);
    made.provenance = what.provenance;
    made.devices = what.devices;
    made.ratios = what.ratios;
    made.cuts = std::move(cuts);
    made.stages = what.stages;
    made.inner_sizes = what.inner_sizes;
    made.inner_ratios = what.inner_ratios;
    for (auto const& s : what.steps) {
        made.steps.push_back(s);
        made.steps.back().step = make_step(small, s.on_mesh(), what.mesh(), what.provenance.training);
        copy_ways(s.step, made.steps.back().step);
    }
    if (!verify(small, made)) return {};
    return made;
}

HEDDLE_INLINE std::optional<std::vector<atom_class>> cuts_of_whole_batch(program const& p, int count,
                                                                         std::vector<atom_class> const& cuts) {
    auto const whole = index_program(p), part = index_program(micro_batch_of(p, count));
    if (!have_equal_structure(whole, part)) return {};
    auto const is_divided = [&](tensor_id t, std::size_t f) {
        return whole.tensors[t].factors[f].extent != part.tensors[t].factors[f].extent;
    };
    atom_class batch{2 * extent{count}, {}, {}};
    for (tensor_id t = 0; t < whole.tensors.size(); ++t)
        for (std::size_t f = 0; f < whole.tensors[t].factors.size(); ++f)
            if (is_divided(t, f)) batch.members.push_back({t, static_cast<factor_number>(f)});
    std::vector<atom_class> result{std::move(batch)};
    for (auto const& cut : cuts)
        for (auto const& m : cut.members) {
            auto const place = static_cast<std::size_t>(m.factor) % whole.tensors[m.tensor].factors.size();
            result.push_back({cut.atoms * (is_divided(m.tensor, place) ? count : 1), {m}, {}});
        }
    return result;
}

HEDDLE_INLINE std::optional<planned_program> shrink_to(program const& p, indexed_program const& indexed,
                                                       plan const& what, std::vector<atom_class> cuts) {
    auto const& training = what.provenance.training;
    auto const kept =
        training.interleaves() ? cuts_of_whole_batch(p, training.micro_batches, cuts) : std::optional(cuts);
    if (!kept) return {};
    try {
        auto small = p.resized(size_ties(p, *kept).small_extents());
        auto made = plan_of_smaller(indexed, index_for(small, what), what, std::move(cuts));
        if (!made) return {};
        return planned_program{std::move(small), *std::move(made)};
    } catch (input_error const&) { return {}; } // extents that rules do not agree about
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE planned_program shrink(program const& p, plan const& what, shrink_options const& options) {
    auto const indexed = index_for(p, what);
    extent most = 1;
    for (auto const& cut : what.cuts) most = std::max(most, cut.atoms);
    planned_program result{p, what};
    for (bool planned = true; most > 0; most /= 2, planned = false) {
        auto cuts = planned ? what.cuts : detail::coarser(what.cuts, most);
        bool const changed = !algorithm::equal(cuts, what.cuts, {}, &atom_class::atoms, &atom_class::atoms);
        if (!planned && !changed) continue;
        auto small = detail::shrink_to(p, indexed, what, std::move(cuts));
        if (!small) break;
        result = std::move(*small);
        result.has_planned_counts = !changed;
        auto const memory = size_of_execution(index_for(result.program, result.plan), result.plan).memory;
        if (memory <= (changed ? options.memory / 4 : options.memory)) break;
    }
    return result;
}

} // namespace heddle

#endif
