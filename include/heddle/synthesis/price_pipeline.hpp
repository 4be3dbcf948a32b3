// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a pipeline plan costs, priced anew from the program and a cluster, and whether the plan says so.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/pipeline_figures.hpp>
#include <heddle/pipeline/template_problem.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

[[nodiscard]] pipeline_plan priced(program const& whole, pipeline_plan const& what, cluster const& c,
                                   machine_split split);
[[nodiscard]] verification verify_pipeline_figures(program const& whole, pipeline_plan const& p);
[[nodiscard]] verification verify_pipeline_figures(program const& whole, pipeline_plan const& p, cluster const& c);

} // namespace detail

/// Returns a pipeline plan of a program as the cluster would price it: times, what devices hold, and their limits. It
/// has nothing of how the plan was found.
///
/// A plan that counts its stages alone is priced as a template under its schedule, in memory as if stages might be of as
/// many devices as `split` allows; any other as a strategy, under 1F1B.
/// *Preconditions.* The plan's layers are of the program, `validate` has passed. *Throws* `input_error` as
/// `make_strategy_problem` and `make_template_problem`, for devices that are not the cluster's, a schedule that is not
/// known, and a plan that is no strategy or template on it.
template <single_device_program Program>
[[nodiscard]] pipeline_plan priced(Program const& program, pipeline_plan const& what, cluster const& c,
                                   machine_split split = machine_split::free) {
    return detail::priced(program_of(program), what, c, split);
}

/// As above, and checks whether stages hold what the model says, if that follows from the model alone. *Precondition.*
/// `verify` has accepted the plan.
template <single_device_program Program>
[[nodiscard]] verification verify_figures(Program const& program, pipeline_plan const& p) {
    return detail::verify_pipeline_figures(program_of(program), p);
}

