// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Stages of a pipeline in which two parts of each micro-batch take turns, made of stages in which none do.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/planner/draft_planner.hpp>

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Hides what the devices of a stage communicate in one part of a micro-batch behind what they compute in the other
/// (HiDup, in the stages of a pipeline). *Lifetime:* refers to all that it is made of.
class turning_stages {
public:
    turning_stages(staged_plan const& given, cluster const& c, draft_planner& drafts);

    /// Returns what the plan would take if every stage had its plan on one axis, and in that either all communication
    /// were hidden, or all computation; with micro-batches so many times as large, as if stages communicated no more
    /// for one of them; infinitely long if so few do not pass. *Precondition:* their number is a multiple of it.
    [[nodiscard]] double expected(int larger = 1) const;
    /// Returns the plan with stages in turns, but for those with which it would be dearer; one without stages if it is
    /// no cheaper then.
    [[nodiscard]] staged_plan plan() const;

private:
    /// The seconds of a micro-batch in which a stage's devices compute, and in which they communicate.
    struct passes {
        double work = 0, communication = 0;
        [[nodiscard]] double both() const { return work + communication; }
    };
    [[nodiscard]] static passes passes_of(time_terms const& t);

    staged_plan const& given_;
    cluster const& cluster_;
    draft_planner& drafts_;
    staged_cost cost_;
    /// The stages that may take less in turns, longest first, and what they take on one axis.
    std::vector<std::pair<std::size_t, passes>> worth_;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

#include <algorithm>

namespace heddle::detail {

HEDDLE_INLINE turning_stages::turning_stages(staged_plan const& given, cluster const& c, draft_planner& drafts)
    : given_(given), cluster_(c), drafts_(drafts), cost_(evaluate(given, c)) {
    auto const takes = [&](std::size_t s) { return passes_of(cost_.stages[s].time).both(); };
    for (std::size_t s = 0; s < given.stages.size(); ++s) {
        auto const& plan = given.stages[s].plan;
        bool const is_line = !plan.is_on_mesh() && !plan.has_groups();
        if (!is_line && given.rounds() > 1) continue; // stages of other rounds have the mesh
        auto const on_line = passes_of(is_line ? cost_.stages[s].time : drafts.stage_on_one_axis(given, s).time);
        double const least = std::max(on_line.work, on_line.communication);
        if (least > 0 && least < takes(s)) worth_.emplace_back(s, on_line);
    }
    algorithm::sort(worth_, {}, [&](auto const& w) { return std::pair(-takes(w.first), w.first); });
}

HEDDLE_INLINE turning_stages::passes turning_stages::passes_of(time_terms const& t) {
    return {t.own_compute(), t.compute_inside + t.forward_communication + t.backward_communication};
}

HEDDLE_INLINE double turning_stages::expected(int larger) const {
    int const count = given_.micro_batches / larger;
    if (!given_.schedule().can_run({given_.places(), count})) return std::numeric_limits<double>::infinity();
    auto hidden = cost_;
    auto const set = [&](std::size_t s, double takes) {
        auto& t = hidden.stages[s].time;
        t.compute = takes;
        t.compute_inside = t.forward_communication = t.backward_communication = 0;
    };
    for (std::size_t s = 0; s < given_.stages.size(); ++s) {
        auto const p = passes_of(cost_.stages[s].time);
        set(s, larger * p.work + p.communication);
        hidden.boundaries[s].values *= larger;
        hidden.boundaries[s].cotangents *= larger;
    }
    for (auto const& [s, p] : worth_) set(s, std::max(larger * p.work, p.communication));
    auto const times = times_of_stages(given_, cluster_, hidden);
    return heddle::run_stages(times, given_.places(), count, cost_.time.shared.value, given_.sends_beside).total;
}

HEDDLE_INLINE staged_plan turning_stages::plan() const {
    auto best = given_;
    for (auto const& [s, on_line] : worth_) {
        auto turned = best;
        turned.stages[s].plan = drafts_.stage_in_turns(given_, s);
        if (turned.stages[s].plan.exists() && price(turned, cluster_) && turned.cost() <= best.cost())
            best = std::move(turned);
    }
    if (best.cost() < given_.cost()) return best;
    staged_plan none;
    none.reason = "no stage takes less in turns";
    return none;
}

} // namespace heddle::detail

#endif
