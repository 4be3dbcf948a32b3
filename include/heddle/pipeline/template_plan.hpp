// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A pipeline template: its stages, what they cost, and the best cuts for given devices.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/pipeline/layer_assignment.hpp>
#include <heddle/pipeline/stage_kinds.hpp>
#include <heddle/pipeline/template_problem.hpp>
#include <heddle/plan/schedule.hpp>
#include <heddle/search/limits.hpp>
#include <heddle/search/outcome.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heddle {

struct template_options {
    /// Labels are pairs of a subset of the devices and a layer. Where the tables of an exact search take more bytes, it
    /// does not start: 2^31, unless they say otherwise.
    search::limits limits{};
    /// The search looks only for templates that are faster than this.
    seconds cutoff{std::numeric_limits<double>::infinity()};
};

struct template_statistics {
    /// The subsets of the devices, the intervals of the slowest stage's time, and the (subset, stages behind, layer)
    /// triples looked at.
    std::size_t states = 0, intervals = 0, cells = 0;
    double seconds = 0;

    template_statistics& operator+=(template_statistics const& other);
};

/// The bound is infinite if there is no template.
struct pipeline_template : search::outcome<seconds> {
    /// The stages, first stage first. It is empty if nothing was found.
    std::vector<template_stage> stages;
    /// The cost; the `memory` of a stage is that of its devices together.
    std::optional<pipeline_cost> cost;
    std::optional<memory_shortage> shortage;
    template_statistics statistics;

    /// Returns how much faster another template might be, relatively; zero for the optimum.
    [[nodiscard]] std::optional<double> gap() const {
        return cost ? std::optional(1 - lower_bound / cost->total) : std::nullopt;
    }
};

namespace detail {

/// Returns the problem that is left if the devices of each stage are known.
layer_assignment_problem fixed_devices(template_problem const& p, std::span<template_stage const> stages);

/// Numbers the machines; stages that share one follow each other.
void number_machines(template_problem const& p, std::vector<template_stage>& stages);

/// Says why no template holds the layers.
void explain(template_problem const& p, stage_kinds const& kinds, std::int64_t in_flight, pipeline_template& out);

/// Returns what an iteration takes with stages of these times, by the schedule's formula.
template <pipeline_schedule Schedule>
[[nodiscard]] double iteration_time(std::span<double const> times, std::int64_t micro_batches,
                                    Schedule const& schedule) {
    double sum = 0, slowest = -1, tail = 0;
    std::size_t behind = 0;
    for (double const t : times) {
        ++behind;
        if (t >= slowest) {
            slowest = t;
            tail = 0;
            behind = 0;
        }
        tail += t;
        sum += t;
    }
    return sum + static_cast<double>(slots_of_slowest(schedule, micro_batches, behind)) * slowest +
           (Schedule::counts_tail ? tail : 0);
}

} // namespace detail

/// Returns the time and memory of a template, whether or not it fits. *Throws* `input_error`.
/// *Precondition:* the stages hold consecutive layers, none of them empty, from the first to the last.
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] pipeline_cost cost_of(template_problem const& p, std::span<template_stage const> stages,
                                    Schedule const& schedule = {}) {
    detail::check(p, schedule);
    std::vector<std::size_t> cuts{0};
    for (auto const& s : stages) cuts.push_back(s.end);
    return cost_of(detail::fixed_devices(p, stages), cuts, schedule);
}

/// Returns the best layers for the devices of the stages, in their order; machines and devices stay.
/// *Returns* the result of `assign_layers`. *Throws* `input_error`.
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] layer_assignment assign_layers(template_problem const& p, std::span<template_stage const> stages,
                                             layer_assignment_options const& o = {}, Schedule const& schedule = {}) {
    detail::check(p, schedule);
    return assign_layers(detail::fixed_devices(p, stages), o, schedule);
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE template_statistics& template_statistics::operator+=(template_statistics const& other) {
    states += other.states;
    intervals += other.intervals;
    cells += other.cells;
    seconds += other.seconds;
    return *this;
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE layer_assignment_problem fixed_devices(template_problem const& p,
                                                     std::span<template_stage const> stages) {
    layer_assignment_problem q;
    q.memory = p.memory;
    q.micro_batches = p.micro_batches;
    std::vector<stage_kind> kinds;
    for (auto const& s : stages) {
        auto const known =
            algorithm::find_if(kinds, [&](auto const& k) { return k.type == s.type && k.devices == s.devices; });
        q.devices.push_back({static_cast<std::size_t>(known - kinds.begin()),
                             p.types[s.type].memory_limit * static_cast<double>(s.devices)});
        if (known != kinds.end()) continue;
        kinds.push_back({s.type, s.devices});
        auto const& on = p.types[s.type].times;
        auto& times = q.times.emplace_back();
        for (std::size_t l = 0; l < p.layer_count(); ++l) {
            auto const all_reduce = p.all_reduce_time(s.type, l, s.devices);
            times.forward.push_back(on.forward[l] / static_cast<double>(s.devices) + all_reduce);
            times.backward.push_back(on.backward[l] / static_cast<double>(s.devices) + all_reduce);
        }
    }
    return q;
}

HEDDLE_INLINE void number_machines(template_problem const& p, std::vector<template_stage>& stages) {
    std::vector<std::size_t> taken(p.types.size());
    for (auto& s : stages) {
        s.machine = taken[s.type] / p.types[s.type].devices_per_machine;
        taken[s.type] += s.devices;
    }
}

HEDDLE_INLINE void explain(template_problem const& p, stage_kinds const& kinds, std::int64_t in_flight,
                           pipeline_template& out) {
    stage_memory const memory(p.memory, false);
    bytes most(-1);
    stage_kind largest;
    for (auto const& k : kinds.all())
        if (auto const limit = p.types[k.type].memory_limit * static_cast<double>(k.devices); limit > most) {
            most = limit;
            largest = k;
        }
    char text[160];
    for (std::size_t l = 0; l < p.layer_count(); ++l) {
        auto const needed = memory.of(l, l + 1, in_flight);
        if (needed <= most) continue;
        out.shortage = memory_shortage{0, l, l + 1, needed, most};
        std::snprintf(text, sizeof text,
                      "layer %zu needs %.4g GB even in a last stage, of the %.4g GB that the largest, %zu of ", l,
                      needed.value / 1e9, most.value / 1e9, largest.devices);
        out.reason = text + ("'" + p.types[largest.type].name + "', has");
        return;
    }
    out.reason = "no order of the machines has memory for all layers in its stages";
}

} // namespace heddle::detail

#endif
