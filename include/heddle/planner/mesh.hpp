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
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Returns the meshes of two axes that a cluster's devices make: groups of some devices of a machine, equally many of
/// each, the smallest groups first.
[[nodiscard]] std::vector<mesh> meshes_of(cluster const& c);

/// Returns the meshes of three axes of which the inner two are the largest of those groups.
[[nodiscard]] std::vector<mesh> meshes_of_three_axes(cluster const& c);

/// Returns a cluster as a mesh has it: the devices of each place on the outermost axis as one machine. These are some
/// of a machine's devices, or whole machines, of which the innermost axes have the devices.
/// *Throws* `input_error` if they are neither, or are not all of the cluster.
[[nodiscard]] cluster machines_of(cluster const& c, mesh const& m);

namespace detail {

/// Returns what was found as a plan of whole atoms, priced device by device.
[[nodiscard]] plan plan_of(indexed_program const& program, cluster const& machines, training_options const& training,
                           mesh_search_result const& found);

[[nodiscard]] plan plan_mesh(indexed_program program, cluster const& c, mesh const& m,
                             mesh_search_options const& options, ratio_function const& solve);
[[nodiscard]] plan plan_meshes(indexed_program const& program, cluster const& c, mesh_search_options const& options,
                               ratio_function const& solve);

/// *Throws* `input_error` for micro-batches in turn.
inline void require_whole_batch(training_options const& training) {
    if (training.interleaves())
        throw input_error("training, micro_batches",
                          "are " + std::to_string(training.micro_batches) + " in turn, expected 1 on a mesh");
}

} // namespace detail

/// Plans a program on a mesh of two axes: machines, or groups of their devices, and the equal devices of each; or on
/// one of three, `search_mesh`.
///
/// The bound is of shares that are rounded factor by factor, as the plan's `space` says; a plan cuts factors at the
/// same points by atoms of all of them. Where a program does not fit so, one is planned for as much less memory. The
/// outermost axis reduces gradients in buckets. Beside one of two axes well-known strategies are planned
/// (`mesh_strategies_of`), which are its baselines; one that is cheaper, or fits where nothing else does, and keeps the
/// pins is the plan. Beside one of three axes, unless restricted by pins or a strategy, plans on two are, which have
/// neighbouring axes as one.
/// *Throws* `input_error` as `machines_of` and `search_mesh` do, and for micro-batches in turn.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan plan_mesh(Program const& program, cluster const& c, mesh const& m, Solver&& solver,
                             mesh_search_options options = {}) {
    detail::require_whole_batch(options.training);
    return detail::plan_mesh(index_program(program), c, m, options, detail::solve_with(solver));
}

/// Plans a program on each of a cluster's meshes of two axes and, unless tensors are pinned or a strategy is asked for,
/// on those of three (`meshes_of_three_axes`), and returns the cheapest plan. What those on the others take is among
/// its baselines, by the mesh.
/// *Throws* `input_error` if there is no mesh, and as `plan_mesh` does.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan plan_meshes(Program const& program, cluster const& c, Solver&& solver,
                               mesh_search_options options = {}) {
    detail::require_whole_batch(options.training);
    return detail::plan_meshes(index_program(program), c, options, detail::solve_with(solver));
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/memory_reason.hpp>
#include <heddle/synthesis/mesh_strategies.hpp>
#include <heddle/theory/recomputation.hpp>

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
    p.space = found.space + (p.exists() ? ", rounded factor by factor" : "");
    p.which_limit = found.which_limit;
    p.reason = found.program && !p.exists() ? "no program that was met fits into memory once its shares are whole"
                                            : found.reason;
    search::conclude(p, p.exists() ? std::optional(p.cost()) : std::nullopt, found.lower_bound, p.cost());
    p.provenance.planner = "mesh";
    p.provenance.training = training;
    p.provenance.cluster = machines.name;
    return p;
}

