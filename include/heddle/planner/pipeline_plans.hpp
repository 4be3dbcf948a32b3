// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What AMP and Ditto return, as pipeline plans.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/strategy_baselines.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/planner/amp.hpp>
#include <heddle/planner/ditto.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// The least seconds of what people do without a planner, by name: data parallelism alone, and Megatron's heuristics.
/// None of them where time is over before all are known. *Throws* `input_error`.
[[nodiscard]] std::map<std::string, std::optional<double>> baselines_of(
    strategy_problem const& p, search::deadline const& until = search::deadline());

namespace detail {

/// A plan of a problem without stages.
[[nodiscard]] pipeline_plan blank_pipeline_plan(strategy_problem const& p);

} // namespace detail

/// A strategy of a problem as a plan, without status, bound and baselines. *Throws* `input_error` for a strategy that
/// is none of it.
[[nodiscard]] pipeline_plan make_pipeline_plan(strategy_problem const& p, strategy const& s);

/// AMP's result as a plan: the strategy to use, with the result's status and bound; without one, why there is none.
/// *Precondition:* the result is `plan_amp`'s for the problem. *Throws* `input_error`.
[[nodiscard]] pipeline_plan make_pipeline_plan(strategy_problem const& p, amp_result const& r,
                                               std::map<std::string, std::optional<double>> baselines);

[[nodiscard]] pipeline_plan make_pipeline_plan(strategy_problem const& p, amp_result const& r);

/// How the machines of a template's types are numbered in a plan: by type, then as the problem has them.
using machine_numbers = std::vector<std::vector<std::size_t>>;

/// Type by type.
[[nodiscard]] machine_numbers numbered_by_type(template_problem const& p);

namespace detail {

/// Copies of one template side by side; copy c of a stage is on the type's machine `c * machines per copy + machine`.
[[nodiscard]] pipeline_plan lay_out(template_problem const& p, pipeline_template const& t,
                                    std::vector<std::size_t> const& machines_per_copy, std::size_t copies,
                                    machine_numbers const& numbers);

} // namespace detail

/// Ditto's result as a plan: its template, with status and bound; without one, why there is none. Baselines are what
/// folding recovers, and equal numbers of layers for the devices of the plan's stages. *Precondition:* the result is
/// `plan_ditto`'s for the problem.
/// *Throws* `input_error`.
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] pipeline_plan make_pipeline_plan(template_problem const& p, ditto_plan const& d,
                                               machine_numbers const& numbers, Schedule const& schedule = {}) {
    std::vector<std::size_t> machines;
    for (auto const& t : p.types) machines.push_back(t.machines);
    auto plan = detail::lay_out(p, d.best, machines, 1, numbers);
    if constexpr (requires { Schedule::name; }) plan.schedule = Schedule::name;
    else plan.schedule = "other";
    if constexpr (requires { schedule.more_slots; }) plan.more_slots = schedule.more_slots;
    if (d.recovered) plan.baselines["folded and recovered"] = d.recovered->value;
    if (!d.best.cost) return plan;
    auto stages = d.best.stages;
    auto const even = uniform_cuts(p.layer_count(), stages.size());
    for (std::size_t s = 0; s < stages.size(); ++s) {
        stages[s].first = even[s];
        stages[s].end = even[s + 1];
    }
    auto const cost = cost_of(p, std::span<template_stage const>(stages), schedule);
    bool fits = true;
    for (std::size_t s = 0; s < stages.size(); ++s)
        fits = fits && cost.memory[s] <= p.types[stages[s].type].memory_limit * static_cast<double>(stages[s].devices);
    plan.baselines["equal layers"] = fits ? std::optional(cost.total.value) : std::nullopt;
    return plan;
}
[[nodiscard]] pipeline_plan make_pipeline_plan(template_problem const& p, ditto_plan const& d);

/// Copies of a template as a plan; what they have to tell each other is not counted, which a warning says.
/// *Precondition:* the result is `plan_copies`'s for the problem.
[[nodiscard]] pipeline_plan make_pipeline_plan(template_problem const& p, replicated_template const& r,
                                               machine_numbers const& numbers);
