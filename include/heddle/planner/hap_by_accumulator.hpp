// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The HAP planner by any accumulator of time, a user's own as well.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/synthesis/balance_program.hpp>
#include <heddle/synthesis/plan_segments.hpp>
#include <heddle/synthesis/planning_options.hpp>
#include <heddle/synthesis/timed_searches.hpp>

#include <optional>

namespace heddle {

namespace detail {

/// Plans one indexed program, from ratios per device or, if there are none, from the paper's two starts; only then
/// strategies are priced beside it, and some of them by the searches of the other choice of gradient overlap, if there
/// is one.
[[nodiscard]] plan run_hap(timed_searches const& by, std::optional<timed_searches> const& otherwise,
                           indexed_program const& program, cluster const& c, ratio_balancer const& balance,
                           planning_options const& options, std::optional<ratio_table> const& start);

} // namespace detail

/// Plans a program as `plan_hap` does, timed by an accumulator of the user's own. Ratios are those that are best if
/// nothing overlaps; shares are then moved by the accumulator's time. There are bounds if the accumulator has a
/// relaxation, and if a search comes to its end.
template <time_accumulator Accumulator, single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan plan_hap(Program const& program, cluster const& c, Solver&& solver, planning_options options = {}) {
    options.training.accumulator = accumulator_of<Accumulator>();
    ratio_balancer const balance(solver);
    return plan_in_segments(
        indexer_of(program), c, options, balance,
        [&](indexed_program const& indexed, planning_options const& asked, std::optional<ratio_table> const& start) {
            return detail::run_hap(searches_by<Accumulator>(), std::nullopt, indexed, c, balance, asked, start);
        });
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/synthesis/alternation.hpp>
#include <heddle/synthesis/price_strategies.hpp>
#include <heddle/synthesis/proof.hpp>
#include <heddle/synthesis/stage_run.hpp>

#include <utility>

namespace heddle::detail {

HEDDLE_INLINE plan run_hap(timed_searches const& by, std::optional<timed_searches> const& otherwise,
                           indexed_program const& program, cluster const& c, ratio_balancer const& balance,
                           planning_options const& options, std::optional<ratio_table> const& start) {
    stage_run run(by, program, c, options);
    priced_strategies strategies;
    alternation pairs(run, balance);
    if (start) {
        pairs.search_from({{"segments", run.programs.types().per_type(*start)}});
    } else {
        if (options.compares && !options.allowed_computations) strategies = price_strategies(run, otherwise);
        pairs.search_from({{"compute-proportional", run.programs.compute_proportional_ratios()},
                           {"even", run.programs.even_ratios()}});
    }
    if (run.is_worth(alternation::hopeless)) {
        move_atoms_of_candidates(run.record, run.programs, run.until);
        if (options.proves) prove(run, pairs, search_near_bounds(run, pairs));
    }
    plan result = std::move(run).concluded();
    result.provenance.planner = "hap";
    result.baselines = std::move(strategies.baselines);
    result.other_baselines = std::move(strategies.other_baselines);
    result.warnings.insert(result.warnings.end(), strategies.warnings.begin(), strategies.warnings.end());
    return result;
}

} // namespace heddle::detail

#endif