/// Returns the plan that is searched for, or that of a strategy, without others beside it.
[[nodiscard]] HEDDLE_INLINE plan plan_on_machines(indexed_program const& program, cluster const& machines,
                                                  mesh const& m, mesh_search_options const& options,
                                                  ratio_function const& solve) {
    constexpr int attempts = 8;
    search::deadline const until(options.limits);
    auto const on_device = machines.devices();
    device_types const classes(machines);
    auto searched = machines;
    auto asked = options;
    search::statistics statistics;
    if (auto why = why_nothing_fits(program, options.training, machines)) {
        mesh_search_result none;
        none.status = search::status::infeasible;
        none.reason = *std::move(why);
        return plan_of(program, machines, options.training, none);
    }
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

/// Tells whether every axis of a plan has something that counts as its strategy.
[[nodiscard]] inline bool has_witnesses(plan const& p, mesh_strategy const& s) {
    for (axis_number a = 0; a < s.witnesses.size(); ++a)
        if (algorithm::none_of(p.steps, [&](plan_step const& step) { return s.witnesses[a](step.on_axis(a)); }))
            return false;
    return true;
}

[[nodiscard]] inline bool keeps_pins(indexed_program const& program, plan const& p,
                                     mesh_search_options const& options) {
    for (axis_number a = 0; a < p.mesh().axis_count(); ++a) {
        auto pinned = options.pinned[a];
        find_cuts(program, pinned);
        if (!algorithm::all_of(p.steps,
                               [&](plan_step const& s) { return heddle::keeps_pins(program, pinned, s.on_axis(a)); }))
            return false;
    }
    return true;
}

/// Notes among the baselines of a plan on three axes what plans on two take, which have two of them as one.
HEDDLE_INLINE void note_joined_axes(plan& p, indexed_program const& program, cluster const& c, mesh const& m,
                                    mesh_search_options const& options, ratio_function const& solve,
                                    search::deadline const& until) {
    auto const all = meshes_of(c);
    for (auto const& joined : {mesh({m.size(0) * m.size(1), m.size(2)}), mesh({m.size(0), m.size(1) * m.size(2)})}) {
        if (algorithm::find(all, joined) == all.end() || until.is_over()) continue;
        auto asked = options;
        asked.limits = until.rest(options.limits);
        auto const beside = plan_on_machines(program, machines_of(c, joined), joined, asked, solve);
        p.baselines["mesh " + to_string(joined)] = beside.exists() ? std::optional(beside.cost()) : std::nullopt;
        p.statistics += beside.statistics;
    }
}

HEDDLE_INLINE plan plan_mesh(indexed_program program, cluster const& c, mesh const& m,
                             mesh_search_options const& options, ratio_function const& solve) {
    search::deadline const until(options.limits);
    recompute(program, options.training.recomputes, options.training.in_flight);
    auto const machines = machines_of(c, m);
    auto best = plan_on_machines(program, machines, m, options, solve);
    if (!options.compares || !options.strategy.empty()) return best;
    if (m.axis_count() == 3) {
        if (!restricts_axes(options)) note_joined_axes(best, program, c, m, options, solve, until);
        return best;
    }
    for (auto const& strategy : mesh_strategies_of(program)) {
        if (until.is_over() && best.exists()) break;
        auto asked = options;
        asked.pinned = {};
        asked.strategy = strategy.allowed;
        asked.limits = until.rest(options.limits);
        auto p = plan_on_machines(program, machines, m, asked, solve);
        auto const cost = p.exists() ? std::optional(p.cost()) : std::nullopt;
        if (!cost || has_witnesses(p, strategy)) best.baselines[strategy.name] = cost;
        best.statistics += p.statistics;
        if (!cost || (best.exists() && *cost >= best.cost()) || !keeps_pins(program, p, options)) continue;
        p.baselines = std::move(best.baselines);
        p.statistics = best.statistics;
        p.space = std::move(best.space);
        p.which_limit = best.which_limit;
        search::conclude(p, cost, std::min(best.lower_bound, *cost), *cost);
        best = std::move(p);
    }
    return best;
}

HEDDLE_INLINE plan plan_meshes(indexed_program const& program, cluster const& c, mesh_search_options const& options,
                               ratio_function const& solve) {
    search::deadline const until(options.limits);
    auto all = meshes_of(c);
    if (all.empty())
        throw input_error("cluster '" + c.name + "'",
                          "makes no mesh, expected machines of several devices, equally many");
    std::optional<plan> best;
    std::map<std::string, std::optional<double>> costs;
    algorithm::reverse(all); // whole machines first
    if (!restricts_axes(options))
        for (auto& m : meshes_of_three_axes(c)) all.push_back(std::move(m));
    for (auto const& m : all) {
        if (best && until.is_over()) break;
        auto asked = options;
        asked.limits = until.rest(options.limits);
        asked.compares = options.compares && m.axis_count() == 2; // what others take is known
        auto p = plan_mesh(program, c, m, asked, solve);
        costs["mesh " + to_string(m)] = p.exists() ? std::optional(p.cost()) : std::nullopt;
        if (best) p.statistics += best->statistics;
        auto const statistics = p.statistics;
        if (!best || (p.exists() && (!best->exists() || p.cost() < best->cost()))) {
            if (best && !asked.compares) p.baselines.merge(std::move(best->baselines));
            best = std::move(p);
        }
        best->statistics = statistics;
    }
    if (best->exists()) costs.erase("mesh " + to_string(best->mesh()));
    best->baselines.merge(costs);
    return std::move(*best);
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::vector<mesh> meshes_of(cluster const& c) {
    std::size_t devices = 0, of_machine = 0; // the most that divide every machine
    for (auto const& machines : c.machines) {
        of_machine = std::gcd(of_machine, static_cast<std::size_t>(machines.devices));
        devices += static_cast<std::size_t>(machines.devices) * static_cast<std::size_t>(machines.count);
    }
    std::vector<mesh> result;
    for (std::size_t inside = 2; inside <= of_machine; ++inside)
        if (of_machine % inside == 0 && inside < devices) result.push_back(mesh({devices / inside, inside}));
    return result;
}

HEDDLE_INLINE std::vector<mesh> meshes_of_three_axes(cluster const& c) {
    auto const of_two = meshes_of(c);
    std::vector<mesh> result;
    if (of_two.empty()) return result;
    auto const outside = of_two.back().size(0), inside = of_two.back().size(1); // of the largest groups
    for (std::size_t last = 2; last < inside; ++last)
        if (inside % last == 0) result.push_back(mesh({outside, inside / last, last}));
    return result;
}

HEDDLE_INLINE cluster machines_of(cluster const& c, mesh const& m) {
    std::size_t devices = 0, product = 1;
    for (auto const& machines : c.machines)
        devices += static_cast<std::size_t>(machines.devices) * static_cast<std::size_t>(machines.count);
    for (auto size : m.sizes())
        product *= std::min(size, devices + 1); // each at most as many, so that none is too large
    auto const all = meshes_of(c);
    bool fits = product == devices;
    std::size_t const together = fits ? devices / m.size(0) : 1; // at a place of the outermost axis
    if (m.axis_count() < 3) {
        fits = algorithm::find(all, m) != all.end();
    } else if (fits) {
        auto const are_on_axes = [&](std::size_t of_machine) { // the machine's devices are those of the innermost axes
            axis_number a = 1;
            while (a + 1 < m.axis_count() && m.devices_inside(a) != of_machine) ++a;
            return m.devices_inside(a) == of_machine;
        };
        fits = together > 1 && algorithm::all_of(c.machines, [&](machine_group const& machines) {
                   auto const of_machine = static_cast<std::size_t>(machines.devices);
                   return of_machine % together == 0 ||
                          (of_machine * static_cast<std::size_t>(machines.count) % together == 0 &&
                           are_on_axes(of_machine));
               });
    }
    if (!fits) {
        std::string expected;
        for (auto const& other : all) expected += (expected.empty() ? ": " : ", ") + to_string(other);
        throw input_error("mesh", "is " + to_string(m) +
                                      ", expected groups of a machine's devices on the inner axis, and as many as "
                                      "there are on the outer one" +
                                      expected +
                                      "; or three axes, of which the inner two may be machines and their devices");
    }
    return with_groups_of(c, static_cast<int>(together));
}

} // namespace heddle

#endif
