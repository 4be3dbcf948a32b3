// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Profiles of a program's layers on a cluster: the problems of strategies and of templates.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/step.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/pipeline/strategy_problem.hpp>
#include <heddle/pipeline/template_problem.hpp>
#include <heddle/program/program.hpp>
#include <heddle/search/deadline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// *Throws* `input_error` for a cluster on which pipelines are not planned.
void check_for_pipelines(cluster const& c);

/// Returns the types that machines have.
[[nodiscard]] std::vector<std::size_t> types_in_use(cluster const& c);

} // namespace detail

struct profile_options {
    /// The samples per iteration; if absent, the program's batch.
    std::optional<std::int64_t> global_batch{};
    training_options training{};
};

namespace detail {

[[nodiscard]] std::optional<strategy_problem> make_strategy_problem(search::deadline const& until, program const& p,
                                                                    program_layers const& layers, cluster const& c,
                                                                    profile_options const& options);
[[nodiscard]] std::optional<template_problem> make_template_problem(search::deadline const& until, program const& p,
                                                                    program_layers const& layers, cluster const& c,
                                                                    std::int64_t micro_batch_size,
                                                                    std::int64_t micro_batches, machine_split split,
                                                                    training_options const& training);

} // namespace detail

/// Makes the problem that strategies solve: layers of a program on the machines of a cluster, at every tensor degree
/// that divides all machines.
///
/// A layer's time is priced at micro-batches of one sample and of all samples; elsewhere it is on the line between
/// them. For one program that is never too little, as rooflines are convex; each size has the program that is fastest
/// there. Bytes are those of micro-batches of one sample, hence never too few. What is whole and what is split is such
/// that no degree on any type needs more. What enters a layer counts in full on every device of a group, and skip
/// connections count at every boundary they pass. A layer's largest communication buffer is that of the group where it
/// is largest; what stages send each other needs no buffer, since it counts as saved. A parameter that several layers
/// use is kept, and its optimiser's step taken, by each of them.
/// *Returns* nothing if time is over before everything is priced. *Throws* `input_error` for a cluster with device
/// groups or that `validate` refuses, a program whose batch cannot be one sample, or layers of another program.
template <single_device_program Program>
[[nodiscard]] std::optional<strategy_problem> make_strategy_problem_within(search::deadline const& until,
                                                                           Program const& program,
                                                                           program_layers const& layers,
                                                                           cluster const& c,
                                                                           profile_options const& options = {}) {
    return detail::make_strategy_problem(until, program_of(program), layers, c, options);
}
/// As above, in any time.
template <single_device_program Program>
[[nodiscard]] strategy_problem make_strategy_problem(Program const& program, program_layers const& layers,
                                                     cluster const& c, profile_options const& options = {}) {
    return make_strategy_problem_within(search::deadline(), program, layers, c, options).value();
}

