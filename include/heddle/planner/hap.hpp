// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The HAP planner: program synthesis at fixed ratios and ratios of a fixed program, in turn.
///
/// HAP (EuroSys '24), sections 3 to 5.
#pragma once

#include <heddle/planner/hap_run.hpp>
#include <heddle/planner/plan_segments.hpp>

#include <chrono>
#include <string>
#include <type_traits>
#include <utility>

namespace heddle {

/// Plans a program on a cluster.
///
/// Alternates between the best program at fixed ratios and the best ratios of a fixed program, from
/// compute-proportional and from even ratios, prices every pair on integral shards, baselines included, and
/// returns the cheapest that fits into memory, with a bound for its shares. Device groups are planned as one device each, data parallel
/// inside. Segments, where there are any, start from the best ratios of one.
/// *Throws* `input_error` for a cluster that `validate` refuses, a program that is not well formed, or segments that do not fit it.
/// *Complexity.* Linear in the operators for a bounded number of tensors in use at a cut.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan plan_hap(Program const& program, cluster const& c, Solver&& solver, hap_options const& options = {}) {
    validate(c);
    if (!options.segments.empty()) {
        if (options.segments.size() != static_cast<std::size_t>(program_access<Program>::operator_count(program)))
            throw input_error("segments", "there are " + std::to_string(options.segments.size()) + ", expected one per operator");
        if (has_groups(c)) throw input_error("segments", "device groups are planned in one segment only");
        if (!segmented_ratio_solver<std::remove_reference_t<Solver>>) throw input_error("segments", "the ratio solver solves for one segment only");
    }
    indexed_program indexed = index_program(program);
    if (has_groups(c) && options.training.interleaves()) throw input_error("cluster '" + c.name + "'", "has device groups, whose micro-batches do not take turns, expected single devices");
    if (has_groups(c)) split_inside(indexed);
    auto asked = options;
    find_cuts(indexed, asked.pinned);
    auto const start = std::chrono::steady_clock::now();
    plan one = detail::with_accumulator(indexed, c, solver, asked, [](auto&& run) { return run.run(); });
    return asked.segments.empty() || !one.exists() ? one : detail::plan_segments(program, c, solver, std::move(asked), std::move(one), start);
}

/// The one call for the common case.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan find_plan(Program const& program, cluster const& c, Solver&& solver, hap_options const& options = {}) {
    return plan_hap(program, c, solver, options);
}

/// Refuses what is no program with a sentence that says why.
template <class Program, ratio_solver Solver>
    requires(!single_device_program<Program>)
plan find_plan(Program const&, cluster const&, Solver&&, hap_options const& = {}) {
    static_assert(require_single_device_program<Program>());
    return {};
}

} // namespace heddle
