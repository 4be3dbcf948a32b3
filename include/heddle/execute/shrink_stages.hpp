// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A plan of stages and its program with smaller dimensions and fewer micro-batches, so that models too large to
/// run can be run.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/shrink.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/program/program_part.hpp>
#include <heddle/theory/factor_set.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// A program and a plan of stages of it.
struct staged_program {
    heddle::program program;
    staged_plan plan;
    /// Tells whether every cut has the atoms and counts with which it was planned.
    bool has_planned_counts = true;
};

/// Scales dimensions down as `shrink` of a plan does, for all stages at once, and keeps the stages, and how many parts
/// of a micro-batch take turns in each. If there are more micro-batches than stages, one more than stages remain, or
/// three of single samples: each stage then has as many in flight as planned. In rounds, two groups remain.
///
/// The plan's predictions are left out, as they are for the large program.
/// *Precondition:* `verify(p, what)`. `verify` accepts the result; if nothing can be shrunk, the result equals the
/// arguments. *Complexity.* That of `shrink` of a plan.
[[nodiscard]] staged_program shrink(program const& p, staged_plan const& what, shrink_options const& options = {});

/// Returns an upper bound of the size of `prove` of a plan of stages, as `size_of_execution` of a plan does.
/// *Precondition:* `verify(p, what)`.
[[nodiscard]] execution_size size_of_execution(program const& p, staged_plan const& what);

namespace detail {

/// A program in the parts that the stages of a plan are of, and what their cuts are in its own numbers.
class stages_to_shrink {
public:
    stages_to_shrink(program const& p, staged_plan const& what);

    /// Shrinks to extents as small as these cuts, of each stage, allow; nothing if the structure would change.
    [[nodiscard]] std::optional<staged_program> to(std::vector<std::vector<atom_class>> cuts) const;

private:
    /// A dimension that is cut in a factor which it has not in the whole program stays as it is.
    [[nodiscard]] std::vector<atom_class> in_whole(std::vector<std::vector<atom_class>> const& cuts,
                                                   int micro_batches) const;
    /// Returns the least number of parts into which a micro-batch is divided as all stages need it.
    [[nodiscard]] extent turns() const {
        extent all = 1;
        for (auto const& s : plan_.stages) all = std::lcm(all, extent{s.turns()});
        return all;
    }
    [[nodiscard]] bool has_single_samples() const {
        auto const parts = plan_.micro_batches * turns();
        return parts > 1 && batch_size_of(whole_) == parts;
    }

    program const& program_;
    staged_plan const& plan_;
    std::vector<program_part> parts_;
    indexed_program whole_;
};

} // namespace detail

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/execute/detail/size_ties.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/program/factor.hpp>

