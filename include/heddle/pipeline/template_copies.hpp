// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Copies of one template side by side, for clusters too large for one pipeline.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/pipeline/template_layout.hpp>
#include <heddle/pipeline/template_plan.hpp>
#include <heddle/pipeline/template_problem.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/schedule.hpp>
#include <heddle/search/deadline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace heddle {

/// Copies of one template side by side, which share the micro-batches evenly.
struct replicated_template {
    std::size_t copies = 0;
    /// The machines of each type for a copy, which may leave some out, and those for no copy.
    std::vector<std::size_t> machines, idle;
    /// What one copy does; its part of the micro-batches is rounded up.
    pipeline_template each;
    /// Nothing that these machines can do with all micro-batches takes less, whether or not it is a pipeline.
    seconds lower_bound{0};
};

namespace detail {

/// How many machines a copy has, if there are so many copies.
[[nodiscard]] std::size_t machines_of_copy(template_problem const& p, std::size_t copies);
/// The most copies whose machines are those that each of `copies` has.
[[nodiscard]] std::size_t most_copies(template_problem const& p, std::size_t copies);
/// The problem of one copy.
[[nodiscard]] template_problem problem_of_copy(template_problem const& p, std::size_t copies);

} // namespace detail

/// Divides a cluster into equal copies of a smaller one of at most so many machines, and has `plan(problem)` make a
/// template of that: every set of machines that is small enough, in as many copies as there can be, whichever is the
/// fastest. What the copies have to tell each other is not counted.
///
/// The status is that of `each`; without copies, `each` says why. *Throws* `input_error`.
/// *Complexity.* A plan per set of machines tried, at most `most_machines` of them.
template <class Plan, pipeline_schedule Schedule>
[[nodiscard]] replicated_template best_copies(template_problem const& p, std::size_t most_machines,
                                              search::deadline const& until, Schedule const& schedule,
                                              Plan const& plan) {
    detail::check(p);
    replicated_template best;
    std::size_t copies = 1;
    while (detail::machines_of_copy(p, copies) > most_machines && detail::machines_of_copy(p, copies + 1) > 0) ++copies;
    auto cut_short = search::limit_kind::none;
    for (; detail::machines_of_copy(p, copies) > 0; ++copies) {
        if (best.copies != 0 && (cut_short = until.reached()) != search::limit_kind::none) break;
        copies = detail::most_copies(p, copies);
        auto const part = detail::problem_of_copy(p, copies);
        if (!schedule.can_run({std::min(part.device_count(), part.layer_count()), part.micro_batches})) continue;
        replicated_template r{copies, {}, {}, plan(part), {}};
        for (std::size_t t = 0; t < p.types.size(); ++t) {
            r.machines.push_back(part.types[t].machines);
            r.idle.push_back(p.types[t].machines - copies * part.types[t].machines);
        }
        bool const is_better = r.each.cost && (!best.each.cost || r.each.cost->total < best.each.cost->total);
        if (is_better || best.copies == 0) best = std::move(r);
    }
    if (best.copies == 0) best.each.reason = "the schedule can run on no number of copies";
    if (cut_short != search::limit_kind::none) {
        best.each.status = search::status::limit;
        best.each.which_limit = cut_short;
    }
    if (!best.each.cost) best.copies = 0;
    best.lower_bound = static_cast<double>(p.micro_batches) * least_time_per_micro_batch(p);
    return best;
}

/// Returns copies of a template as a plan. What they have to tell each other is not counted, which a warning says.
/// *Precondition:* the copies are of the problem.
[[nodiscard]] pipeline_plan lay_out(template_problem const& p, replicated_template const& r,
                                    machine_numbers const& numbers);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE std::size_t machines_of_copy(template_problem const& p, std::size_t copies) {
    std::size_t sum = 0;
    for (auto const& t : p.types) sum += t.device_count() > 0 ? t.machines / copies : 0;
    return sum;
}

HEDDLE_INLINE std::size_t most_copies(template_problem const& p, std::size_t copies) {
    auto most = std::numeric_limits<std::size_t>::max();
    for (auto const& t : p.types)
        if (t.device_count() > 0 && t.machines >= copies) most = std::min(most, t.machines / (t.machines / copies));
    return most;
}

HEDDLE_INLINE template_problem problem_of_copy(template_problem const& p, std::size_t copies) {
    auto part = p;
    for (auto& t : part.types) t.machines /= copies;
    auto const among = static_cast<std::int64_t>(copies);
    part.micro_batches = (p.micro_batches + among - 1) / among;
    return part;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE pipeline_plan lay_out(template_problem const& p, replicated_template const& r,
                                    machine_numbers const& numbers) {
    auto plan = lay_out(p, r.each, r.machines, r.copies, numbers);
    plan.lower_bound = r.lower_bound.value;
    plan.space = "all uses of these machines";
    if (!plan.exists()) return plan;
    // What is proven for one copy is not proven for all.
    if (plan.status == search::status::optimal && plan.gap() > 1e-9) plan.status = search::status::feasible;
    if (r.copies > 1)
        plan.warnings.push_back("the reduction of gradients between the " + std::to_string(r.copies) +
                                " copies is not counted");
    return plan;
}

} // namespace heddle

#endif
