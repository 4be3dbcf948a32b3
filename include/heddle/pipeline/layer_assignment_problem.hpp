// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The problem of assigning layers in order to devices in order.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/pipeline/stage_memory.hpp>
#include <heddle/plan/schedule.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace heddle {

/// The times of each layer for one micro-batch on one type of device.
struct layer_times {
    std::vector<seconds> forward, backward;
};

/// A device that holds stages, or a group of devices that works as one.
struct pipeline_device {
    /// Which of the problem's `times` it has.
    std::size_t type = 0;
    bytes memory_limit{std::numeric_limits<double>::infinity()};
};

/// Layers in order and devices in order. Every quantity is for one micro-batch.
struct layer_assignment_problem {
    /// The times by type of device.
    std::vector<layer_times> times;
    std::vector<layer_memory> memory;
    std::vector<pipeline_device> devices;
    /// The links from each device to the next. A cut costs the transfer of the activations that enter the layer after
    /// it, once (AMP's e_i; with half the bandwidth it includes the gradient's way back). If it is empty, boundaries
    /// are free.
    std::vector<network_link> links;
    /// The link from the last device to the first, for schedules with several stages per device.
    network_link back_link{bytes_per_second(std::numeric_limits<double>::infinity()), seconds(0)};
    std::int64_t micro_batches = 1;
    /// If set, stages keep the layers' inputs alone and run each layer forward again before its backward pass.
    bool recompute = false;

    [[nodiscard]] std::size_t layer_count() const { return memory.size(); }
    [[nodiscard]] pipeline_shape shape() const { return {devices.size(), micro_batches}; }
    [[nodiscard]] std::size_t device_of(std::size_t stage) const { return stage % devices.size(); }

    [[nodiscard]] seconds time_on(std::size_t type, std::size_t layer) const {
        return (recompute ? 2 : 1) * times[type].forward[layer] + times[type].backward[layer];
    }
    /// Returns the time of a cut between a stage and the next, before the layer.
    [[nodiscard]] seconds boundary(std::size_t stage, std::size_t layer) const;
};

namespace detail {

void check(layer_assignment_problem const& p);

} // namespace detail
} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE seconds layer_assignment_problem::boundary(std::size_t stage, std::size_t layer) const {
    if (links.empty()) return {};
    auto const& link = device_of(stage) + 1 < devices.size() ? links[device_of(stage)] : back_link;
    return link.latency + memory[layer].input / link.bandwidth;
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE void check(layer_assignment_problem const& p) {
    auto const fail = [](std::string const& place, std::string const& problem) {
        throw input_error("layer assignment, " + place, problem);
    };
    auto const check_amount = [&](double x, auto const& place) {
        if (!(x >= 0 && x <= 1e100)) fail(place(), std::to_string(x) + ", expected a number from 0 to 1e100");
    };
    std::size_t const layers = p.layer_count();
    for (std::size_t t = 0; t < p.times.size(); ++t)
        for (bool const forward : {true, false}) {
            auto const& row = forward ? p.times[t].forward : p.times[t].backward;
            auto const place = [&] {
                return (forward ? "forward time on type " : "backward time on type ") + std::to_string(t);
            };
            if (row.size() != layers)
                fail(place(), std::to_string(row.size()) + " layers, expected " + std::to_string(layers));
            for (std::size_t l = 0; l < layers; ++l)
                check_amount(row[l].value, [&] { return place() + " of layer " + std::to_string(l); });
        }
    for (std::size_t l = 0; l < layers; ++l) {
        check_amount(p.memory[l].kept.value, [&] { return "kept bytes of layer " + std::to_string(l); });
        check_amount(p.memory[l].saved.value, [&] { return "saved bytes of layer " + std::to_string(l); });
        check_amount(p.memory[l].input.value, [&] { return "input bytes of layer " + std::to_string(l); });
        check_amount(p.memory[l].momentary.value, [&] { return "momentary bytes of layer " + std::to_string(l); });
    }
    if (layers == 0) fail("memory", "no layers, expected one at least");
    if (p.devices.empty()) fail("devices", "none, expected one at least");
    for (auto const& d : p.devices) {
        if (d.type >= p.times.size())
            fail("devices", "type " + std::to_string(d.type) + ", expected one of " + std::to_string(p.times.size()));
        if (!(d.memory_limit.value >= 0))
            fail("devices", "memory limit " + std::to_string(d.memory_limit.value) + ", expected none below zero");
    }
    if (!p.links.empty() && p.links.size() + 1 < p.devices.size())
        fail("links", std::to_string(p.links.size()) + ", expected one fewer than devices, or none");
    auto const check_link = [&](network_link const& link) {
        check_amount(link.latency.value, [] { return "latency of a link"; });
        if (!(link.bandwidth.value >= 1e-100))
            fail("bandwidth of a link", std::to_string(link.bandwidth.value) + ", expected 1e-100 at least");
    };
    for (auto const& link : p.links) check_link(link);
    check_link(p.back_link);
    if (p.micro_batches < 1) fail("micro_batches", std::to_string(p.micro_batches) + ", expected one at least");
}

} // namespace heddle::detail

#endif
