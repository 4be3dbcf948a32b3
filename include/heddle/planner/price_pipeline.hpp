// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a pipeline plan costs, priced anew from the program and a cluster, and whether it says so.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/schedule.hpp>
#include <heddle/plan/figures.hpp>
#include <heddle/planner/pipeline_plans.hpp>
#include <heddle/planner/program_pipelines.hpp>
#include <heddle/synthesis/tensor_groups.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// The plan's layers as a program's. *Throws* `input_error`.
[[nodiscard]] program_layers layers_of(indexed_program const& p, pipeline_plan const& plan);

/// The plan's strategy. *Throws* `input_error` if its groups are not all of one size.
[[nodiscard]] strategy strategy_of(pipeline_plan const& plan);

/// The plan's stages as a template's, machines numbered as `numbers` has them. *Throws* `input_error`.
[[nodiscard]] std::vector<template_stage> template_of(template_problem const& p, pipeline_plan const& plan,
                                                      machine_numbers const& numbers);

/// Calls `use` with the schedule that a plan's time is estimated by, known by its name. *Throws* `input_error` for
/// another name, and for one that cannot run the plan. *Precondition:* the plan exists.
template <class Use>
void with_schedule(pipeline_plan const& plan, Use const& use) {
    std::string const place = "pipeline plan, schedule";
    bool const is_estimate = plan.schedule == oobleck_estimate::name;
    if (plan.more_slots != 0 && !is_estimate)
        throw input_error(place, "is '" + plan.schedule + "', but slots are added, which only '" +
                                     oobleck_estimate::name + "' does");
    if (plan.schedule == one_f_one_b::name) return use(one_f_one_b{});
    if (plan.schedule == gpipe::name) return use(gpipe{});
    if (!is_estimate)
        throw input_error(place, "is '" + plan.schedule + "', expected '" + one_f_one_b::name + "', '" + gpipe::name +
                                     "' or '" + oobleck_estimate::name + "'");
    oobleck_estimate const estimate{plan.more_slots};
    if (!estimate.can_run({plan.stages.size(), plan.micro_batches}))
        throw input_error(place, "cannot run " + std::to_string(plan.micro_batches) + " micro-batches on " +
                                     std::to_string(plan.stages.size()) + " stages with " +
                                     std::to_string(plan.more_slots) + " slots added");
    use(estimate);
}

} // namespace detail

