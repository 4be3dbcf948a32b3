// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief How the tensor groups of a pipeline plan compute the program: the programs by which their layers were priced.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/plan/pipeline_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Returns the steps of a program at some batch size, at even shares, as a plan for the batch of `p`.
/// *Preconditions.* The steps are of `p` at another batch, numbered alike; the group's devices are of one type.
[[nodiscard]] plan group_plan(indexed_program const& p, std::vector<plan_step> steps, cluster const& group,
                              training_options const& training);

/// Adds to a plan how its tensor groups compute the program. Each size of group has the program that is the fastest on
/// the devices of its first stage, at the plan's micro-batch. That has two samples at least, because a batch of one
/// sample is no factor; if it changes the factors' numbers, the program is that of the whole batch.
/// *Precondition:* the plan's devices are of types of the cluster. *Throws* `input_error` as `layer_pricer::price`
/// does.
void add_groups(pipeline_plan& plan, program const& p, program_layers const& layers, cluster const& c,
                training_options const& training);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/plan/evaluate.hpp>
#include <heddle/program/equal_structure.hpp>
#include <heddle/synthesis/layer_costs.hpp>
#include <heddle/theory/rescale.hpp>

namespace heddle {

HEDDLE_INLINE plan group_plan(indexed_program const& p, std::vector<plan_step> steps, cluster const& group,
                              training_options const& training) {
    plan made = blank_plan(p);
    made.provenance.planner = "tensor parallel";
    made.provenance.training = training;
    auto const devices = group.devices();
    for (auto const type : devices) made.devices.push_back({group.types[type].name, group.types[type].memory});
    std::vector<instruction> program;
    for (auto& s : steps) {
        program.push_back(s.instruction);
        s.step = make_step(p, s.instruction, training);
    }
    made.steps = std::move(steps);
    made.ratios.assign(segment_count(p),
                       std::vector<double>(devices.size(), 1.0 / static_cast<double>(devices.size())));
    made.cuts = atom_classes(p, program);
    apportion(made.cuts, made.ratios);
    auto const model = per_device_model(group, made);
    auto const shares = shares_of(made);
    for (auto& s : made.steps) s.step = model.decided(std::move(s.step), shares);
    made.status = search::status::feasible;
    auto const cost = evaluate(made, group);
    made.time = cost.time;
    made.memory = cost.memory;
    return made;
}

HEDDLE_INLINE void add_groups(pipeline_plan& plan, program const& p, program_layers const& layers, cluster const& c,
                              training_options const& training) {
    std::optional<layer_pricer> pricer;
    auto const whole = index_program(p);
    for (auto const& stage : plan.stages) {
        auto const degree = stage.degree();
        if (degree == 1 || plan.groups.contains(degree)) continue;
        if (!pricer) {
            auto micro = index_program(with_part_of_batch(p, std::max<extent>(2, plan.micro_batch_size)));
            pricer.emplace(have_equal_structure(micro, whole) ? std::move(micro) : whole, layers, training);
        }
        auto const type =
            algorithm::find(c.types, plan.devices[stage.devices[0][0]].type, &device_type::name) - c.types.begin();
        auto const group = tensor_group_of(c, static_cast<std::size_t>(type), degree);
        plan.groups.emplace(degree, group_plan(whole, pricer->program_on(group), group, training));
    }
}

} // namespace heddle

#endif
