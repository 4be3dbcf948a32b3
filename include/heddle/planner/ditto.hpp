// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Ditto's planner: fold, plan, recover; the exact optimum as far as time allows; copies of a template for large
/// clusters.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/pipeline/folding.hpp>
#include <heddle/pipeline/recovery.hpp>
#include <heddle/pipeline/schedule.hpp>
#include <heddle/pipeline/template.hpp>
#include <heddle/pipeline/template_plan.hpp>
#include <heddle/pipeline/template_problem.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/planning_progress.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

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
    /// Of the exact search; where there is a recovery before, its time counts too.
    template_options exact{};
    progress_function progress{};

    /// When all of it ends.
    [[nodiscard]] search::deadline until() const;
    /// The same in no more time. Nothing: in any.
    [[nodiscard]] ditto_options within(std::optional<double> time_limit) const;
};

struct ditto_plan {
    /// With its bound and, by `gap()`, how far it may be from the optimum.
    pipeline_template best;
    /// Unless `exact` alone was asked for: the folding, and the time of what was recovered from it.
    std::optional<heddle::folding> folded{};
    std::optional<seconds> recovered{};
};

/// Plans a pipeline over machines of several types that uses all devices, but for machines left out where there are
/// more than layers.
///
/// *Returns* `recover`'s result, `plan_template`'s result, or the better of the two with the better bound: `optimal`
/// where the exact search ends. *Throws* `input_error` before work starts.
/// *Reference.* Ditto sections 3, 5 and 6.
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] ditto_plan plan_ditto(template_problem const& p, ditto_options const& o = {},
                                    Schedule const& schedule = {}) {
    if (o.method == template_method::exact) return {plan_template(p, o.exact, schedule)};
    auto const until = o.until();
    auto const tell = [&](char const* phase, std::optional<double> cost, std::optional<double> bound) {
        if (o.progress) o.progress({phase, cost, bound});
    };
    tell("recovery", {}, {});
    auto const folded = fold(p, o.folding);
    ditto_plan out{recover(p, folded, o.recovery, schedule), folded};
    if (out.best.cost) out.recovered = out.best.cost->total;
    if (o.method == template_method::recover || out.best.status == search::status::optimal) return out;

    auto limits = o.within(until.left()).exact;
    if (out.recovered) limits.cutoff = std::min(limits.cutoff, *out.recovered);
    tell("exact search", out.recovered ? std::optional(out.recovered->value) : std::nullopt,
         out.best.lower_bound.value);
    auto better = plan_template(p, limits, schedule);
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
    /// A copy has no more machines than that.
    std::size_t most_machines = 32;
    ditto_options plan{.method = template_method::recover};
};

/// Copies of one template side by side, which share the micro-batches evenly.
struct replicated_template {
    std::size_t copies = 0;
    /// Machines of each type for a copy, which may leave some out, and those for none.
    std::vector<std::size_t> machines, idle;
    /// What one copy does, with its part of the micro-batches rounded up.
    pipeline_template each;
    /// Nothing that these machines can do with all micro-batches takes less, pipelines or not.
    seconds lower_bound{0};
};

/// Divides a cluster into equal copies of a smaller one and plans that: every set of machines that is small enough, in
/// as many copies as there can be, whichever is the fastest. Time limits are of all together. What the copies have to
/// tell each other is not counted.
///
/// The status is that of `each`; without copies, `each` says why. *Throws* `input_error`.
/// *Complexity.* A `plan_ditto` per set of machines tried, at most `most_machines` of them.
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] replicated_template plan_copies(template_problem const& p, replication_options const& o = {},
                                              Schedule const& schedule = {}) {
    detail::check(p);
    auto const count = [&](std::size_t copies) {
        std::size_t sum = 0;
        for (auto const& t : p.types) sum += t.device_count() > 0 ? t.machines / copies : 0;
        return sum;
    };
    replicated_template best;
    auto const until = o.plan.until();
    std::size_t copies = 1;
    while (count(copies) > o.most_machines && count(copies + 1) > 0) ++copies;
    auto cut_short = search::limit_kind::none;
    for (; count(copies) > 0; ++copies) {
        if (best.copies != 0 && (cut_short = until.reached()) != search::limit_kind::none) break;
        auto most = std::numeric_limits<std::size_t>::max(); // with the same machines in each
        for (auto const& t : p.types)
            if (t.device_count() > 0 && t.machines >= copies) most = std::min(most, t.machines / (t.machines / copies));
        copies = most;
        replicated_template r{copies, {}, {}, {}, {}};
        auto q = p;
        for (auto& t : q.types) {
            r.idle.push_back(t.machines % copies);
            r.machines.push_back(t.machines /= copies);
        }
        q.micro_batches = (p.micro_batches + static_cast<std::int64_t>(copies) - 1) / static_cast<std::int64_t>(copies);
        if (!schedule.can_run({std::min(q.device_count(), q.layer_count()), q.micro_batches})) continue;
        r.each = plan_ditto(q, o.plan.within(until.left()), schedule).best;
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

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE search::deadline ditto_options::until() const {
    auto const& last = method == template_method::recover ? recovery.limits : exact;
    return search::deadline(last.time_limit_seconds, last.stop);
}

HEDDLE_INLINE ditto_options ditto_options::within(std::optional<double> time_limit) const {
    auto o = *this;
    for (auto* limit : {&o.recovery.limits.time_limit_seconds, &o.exact.time_limit_seconds})
        if (time_limit) limit->emplace(std::min(limit->value_or(*time_limit), *time_limit));
    return o;
}

} // namespace heddle

#endif
