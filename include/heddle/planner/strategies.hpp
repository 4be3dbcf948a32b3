// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Well-known strategies, as plans of their own.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/cost/step.hpp>
#include <heddle/program/concepts.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/search/limits.hpp>
#include <heddle/synthesis/price_strategies.hpp>

#include <vector>

namespace heddle {

namespace detail {

[[nodiscard]] std::vector<planned_strategy> plan_strategies(indexed_program const& program, cluster const& c,
                                                            training_options const& training,
                                                            search::limits const& limits);

} // namespace detail

/// Plans the strategies that trainers offer at even shares, on all devices: each of `baselines_of` on one axis, and each of
/// `mesh_strategies_of` on every mesh that the devices make (`meshes_of`), whose name it then bears too.
/// *Returns* those that fit into memory, the cheapest first. *Throws* `input_error` for micro-batches in turn, and as
/// `validate` of a cluster does.
template <single_device_program Program>
[[nodiscard]] std::vector<planned_strategy> plan_strategies(Program const& program, cluster const& c,
                                                            training_options const& training = {},
                                                            search::limits const& limits = {}) {
    return detail::plan_strategies(index_program(program), c, training, limits);
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/planner/mesh.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/mesh_strategies.hpp>
#include <heddle/synthesis/timed_searches.hpp>
#include <heddle/synthesis/work_bound.hpp>

#include <string>
#include <utility>

namespace heddle::detail {

HEDDLE_INLINE std::vector<planned_strategy> plan_strategies(indexed_program const& program, cluster const& c,
                                                            training_options const& training,
                                                            search::limits const& limits) {
    require_whole_batch(training);
    planning_options options;
    options.training = training;
    options.limits = limits;
    stage_run run(training.overlaps_gradients ? searches_by<overlapped>() : searches_by<serial>(), program, c, options);
    auto found = even_strategies(run);
    for (auto const& m : meshes_of(c)) {
        auto const machines = machines_of(c, m);
        device_types const types(machines);
        double const even = 1 / static_cast<double>(types.of_device.size());
        for (auto const& strategy : mesh_strategies_of(program)) {
            if (run.until.is_over()) break;
            mesh_search_options asked;
            asked.training = training;
            asked.ratios = std::vector<double>(types.classes.size(), even);
            asked.strategy = strategy.allowed;
            asked.limits = run.until.rest(limits);
            auto p = plan_on_machines(program, machines, m, asked, {});
            if (p.exists() && has_witnesses(p, strategy))
                found.push_back({strategy.name + " on " + to_string(m), std::move(p)});
        }
    }
    for (auto& [name, p] : found) {
        p.provenance.planner = "strategies";
        p.provenance.cluster = c.name;
        p.space = "plans of all stages, forms, shares and micro-batches";
        p.which_limit = search::limit_kind::none;
        search::conclude(p, p.cost(), work_bound(program, c).value);
    }
    algorithm::sort(found, {}, [](planned_strategy const& s) { return std::pair(s.plan.cost(), s.name); });
    return found;
}

} // namespace heddle::detail

#endif
