// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The HiDup planner: shardings and stages for micro-batches that take turns, so that one communicates while
/// another computes.
///
/// HiDup (SoCC '22), sections 3 and 4.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/synthesis/balance_program.hpp>
#include <heddle/synthesis/plan_segments.hpp>
#include <heddle/synthesis/planning_options.hpp>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

struct hidup_options {
    /// Segments, pins, limits and training are as for `plan_hap`. By default the engine is Pareto dynamic programming
    /// with a beam, over cuts of the program's graph.
    planning_options planning{.synthesis = {.engine = search_engine::pareto_dp, .beam = 30}, .cuts = 16};
    int micro_batches = 2;
    /// The time to turn from one micro-batch to the next; see `training_options`.
    seconds turn{};
    /// Batch norms and the like compute other statistics, those of a part of the batch. If set, this is a warning
    /// instead of an error.
    bool allows_batch_statistics = false;
    /// If set, the whole batch is also planned at once, with gradients reduced beside the backward pass; that plan is a
    /// baseline, and so are its own.
    bool compares = true;
};

namespace detail {

/// Plans a program of any type by any solver, as `plan_hidup` does.
[[nodiscard]] plan plan_hidup(program_indexer const& index, program const& whole_program, cluster const& c,
                              ratio_balancer const& balance, hidup_options const& options);
/// Plans a program that is one of the micro-batches that take turns: as many as the options of training say.
/// *Throws* `input_error` if activations are to be recomputed.
[[nodiscard]] plan plan_part_in_turns(program const& part, cluster const& c, ratio_balancer const& balance,
                                      planning_options const& options);

} // namespace detail

