// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Turns a folded cluster's template back into one of real devices, the strongest first.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/folding.hpp>
#include <heddle/pipeline/recovery.hpp>
#include <heddle/pipeline/template.hpp>
#include <heddle/pipeline/template_plan.hpp>
#include <heddle/pipeline/template_problem.hpp>
#include <heddle/plan/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Returns the problem of the folded devices alone, in machines of the reference type's size; folded devices that fill
/// no machine make one more.
/// *Precondition:* `f` is a folding of `p`.
[[nodiscard]] template_problem folded_problem(template_problem const& p, folding const& f);

/// Recovers a template from that of the folded cluster. Type by type, from the strongest, the stage that makes the
/// fastest template takes as many devices as its folded ones are worth; then the layers are cut anew.
///
/// Devices may remain without a stage, and the stages of a machine need not follow each other.
/// *Returns* `infeasible` if the folded cluster has no template or if stages remain without devices. *Throws*
/// `input_error`.
/// *Complexity.* The folded cluster's `plan_template`, and O(devices * stages^2).
/// *Reference.* Ditto section 6.1, Algorithm 1.
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] pipeline_template recover_greedily(template_problem const& p, folding const& f,
                                                 template_options const& o = {}, Schedule const& schedule = {}) {
    detail::check(p, schedule);
    search::deadline const until(o.limits);
    pipeline_template const folded = plan_template(folded_problem(p, f), o, schedule);
    pipeline_template out;
    out.statistics = folded.statistics;
    out.lower_bound = seconds(0); // devices may stay without a stage, which the bounds of templates do not cover
    if (!folded.cost) {
        out.status = folded.status;
        out.which_limit = folded.which_limit;
        out.reason = "the folded cluster has no template: " + folded.reason;
        return out;
    }
    std::vector<double> times;
    for (auto const t : folded.cost->stages) times.push_back(t.value);
    std::vector<std::optional<template_stage>> stages(times.size());
    std::vector<std::size_t> strongest_first;
    for (std::size_t t = 0; t < p.types.size(); ++t)
        if (p.types[t].device_count() > 0) strongest_first.push_back(t);
    algorithm::sort(strongest_first,
                    [&](auto a, auto b) { return f.factors[a] != f.factors[b] ? f.factors[a] > f.factors[b] : a < b; });
    for (auto const t : strongest_first) {
        std::vector<std::size_t> taken(p.types[t].machines);
        for (;;) {
            std::optional<template_stage> best;
            std::size_t best_stage = 0;
            double best_cost = 0;
            for (std::size_t s = 0; s < times.size(); ++s) {
                if (stages[s]) continue;
                auto const& virtual_stage = folded.stages[s];
                auto group = (virtual_stage.devices + f.factors[t] - 1) / f.factors[t];
                std::size_t machine = taken.size();
                for (; machine == taken.size() && group <= p.types[t].devices_per_machine; ++group) {
                    for (machine = 0; machine < taken.size() && !p.may_take(t, taken[machine], group); ++machine) {}
                    if (machine < taken.size()) break;
                }
                if (machine == taken.size()) continue;
                template_stage const candidate{t, machine, group, virtual_stage.first, virtual_stage.end};
                double time = 0;
                for (auto l = candidate.first; l < candidate.end; ++l) time += p.time_on(t, l, group).value;
                double const before = std::exchange(times[s], time),
                             cost = detail::iteration_time<Schedule>(times, p.micro_batches, schedule);
                times[s] = before;
                if (best && cost >= best_cost) continue;
                best = candidate;
                best_cost = cost;
                best_stage = s;
            }
            if (!best) break;
            taken[best->machine] += best->devices;
            times[best_stage] = 0;
            for (auto l = best->first; l < best->end; ++l) times[best_stage] += p.time_on(t, l, best->devices).value;
            stages[best_stage] = best;
        }
    }
    std::vector<template_stage> all;
    for (std::size_t s = 0; s < stages.size(); ++s) {
        if (stages[s]) {
            all.push_back(*stages[s]);
            continue;
        }
        out.reason = "no devices are left for stage " + std::to_string(s) +
                     " of the folded cluster's template, which has " + std::to_string(stages.size());
        return out;
    }
    detail::accept(p, std::move(all), until, schedule, out);
    search::conclude(out, out.cost->total, out.lower_bound);
    return out;
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE template_problem folded_problem(template_problem const& p, folding const& f) {
    template_problem q{{}, p.memory, p.micro_batches, p.split};
    auto whole = p.types[f.reference];
    whole.machines = f.devices / whole.devices_per_machine;
    auto rest = whole;
    rest.machines = 1;
    rest.devices_per_machine = f.devices % whole.devices_per_machine;
    q.types = {std::move(whole), std::move(rest)};
    return q;
}

} // namespace heddle

#endif