namespace heddle::detail {

HEDDLE_INLINE stages_to_shrink::stages_to_shrink(program const& p, staged_plan const& what)
    : program_(p), plan_(what), parts_(parts_of(p, what)), whole_(index_program(p)) {}

HEDDLE_INLINE std::vector<atom_class> stages_to_shrink::in_whole(std::vector<std::vector<atom_class>> const& cuts,
                                                                 int micro_batches) const {
    std::vector<atom_class> result;
    // A part of a single sample stays one.
    if (auto const parts = micro_batches * turns(); parts > 1)
        result.push_back({parts * (has_single_samples() ? 1 : 2), batch_of_inputs(whole_), {}});
    for (std::size_t s = 0; s < parts_.size(); ++s) {
        extent const taking_turns = plan_.stages[s].turns();
        auto const part = index_program(parts_[s].program);
        for (auto const& cut : cuts[s])
            for (auto const& m : cut.members) {
                if (m.tensor >= parts_[s].tensors.size()) continue; // it stands for what leaves
                auto const t = parts_[s].tensors[m.tensor];
                auto const& mine = part.tensors[m.tensor].factors;
                auto const& factors = whole_.tensors[t].factors;
                auto const& of_part = mine[static_cast<std::size_t>(m.factor) % mine.size()];
                auto const add = [&](std::size_t f, extent atoms) {
                    result.push_back({atoms, {{t, static_cast<factor_number>(f)}}, {}});
                };
                auto const found = algorithm::find_if(factors, [&](factor f) { // of which a micro-batch may have a part
                    if (f.extent != of_part.extent) f.extent /= plan_.micro_batches * taking_turns;
                    return is_same_place(f, of_part);
                });
                if (found != factors.end())
                    add(static_cast<std::size_t>(found - factors.begin()),
                        cut.atoms * (found->extent != of_part.extent ? micro_batches * taking_turns : 1));
                for (std::size_t f = 0; f < factors.size() && found == factors.end(); ++f)
                    if (factors[f].dimension == of_part.dimension) add(f, factors[f].extent);
            }
    }
    return result;
}

HEDDLE_INLINE std::optional<staged_program> stages_to_shrink::to(std::vector<std::vector<atom_class>> cuts) const {
    staged_plan made;
    made.provenance = plan_.provenance;
    made.device_count = plan_.device_count;
    made.sends_beside = plan_.sends_beside;
    constexpr int fewest = 3; // no batch is smaller
    auto const places = static_cast<int>(plan_.places());
    int const wanted = std::max(has_single_samples() ? fewest : 2, places + 1);
    made.micro_batches =
        plan_.rounds() == 1 ? std::min(plan_.micro_batches, wanted) : std::min(plan_.micro_batches, 2 * places);
    for (auto const& s : plan_.stages) {
        made.stages.push_back({s.first, s.end, s.devices, {}, {}});
        made.stages.back().plan.provenance = s.plan.provenance;
    }
    try {
        auto small = program_.resized(size_ties(program_, in_whole(cuts, made.micro_batches)).small_extents());
        auto const parts = parts_of(small, made);
        for (std::size_t s = 0; s < parts.size(); ++s) {
            auto what = plan_.stages[s].plan;
            auto& training = what.provenance.training;
            training.accumulated = made.micro_batches;
            training.in_flight = static_cast<int>(made.schedule().in_flight(s, made.shape()));
            auto smaller = plan_of_smaller(index_part_for(parts_[s].program, what),
                                           index_part_for(parts[s].program, what), what, std::move(cuts[s]));
            if (!smaller) return {};
            made.stages[s].plan = *std::move(smaller);
        }
        if (!verify(small, made)) return {};
        return staged_program{std::move(small), std::move(made)};
    } catch (input_error const&) { return {}; } // extents that rules do not agree about
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE staged_program shrink(program const& p, staged_plan const& what, shrink_options const& options) {
    staged_program result{p, what};
    if (what.is_plain()) {
        auto small = shrink(p, what.stages.front().plan, options);
        result.program = std::move(small.program);
        result.plan.stages.front().plan = std::move(small.plan);
        result.has_planned_counts = small.has_planned_counts;
        return result;
    }
    detail::stages_to_shrink const stages(p, what);
    extent most = 1;
    for (auto const& s : what.stages)
        for (auto const& cut : s.plan.cuts) most = std::max(most, cut.atoms);
    for (bool planned = true; most > 0; most /= 2, planned = false) {
        std::vector<std::vector<atom_class>> cuts;
        bool changed = false;
        for (auto const& s : what.stages) {
            cuts.push_back(planned ? s.plan.cuts : detail::coarser(s.plan.cuts, most));
            changed |= !algorithm::equal(cuts.back(), s.plan.cuts, {}, &atom_class::atoms, &atom_class::atoms);
        }
        if (!planned && !changed) continue;
        auto small = stages.to(std::move(cuts));
        if (!small) break;
        result = *std::move(small);
        result.has_planned_counts = !changed;
        auto const memory = size_of_execution(result.program, result.plan).memory;
        if (memory <= (changed ? options.memory / 4 : options.memory)) break;
    }
    return result;
}

HEDDLE_INLINE execution_size size_of_execution(program const& p, staged_plan const& what) {
    if (what.is_plain()) {
        auto const& plan = what.stages.front().plan;
        return size_of_execution(index_for(p, plan), plan);
    }
    bytes single;
    for (auto const& t : index_program(p).tensors)
        single += bytes(8 * static_cast<double>(t.info.elements()) * (t.has_cotangent ? 2 : 1));
    execution_size stages;
    auto const parts = parts_of(p, what);
    for (std::size_t s = 0; s < parts.size(); ++s) {
        auto const& plan = what.stages[s].plan;
        auto const one = size_of_execution(index_part_for(parts[s].program, plan), plan);
        stages.memory += one.memory * plan.provenance.training.held();
        stages.work += one.work * (what.micro_batches * what.stages[s].turns());
    }
    return {std::max(single, stages.memory), stages.work};
}

} // namespace heddle

#endif
