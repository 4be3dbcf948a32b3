// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief AMP: degrees of pipeline, data and tensor parallelism, micro-batch, placement, and the layers of each stage.
///
/// AMP (NeurIPS '22), Algorithms 1 and 2.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/pipeline/strategy_baselines.hpp>
#include <heddle/pipeline/strategy_layout.hpp>
#include <heddle/pipeline/strategy_record.hpp>
#include <heddle/pipeline/strategy_shapes.hpp>
#include <heddle/search/anneal.hpp>
#include <heddle/search/limits.hpp>
#include <heddle/synthesis/planning_progress.hpp>
#include <heddle/synthesis/program_profile.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

struct amp_options {
    /// How many of the best strategies are kept; no two of them have one shape.
    std::size_t record = 10;
    /// How many of them are tried for real, if the visitor can run them.
    std::size_t trials = 0;
    shape_options shapes{};
    /// All placements of a shape are tried if there are at most `all_placements`; otherwise `machine_orders` orders of
    /// machines are.
    std::size_t all_placements = 1000, machine_orders = 48;
    /// The options of Algorithm 2, which starts from the best strategy then found.
    search::annealing_options annealing{.steps = 500};
    /// Time of all together.
    search::limits limits{};
    progress_function progress{};
};

using amp_result = strategy_ranking;

/// A visitor may have `std::optional<seconds> on_trial(strategy const&, strategy_cost const&)`, which runs the strategy
/// and returns the time of an iteration, or nothing if it failed.
struct no_amp_visitor {};

namespace detail {

/// All but the trials.
[[nodiscard]] amp_result rank_strategies(strategy_problem const& p, amp_options const& o);

[[nodiscard]] pipeline_plan plan_amp(program const& p, program_layers const& layers, cluster const& c,
                                     amp_options const& options, profile_options const& profile);

} // namespace detail

/// Ranks strategies by predicted time. It takes all shapes by rising bound; for each, all placements, or orders of
/// machines with either copies or stages next to each other; and assigns layers exactly for the pipeline's time. If
/// asked, it then anneals over shapes and tilings. The result is optimal only if the bound says so: layers are not
/// assigned for the all-reduce of gradients, and not all placements are tried.
///
/// *Returns* `optimal`, `feasible`, `limit`, or `infeasible` with the reason. *Throws* `input_error` before work
/// starts.
/// *Complexity.* For each shape, that of `assign_layers` times the placements.
template <class Visitor = no_amp_visitor>
[[nodiscard]] amp_result plan_amp(strategy_problem const& p, amp_options const& o = {}, Visitor&& visitor = {}) {
    search::deadline const until;
    auto out = detail::rank_strategies(p, o);
    if constexpr (requires(ranked_strategy const& r) {
                      { visitor.on_trial(r.plan, r.cost) } -> std::convertible_to<std::optional<seconds>>;
                  })
        out.best = try_strategies(out.record, o.trials,
                                  [&](strategy const& s, strategy_cost const& c) { return visitor.on_trial(s, c); });
    out.statistics.seconds = until.elapsed();
    return out;
}

/// Returns AMP's result as a plan: the strategy to use, with the result's status and bound; if there is none, the
/// reason.
/// *Precondition:* the result is `plan_amp`'s for the problem. *Throws* `input_error`.
[[nodiscard]] pipeline_plan make_pipeline_plan(strategy_problem const& p, amp_result const& r,
                                               strategy_costs baselines);

[[nodiscard]] pipeline_plan make_pipeline_plan(strategy_problem const& p, amp_result const& r);

