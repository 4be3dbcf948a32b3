// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A profile of layers on several types of devices, and the machines to make a pipeline of.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/pipeline/layer_assignment_problem.hpp>
#include <heddle/pipeline/stage_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace heddle {

/// One type of device: how long each layer takes on it, and the machines that have it.
struct template_device_type {
    std::string name;
    /// The times of one micro-batch on one device; equal work on each of g devices takes a g-th.
    layer_times times;
    /// The all-reduces of each layer by number of devices. They are paid once in the forward and once in the backward
    /// pass of a stage on that many devices.
    std::map<std::size_t, std::vector<seconds>> all_reduce;
    /// The memory of one device.
    bytes memory_limit{std::numeric_limits<double>::infinity()};
    std::size_t machines = 0, devices_per_machine = 1;

    [[nodiscard]] std::size_t device_count() const { return machines * devices_per_machine; }
};

/// Tells how the devices of a machine are divided among consecutive stages.
enum class machine_split : std::uint8_t {
    halves, ///< all to one stage, or the machine halved, and each half the same way (Oobleck, section 4.1.2)
    free    ///< any numbers of devices
};

/// Layers in order, to be cut into stages. Each stage is held by devices of one machine, and every machine by
/// consecutive stages. All machines are used; if there are more machines than layers, any may be left out. Every
/// quantity is for one micro-batch.
struct template_problem {
    std::vector<template_device_type> types;
    std::vector<layer_memory> memory;
    std::int64_t micro_batches = 1;
    machine_split split = machine_split::halves;
    /// The names are for reports and may be empty.
    std::vector<std::string> layer_names{};

    [[nodiscard]] std::size_t layer_count() const { return memory.size(); }
    [[nodiscard]] std::size_t machine_count() const;
    /// Tells whether templates leave machines out.
    [[nodiscard]] bool leaves_out() const { return machine_count() > layer_count(); }
    [[nodiscard]] std::size_t device_count() const;
    /// Tells whether a stage may have the next `group` devices of a machine, `taken` of which are in other stages
    /// already.
    [[nodiscard]] bool may_take(std::size_t type, std::size_t taken, std::size_t group) const;
    [[nodiscard]] seconds all_reduce_time(std::size_t type, std::size_t layer, std::size_t group) const {
        return group == 1 ? seconds(0) : types[type].all_reduce.at(group)[layer];
    }
    /// Returns the time of the forward and backward pass of a layer on a group of devices of one machine.
    [[nodiscard]] seconds time_on(std::size_t type, std::size_t layer, std::size_t group) const;
    /// Returns the time of all layers, one after the other, on one device.
    [[nodiscard]] seconds time_on(std::size_t type) const;
};

/// A stage: the layers [first, end) on a group of devices of one machine. Each type numbers its own machines.
struct template_stage {
    std::size_t type = 0, machine = 0, devices = 1;
    std::size_t first = 0, end = 0;
    friend bool operator==(template_stage const&, template_stage const&) = default;
};

namespace detail {

/// *Throws* `input_error` that names the place. Types without machines need no profile.
void check(template_problem const& p);

} // namespace detail
} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::size_t template_problem::machine_count() const {
    std::size_t n = 0;
    for (auto const& t : types) n += t.device_count() > 0 ? t.machines : 0;
    return n;
}

HEDDLE_INLINE std::size_t template_problem::device_count() const {
    std::size_t n = 0;
    for (auto const& t : types) n += t.device_count();
    return n;
}

HEDDLE_INLINE bool template_problem::may_take(std::size_t type, std::size_t taken, std::size_t group) const {
    std::size_t block = types[type].devices_per_machine;
    if (group == 0 || taken + group > block) return false;
    if (split == machine_split::free) return true;
    while (block > group && block % 2 == 0) block /= 2;
    return block == group && taken % group == 0;
}

HEDDLE_INLINE seconds template_problem::time_on(std::size_t type, std::size_t layer, std::size_t group) const {
    auto const& on = types[type].times;
    return (on.forward[layer] + on.backward[layer]) / static_cast<double>(group) +
           2 * all_reduce_time(type, layer, group);
}

HEDDLE_INLINE seconds template_problem::time_on(std::size_t type) const {
    seconds sum;
    for (std::size_t l = 0; l < layer_count(); ++l) sum += time_on(type, l, 1);
    return sum;
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE void check(template_problem const& p) {
    auto const fail = [](std::string const& place, std::string const& problem) {
        throw input_error("template, " + place, problem);
    };
    auto const layers = p.layer_count();
    auto const check_row = [&](std::vector<seconds> const& row, std::string const& place) {
        if (row.size() != layers)
            fail(place, std::to_string(row.size()) + " layers, expected " + std::to_string(layers));
        for (std::size_t l = 0; l < layers; ++l)
            if (!(row[l].value >= 0 && row[l].value <= 1e100))
                fail(place + " of layer " + std::to_string(l),
                     std::to_string(row[l].value) + ", expected a number from 0 to 1e100");
    };
    if (layers == 0) fail("memory", "no layers, expected one at least");
    if (p.device_count() == 0) fail("types", "no machines with devices, expected one at least");
    if (p.micro_batches < 1) fail("micro_batches", std::to_string(p.micro_batches) + ", expected one at least");
    for (std::size_t l = 0; l < layers; ++l)
        for (bytes const b : {p.memory[l].kept, p.memory[l].saved, p.memory[l].input})
            if (!(b.value >= 0 && b.value <= 1e100))
                fail("memory of layer " + std::to_string(l),
                     std::to_string(b.value) + ", expected a number from 0 to 1e100");
    for (std::size_t t = 0; t < p.types.size(); ++t) {
        auto const& type = p.types[t];
        if (type.device_count() == 0) continue;
        std::string const name = "type '" + type.name + "'";
        if (type.times.forward.empty() && type.times.backward.empty())
            fail(name, "has machines but no profile, expected the times of " + std::to_string(layers) + " layers");
        check_row(type.times.forward, name + ", forward time");
        check_row(type.times.backward, name + ", backward time");
        if (!(type.memory_limit.value >= 0))
            fail(name, "memory limit " + std::to_string(type.memory_limit.value) + ", expected none below zero");
        for (std::size_t group = 2; group <= type.devices_per_machine; ++group) {
            if (!p.may_take(t, 0, group)) continue;
            auto const found = type.all_reduce.find(group);
            if (found == type.all_reduce.end())
                fail(name, "no all-reduce times for " + std::to_string(group) + " devices, which a stage may have");
            check_row(found->second, name + ", all-reduce on " + std::to_string(group) + " devices");
        }
    }
}

} // namespace heddle::detail

#endif
