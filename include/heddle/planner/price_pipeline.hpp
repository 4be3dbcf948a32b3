// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a pipeline plan costs, priced anew from the program and a cluster.
#pragma once

#include <heddle/planner/pipeline_plans.hpp>
#include <heddle/planner/program_pipelines.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// The plan's layers as a program's. *Throws* `input_error`.
[[nodiscard]] inline program_layers layers_of(indexed_program const& p, pipeline_plan const& plan) {
    std::vector<operator_id> cuts{0};
    for (auto const& l : plan.layers) cuts.push_back(cuts.back() + static_cast<operator_id>(l.operators));
    auto layers = layers_at(p, std::move(cuts));
    for (std::size_t l = 0; l < layers.size(); ++l) layers.names[l] = plan.layers[l].name;
    return layers;
}

/// The plan's strategy. *Throws* `input_error` if its groups are not all of one size.
[[nodiscard]] inline strategy strategy_of(pipeline_plan const& plan) {
    strategy s;
    s.placement.degrees = {plan.stages.size(), plan.copies(), plan.stages.front().degree()};
    s.micro_batch_size = plan.micro_batch_size;
    s.micro_batches = plan.micro_batches;
    s.cuts.push_back(0);
    for (auto const& stage : plan.stages) {
        if (stage.degree() != s.placement.degrees.tensor)
            throw input_error("pipeline plan, stages", "tensor groups of several sizes, expected one: strategies have one tensor degree");
        s.cuts.push_back(stage.end);
        for (auto const& group : stage.devices) s.placement.devices.insert(s.placement.devices.end(), group.begin(), group.end());
    }
    return s;
}

/// The plan's stages as a template's, machines numbered as `numbers` has them. *Throws* `input_error`.
[[nodiscard]] inline std::vector<template_stage> template_of(template_problem const& p, pipeline_plan const& plan, machine_numbers const& numbers) {
    std::vector<template_stage> stages;
    for (auto const& stage : plan.stages) {
        auto const& group = stage.devices.front();
        auto const machine = plan.devices[group.front()].machine;
        for (auto const d : group)
            if (plan.devices[d].machine != machine) throw input_error("pipeline plan, stage " + std::to_string(stages.size()), "its devices are on several machines, expected one");
        for (std::size_t type = 0; type < numbers.size(); ++type)
            if (auto const at = std::ranges::find(numbers[type], machine); at != numbers[type].end()) {
                stages.push_back({type, static_cast<std::size_t>(at - numbers[type].begin()), group.size(), stage.first, stage.end});
                if (!p.may_take(type, 0, group.size()))
                    throw input_error("pipeline plan, stage " + std::to_string(stages.size() - 1), "has more devices than its machine");
            }
    }
    return stages;
}

} // namespace detail

/// A pipeline plan of a program as the cluster would price it: times, what devices hold, and their limits; nothing of how it was found.
///
/// Plans of `ditto` are priced as templates, all others as strategies, both under 1F1B; the time of a plan under another schedule stays.
/// *Preconditions.* The plan's layers are of the program, `validate` has passed. *Throws* `input_error` as `make_strategy_problem` and `make_template_problem`, for
/// devices that are not the cluster's, and a plan that is no strategy or template on it.
template <single_device_program Program>
[[nodiscard]] pipeline_plan priced(Program const& program, pipeline_plan const& what, cluster const& c) {
    auto const layers = detail::layers_of(index_program(program), what);
    auto const& training = what.provenance.training;
    auto const fail = [](std::string const& problem) { throw input_error("pipeline plan, devices", problem); };
    auto const types = c.devices();
    if (what.devices.size() != types.size()) fail(std::to_string(what.devices.size()) + ", the cluster has " + std::to_string(types.size()) + ", expected as many");
    for (std::size_t d = 0; d < types.size(); ++d)
        if (what.devices[d].type != c.types[types[d]].name)
            fail("device " + std::to_string(d) + " is of type '" + what.devices[d].type + "', the cluster's of '" + c.types[types[d]].name + "'");
    pipeline_plan made;
    if (what.provenance.planner == "ditto") {
        if (what.copies() != 1) throw input_error("pipeline plan", std::to_string(what.copies()) + " copies, expected one of a template");
        auto const problem = make_template_problem(program, layers, c, what.micro_batch_size, what.micro_batches, machine_split::free, training);
        auto const numbers = detail::numbered_in_cluster(c);
        pipeline_template t;
        t.stages = detail::template_of(problem, what, numbers);
        t.cost = cost_of(problem, std::span<template_stage const>(t.stages));
        std::vector<std::size_t> machines;
        for (auto const& type : problem.types) machines.push_back(type.machines);
        made = detail::lay_out(problem, t, machines, 1, numbers);
    } else {
        made = make_pipeline_plan(make_strategy_problem(program, layers, c, {what.global_batch, training}), detail::strategy_of(what));
    }
    made.layers = what.layers;
    made.provenance = what.provenance;
    made.groups = what.groups;
    made.schedule = what.schedule;
    if (what.schedule != one_f_one_b::name) made.time = what.time;
    made.micro_batch_size = what.micro_batch_size;
    made.global_batch = what.global_batch;
    return made;
}

/// The first prediction of a plan that is another when `priced` on a cluster, in a sentence; nothing where all agree to rounding.
/// *Precondition:* `again` is the plan priced.
[[nodiscard]] inline std::string difference(pipeline_plan const& plan, pipeline_plan const& again) {
    auto const differs = [](double a, double b) { return !(std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b))); };
    auto const sentence = [](std::string const& what, double said, double found, char const* unit) {
        return what + " is " + std::to_string(said) + unit + ", priced again it is " + std::to_string(found) + unit;
    };
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
        auto const &said = plan.stages[s], &found = again.stages[s];
        std::string const stage = "stage " + std::to_string(s);
        if (said.devices != found.devices) return stage + " has other devices than its template gives it";
        if (differs(said.time.value, found.time.value)) return sentence(stage + ": its time", said.time.value * 1e3, found.time.value * 1e3, " ms");
        if (differs(said.boundary.value, found.boundary.value)) return sentence(stage + ": what enters it", said.boundary.value * 1e3, found.boundary.value * 1e3, " ms");
    }
    if (differs(plan.time.pipeline.value, again.time.pipeline.value)) return sentence("the pipeline's time", plan.time.pipeline.value, again.time.pipeline.value, " s");
    if (differs(plan.time.synchronisation.value, again.time.synchronisation.value))
        return sentence("the gradients' time", plan.time.synchronisation.value, again.time.synchronisation.value, " s");
    if (differs(plan.time.update.value, again.time.update.value)) return sentence("the optimiser's time", plan.time.update.value, again.time.update.value, " s");
    for (std::size_t d = 0; d < plan.devices.size(); ++d) {
        auto const &said = plan.devices[d], &found = again.devices[d];
        std::string const device = "device " + std::to_string(d);
        if (said.machine != found.machine) return device + " is on machine " + std::to_string(said.machine) + ", in the cluster on " + std::to_string(found.machine);
        if (differs(said.memory.value, found.memory.value)) return sentence(device + ": its memory", said.memory.value, found.memory.value, " bytes");
        if (said.memory_limit > found.memory_limit) return sentence(device + ": its memory limit", said.memory_limit.value, found.memory_limit.value, " bytes");
    }
    return {};
}

} // namespace heddle
