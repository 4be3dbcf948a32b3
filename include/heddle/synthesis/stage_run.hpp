// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the parts of one planning run share.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/synthesis/memory_reason.hpp>
#include <heddle/synthesis/plan_record.hpp>
#include <heddle/synthesis/planning_options.hpp>
#include <heddle/synthesis/stage_programs.hpp>
#include <heddle/synthesis/timed_searches.hpp>

#include <optional>
#include <string>
#include <utility>

namespace heddle {

/// Holds the programs at hand, what was found, and what is left of the limits. It is not copied, since its parts refer
/// to each other.
class stage_run {
public:
    stage_run(timed_searches const& searches, indexed_program const& program, cluster const& c,
              planning_options const& o)
        : by(searches), options(o), until(o.limits), programs(program, c, o, until), record(programs, o.progress),
          nothing_fits(why_nothing_fits(program, o.training, c)) {}
    stage_run(stage_run const&) = delete;
    stage_run& operator=(stage_run const&) = delete;

    /// Relaxations hold for instructions in any order, except if gradients overlap. Then a search at the plan's own
    /// shares proves more than they do, and relaxations alone find the programs at other ratios.
    [[nodiscard]] bool search_proves() const {
        return by.kind == relaxation_kind::turns || by.kind == relaxation_kind::none;
    }
    [[nodiscard]] bool is_relaxed() const { return by.kind != relaxation_kind::none; }
    /// Tells whether there is a plan that costs less than so many times what is of use.
    [[nodiscard]] bool is_worth(double times) const {
        return !record.is_empty() && record.best().cost() < times * options.worth_below;
    }
    [[nodiscard]] bool is_stopped() const { return options.limits.stop.stop_requested(); }
    [[nodiscard]] bool out_of_time() {
        auto const reached = until.reached();
        if (reached != search::limit_kind::none) which_limit = reached;
        return reached != search::limit_kind::none;
    }

    /// Returns the best program at given prices, within the time that is left.
    synthesis_result synthesise(priced_graph const& priced, synthesis_options asked);
    /// Returns the best program at some ratios of device types, starting from what is known.
    synthesis_result synthesise_at(ratio_table const& ratios, synthesis_options asked);
    /// Returns the plan: the best one found, with its bounds, or what prevented one.
    [[nodiscard]] plan concluded() &&;

    timed_searches const by;
    planning_options const& options;
    search::deadline until;
    stage_programs programs;
    plan_record record;
    /// Why no program fits, if that is plain.
    std::optional<std::string> nothing_fits;
    /// The weights of the relaxations at the last ratios, by type.
    std::optional<multipliers> weights;
    search::limit_kind which_limit = search::limit_kind::none;
    bool memory_binds = false;
    search::statistics statistics;

private:
    /// If no program fits at any ratios tried, says what the one of least memory would need.
    [[nodiscard]] plan blank() const;
    void describe(plan& p);
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE synthesis_result stage_run::synthesise(priced_graph const& priced, synthesis_options asked) {
    asked.search.limits = until.rest(asked.search.limits);
    if (is_stopped()) asked.relaxation_rounds = 1;
    auto found = by.synthesise(priced, asked);
    statistics += found.statistics;
    return found;
}

HEDDLE_INLINE synthesis_result stage_run::synthesise_at(ratio_table const& ratios, synthesis_options asked) {
    if (weights) asked.relaxation_rounds /= 2;
    asked.weights = weights;
    if (!record.is_empty()) asked.start = record.path();
    auto found = synthesise(programs.price(ratios), std::move(asked));
    if (found.weights) weights = found.weights;
    record.note_bound(ratios, found.lower_bound);
    if (found.which_limit != search::limit_kind::none) which_limit = found.which_limit;
    memory_binds |= found.memory_binds;
    return found;
}

HEDDLE_INLINE plan stage_run::concluded() && {
    if (is_stopped()) which_limit = search::limit_kind::stopped;
    bool const has_plan = !record.is_empty();
    plan p = has_plan ? std::move(record.best()) : blank();
    p.space = programs.space_name() + (has_plan ? " at these shares" : " at the ratios tried");
    p.which_limit = which_limit;
    bool const lacks_programs =
        !(has_plan ? programs.has_bound() : programs.is_complete()) || (has_plan && programs.lacks_orders());
    if (which_limit == search::limit_kind::none && lacks_programs && !nothing_fits)
        p.which_limit = search::limit_kind::width;
    search::conclude(p, has_plan ? std::optional(p.cost()) : std::nullopt, p.lower_bound, p.cost());
    describe(p);
    return p;
}

HEDDLE_INLINE plan stage_run::blank() const {
    plan result;
    result.provenance.training = options.training;
    if (nothing_fits) {
        result.reason = *nothing_fits;
        result.devices = devices_of(programs.cluster());
        return result;
    }
    auto const ratios = programs.memory_proportional_ratios();
    if (auto const path = programs.least_memory(programs.price(ratios), true)) {
        auto const p = programs.realise(*path, ratios).first;
        if (memory_binds || which_limit == search::limit_kind::none) result.reason = memory_reason(p);
        result.devices = p.devices;
    } else {
        result.reason = options.pinned.empty() && !options.allowed_computations
                            ? "the theory has no program for this model"
                            : "no program keeps what is pinned or forbidden";
    }
    return result;
}

HEDDLE_INLINE void stage_run::describe(plan& p) {
    p.trajectory = std::move(record).trajectory();
    statistics.seconds = until.elapsed();
    p.statistics = statistics;
    p.provenance.cluster = programs.cluster().name;
    if (options.proves && p.exists() && p.status != search::status::optimal && p.lower_bound <= 0 &&
        programs.has_bound())
        p.warnings.push_back("no lower bound is proven for " + p.space +
                             (until.is_over() ? ": there was no time left for it" : ""));
    if (nothing_fits) return;
    auto const left_out =
        "programs were left out, by the width bound of " + std::to_string(options.width) + " states per cut";
    if (programs.bounding())
        p.warnings.push_back(left_out + (options.proves ? "; the lower bound holds for them too" : ""));
    else if (!programs.is_complete())
        p.warnings.push_back(left_out + ", as time was over or because an operator has too many operands" +
                             (options.proves ? "; no lower bound is proven" : ""));
}

} // namespace heddle

#endif