/// Makes the problem that templates solve: layers of a program on the machines of a cluster, in micro-batches of the
/// given number of samples.
///
/// A group's all-reduce of a layer takes what the layer's time exceeds an equal part of a single device's time by, half
/// of it in either direction. Memory is what the devices of the largest group that a stage may have hold together,
/// communication buffers included, so it is never too little for a smaller group. Gradients of a parameter that several
/// stages use, the optimiser's time and transfers between stages are not counted: templates do not model them.
/// *Returns* nothing if time is over before everything is priced. *Throws* `input_error` as `make_strategy_problem`
/// does, and if machines of one type differ.
template <single_device_program Program>
[[nodiscard]] std::optional<template_problem> make_template_problem_within(
    search::deadline const& until, Program const& program, program_layers const& layers, cluster const& c,
    std::int64_t micro_batch_size, std::int64_t micro_batches, machine_split split = machine_split::halves,
    training_options const& training = {}) {
    return detail::make_template_problem(until, program_of(program), layers, c, micro_batch_size, micro_batches, split,
                                         training);
}
/// As above, in any time.
template <single_device_program Program>
[[nodiscard]] template_problem make_template_problem(Program const& program, program_layers const& layers,
                                                     cluster const& c, std::int64_t micro_batch_size,
                                                     std::int64_t micro_batches,
                                                     machine_split split = machine_split::halves,
                                                     training_options const& training = {}) {
    return make_template_problem_within(search::deadline(), program, layers, c, micro_batch_size, micro_batches, split,
                                        training)
        .value();
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/pipeline/degrees.hpp>
#include <heddle/synthesis/layer_costs.hpp>
#include <heddle/theory/rescale.hpp>

namespace heddle::detail {

HEDDLE_INLINE void check_for_pipelines(cluster const& c) {
    validate(c);
    if (has_groups(c))
        throw input_error("cluster '" + c.name + "'",
                          "has device groups, expected single devices: pipelines tell the devices of a machine apart");
}

HEDDLE_INLINE std::vector<std::size_t> types_in_use(cluster const& c) {
    std::vector<std::size_t> types;
    for (auto const& m : c.machines) types.push_back(m.type);
    algorithm::sort(types);
    types.erase(std::ranges::unique(types).begin(), types.end());
    return types;
}

/// Raises what is held such that a device of a group of this degree holds no less than `grouped`; a device alone holds
/// what it held.
HEDDLE_INLINE void cover(group_bytes& held, bytes grouped, std::size_t degree) {
    if (degree == 1) return;
    bytes const alone = held.whole + held.split;
    held.split = std::clamp((alone - grouped) / (1 - 1 / static_cast<double>(degree)), bytes(0), held.split);
    held.whole = alone - held.split;
}

HEDDLE_INLINE std::optional<strategy_problem> make_strategy_problem(search::deadline const& until, program const& p,
                                                                    program_layers const& layers, cluster const& c,
                                                                    profile_options const& options) {
    check_for_pipelines(c);
    auto const whole = index_program(p);
    (void)layers_at(whole, layers.cuts);
    strategy_problem problem;
    problem.name = c.name;
    problem.global_batch = options.global_batch.value_or(batch_size_of(whole));
    problem.all_reduce = measured_model(c, collective::all_reduce);
    std::size_t common = 0;
    for (auto const& m : c.machines) common = std::gcd(common, static_cast<std::size_t>(m.devices));
    auto const samples = problem.global_batch;
    auto const sample = index_program(with_batch_size(p, 1));
    auto const across = bytes_across(sample);
    layer_pricer const one(sample, layers, options.training);
    std::optional<layer_pricer> all;
    if (samples > 1) all.emplace(index_program(with_batch_size(p, samples)), layers, options.training);

    std::map<std::size_t, std::size_t> number;
    std::map<tensor_id, shared_parameter> shared;
    for (auto const type : types_in_use(c)) {
        number[type] = problem.types.size();
        profiled_type made{c.types[type].name, c.types[type].memory, seconds(0), {}};
        for (auto const divisor : divisors(static_cast<std::int64_t>(common))) {
            auto const degree = static_cast<std::size_t>(divisor);
            if (until.is_over()) return std::nullopt;
            auto const group = tensor_group_of(c, type, degree);
            auto const single = one.price(group), full = all ? all->price(group) : single;
            auto& profile = made.profiles[degree];
            for (std::size_t l = 0; l < layers.size(); ++l) {
                auto const& cost = single[l];
                if (problem.layers.size() ==
                    l) // all of it split, until a group is met whose devices hold more than an equal part
                    problem.layers.push_back({layers.names[l],
                                              {bytes(0), cost.gradients},
                                              {bytes(0), cost.kept},
                                              {bytes(0), cost.saved},
                                              {across[layers.cuts[l]], bytes(0)}});
                auto& layer = problem.layers[l];
                cover(layer.gradients, cost.gradients, degree);
                cover(layer.kept, cost.kept, degree);
                cover(layer.saved, cost.saved, degree);
                if (degree > 1) layer.buffer = std::max(layer.buffer, cost.buffer);
                for (auto const& [tensor, gradients] : cost.shared) {
                    auto& parameter =
                        shared.try_emplace(tensor, shared_parameter{{}, {bytes(0), gradients}}).first->second;
                    if (parameter.layers.empty() || parameter.layers.back() < l) parameter.layers.push_back(l);
                    cover(parameter.gradients, gradients, degree);
                }
                profile.update.push_back(cost.update);
                seconds const first = single[l].forward + single[l].backward, last = full[l].forward + full[l].backward;
                seconds const slope = samples > 1 ? (last - first) / static_cast<double>(samples - 1) : first;
                profile.layers.push_back(first);
                profile.fixed.push_back(std::clamp(first - slope, seconds(0), first));
            }
        }
        problem.types.push_back(std::move(made));
    }
    for (auto& [tensor, parameter] : shared) problem.shared.push_back(std::move(parameter));
    for (auto const& m : c.machines)
        problem.machines.insert(problem.machines.end(), static_cast<std::size_t>(m.count),
                                {number.at(m.type), static_cast<std::size_t>(m.devices),
                                 c.intra.value_or(network_link{}), c.inter.value_or(network_link{})});
    validate(problem);
    return problem;
}

HEDDLE_INLINE std::optional<template_problem> make_template_problem(search::deadline const& until, program const& p,
                                                                    program_layers const& layers, cluster const& c,
                                                                    std::int64_t micro_batch_size,
                                                                    std::int64_t micro_batches, machine_split split,
                                                                    training_options const& training) {
    check_for_pipelines(c);
    (void)layers_at(index_program(p), layers.cuts);
    template_problem problem;
    problem.micro_batches = micro_batches;
    problem.split = split;
    problem.layer_names = layers.names;
    auto const micro = index_program(with_batch_size(p, micro_batch_size));
    layer_pricer const pricer(micro, layers, training);
    auto const types = types_in_use(c);
    for (auto const type : types) {
        auto& made = problem.types.emplace_back();
        made.name = c.types[type].name;
        made.memory_limit = c.types[type].memory;
        for (auto const& m : c.machines) {
            if (m.type != type) continue;
            auto const devices = static_cast<std::size_t>(m.devices);
            if (made.machines > 0 && made.devices_per_machine != devices)
                throw input_error("cluster '" + c.name + "'",
                                  "has machines of " + std::to_string(made.devices_per_machine) + " and of " +
                                      std::to_string(devices) + " devices of type '" + made.name +
                                      "', expected machines of one size for each type");
            made.devices_per_machine = devices;
            made.machines += static_cast<std::size_t>(m.count);
        }
    }
    auto const across = bytes_across(micro);
    for (std::size_t l = 0; l < layers.size(); ++l)
        problem.memory.push_back({bytes(0), bytes(0), across[layers.cuts[l]]});
    for (std::size_t t = 0; t < problem.types.size(); ++t) {
        auto& made = problem.types[t];
        auto const type = types[t];
        auto const hold = [&](std::vector<layer_cost> const& costs, std::size_t devices) {
            for (std::size_t l = 0; l < layers.size(); ++l) {
                auto& memory = problem.memory[l];
                memory.kept = std::max(memory.kept, static_cast<double>(devices) * costs[l].kept);
                memory.saved = std::max(memory.saved, static_cast<double>(devices) * costs[l].saved);
                if (devices > 1)
                    memory.momentary = std::max(memory.momentary, static_cast<double>(devices) * costs[l].buffer);
            }
        };
        if (until.is_over()) return std::nullopt;
        auto const alone = pricer.price(tensor_group_of(c, type, 1));
        hold(alone, 1);
        for (auto const& cost : alone) {
            made.times.forward.push_back(cost.forward);
            made.times.backward.push_back(cost.backward);
        }
        for (std::size_t devices = 2; devices <= made.devices_per_machine; ++devices) {
            if (!problem.may_take(t, 0, devices)) continue;
            if (until.is_over()) return std::nullopt;
            auto const grouped = pricer.price(tensor_group_of(c, type, devices));
            hold(grouped, devices);
            auto& row = made.all_reduce[devices];
            for (std::size_t l = 0; l < layers.size(); ++l) {
                seconds const part = (alone[l].forward + alone[l].backward) / static_cast<double>(devices);
                row.push_back(std::max(seconds(0), (grouped[l].forward + grouped[l].backward - part) / 2));
            }
        }
    }
    check(problem);
    return problem;
}

} // namespace heddle::detail

#endif