/// As above, and checks whether all times and bytes, those of the groups' plans included, are those of the plan
/// `priced` from program and cluster.
/// *Precondition.* `verify` has accepted the plan.
template <single_device_program Program>
[[nodiscard]] verification verify_figures(Program const& program, pipeline_plan const& p, cluster const& c) {
    return detail::verify_pipeline_figures(program_of(program), p, c);
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/pipeline/layers.hpp>
#include <heddle/pipeline/strategy_layout.hpp>
#include <heddle/pipeline/template_layout.hpp>
#include <heddle/synthesis/layer_costs.hpp>
#include <heddle/synthesis/program_pipeline.hpp>
#include <heddle/synthesis/program_profile.hpp>

namespace heddle::detail {

/// Returns the plan's layers as a program's. *Throws* `input_error`.
HEDDLE_INLINE program_layers layers_of(indexed_program const& p, pipeline_plan const& plan) {
    std::vector<operator_id> cuts{0};
    for (auto const& l : plan.layers) cuts.push_back(cuts.back() + static_cast<operator_id>(l.operators));
    auto layers = layers_at(p, std::move(cuts));
    for (std::size_t l = 0; l < layers.size(); ++l) layers.names[l] = plan.layers[l].name;
    return layers;
}

/// *Throws* `input_error` unless the plan's devices are those of the cluster, in its order.
HEDDLE_INLINE void require_devices_of(cluster const& c, pipeline_plan const& plan) {
    auto const fail = [](std::string const& problem) { throw input_error("pipeline plan, devices", problem); };
    auto const expected = placed_devices(c);
    if (plan.devices.size() != expected.size())
        fail(std::to_string(plan.devices.size()) + ", the cluster has " + std::to_string(expected.size()) +
             ", expected as many");
    for (std::size_t d = 0; d < expected.size(); ++d) {
        auto const &said = plan.devices[d], &found = expected[d];
        std::string const device = "device " + std::to_string(d);
        if (said.type != found.type)
            fail(device + " is of type '" + said.type + "', the cluster's of '" + found.type + "'");
        if (said.machine != found.machine)
            fail(device + " is on machine " + std::to_string(said.machine) + ", in the cluster on " +
                 std::to_string(found.machine));
    }
}

HEDDLE_INLINE pipeline_plan priced_strategy(strategy_problem const& p, pipeline_plan const& what) {
    if (what.schedule != one_f_one_b::name)
        throw input_error("pipeline plan, schedule",
                          "is '" + what.schedule + "', expected '" + one_f_one_b::name + "' of a strategy");
    return make_pipeline_plan(p, strategy_of(what));
}

HEDDLE_INLINE pipeline_plan priced_template(template_problem const& p, pipeline_plan const& what,
                                            machine_numbers const& numbers) {
    pipeline_template t;
    t.stages = template_of(p, what, numbers);
    with_schedule(
        what, [&](auto const& schedule) { t.cost = cost_of(p, std::span<template_stage const>(t.stages), schedule); });
    return lay_out(p, t, numbers);
}

HEDDLE_INLINE pipeline_plan priced(program const& whole, pipeline_plan const& what, cluster const& c,
                                   machine_split split) {
    check_for_pipelines(c);
    auto const layers = layers_of(index_program(whole), what);
    auto const& training = what.provenance.training;
    require_devices_of(c, what);
    pipeline_plan made;
    if (what.counts_stages_alone()) {
        auto const problem =
            heddle::make_template_problem(whole, layers, c, what.micro_batch_size, what.micro_batches, split, training);
        made = priced_template(problem, what, numbered_in_cluster(c));
    } else {
        made = priced_strategy(heddle::make_strategy_problem(whole, layers, c, {what.global_batch, training}), what);
    }
    made.layers = what.layers;
    made.provenance = what.provenance;
    made.groups = what.groups;
    made.schedule = what.schedule;
    made.more_slots = what.more_slots;
    made.micro_batch_size = what.micro_batch_size;
    made.global_batch = what.global_batch;
    return made;
}

HEDDLE_INLINE verification verify_pipeline_figures(program const& whole, pipeline_plan const& p) {
    if (auto own = heddle::verify_figures(p); !own || !has_plain_memory(p)) return own;
    return verified([&] {
        auto alone = p; // each device on a machine of its own, all as fast as each other
        cluster c;
        c.name = "the plan's devices";
        for (std::size_t d = 0; d < p.devices.size(); ++d) {
            auto const known = algorithm::find(c.types, p.devices[d].type, &device_type::name);
            c.machines.push_back({.type = static_cast<std::size_t>(known - c.types.begin())});
            alone.devices[d].machine = d;
            if (known == c.types.end())
                c.types.push_back({p.devices[d].type,
                                   bytes(1e30),
                                   bytes_per_second(1),
                                   seconds(0),
                                   {{main_type(index_program(whole)), {flops_per_second(1)}}}});
        }
        c.inter = network_link{bytes_per_second(1), seconds(0)};
        auto const again = priced(whole, alone, c, machine_split::free);
        for (std::size_t d = 0; d < p.devices.size(); ++d)
            require_near(p.devices[d].memory.value, again.devices[d].memory.value, 0,
                         "device " + std::to_string(d) + ": its memory", " bytes");
    });
}

HEDDLE_INLINE verification verify_pipeline_figures(program const& whole, pipeline_plan const& p, cluster const& c) {
    if (auto own = heddle::verify_figures(p); !own) return own;
    auto const compared = [&](machine_split split) {
        return verified([&] {
            if (auto const problem = difference(p, priced(whole, p, c, split)); !problem.empty())
                throw wrong_figure{problem};
        });
    };
    auto found = compared(machine_split::free);
    // No plan says how machines were divided, and a template's memory depends on how they may be.
    if (!found && p.counts_stages_alone() && compared(machine_split::halves)) found = {};
    if (!found) return found;
    for (auto const& [size, group] : p.groups) {
        auto const stage = algorithm::find_if(p.stages, [&, n = size](auto const& s) { return s.degree() == n; });
        if (stage == p.stages.end()) return {false, "groups of " + std::to_string(size) + ": no stage has one"};
        auto const type = algorithm::find(c.types, p.devices[stage->devices.front().front()].type, &device_type::name) -
                          c.types.begin();
        if (auto const checked =
                heddle::verify_figures(group, tensor_group_of(c, static_cast<std::size_t>(type), size));
            !checked)
            return {false, "groups of " + std::to_string(size) + ": " + checked.problem};
    }
    return {};
}

} // namespace heddle::detail

#endif