/// Plans a program whose batch is run in parts that take turns. The plan is one of `micro_batch_of(program,
/// micro_batches)`.
///
/// Alternates as `plan_hap` does, from compute-proportional and even ratios; on equal devices that is one search.
///
/// *Returns* `optimal` if no program is faster at the plan's shares. This covers all programs of `cut_space` that
/// `converting_before_views` keeps, in every order of operators in which what depends on parameters alone runs where it
/// is needed (`operator_progress`), and all stages that begin at a collective or before an operator that reads a
/// parameter. It does not cover a program that `converting_before_views` leaves out and that has
/// a stage which begins with a parameter and at no collective: local conversions of that stage count in the stage
/// before, so such a program may be faster. If a bound on the width left out orders, the status is `optimal` only if no
/// order can be faster; otherwise it is a limit on the width. Where several orders have too many programs,
/// those of the given order are planned as well, and the cheaper plan is returned. The time limit and `statistics` are
/// for all plans together; the plan of the whole batch gets the time that these leave.
/// *Throws* `input_error` for a batch that cannot be divided so, for device groups, and for an operator with statistics
/// of the batch.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan plan_hidup(Program const& program, cluster const& c, Solver&& solver,
                              hidup_options const& options = {}) {
    return detail::plan_hidup(indexer_of(program), program_of(program), c, ratio_balancer(solver), options);
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/cost/duplex.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/synthesis/alternation.hpp>
#include <heddle/synthesis/proof.hpp>
#include <heddle/synthesis/stage_run.hpp>
#include <heddle/synthesis/timed_searches.hpp>
#include <heddle/theory/micro_batch.hpp>

namespace heddle::detail {

/// Searches the programs of a micro-batch, from ratios per device or from the starts of `plan_hap`, which on equal devices
/// are one start.
HEDDLE_INLINE void search_in_turns(stage_run& run, ratio_balancer const& balance,
                                   std::optional<ratio_table> const& start) {
    alternation pairs(run, balance);
    auto const proportional = run.programs.compute_proportional_ratios(), even = run.programs.even_ratios();
    std::vector<starting_point> starts{{"even", even}};
    if (start) starts = {{"segments", run.programs.types().per_type(*start)}};
    else if (proportional != even) starts.insert(starts.begin(), {"compute-proportional", proportional});
    pairs.search_from(starts);
    if (!run.record.is_empty()) move_atoms_of_candidates(run.record, run.programs, run.until);
}

/// Plans one indexed micro-batch. Where several orders of operators have more programs than are kept, those of the given
/// order are planned as well: of these more are kept.
HEDDLE_INLINE plan run_hidup(indexed_program const& part, cluster const& c, ratio_balancer const& balance,
                             planning_options const& options, std::optional<ratio_table> const& start) {
    auto const by = searches_by<duplex>();
    stage_run run(by, part, c, options);
    search_in_turns(run, balance, start);
    auto in_one_order = options;
    in_one_order.cuts = 1;
    std::optional<stage_run> other;
    bool const has_more_orders = options.cuts > 1 && !run.programs.is_complete();
    if (has_more_orders && !run.until.is_over() &&
        (std::isinf(options.worth_below) || run.is_worth(alternation::by_far))) {
        in_one_order.limits = run.until.rest(options.limits);
        other.emplace(by, part, c, in_one_order);
        search_in_turns(*other, balance, start);
    }
    constexpr double about = 1.2; // a proof finds programs too
    bool const proves = options.proves && (run.is_worth(about) || (other && other->is_worth(about)));
    auto const conclude = [&](stage_run& r) {
        if (proves && !r.record.is_empty()) prove_by_search(r);
        return std::move(r).concluded();
    };
    plan result = conclude(run);
    if (other) {
        auto second = conclude(*other);
        auto statistics = result.statistics;
        statistics += second.statistics;
        if (second.exists() && (!result.exists() || second.cost() < result.cost())) result = std::move(second);
        result.statistics = statistics;
    }
    if (run.programs.lacks_orders())
        result.warnings.push_back("orders of the operators were left out, by the bound of " +
                                  std::to_string(options.cuts) + " cuts of equally many" +
                                  (proves ? "; the lower bound holds for them too" : ""));
    result.provenance.planner = "hidup";
    return result;
}

HEDDLE_INLINE plan plan_part_in_turns(program const& part, cluster const& c, ratio_balancer const& balance,
                                      planning_options const& options) {
    if (options.training.recomputes != recomputation::none)
        throw input_error("training, recomputes", "is set, but micro-batches that take turns hold their activations");
    return plan_in_segments(
        indexer_of(part), c, options, balance,
        [&](indexed_program const& one, planning_options const& asked, std::optional<ratio_table> const& start) {
            return run_hidup(one, c, balance, asked, start);
        });
}

HEDDLE_INLINE plan plan_hidup(program_indexer const& index, program const& whole_program, cluster const& c,
                              ratio_balancer const& balance, hidup_options const& options) {
    auto const indexed = index({});
    auto const part = micro_batch_of(whole_program, options.micro_batches);
    auto const [statistic, operation] = obstacles_to_micro_batches(indexed);
    auto const fail = [&](operator_id o, char const* problem) {
        throw input_error("micro-batches, operator '" + indexed.operators[o].name + "'", problem);
    };
    if (operation)
        fail(*operation, "does not add up over parts of the batch that run one after the other, expected a loss that "
                         "is a sum or mean over the batch");
    if (statistic && !options.allows_batch_statistics)
        fail(*statistic, "has statistics of the whole batch, which parts of it one after the other have others of, "
                         "expected none, unless those are allowed");
    auto planning = options.planning;
    planning.training.micro_batches = options.micro_batches;
    planning.training.turn = options.turn;
    if (has_groups(c))
        throw input_error("cluster '" + c.name + "'",
                          "has device groups, whose micro-batches do not take turns, expected single devices");
    auto result = plan_part_in_turns(part, c, balance, planning);
    if (statistic)
        result.warnings.push_back("the statistics of operator '" + indexed.operators[*statistic].name +
                                  "' are those of each micro-batch");
    double const took = result.statistics.seconds;
    bool const is_late = planning.limits.seconds && (*planning.limits.seconds -= took) <= 0.1 * took;
    if (options.compares && (is_late || planning.limits.stop.stop_requested())) {
        result.warnings.push_back("no time was left to plan the whole batch at once");
    } else if (options.compares) {
        planning.worth_below = std::numeric_limits<double>::infinity();
        planning.training = options.planning.training;
        planning.training.overlaps_gradients = true;
        planning.synthesis.engine = search_engine::best_first;
        planning.cuts = 1;
        auto const whole = plan_hap(index, c, balance, planning);
        result.statistics += whole.statistics;
        result.baselines = whole.baselines;
        result.other_baselines = whole.other_baselines;
        result.baselines["whole batch"] = whole.exists() ? std::optional(whole.cost()) : std::nullopt;
    }
    if (planning.limits.stop.stop_requested()) { // maybe after the plan that is returned was concluded
        result.which_limit = search::limit_kind::stopped;
        search::conclude(result, result.exists() ? std::optional(result.cost()) : std::nullopt, result.lower_bound,
                         result.cost());
    }
    return result;
}

} // namespace heddle::detail

#endif
