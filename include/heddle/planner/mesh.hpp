// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans on a mesh of machines and their devices.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/concepts.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/mesh_search.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace heddle {

namespace detail {

/// Returns what was found as a plan of whole atoms, priced device by device.
[[nodiscard]] plan plan_of(indexed_program const& program, cluster const& c, training_options const& training,
                           mesh_search_result found);

} // namespace detail

/// Plans a program on a mesh of two axes: machines, and the equal devices of each.
///
/// The bound is of the shares before they are rounded to whole atoms, as the plan's `space` says. Gradients are reduced
/// each on its own, not in buckets.
/// *Throws* `input_error` as `search_mesh` does, and for micro-batches in turn.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan plan_mesh(Program const& program, cluster const& c, mesh const& m, Solver&& solver,
                             mesh_search_options options = {}) {
    if (options.training.interleaves())
        throw input_error("training, micro_batches",
                          "are " + std::to_string(options.training.micro_batches) + " in turn, expected 1 on a mesh");
    options.training.bucket = bytes(0);
    auto const indexed = index_program(program);
    return detail::plan_of(indexed, c, options.training, search_mesh(indexed, c, m, solver, options));
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE plan plan_of(indexed_program const& program, cluster const& c, training_options const& training,
                           mesh_search_result found) {
    auto const machines = with_grouped_machines(c);
    plan p;
    if (found.program) {
        p = plan_on_mesh(program, *found.program, training);
        auto const types = machines.devices();
        for (std::size_t d = 0; d < types.size(); ++d) {
            p.devices[d].type = machines.types[types[d]].name;
            p.devices[d].memory_limit = machines.types[types[d]].memory;
        }
        p.ratios = device_types(machines).per_device(ratio_table(p.ratios.size(), found.ratios));
        auto const cost = evaluate(p, machines);
        p.time = cost.time;
        p.memory = cost.memory;
        if (!cost.fits) {
            p.steps.clear();
            found.reason = "the best program that was met does not fit into memory once its shares are whole";
        }
    }
    p.space = found.space + (p.exists() ? ", before these are rounded" : "");
    p.which_limit = found.which_limit;
    p.reason = found.reason;
    p.statistics = found.statistics;
    search::conclude(p, p.exists() ? std::optional(p.cost()) : std::nullopt, found.lower_bound, p.cost());
    p.provenance.planner = "mesh";
    p.provenance.training = training;
    p.provenance.cluster = machines.name;
    return p;
}

} // namespace heddle::detail

#endif