[[nodiscard]] pipeline_plan make_pipeline_plan(template_problem const& p, replicated_template const& r);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::map<std::string, std::optional<double>> baselines_of(strategy_problem const& p,
                                                                        search::deadline const& until) {
    strategy_model const model(p);
    std::map<std::string, std::optional<double>> best;
    auto const keep = [&](std::string const& name, strategy const& s) {
        auto const cost = model.cost(s);
        auto& least = best[name];
        if (cost.fits()) least = std::min(least.value_or(cost.total.value), cost.total.value);
    };
    for (auto const& grid : spread_shapes(p.device_count(), p.global_batch))
        if (auto const& d = grid.degrees;
            d.pipeline == 1 && d.tensor == 1 && algorithm::count(p.usable_degrees(), d.tensor) > 0)
            if (keep("data parallel",
                     {megatron_placement(d), grid.micro_batch_size, grid.micro_batches, {0, p.layer_count()}});
                until.is_over())
                return {};
    for (auto const& [name, balance] : {std::pair{"Megatron, equal layers", layer_balance::count},
                                        {"Megatron, equal parameters", layer_balance::parameters}}) {
        best[name] = std::nullopt;
        for (auto const& s : megatron_strategies(p, balance, until)) keep(name, s);
    }
    if (until.is_over()) best.clear();
    return best;
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE pipeline_plan blank_pipeline_plan(strategy_problem const& p) {
    strategy_model const model(p);
    pipeline_plan plan;
    plan.provenance.planner = "amp";
    plan.provenance.cluster = p.name;
    for (auto const& l : p.layers) plan.layers.push_back({l.name});
    for (std::size_t d = 0; d < p.device_count(); ++d) {
        auto const& type = p.types[model.type_of(d)];
        plan.devices.push_back({type.name, model.machine_of(d), bytes(0), type.memory});
    }
    return plan;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE pipeline_plan make_pipeline_plan(strategy_problem const& p, strategy const& s) {
    auto const cost = evaluate(p, s);
    auto plan = detail::blank_pipeline_plan(p);
    auto const [pipeline, data, tensor] = s.degrees();
    for (std::size_t stage = 0; stage < pipeline; ++stage) {
        auto& made = plan.stages.emplace_back(pipeline_stage{s.cuts[stage],
                                                             s.cuts[stage + 1],
                                                             {},
                                                             cost.stages[stage],
                                                             stage > 0 ? cost.boundaries[stage - 1] : seconds(0)});
        for (std::size_t copy = 0; copy < data; ++copy) {
            made.devices.push_back(s.placement.tensor_group(stage, copy));
            for (auto const d : made.devices.back()) plan.devices[d].memory = cost.memory[stage];
        }
    }
    plan.micro_batches = s.micro_batches;
    plan.micro_batch_size = s.micro_batch_size;
    plan.global_batch = p.global_batch;
    plan.time = {cost.pipeline, cost.synchronisation, cost.update};
    plan.bubble = cost.bubble;
    return plan;
}

HEDDLE_INLINE pipeline_plan make_pipeline_plan(strategy_problem const& p, amp_result const& r,
                                               std::map<std::string, std::optional<double>> baselines) {
    auto plan = r.best ? make_pipeline_plan(p, r.record[*r.best].plan) : detail::blank_pipeline_plan(p);
    static_cast<search::outcome<>&>(plan) = r.plain();
    plan.space = r.space;
    plan.baselines = std::move(baselines);
    plan.statistics = {{"shapes", r.statistics.shapes},
                       {"bounded", r.statistics.bounded},
                       {"infeasible", r.statistics.infeasible},
                       {"placements", r.statistics.placements},
                       {"annealing steps", r.statistics.annealing.steps}};
    plan.seconds = r.statistics.seconds;
    if (!r.unprofiled_degrees.empty()) {
        std::string degrees;
        for (auto const d : r.unprofiled_degrees) degrees += (degrees.empty() ? "" : ", ") + std::to_string(d);
        plan.warnings.push_back("tensor degrees without a profile on every type were not considered: " + degrees);
    }
    return plan;
}

HEDDLE_INLINE machine_numbers numbered_by_type(template_problem const& p) {
    machine_numbers numbers;
    std::size_t next = 0;
    for (auto const& t : p.types) {
        auto& mine = numbers.emplace_back();
        for (std::size_t m = 0; m < (t.device_count() > 0 ? t.machines : 0); ++m) mine.push_back(next++);
    }
    return numbers;
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE pipeline_plan lay_out(template_problem const& p, pipeline_template const& t,
                                    std::vector<std::size_t> const& machines_per_copy, std::size_t copies,
                                    machine_numbers const& numbers) {
    auto const among = static_cast<std::int64_t>(std::max<std::size_t>(copies, 1));
    pipeline_plan plan;
    std::vector<std::pair<std::size_t, std::size_t>> type_of_machine(p.machine_count()); // and its first device
    for (std::size_t type = 0; type < numbers.size(); ++type)
        for (auto const m : numbers[type]) type_of_machine.at(m).first = type;
    for (std::size_t m = 0; m < type_of_machine.size(); ++m) {
        auto const& type = p.types[type_of_machine[m].first];
        type_of_machine[m].second = plan.devices.size();
        plan.devices.insert(plan.devices.end(), type.devices_per_machine, {type.name, m, bytes(0), type.memory_limit});
    }
    for (std::size_t l = 0; l < p.layer_count(); ++l)
        plan.layers.push_back({l < p.layer_names.size() ? p.layer_names[l] : ""});
    std::map<std::size_t, std::size_t> taken; // of a machine's devices
    for (std::size_t s = 0; t.cost && s < t.stages.size(); ++s) {
        auto const& stage = t.stages[s];
        auto& made =
            plan.stages.emplace_back(pipeline_stage{stage.first, stage.end, {}, t.cost->stages[s], seconds(0)});
        for (std::size_t copy = 0; copy < copies; ++copy) {
            auto const machine = numbers[stage.type].at(copy * machines_per_copy[stage.type] + stage.machine);
            auto& group = made.devices.emplace_back();
            for (std::size_t n = 0; n < stage.devices; ++n)
                group.push_back(type_of_machine[machine].second + taken[machine]++);
            for (auto const d : group) plan.devices[d].memory = t.cost->memory[s] / static_cast<double>(stage.devices);
        }
    }
    plan.provenance.planner = "ditto";
    plan.micro_batches = (p.micro_batches + among - 1) / among;
    static_cast<search::outcome<>&>(plan) = t.plain();
    if (!std::isfinite(plan.lower_bound)) plan.lower_bound = 0;
    plan.space = "pipelines of one copy in these layers";
    plan.statistics = {
        {"states", t.statistics.states}, {"intervals", t.statistics.intervals}, {"cells", t.statistics.cells}};
    plan.seconds = t.statistics.seconds;
    if (!t.cost) return plan;
    std::vector<bool> in_use(type_of_machine.size());
    for (auto const& stage : plan.stages)
        for (auto const& group : stage.devices) in_use[plan.devices[group.front()].machine] = true;
    if (auto const idle = algorithm::count(in_use, false); idle > 0)
        plan.warnings.push_back(std::to_string(idle) + (idle == 1 ? " machine is" : " machines are") + " left out");
    plan.time.pipeline = t.cost->total;
    seconds busy;
    for (auto const& stage : plan.stages) busy += stage.time;
    if (t.cost->total.value > 0)
        plan.bubble = std::max(0.0, 1 - static_cast<double>(plan.micro_batches) * (busy / t.cost->total) /
                                            static_cast<double>(plan.stages.size()));
    return plan;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE pipeline_plan make_pipeline_plan(template_problem const& p, replicated_template const& r,
                                               machine_numbers const& numbers) {
    auto plan = detail::lay_out(p, r.each, r.machines, r.copies, numbers);
    plan.lower_bound = r.lower_bound.value;
    plan.space = "all uses of these machines";
    if (!plan.exists()) return plan;
    // What is proven of one copy is not proven of all.
    if (plan.status == search::status::optimal && plan.gap() > 1e-9) plan.status = search::status::feasible;
    if (r.copies > 1)
        plan.warnings.push_back("the reduction of gradients between the " + std::to_string(r.copies) +
                                " copies is not counted");
    return plan;
}

HEDDLE_INLINE pipeline_plan make_pipeline_plan(strategy_problem const& p, amp_result const& r) {
    return make_pipeline_plan(p, r, baselines_of(p));
}

HEDDLE_INLINE pipeline_plan make_pipeline_plan(template_problem const& p, ditto_plan const& d) {
    return make_pipeline_plan(p, d, numbered_by_type(p));
}

HEDDLE_INLINE pipeline_plan make_pipeline_plan(template_problem const& p, replicated_template const& r) {
    return make_pipeline_plan(p, r, numbered_by_type(p));
}

} // namespace heddle

#endif
