// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans on a mesh of machines and their devices.
#pragma once

#include <heddle/balance/ratio_problem.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/concepts.hpp>
#include <heddle/synthesis/mesh_search.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace heddle {

namespace detail {

/// Returns what was found as a plan of whole atoms, priced device by device.
[[nodiscard]] plan plan_of(indexed_program const& program, cluster const& machines, training_options const& training,
                           mesh_search_result const& found);

[[nodiscard]] plan plan_mesh(indexed_program const& program, cluster const& c, mesh const& m,
                             mesh_search_options const& options, ratio_function const& solve);

} // namespace detail

/// Plans a program on a mesh of two axes: machines, and the equal devices of each.
///
/// The bound is of the shares before they are rounded to whole atoms, as the plan's `space` says. Where a program does not
/// fit once they are whole, one is planned for as much less memory. The outermost axis reduces gradients in buckets.
/// *Throws* `input_error` as `search_mesh` does, and for micro-batches in turn.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan plan_mesh(Program const& program, cluster const& c, mesh const& m, Solver&& solver,
                             mesh_search_options options = {}) {
    if (options.training.interleaves())
        throw input_error("training, micro_batches",
                          "are " + std::to_string(options.training.micro_batches) + " in turn, expected 1 on a mesh");
    return detail::plan_mesh(index_program(program), c, m, options, detail::solve_with(solver));
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/synthesis/device_types.hpp>

namespace heddle::detail {

HEDDLE_INLINE plan plan_of(indexed_program const& program, cluster const& machines, training_options const& training,
                           mesh_search_result const& found) {
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
        if (!cost.fits) p.steps.clear();
    }
    p.space = found.space + (p.exists() ? ", before these are rounded" : "");
    p.which_limit = found.which_limit;
    p.reason = found.program && !p.exists() ? "no program that was met fits into memory once its shares are whole"
                                            : found.reason;
    search::conclude(p, p.exists() ? std::optional(p.cost()) : std::nullopt, found.lower_bound, p.cost());
    p.provenance.planner = "mesh";
    p.provenance.training = training;
    p.provenance.cluster = machines.name;
    return p;
}

HEDDLE_INLINE plan plan_mesh(indexed_program const& program, cluster const& c, mesh const& m,
                             mesh_search_options const& options, ratio_function const& solve) {
    constexpr int attempts = 8;
    search::deadline const until(options.limits);
    auto const machines = with_grouped_machines(c);
    auto const on_device = machines.devices();
    device_types const classes(machines);
    auto searched = machines;
    auto asked = options;
    search::statistics statistics;
    for (int n = 1;; ++n) {
        asked.limits = until.rest(options.limits);
        auto const found = search_mesh(program, searched, m, asked, solve);
        statistics += found.statistics;
        auto p = plan_of(program, machines, options.training, found);
        p.statistics = statistics;
        if (p.exists() || !found.program || n == attempts || until.is_over()) return p;
        for (std::size_t d = 0; d < p.devices.size(); ++d) {
            double const over = p.memory[d].total() / p.devices[d].memory_limit.value;
            auto& memory = searched.types[on_device[d]].memory;
            if (over > 1) memory = std::min(memory, bytes(found.memory[classes.of_device[d]] / over));
        }
    }
}

} // namespace heddle::detail

#endif