/// A pipeline plan of a program as the cluster would price it: times, what devices hold, and their limits; nothing of
/// how it was found.
///
/// Plans of `ditto` are priced as templates under their schedule, in memory as if stages might be of as many devices as
/// `split` allows; all others as strategies, under 1F1B.
/// *Preconditions.* The plan's layers are of the program, `validate` has passed. *Throws* `input_error` as
/// `make_strategy_problem` and `make_template_problem`, for devices that are not the cluster's, a schedule that is not
/// known, and a plan that is no strategy or template on it.
template <single_device_program Program>
[[nodiscard]] pipeline_plan priced(Program const& program, pipeline_plan const& what, cluster const& c,
                                   machine_split split = machine_split::free) {
    detail::check_for_pipelines(c);
    auto const layers = detail::layers_of(index_program(program), what);
    auto const& training = what.provenance.training;
    auto const fail = [](std::string const& problem) { throw input_error("pipeline plan, devices", problem); };
    auto const types = c.devices();
    if (what.devices.size() != types.size())
        fail(std::to_string(what.devices.size()) + ", the cluster has " + std::to_string(types.size()) +
             ", expected as many");
    for (std::size_t d = 0; d < types.size(); ++d)
        if (what.devices[d].type != c.types[types[d]].name)
            fail("device " + std::to_string(d) + " is of type '" + what.devices[d].type + "', the cluster's of '" +
                 c.types[types[d]].name + "'");
    std::vector<std::size_t> machines;
    std::size_t machine = 0;
    for (auto const& m : c.machines)
        for (int n = 0; n < m.count; ++n)
            machines.insert(machines.end(), static_cast<std::size_t>(m.devices), machine++);
    for (std::size_t d = 0; d < types.size(); ++d)
        if (what.devices[d].machine != machines[d])
            fail("device " + std::to_string(d) + " is on machine " + std::to_string(what.devices[d].machine) +
                 ", in the cluster on " + std::to_string(machines[d]));
    pipeline_plan made;
    if (what.provenance.planner == "ditto") {
        if (what.copies() != 1)
            throw input_error("pipeline plan", std::to_string(what.copies()) + " copies, expected one of a template");
        auto const problem =
            make_template_problem(program, layers, c, what.micro_batch_size, what.micro_batches, split, training);
        auto const numbers = detail::numbered_in_cluster(c);
        pipeline_template t;
        t.stages = detail::template_of(problem, what, numbers);
        detail::with_schedule(what, [&](auto const& schedule) {
            t.cost = cost_of(problem, std::span<template_stage const>(t.stages), schedule);
        });
        std::vector<std::size_t> each;
        for (auto const& type : problem.types) each.push_back(type.machines);
        made = detail::lay_out(problem, t, each, 1, numbers);
    } else {
        if (what.schedule != one_f_one_b::name)
            throw input_error("pipeline plan, schedule",
                              "is '" + what.schedule + "', expected '" + one_f_one_b::name + "' of a strategy");
        made = make_pipeline_plan(make_strategy_problem(program, layers, c, {what.global_batch, training}),
                                  detail::strategy_of(what));
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

/// The first prediction of a plan that is another when `priced` on a cluster, in a sentence; nothing where all agree to
/// rounding.
/// *Precondition:* `again` is the plan priced.
[[nodiscard]] std::string difference(pipeline_plan const& plan, pipeline_plan const& again);

/// Whether the figures of a pipeline plan agree with each other: the pipeline's time and bubble with its stages' times,
/// the memory of a stage's devices, limits, bound and status with the cost, and those of the groups' plans with their
/// steps. What a stage takes needs the model and a cluster.
/// *Precondition.* `verify`, or a reader, has passed the plan.
[[nodiscard]] verification verify_figures(pipeline_plan const& p);

/// Whether what the stages hold follows from the model alone: where stages have one device each and, of templates,
/// could not have more.
[[nodiscard]] bool has_plain_memory(pipeline_plan const& p);

/// The same, and whether stages hold what the model says, where it does so alone. *Precondition.* `verify` has passed
/// the plan.
template <single_device_program Program>
[[nodiscard]] verification verify_figures(Program const& program, pipeline_plan const& p) {
    if (auto own = verify_figures(p); !own || !has_plain_memory(p)) return own;
    return detail::verified([&] {
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
                                   {{main_type(index_program(program)), {flops_per_second(1)}}}});
        }
        c.inter = network_link{bytes_per_second(1), seconds(0)};
        auto const again = priced(program, alone, c);
        for (std::size_t d = 0; d < p.devices.size(); ++d)
            detail::require_near(p.devices[d].memory.value, again.devices[d].memory.value, 0,
                                 "device " + std::to_string(d) + ": its memory", " bytes");
    });
}

/// The same, and whether all times and bytes are those of the plan `priced` from program and cluster, those of the
/// groups' plans too.
/// *Precondition.* `verify` has passed the plan.
template <single_device_program Program>
[[nodiscard]] verification verify_figures(Program const& program, pipeline_plan const& p, cluster const& c) {
    if (auto own = verify_figures(p); !own) return own;
    auto const compared = [&](machine_split split) {
        return detail::verified([&] {
            if (auto const problem = difference(p, priced(program, p, c, split)); !problem.empty())
                throw detail::wrong_figure{problem};
        });
    };
    auto found = compared(machine_split::free);
    // How machines were divided is in no plan, and a template's memory depends on what may be.
    if (!found && p.provenance.planner == "ditto" && compared(machine_split::halves)) found = {};
    if (!found) return found;
    for (auto const& [size, group] : p.groups) {
        auto const stage = algorithm::find_if(p.stages, [&, n = size](auto const& s) { return s.degree() == n; });
        if (stage == p.stages.end()) return {false, "groups of " + std::to_string(size) + ": no stage has one"};
        auto const type = algorithm::find(c.types, p.devices[stage->devices.front().front()].type, &device_type::name) -
                          c.types.begin();
        if (auto const checked = verify_figures(group, tensor_group_of(c, static_cast<std::size_t>(type), size));
            !checked)
            return {false, "groups of " + std::to_string(size) + ": " + checked.problem};
    }
    return {};
}

