// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Whether the stages of a plan compute what the program does, each as its plan says, at the price that it says.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/plan/figures.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/plan/verification.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/program/program_part.hpp>

#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Returns the program of each stage, of one micro-batch, or of one of its parts that take turns. *Throws*
/// `input_error` if the plan is none of the program.
[[nodiscard]] std::vector<program_part> parts_of(program const& p, staged_plan const& what);

/// Checks that stages have every operator once, in order, on devices of their own or in rounds (`check_devices`), each
/// stage's plan against the part of the program that it is of, and that the losses of micro-batches add up to the
/// program's. In rounds, stages give values to the next one alone, and those of the same devices share no parameter.
/// Where parts of a micro-batch take turns in one of several stages, there are several micro-batches.
[[nodiscard]] verification verify(program const& p, staged_plan const& what);

namespace detail {

/// Returns why these parts of a program cannot pass so many sets of devices in rounds: a value that is not of the stage
/// before, or a parameter of two stages on the same devices; empty if they can.
[[nodiscard]] std::string obstacle_to_rounds(program const& p, std::span<program_part const> parts, std::size_t places);

} // namespace detail

/// Checks whether the figures of a plan agree with its stages and with each other, as `verify_figures` of a plan does
/// of each stage, and that no family costs less. *Precondition.* `verify` or a reader has accepted the plan.
[[nodiscard]] verification verify_figures(staged_plan const& p);

/// As above, and checks that all that the plan says of time and memory is as `evaluate` says, to 1e-9.
[[nodiscard]] verification verify_figures(staged_plan const& p, cluster const& c);

/// As `claims_of` of a plan.
[[nodiscard]] std::vector<std::string> claims_of(staged_plan const& p, bool has_cluster);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/micro_batch.hpp>
#include <heddle/theory/rescale.hpp>

