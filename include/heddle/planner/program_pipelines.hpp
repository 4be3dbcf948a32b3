// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief AMP and Ditto from a program and a cluster to a pipeline plan.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/planner/pipeline_plans.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/program_profile.hpp>
#include <heddle/synthesis/tensor_groups.hpp>
#include <heddle/theory/batch_split.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// Names the program's operators in a plan, says how tensor groups compute them, and warns of one that cannot run in
/// micro-batches.
template <single_device_program Program>
void describe(pipeline_plan& plan, Program const& program, program_layers const& layers, cluster const& c,
              training_options const& training) {
    for (std::size_t l = 0; l < plan.layers.size(); ++l) plan.layers[l].operators = layers.cuts[l + 1] - layers.cuts[l];
    plan.provenance.training = training;
    add_groups(plan, program, layers, c, training);
    try {
        (void)split_along_batch(index_program(program));
    } catch (input_error const& e) { plan.warnings.push_back(e.what()); }
}

/// What is returned where layers could not be priced in time.
template <single_device_program Program>
[[nodiscard]] pipeline_plan without_time(char const* planner, Program const& program, program_layers const& layers,
                                         cluster const& c, profile_options const& profile,
                                         search::deadline const& until) {
    pipeline_plan plan;
    plan.provenance.planner = planner;
    plan.provenance.cluster = c.name;
    for (auto const& name : layers.names) plan.layers.push_back({name});
    auto const types = c.devices();
    std::size_t d = 0, machine = 0;
    for (auto const& m : c.machines)
        for (int n = 0; n < m.count; ++n, ++machine)
            for (int k = 0; k < m.devices; ++k, ++d)
                plan.devices.push_back({c.types[types[d]].name, machine, bytes(0), c.types[types[d]].memory});
    plan.global_batch = profile.global_batch.value_or(batch_size_of(index_program(program)));
    plan.status = search::status::limit;
    plan.which_limit = until.reached();
    describe(plan, program, layers, c, profile.training);
    plan.seconds = until.elapsed();
    return plan;
}

/// The machines of a cluster by type, in the order of `types_in_use`.
[[nodiscard]] machine_numbers numbered_in_cluster(cluster const& c);

} // namespace detail

/// The best strategy for a program in these layers. *Throws* `input_error` as `make_strategy_problem` and `plan_amp`.
template <single_device_program Program>
[[nodiscard]] pipeline_plan plan_amp(Program const& program, program_layers const& layers, cluster const& c,
                                     amp_options const& options = {}, profile_options const& profile = {}) {
    search::deadline const until(options.time_limit_seconds, options.stop);
    auto const problem = make_strategy_problem_within(until, program, layers, c, profile);
    if (!problem) return detail::without_time("amp", program, layers, c, profile, until);
    auto baselines = baselines_of(*problem, until);
    auto within = options;
    within.time_limit_seconds = until.left();
    auto plan = make_pipeline_plan(*problem, plan_amp(*problem, within), std::move(baselines));
    detail::describe(plan, program, layers, c, profile.training);
    plan.seconds = until.elapsed();
    return plan;
}

struct ditto_program_options {
    /// Samples of a micro-batch; none: each number that divides the batch is tried.
    std::optional<std::int64_t> micro_batch_size{};
    machine_split split = machine_split::halves;
    profile_options profile{};
    /// Time limits are of all sizes of micro-batch together, pricing included, in equal parts of what is left; other
    /// limits of each.
    ditto_options planner{};
};

/// The best template for a program in these layers, of all sizes of micro-batch that the schedule can run. The bound is
/// over all of them.
/// *Throws* `input_error` as `make_template_problem` and `plan_ditto`, and if the size does not divide the batch.
template <single_device_program Program, pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] pipeline_plan plan_ditto(Program const& program, program_layers const& layers, cluster const& c,
                                       ditto_program_options const& options = {}, Schedule const& schedule = {}) {
    auto const indexed = index_program(program);
    auto const samples = options.profile.global_batch.value_or(batch_size_of(indexed));
    auto sizes = divisors(samples);
    if (options.micro_batch_size) {
        if (algorithm::find(sizes, *options.micro_batch_size) == sizes.end())
            throw input_error("micro-batch", std::to_string(*options.micro_batch_size) +
                                                 " samples, expected a number that divides the batch of " +
                                                 std::to_string(samples));
        sizes = {*options.micro_batch_size};
    }
    detail::check_for_pipelines(c);
    auto const until = options.planner.until();
    auto const numbers = detail::numbered_in_cluster(c);
    std::optional<pipeline_plan> best;
    double bound = std::numeric_limits<double>::infinity();
    search::limit_kind limit = search::limit_kind::none;
    bool is_open = false;
    for (std::size_t n = 0; n < sizes.size(); ++n) {
        if (best && until.is_over()) { // nothing is known of the sizes left
            limit = until.reached();
            is_open = true;
            bound = 0;
            break;
        }
        auto const size = sizes[n];
        bool const can_run = schedule.can_run({std::min(c.devices().size(), layers.size()), samples / size});
        if (!can_run && sizes.size() > 1 && (best || n + 1 < sizes.size())) continue;
        auto const problem = make_template_problem_within(until, program, layers, c, size, samples / size,
                                                          options.split, options.profile.training);
        auto part = until.left();
        if (part) *part /= static_cast<double>(sizes.size() - n);
        auto planner = options.planner.within(part);
        if (options.planner.progress)
            planner.progress = [&](planning_progress now) {
                now.phase = "micro-batches of " + std::to_string(size) + ", " + now.phase;
                now.lower_bound.reset(); // it is of this size
                if (best && best->exists()) now.cost = std::min(best->cost(), now.cost.value_or(best->cost()));
                options.planner.progress(now);
            };
        auto plan = problem ? make_pipeline_plan(*problem, plan_ditto(*problem, planner, schedule), numbers, schedule)
                            : detail::without_time("ditto", program, layers, c, options.profile, until);
        plan.micro_batch_size = size;
        is_open = is_open || plan.status == search::status::limit;
        if (limit == search::limit_kind::none) limit = plan.which_limit;
        if (plan.status != search::status::infeasible) bound = std::min(bound, plan.lower_bound);
        bool const is_better = !best || (plan.exists() && (!best->exists() || plan.cost() < best->cost()));
        if (is_better) best = std::move(plan);
    }
    best->provenance.cluster = c.name;
    best->global_batch = samples;
    best->seconds = until.elapsed();
    best->which_limit = is_open ? limit : search::limit_kind::none;
    if (best->exists()) search::conclude(*best, best->cost(), bound);
    else if (is_open) best->status = search::status::limit;
    detail::describe(*best, program, layers, c, options.profile.training);
    if (best->stages.size() > 1) best->warnings.push_back("what stages send each other is not counted");
    return *std::move(best);
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE machine_numbers numbered_in_cluster(cluster const& c) {
    auto const types = types_in_use(c);
    machine_numbers numbers(types.size());
    std::size_t next = 0;
    for (auto const& m : c.machines)
        for (int n = 0; n < m.count; ++n)
            numbers[static_cast<std::size_t>(algorithm::find(types, m.type) - types.begin())].push_back(next++);
    return numbers;
}

} // namespace heddle::detail

#endif