/// Returns the best strategy for a program in these layers. *Throws* `input_error` as `make_strategy_problem` and
/// `plan_amp` do.
template <single_device_program Program>
[[nodiscard]] pipeline_plan plan_amp(Program const& program, program_layers const& layers, cluster const& c,
                                     amp_options const& options = {}, profile_options const& profile = {}) {
    return detail::plan_amp(program_of(program), layers, c, options, profile);
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/pipeline/placement.hpp>
#include <heddle/pipeline/strategy_walk.hpp>
#include <heddle/search/budget.hpp>
#include <heddle/synthesis/program_pipeline.hpp>

namespace heddle::detail {

HEDDLE_INLINE amp_result rank_strategies(strategy_problem const& p, amp_options const& o) {
    validate(p);
    search::budget left(o.limits);
    strategy_model const model(p);
    auto const [shapes, bounds, looked_at, infeasible, reason, assignment] = bound_shapes(model, o.shapes, left);
    strategy_record record(model, o.record);
    amp_result out;
    out.statistics.shapes = looked_at;
    out.statistics.infeasible = infeasible;
    out.statistics.assignment = assignment;
    if (!shapes.empty()) out.lower_bound = bounds.front();
    auto const tell = [&](std::string const& phase) {
        auto const best = record.best_cost();
        if (o.progress) o.progress({phase, best ? std::optional(best->value) : std::nullopt, out.lower_bound.value});
    };

    // Algorithm 1, over shapes by rising bound in place of all.
    std::map<parallel_degrees, std::vector<device_placement>> placements;
    for (std::size_t i = 0; i < shapes.size() && !left.is_spent(); ++i) {
        if (bounds[i] >= record.cutoff()) {
            out.statistics.bounded = shapes.size() - i;
            break;
        }
        tell("shape " + std::to_string(i + 1) + " of " + std::to_string(shapes.size()));
        auto const degrees = shapes[i].degrees;
        if (!placements.contains(degrees))
            placements[degrees] = placement_space(p, degrees.tensor).some(degrees, o.all_placements, o.machine_orders);
        for (auto const& placement : placements[degrees]) {
            if (left.is_spent()) break;
            ++out.statistics.placements;
            auto s = assign_strategy(model, shapes[i], placement, {.limits = left.rest(), .cutoff = record.cutoff()});
            if (s) record.keep(*std::move(s));
        }
    }
    // Algorithm 2, from the best of them.
    if (o.annealing.steps > 0 && !record.is_empty() && !left.is_spent()) {
        tell("annealing");
        auto options = o.annealing;
        options.lower_bound = std::max(options.lower_bound, bounds.front().value);
        options.limits = left.rest(options.limits);
        auto found = anneal_strategies(model, shapes, record.ranked().front().plan, options);
        out.statistics.annealing = found.statistics;
        if (found.best) record.keep(*std::move(found.best));
    }
    (void)left.is_spent();
    out.record = record.ranked();
    out.unprofiled_degrees = unprofiled_degrees(p);
    out.space = std::string("pipelines of equal tensor groups and copies in these layers") +
                (o.shapes.restrict_shapes() ? " of the degrees asked for" : "");
    // Without shapes it is proven that there is nothing, whatever limit is reached then.
    if (!shapes.empty()) out.which_limit = left.reached();
    if (!record.is_empty()) {
        out.best = 0;
    } else if (out.which_limit == search::limit_kind::none) {
        out.reason = shapes.empty() ? reason : "no placement tried fits memory";
        if (!shapes.empty()) out.which_limit = search::limit_kind::labels;
    } else out.reason = reason;
    search::conclude(out, record.best_cost(), out.lower_bound, record.best_cost().value_or(seconds(0)));
    return out;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE pipeline_plan make_pipeline_plan(strategy_problem const& p, amp_result const& r,
                                               strategy_costs baselines) {
    auto plan = lay_out(p, r);
    plan.provenance.planner = "amp";
    plan.baselines = std::move(baselines);
    return plan;
}

HEDDLE_INLINE pipeline_plan make_pipeline_plan(strategy_problem const& p, amp_result const& r) {
    return make_pipeline_plan(p, r, baselines_of(p));
}

HEDDLE_INLINE pipeline_plan detail::plan_amp(program const& p, program_layers const& layers, cluster const& c,
                                             amp_options const& options, profile_options const& profile) {
    search::deadline const until(options.limits);
    auto const problem = make_strategy_problem_within(until, p, layers, c, profile);
    auto plan = unpriced_plan(p, layers, c, profile, until);
    if (problem) {
        auto baselines = baselines_of(*problem, until);
        auto within = options;
        within.limits = until.rest(options.limits);
        plan = make_pipeline_plan(*problem, heddle::plan_amp(*problem, within), std::move(baselines));
    }
    plan.provenance.planner = "amp";
    describe(plan, p, layers, c, profile.training);
    plan.seconds = until.elapsed();
    return plan;
}

} // namespace heddle

#endif