namespace heddle::detail {

HEDDLE_INLINE std::string obstacle_to_rounds(program const& p, std::span<program_part const> parts,
                                             std::size_t places) {
    std::map<tensor_id, std::set<std::size_t>> users; // of parameters, by the number of their devices
    for (std::size_t s = 0; s < parts.size(); ++s) {
        std::string const place = "stage " + std::to_string(s) + ": ";
        for (auto const t : parts[s].enters)
            if (s == 0 || algorithm::find(parts[s - 1].leaves, t) == parts[s - 1].leaves.end())
                return place + "in rounds a stage has values of the stage before alone, and '" + p.tensor(t).name +
                       "' is of an earlier one";
        for (auto const t : parts[s].tensors)
            if (p.tensor(t).role == tensor_role::parameter && !users[t].insert(s % places).second)
                return place + "shares '" + p.tensor(t).name + "' with a stage of its devices";
    }
    return {};
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::vector<program_part> parts_of(program const& p, staged_plan const& what) {
    auto const samples = batch_size_of(index_program(p));
    if (what.micro_batches < 1 || samples % what.micro_batches != 0)
        throw input_error("micro-batches", std::to_string(what.micro_batches) +
                                               ", expected a number that divides the "
                                               "batch of " +
                                               std::to_string(samples));
    struct micro_batch {
        heddle::program program;
        indexed_program indexed;
    };
    std::map<extent, micro_batch> sizes; // by the number of them in the batch
    auto const divided = [&](extent count) -> micro_batch const& {
        auto const known = sizes.find(count);
        if (known != sizes.end()) return known->second;
        auto part = count == 1 ? p : with_part_of_batch(p, samples / count);
        auto indexed = index_program(part);
        return sizes.emplace(count, micro_batch{std::move(part), std::move(indexed)}).first->second;
    };
    std::vector<program_part> parts;
    operator_id next = 0;
    for (auto const& s : what.stages) {
        auto const place = "stage " + std::to_string(parts.size());
        if (s.first != next || s.end <= s.first || s.end > p.operator_count())
            throw input_error(place, "has the operators " + std::to_string(s.first) + " to before " +
                                         std::to_string(s.end) + ", expected those from " + std::to_string(next) +
                                         " on");
        extent const count = extent{what.micro_batches} * s.turns();
        if (s.turns() < 1 || samples % count != 0)
            throw input_error(place, "has " + std::to_string(s.turns()) +
                                         " parts of a micro-batch that take turns, expected a number that divides " +
                                         std::to_string(samples / what.micro_batches) + " samples");
        next = s.end;
        auto const& [micro, indexed] = divided(count);
        parts.push_back(part_of(micro, indexed, s.first, s.end));
    }
    if (next != p.operator_count())
        throw input_error("stages", "have " + std::to_string(next) + " operators, expected all " +
                                        std::to_string(p.operator_count()));
    return parts;
}

HEDDLE_INLINE verification verify(program const& p, staged_plan const& what) {
    try {
        if (what.is_plain() && (what.stages.front().first != 0 || what.stages.front().end != p.operator_count()))
            return {false, "stage 0: does not have all operators"};
        bool const takes_turns = algorithm::any_of(what.stages, [](auto const& s) { return s.turns() > 1; });
        if (what.micro_batches > 1 || (!what.is_plain() && takes_turns)) {
            auto const indexed = index_program(p);
            if (auto const [statistic, operation] = obstacles_to_micro_batches(indexed); statistic || operation)
                return {false, "micro-batches do not compute '" +
                                   indexed.operators[operation ? *operation : *statistic].name +
                                   "' of the whole batch"};
        }
        if (takes_turns && what.stages.size() > 1 && what.micro_batches == 1)
            return {false,
                    "parts of a micro-batch take turns in one of several stages, expected several micro-batches"};
        auto const parts = what.is_plain() ? std::vector<program_part>{} : parts_of(p, what);
        check_devices(what);
        if (what.rounds() > 1)
            if (auto problem = detail::obstacle_to_rounds(p, parts, what.places()); !problem.empty())
                return {false, std::move(problem)};
        for (std::size_t s = 0; s < what.stages.size(); ++s) {
            auto const& stage = what.stages[s];
            std::string const place = "stage " + std::to_string(s) + ": ";
            auto const& training = stage.plan.provenance.training;
            auto const held = what.schedule().in_flight(s, what.shape());
            if (training.accumulated != what.micro_batches || training.in_flight != held)
                return {false, place + "its costs are for " + std::to_string(training.in_flight) + " of " +
                                   std::to_string(training.accumulated) + " micro-batches in flight, expected " +
                                   std::to_string(held) + " of " + std::to_string(what.micro_batches)};
            if (what.micro_batches > 1 && training.overlaps_gradients)
                return {false, place + "overlaps gradients, expected that only of one micro-batch"};
            auto const checked = what.is_plain() ? verify(p, stage.plan) : verify_part(parts[s].program, stage.plan);
            if (!checked) return {false, place + checked.problem};
        }
    } catch (input_error const& e) { return {false, e.what()}; }
    return {};
}

HEDDLE_INLINE verification verify_figures(staged_plan const& p) {
    return detail::verified([&] {
        detail::check_status(p);
        for (auto const& [name, f] : p.families)
            detail::require_figure(!f.cost || *f.cost >= p.cost() * (1 - 1e-9),
                                   "family '" + name + "' has a plan that costs less");
        for (std::size_t s = 0; s < p.stages.size(); ++s) {
            auto const checked = verify_figures(p.stages[s].plan);
            detail::require_figure(static_cast<bool>(checked), "stage " + std::to_string(s) + ": " + checked.problem);
        }
        check_devices(p);
        for (std::size_t place = 0; place < p.places(); ++place)
            for (std::size_t d = 0; d < p.stages[place].plan.devices.size(); ++d) {
                double held = 0;
                for (auto s = place; s < p.stages.size(); s += p.places()) held += p.stages[s].plan.memory[d].total();
                detail::require_figure(held <= p.stages[place].plan.devices[d].memory_limit.value * (1 + 1e-9),
                                       "memory: the stages of some devices do not fit together");
            }
    });
}

HEDDLE_INLINE verification verify_figures(staged_plan const& p, cluster const& c) {
    if (auto const own = verify_figures(p); !own) return own;
    return detail::verified([&] {
        auto const cost = evaluate(p, c);
        auto const near = [](seconds a, seconds b) { return detail::is_near(a.value, b.value); };
        auto const &said = p.time, &found = cost.time;
        detail::require_figure(near(said.pipeline, found.pipeline) && near(said.shared, found.shared) &&
                                   near(said.gradients, found.gradients) &&
                                   near(said.update + said.parameters, found.update + found.parameters),
                               "time: the plan says " + std::to_string(said.total().value) + " s, its stages take " +
                                   std::to_string(found.total().value) + " s");
        detail::require_figure(cost.fits, p.rounds() > 1 ? "memory: the stages of some devices do not fit together"
                                                         : "memory: a stage does not fit");
        for (std::size_t s = 0; s < p.stages.size(); ++s) {
            std::string const place = "stage " + std::to_string(s) + ": ";
            detail::require_figure(near(p.stages[s].boundary, cost.boundaries[s].both()),
                                   place + "what enters it takes another time");
            auto const checked = verify_figures(p.stages[s].plan, cluster_of(c, p.stages[s]));
            detail::require_figure(static_cast<bool>(checked), place + checked.problem);
        }
    });
}

HEDDLE_INLINE std::vector<std::string> claims_of(staged_plan const& p, bool has_cluster) {
    std::vector<std::string> claims{"status", "lower_bound", "space", "seconds"};
    if (!p.families.empty()) claims.push_back("families");
    for (auto const& claim : claims_of(p.stages.front().plan, has_cluster)) claims.push_back("pipeline.plan." + claim);
    if (!has_cluster)
        for (char const* field : {"cost", "time", "pipeline.boundary"}) claims.push_back(field);
    return claims;
}

} // namespace heddle

#endif
