// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The HAP planner: program synthesis at fixed ratios and ratios of a fixed program, in turn.
///
/// HAP (EuroSys '24), sections 3 to 5.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/synthesis/alternation.hpp>
#include <heddle/synthesis/balance_program.hpp>
#include <heddle/synthesis/plan_segments.hpp>
#include <heddle/synthesis/planning_options.hpp>
#include <heddle/synthesis/price_strategies.hpp>
#include <heddle/synthesis/proof.hpp>
#include <heddle/synthesis/stage_run.hpp>

#include <optional>
#include <string>
#include <utility>

namespace heddle {

using hap_options = planning_options;

namespace detail {

/// Plans one indexed program, from ratios per device or, if there are none, from the paper's two starts; only then
/// strategies are priced beside it.
template <time_accumulator Accumulator>
[[nodiscard]] plan run_hap(indexed_program const& program, cluster const& c, ratio_balancer const& balance,
                           planning_options const& options, std::optional<ratio_table> const& start) {
    stage_run<Accumulator> run(program, c, options);
    priced_strategies strategies;
    alternation<Accumulator> pairs(run, balance);
    if (start) {
        pairs.search_from({{"segments", run.programs.types().per_type(*start)}});
    } else {
        if (options.compares_and_proves) strategies = price_strategies(run);
        pairs.search_from({{"compute-proportional", run.programs.compute_proportional_ratios()},
                           {"even", run.programs.even_ratios()}});
    }
    if (!run.record.is_empty()) {
        move_atoms_of_candidates(run.record, run.programs, run.until);
        if (options.compares_and_proves) prove(run, pairs);
    }
    plan result = std::move(run).concluded();
    result.provenance.planner = "hap";
    result.baselines = std::move(strategies.baselines);
    result.other_baselines = std::move(strategies.other_baselines);
    result.warnings.insert(result.warnings.end(), strategies.warnings.begin(), strategies.warnings.end());
    return result;
}

/// Plans a program of any type by any solver, as `plan_hap` does.
[[nodiscard]] plan plan_hap(program_indexer const& index, cluster const& c, ratio_balancer const& balance,
                            hap_options const& options);

} // namespace detail

/// Plans a program on a cluster.
///
/// Alternates between the best program at fixed ratios and the best ratios of a fixed program, from
/// compute-proportional and from even ratios. It prices every pair on integral shards, baselines included, and returns
/// the cheapest that fits into memory, with a bound for its shares. Each device group is planned as one device, which
/// is data-parallel inside. If there are segments, they start from the best ratios of one segment.
/// *Throws* `input_error` as `plan_in_segments` does, and for micro-batches in turn, which `plan_hidup` plans.
/// *Complexity.* Linear in the operators for a bounded number of tensors in use at a cut.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan plan_hap(Program const& program, cluster const& c, Solver&& solver,
                            hap_options const& options = {}) {
    return detail::plan_hap(indexer_of(program), c, ratio_balancer(solver), options);
}

/// As above, timed by an accumulator of the user's own. Ratios are those that are best if nothing overlaps; shares are
/// then moved by the accumulator's time. There are bounds if the accumulator has a relaxation, and if a search comes to
/// its end.
template <time_accumulator Accumulator, single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan plan_hap(Program const& program, cluster const& c, Solver&& solver, hap_options options = {}) {
    options.training.accumulator = accumulator_of<Accumulator>();
    ratio_balancer const balance(solver);
    return plan_in_segments(
        indexer_of(program), c, options, balance,
        [&](indexed_program const& indexed, planning_options const& asked, std::optional<ratio_table> const& start) {
            return detail::run_hap<Accumulator>(indexed, c, balance, asked, start);
        });
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE plan plan_hap(program_indexer const& index, cluster const& c, ratio_balancer const& balance,
                            hap_options const& options) {
    if (options.training.interleaves())
        throw input_error("training, micro_batches", "are " + std::to_string(options.training.micro_batches) +
                                                         " in turn, expected 1; plan_hidup plans more");
    return plan_in_segments(
        index, c, options, balance,
        [&](indexed_program const& program, planning_options const& asked, std::optional<ratio_table> const& start) {
            return options.training.overlaps_gradients ? run_hap<overlapped>(program, c, balance, asked, start)
                                                       : run_hap<serial>(program, c, balance, asked, start);
        });
}

} // namespace heddle::detail

#endif