/// The fields of a pipeline plan's file that nobody can derive from the plan, its model and its cluster.
[[nodiscard]] std::vector<std::string> claims_of(pipeline_plan const& p, bool has_cluster);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE program_layers layers_of(indexed_program const& p, pipeline_plan const& plan) {
    std::vector<operator_id> cuts{0};
    for (auto const& l : plan.layers) cuts.push_back(cuts.back() + static_cast<operator_id>(l.operators));
    auto layers = layers_at(p, std::move(cuts));
    for (std::size_t l = 0; l < layers.size(); ++l) layers.names[l] = plan.layers[l].name;
    return layers;
}

HEDDLE_INLINE strategy strategy_of(pipeline_plan const& plan) {
    strategy s;
    s.placement.degrees = {plan.stages.size(), plan.copies(), plan.stages.front().degree()};
    s.micro_batch_size = plan.micro_batch_size;
    s.micro_batches = plan.micro_batches;
    s.cuts.push_back(0);
    for (auto const& stage : plan.stages) {
        if (stage.degree() != s.placement.degrees.tensor)
            throw input_error("pipeline plan, stages",
                              "tensor groups of several sizes, expected one: strategies have one tensor degree");
        s.cuts.push_back(stage.end);
        for (auto const& group : stage.devices)
            s.placement.devices.insert(s.placement.devices.end(), group.begin(), group.end());
    }
    return s;
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

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::string difference(pipeline_plan const& plan, pipeline_plan const& again) {
    double const cost = again.cost();
    auto const compare = [&](std::string const& what, double said, double found, char const* unit) {
        detail::require_near(said, found, cost, what, unit);
    };
    return detail::verified([&] {
               for (std::size_t s = 0; s < plan.stages.size(); ++s) {
                   auto const &said = plan.stages[s], &found = again.stages[s];
                   std::string const stage = "stage " + std::to_string(s);
                   detail::require_figure(said.devices == found.devices,
                                          stage + " has other devices than its template gives it");
                   compare(stage + ": its time", said.time.value, found.time.value, " s");
                   compare(stage + ": what enters it", said.boundary.value, found.boundary.value, " s");
               }
               compare("the pipeline's time", plan.time.pipeline.value, again.time.pipeline.value, " s");
               compare("the gradients' time", plan.time.synchronisation.value, again.time.synchronisation.value, " s");
               compare("the optimiser's time", plan.time.update.value, again.time.update.value, " s");
               detail::limits_of_cluster limits;
               for (std::size_t d = 0; d < plan.devices.size(); ++d) {
                   auto const &said = plan.devices[d], &found = again.devices[d];
                   std::string const device = "device " + std::to_string(d);
                   detail::require_figure(said.machine == found.machine,
                                          device + " is on machine " + std::to_string(said.machine) +
                                              ", in the cluster on " + std::to_string(found.machine));
                   detail::require_near(said.memory.value, found.memory.value, 0, device + ": its memory", " bytes");
                   limits.add(device, said.memory_limit, found.memory_limit);
               }
               limits.check();
           })
        .problem;
}

HEDDLE_INLINE verification verify_figures(pipeline_plan const& p) {
    return detail::verified([&] {
        using detail::require_figure, detail::is_near;
        validate(p);
        require_figure(p.exists(), "the plan has no stages");
        detail::check_status(p);
        std::vector<double> times;
        double busy = 0, sum = 0, pace = 0;
        for (auto const& s : p.stages) {
            times.push_back(s.time.value);
            busy += s.time.value;
            sum += s.time.value + s.boundary.value;
            pace = std::max({pace, s.time.value, s.boundary.value});
            require_figure(s.time.value >= 0 && s.boundary.value >= 0, "the time of a stage is negative or no number");
        }
        auto const& t = p.time;
        require_figure(t.pipeline.value >= 0 && t.synchronisation.value >= 0 && t.update.value >= 0,
                       "a time is negative or no number");
        double pipeline = 0;
        detail::with_schedule(p, [&](auto const& schedule) {
            bool const is_estimate =
                std::remove_cvref_t<decltype(schedule)>::counts_tail; // of what enters stages it knows nothing
            pipeline = is_estimate ? detail::iteration_time(std::span<double const>(times), p.micro_batches, schedule)
                                   : sum + static_cast<double>(p.micro_batches - 1) * pace;
        });
        detail::require_near(t.pipeline.value, pipeline, 0, "the pipeline's time", " s");
        double const waits = t.pipeline.value > 0 ? 1 - static_cast<double>(p.micro_batches) * busy / t.pipeline.value /
                                                            static_cast<double>(p.stages.size())
                                                  : 0;
        detail::require_near(p.bubble, std::max(0.0, waits), 1e3, "the share of time that stages wait", "");
        std::vector<std::optional<bytes>> held(p.devices.size());
        for (std::size_t s = 0; s < p.stages.size(); ++s)
            for (auto const& group : p.stages[s].devices)
                for (auto const d : group) {
                    held[d] = p.devices[d].memory;
                    bytes const expected = p.devices[p.stages[s].devices.front().front()].memory;
                    detail::require_near(
                        held[d]->value, expected.value, 0,
                        "device " + std::to_string(d) + " of stage " + std::to_string(s) + ": its memory", " bytes");
                }
        detail::one_limit_per_type limits;
        for (std::size_t d = 0; d < p.devices.size(); ++d) {
            std::string const device = "device " + std::to_string(d);
            require_figure(held[d] || p.devices[d].memory == bytes(0),
                           device + " is in no stage, but holds " +
                               detail::in_words(p.devices[d].memory.value, " bytes"));
            limits.check(p.devices[d].type, p.devices[d].memory_limit, device);
        }
        for (auto const& [size, group] : p.groups) {
            std::string const place = "groups of " + std::to_string(size);
            if (auto const checked = verify_figures(group); !checked)
                throw detail::wrong_figure{place + ": " + checked.problem};
            require_figure(group.provenance.training.optimizer_bytes_per_element ==
                               p.provenance.training.optimizer_bytes_per_element,
                           place + " are planned for another optimiser");
        }
    });
}

HEDDLE_INLINE bool has_plain_memory(pipeline_plan const& p) {
    bool const is_alone = std::ranges::adjacent_find(p.devices, {}, &placed_device::machine) == p.devices.end();
    return algorithm::all_of(p.stages, [](pipeline_stage const& s) { return s.degree() == 1; }) &&
           (is_alone || p.provenance.planner != "ditto");
}

HEDDLE_INLINE std::vector<std::string> claims_of(pipeline_plan const& p, bool has_cluster) {
    std::vector<std::string> claims{"status", "lower_bound", "space"};
    if (p.schedule != one_f_one_b::name) claims.push_back("schedule"); // what runs is 1F1B
    if (p.more_slots != 0) claims.push_back("more_slots");
    if (!p.baselines.empty()) claims.push_back("baselines");
    for (char const* field : {"statistics", "seconds"}) claims.push_back(field);
    if (!p.groups.empty())
        for (auto const& claim : claims_of(p.groups.begin()->second, has_cluster)) claims.push_back("groups." + claim);
    if (has_cluster) return claims;
    for (char const* field :
         {"cost", "time", "stages.time", "stages.boundary", "devices.type", "devices.machine", "devices.memory_limit"})
        claims.push_back(field);
    if (!has_plain_memory(p)) claims.push_back("devices.memory");
    return claims;
}

} // namespace heddle

#endif
