// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Ditto's planner: folds, plans and recovers; finds the exact optimum as far as time allows; makes copies of a
/// template for large clusters.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/pipeline/folding.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/pipeline/micro_batch_sizes.hpp>
#include <heddle/pipeline/recovery.hpp>
#include <heddle/pipeline/template.hpp>
#include <heddle/pipeline/template_copies.hpp>
#include <heddle/pipeline/template_layout.hpp>
#include <heddle/plan/schedule.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/limits.hpp>
#include <heddle/synthesis/planning_progress.hpp>
#include <heddle/synthesis/program_pipeline.hpp>
#include <heddle/synthesis/program_profile.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace heddle {

enum class template_method : std::uint8_t {
    recover, ///< fold, plan, recover
    exact,   ///< the optimum alone
    both     ///< recover, then look for something better within the limits
};

struct ditto_options {
    template_method method = template_method::both;
    folding_options folding{};
    recovery_options recovery{};
    template_options exact{};
    /// Time is of all together; labels and bytes are of each search that has no limits of its own.
    search::limits limits{};
    progress_function progress{};
};

struct ditto_plan {
    /// The template with its bound; `gap()` tells how far it may be from the optimum.
    pipeline_template best;
    /// The folding, and the time of what was recovered from it; absent if only `exact` was asked for.
    std::optional<heddle::folding> folded{};
    std::optional<seconds> recovered{};
};

/// Plans a pipeline over machines of several types that uses all devices; if there are more machines than layers, some
/// may be left out.
///
/// *Returns* `recover`'s result, `plan_template`'s result, or the better of the two with the better bound. It is
/// `optimal` if the exact search ends. *Throws* `input_error` before work starts.
/// *Reference.* Ditto sections 3, 5 and 6.
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] ditto_plan plan_ditto(template_problem const& p, ditto_options const& o = {},
                                    Schedule const& schedule = {}) {
    search::deadline const until(o.limits);
    auto const exactly = [&](seconds cutoff) {
        auto exact = o.exact;
        exact.limits = until.rest(exact.limits.or_else(o.limits));
        exact.cutoff = std::min(exact.cutoff, cutoff);
        return plan_template(p, exact, schedule);
    };
    if (o.method == template_method::exact) return {exactly(o.exact.cutoff)};
    auto const tell = [&](char const* phase, std::optional<double> cost, std::optional<double> bound) {
        if (o.progress) o.progress({phase, cost, bound});
    };
    tell("recovery", {}, {});
    auto recovery = o.recovery;
    recovery.limits = until.rest(recovery.limits.or_else(o.limits));
    auto const folded = fold(p, o.folding);
    ditto_plan out{recover(p, folded, recovery, schedule), folded};
    if (out.best.cost) out.recovered = out.best.cost->total;
    if (o.method == template_method::recover || out.best.status == search::status::optimal) return out;

    tell("exact search", out.recovered ? std::optional(out.recovered->value) : std::nullopt,
         out.best.lower_bound.value);
    auto better = exactly(out.recovered.value_or(o.exact.cutoff));
    better.statistics += out.best.statistics;
    if (better.cost || !out.recovered) {
        better.lower_bound = std::max(better.lower_bound, out.best.lower_bound);
        out.best = std::move(better);
        return out;
    }
    out.best.statistics = better.statistics;
    out.best.which_limit = better.which_limit;
    search::conclude(out.best, *out.recovered, std::max(out.best.lower_bound, better.lower_bound));
    return out;
}

struct replication_options {
    /// A copy has at most this many machines.
    std::size_t most_machines = 32;
    /// Time is of all copies tried together.
    ditto_options plan{.method = template_method::recover};
};

/// `best_copies` of Ditto's templates.
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] replicated_template plan_copies(template_problem const& p, replication_options const& o = {},
                                              Schedule const& schedule = {}) {
    search::deadline const until(o.plan.limits);
    return best_copies(p, o.most_machines, until, schedule, [&](template_problem const& part) {
        auto plan = o.plan;
        plan.limits = until.rest(plan.limits);
        return plan_ditto(part, plan, schedule).best;
    });
}

/// Ditto's result as a plan: its template, with status and bound; without one, why there is none. Baselines are what
/// folding recovers, and equal numbers of layers for the devices of the plan's stages. *Precondition:* the result is
/// `plan_ditto`'s for the problem. *Throws* `input_error`.
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] pipeline_plan make_pipeline_plan(template_problem const& p, ditto_plan const& d,
                                               machine_numbers const& numbers, Schedule const& schedule = {}) {
    auto plan = make_pipeline_plan(p, d.best, numbers, schedule);
    plan.provenance.planner = "ditto";
    if (d.recovered) plan.baselines["folded and recovered"] = d.recovered->value;
    return plan;
}
[[nodiscard]] pipeline_plan make_pipeline_plan(template_problem const& p, ditto_plan const& d);
/// Ditto's copies as a plan. *Precondition:* the result is `plan_copies`'s for the problem.
[[nodiscard]] pipeline_plan make_pipeline_plan(template_problem const& p, replicated_template const& r);

struct ditto_program_options {
    /// The samples of a micro-batch; if absent, each number that divides the batch is tried.
    std::optional<std::int64_t> micro_batch_size{};
    machine_split split = machine_split::halves;
    profile_options profile{};
    /// Time is of all sizes of micro-batch together, pricing included, in equal parts of what is left; other limits are
    /// of each.
    ditto_options planner{};
};

/// Returns the best template for a program in these layers, over all sizes of micro-batch that the schedule can run.
/// The bound is over all of them.
/// *Throws* `input_error` as `make_template_problem` and `plan_ditto` do, and if the size does not divide the batch.
template <single_device_program Program, pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] pipeline_plan plan_ditto(Program const& program, program_layers const& layers, cluster const& c,
                                       ditto_program_options const& options = {}, Schedule const& schedule = {}) {
    auto const& profile = options.profile;
    auto const& p = program_of(program);
    auto const samples = profile.global_batch.value_or(batch_size_of(index_program(p)));
    auto const asked = micro_batch_sizes(samples, options.micro_batch_size);
    detail::check_for_pipelines(c);
    auto const sizes = sizes_that_run(asked, samples, std::min(c.devices().size(), layers.size()), schedule);
    search::deadline const until(options.planner.limits);
    auto plan = best_of_sizes(sizes, until, [&](std::int64_t size, search::limits const& part, auto const& best_cost) {
        auto const problem =
            make_template_problem_within(until, p, layers, c, size, samples / size, options.split, profile.training);
        if (!problem) return unpriced_plan(p, layers, c, profile, until);
        auto planner = options.planner;
        planner.limits.seconds = part.seconds;
        planner.progress =
            told_of_part(options.planner.progress, "micro-batches of " + std::to_string(size), best_cost);
        return make_pipeline_plan(*problem, plan_ditto(*problem, planner, schedule), numbered_in_cluster(c), schedule);
    });
    plan.provenance.planner = "ditto";
    plan.provenance.cluster = c.name;
    plan.global_batch = samples;
    describe(plan, p, layers, c, profile.training);
    if (plan.stages.size() > 1) plan.warnings.push_back("what stages send each other is not counted");
    return plan;
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE pipeline_plan make_pipeline_plan(template_problem const& p, ditto_plan const& d) {
    return make_pipeline_plan(p, d, numbered_by_type(p));
}

HEDDLE_INLINE pipeline_plan make_pipeline_plan(template_problem const& p, replicated_template const& r) {
    auto plan = lay_out(p, r, numbered_by_type(p));
    plan.provenance.planner = "ditto";
    return plan;
}

} // namespace heddle

#endif
