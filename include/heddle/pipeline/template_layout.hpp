// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Templates as pipeline plans, and back.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/pipeline/strategy_baselines.hpp>
#include <heddle/pipeline/template_plan.hpp>
#include <heddle/pipeline/template_problem.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/schedule.hpp>

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

/// Tells how the machines of a template's types are numbered in a plan: by type, then as the problem has them.
using machine_numbers = std::vector<std::vector<std::size_t>>;

/// Type by type.
[[nodiscard]] machine_numbers numbered_by_type(template_problem const& p);

/// Copies of one template side by side, with status and bound of the one; copy c of a stage is on the type's machine
/// `c * machines per copy + machine`.
[[nodiscard]] pipeline_plan lay_out(template_problem const& p, pipeline_template const& t,
                                    std::vector<std::size_t> const& machines_per_copy, std::size_t copies,
                                    machine_numbers const& numbers);

/// A template of all machines.
[[nodiscard]] pipeline_plan lay_out(template_problem const& p, pipeline_template const& t,
                                    machine_numbers const& numbers);

/// The stages of a template that a plan is. *Precondition:* the plan exists. *Throws* `input_error` for a stage that no
/// machine of its type can have.
[[nodiscard]] std::vector<template_stage> template_of(template_problem const& p, pipeline_plan const& plan,
                                                      machine_numbers const& numbers);

/// What these devices take with equal numbers of layers in each stage; nothing where memory forbids that.
template <pipeline_schedule Schedule>
[[nodiscard]] std::optional<double> time_with_equal_layers(template_problem const& p,
                                                           std::vector<template_stage> stages,
                                                           Schedule const& schedule) {
    auto const even = uniform_cuts(p.layer_count(), stages.size());
    for (std::size_t s = 0; s < stages.size(); ++s) {
        stages[s].first = even[s];
        stages[s].end = even[s + 1];
    }
    auto const cost = cost_of(p, std::span<template_stage const>(stages), schedule);
    for (std::size_t s = 0; s < stages.size(); ++s)
        if (cost.memory[s] > p.types[stages[s].type].memory_limit * static_cast<double>(stages[s].devices)) return {};
    return cost.total.value;
}

/// A template of all machines as a plan, with status and bound; without stages, why there are none. Its baseline is
/// equal numbers of layers for the devices of its stages. *Precondition:* the template is planned for the schedule.
/// *Throws* `input_error`.
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] pipeline_plan make_pipeline_plan(template_problem const& p, pipeline_template const& t,
                                               machine_numbers const& numbers, Schedule const& schedule = {}) {
    auto plan = lay_out(p, t, numbers);
    if constexpr (requires { Schedule::name; }) plan.schedule = Schedule::name;
    else plan.schedule = "other";
    if constexpr (requires { schedule.more_slots; }) plan.more_slots = schedule.more_slots;
    if (t.cost) plan.baselines["equal layers"] = time_with_equal_layers(p, t.stages, schedule);
    return plan;
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE machine_numbers numbered_by_type(template_problem const& p) {
    machine_numbers numbers;
    std::size_t next = 0;
    for (auto const& t : p.types) {
        auto& mine = numbers.emplace_back();
        for (std::size_t m = 0; m < (t.device_count() > 0 ? t.machines : 0); ++m) mine.push_back(next++);
    }
    return numbers;
}

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

HEDDLE_INLINE pipeline_plan lay_out(template_problem const& p, pipeline_template const& t,
                                    machine_numbers const& numbers) {
    std::vector<std::size_t> machines;
    for (auto const& type : p.types) machines.push_back(type.machines);
    return lay_out(p, t, machines, 1, numbers);
}

HEDDLE_INLINE std::vector<template_stage> template_of(template_problem const& p, pipeline_plan const& plan,
                                                      machine_numbers const& numbers) {
    std::vector<template_stage> stages;
    for (auto const& stage : plan.stages) {
        auto const& group = stage.devices.front();
        auto const machine = plan.devices[group.front()].machine;
        for (auto const d : group)
            if (plan.devices[d].machine != machine)
                throw input_error("pipeline plan, stage " + std::to_string(stages.size()),
                                  "its devices are on several machines, expected one");
        for (std::size_t type = 0; type < numbers.size(); ++type)
            if (auto const at = algorithm::find(numbers[type], machine); at != numbers[type].end()) {
                stages.push_back(
                    {type, static_cast<std::size_t>(at - numbers[type].begin()), group.size(), stage.first, stage.end});
                if (!p.may_take(type, 0, group.size()))
                    throw input_error("pipeline plan, stage " + std::to_string(stages.size() - 1),
                                      "has more devices than its machine");
            }
    }
    return stages;
}

} // namespace heddle

#endif
