// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Bounds how fast strategies of one shape can be, wherever their stages are placed.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/layer_assignment.hpp>
#include <heddle/pipeline/strategy.hpp>

#include <algorithm>
#include <cstddef>

namespace heddle {

struct shape_bound {
    /// No strategy of the shape takes less.
    seconds bound{0};
    /// The assignment of the relaxed problem; if that is infeasible, so is the shape.
    layer_assignment assignment;
};

namespace detail {

/// Returns the best bandwidth of any link that may limit a ring of gradients: one between machines if copies and parts
/// do not fit into one machine.
bytes_per_second best_ring_bandwidth(strategy_problem const& p, parallel_degrees d);

} // namespace detail

/// Bounds a shape as if every stage ran each layer on the fastest type, had the most memory of all and were next to the
/// others, and as if gradients, with a shared parameter's counted once, were equal in all stages and went over the best
/// link there is, as much faster as was measured.
/// *Precondition:* the tensor degree is profiled on the type of every machine. *Complexity.* That of `assign_layers`.
[[nodiscard]] shape_bound bound_shape(strategy_model const& model, parallel_shape const& grid);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE bytes_per_second best_ring_bandwidth(strategy_problem const& p, parallel_degrees d) {
    bytes_per_second best(0);
    for (auto const& row : p.bandwidths)
        for (auto const b : row) best = std::max(best, b);
    if (!p.bandwidths.empty()) return best;
    for (auto const& m : p.machines) {
        if (p.machines.size() > 1) best = std::max(best, m.outside.bandwidth);
        if (d.data * d.tensor <= m.devices) best = std::max(best, m.inside.bandwidth);
    }
    return best;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE shape_bound bound_shape(strategy_model const& model, parallel_shape const& grid) {
    auto const& p = model.problem();
    auto const& [degrees, size, passes] = grid;
    layer_assignment_problem relaxed = model.assignment(megatron_placement(degrees), size, passes);
    relaxed.links.clear();
    relaxed.times.resize(1);
    pipeline_device best{0, bytes(0)};
    for (auto const& m : p.machines) best.memory_limit = std::max(best.memory_limit, p.types[m.type].memory);
    relaxed.devices.assign(degrees.pipeline, best);
    bytes gradients;
    for (std::size_t l = 0; l < p.layer_count(); ++l) {
        auto& least = relaxed.times[0].forward[l];
        least = p.time_on(p.machines.front().type, degrees.tensor, l, size);
        for (auto const& m : p.machines) least = std::min(least, p.time_on(m.type, degrees.tensor, l, size));
        gradients += p.layers[l].gradients.on(degrees.tensor);
    }
    for (auto const& parameter : p.shared)
        gradients -= static_cast<double>(parameter.layers.size() - 1) * parameter.gradients.on(degrees.tensor);
    shape_bound out{seconds(0), assign_layers(relaxed)};
    if (!out.assignment.cost) return out;
    out.bound = out.assignment.lower_bound;
    if (degrees.data == 1 || !(gradients.value > 0)) return out;
    double const ranks = static_cast<double>(degrees.data), stages = static_cast<double>(degrees.pipeline);
    out.bound += 2 * (ranks - 1) / ranks / stages * (gradients / detail::best_ring_bandwidth(p, degrees)) /
                 model.measured_speedup();
    return out;
}

} // namespace heddle

#endif
