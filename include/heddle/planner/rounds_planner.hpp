// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Pipelines whose stages pass their devices in several rounds, made of one that passes them once.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/plan/schedule.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/plan/staged_run.hpp>
#include <heddle/planner/draft_planner.hpp>
#include <heddle/synthesis/draft_pipelines.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Divides the stages of a planned pipeline among rounds (interleaved 1F1B, virtual stages), which shortens the time in
/// which it fills and drains and lengthens what passes between stages and what is held. *Lifetime:* refers to all that
/// it is made of.
class rounds_planner {
public:
    /// `times` has how long layers take, relative to each other; `micro_batches` the numbers of these that divide the
    /// batch, ascending. *Precondition:* `once` has several stages of whole layers, in one round.
    rounds_planner(staged_plan const& once, cluster const& c, program_layers const& layers,
                   std::vector<double> const& times, std::vector<std::int64_t> const& micro_batches,
                   draft_planner& drafts);

    /// Tells whether the plan's number of micro-batches, or the next that can pass in rounds, is expected to take less
    /// than `enough`.
    [[nodiscard]] bool is_worth(double enough) const { return first_.time < enough; }
    /// Calls `note` with what is found: for that number of micro-batches, and if it takes less than `enough`, for fewer
    /// and more as long as these take less.
    void search(double enough, std::function<void(staged_plan)> const& note);

private:
    struct rounds_and_time {
        std::size_t rounds = 1;
        double time = std::numeric_limits<double>::infinity();
    };
    /// Returns the number of rounds with which so many micro-batches take least by what the planned stages take, and
    /// how long: as if stages took their layers' part of that, and micro-batches their part of the batch's time.
    [[nodiscard]] rounds_and_time expected(std::int64_t micro_batches) const;
    [[nodiscard]] double expected(std::int64_t micro_batches, std::size_t rounds) const;
    [[nodiscard]] staged_plan plan(std::int64_t micro_batches, std::size_t rounds);

    pipeline_draft once_;
    program_layers const& layers_;
    std::vector<double> const& times_;
    draft_planner& drafts_;
    std::vector<stage_times> stages_;
    double shared_ = 0;
    bool sends_beside_ = false;
    /// The numbers of micro-batches that can pass in rounds, and which of them is the plan's or the next.
    std::vector<std::int64_t> counts_;
    std::size_t from_ = 0;
    /// What is expected of that one, if there is one.
    rounds_and_time first_;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

#include <algorithm>
#include <numeric>

namespace heddle::detail {

HEDDLE_INLINE rounds_planner::rounds_planner(staged_plan const& once, cluster const& c, program_layers const& layers,
                                             std::vector<double> const& times,
                                             std::vector<std::int64_t> const& micro_batches, draft_planner& drafts)
    : once_(draft_of(once, layers)), layers_(layers), times_(times), drafts_(drafts), sends_beside_(once.sends_beside) {
    auto const cost = evaluate(once, c);
    stages_ = times_of_stages(once, c, cost);
    shared_ = cost.time.shared.value;
    for (auto const m : micro_batches)
        if (one_f_one_b{2}.can_run({stages_.size(), m}) && 2 * stages_.size() <= layers.size()) counts_.push_back(m);
    from_ = static_cast<std::size_t>(algorithm::lower_bound(counts_, once_.micro_batches) - counts_.begin());
    if (from_ == counts_.size() && from_ > 0) --from_;
    if (!counts_.empty()) first_ = expected(counts_[from_]);
}

HEDDLE_INLINE double rounds_planner::expected(std::int64_t micro_batches, std::size_t rounds) const {
    auto const divided = *in_rounds(once_, rounds, times_);
    double const part = static_cast<double>(once_.micro_batches) / static_cast<double>(micro_batches);
    auto const work_of = [&](stage_draft const& d) {
        auto const at = times_.begin();
        return std::accumulate(at + static_cast<std::ptrdiff_t>(d.first), at + static_cast<std::ptrdiff_t>(d.end), 0.0);
    };
    double values = 0, cotangents = 0; // from the last devices to the first
    for (auto const& s : stages_) values = std::max(values, s.values), cotangents = std::max(cotangents, s.cotangents);
    std::vector<double> work(stages_.size());
    for (std::size_t s = 0; s < divided.stages.size(); ++s) work[s % work.size()] += work_of(divided.stages[s]);
    std::vector<stage_times> stages;
    for (std::size_t s = 0; s < divided.stages.size(); ++s) {
        auto const& t = stages_[s % stages_.size()];
        bool const goes_round = s > 0 && s % stages_.size() == 0;
        double const of_layers = work_of(divided.stages[s]) / work[s % work.size()], of_passes = part * of_layers;
        stages.push_back({of_passes * t.forward, of_passes * t.backward, part * (goes_round ? values : t.values),
                          part * (goes_round ? cotangents : t.cotangents), of_layers * t.gradients,
                          of_layers * t.update});
    }
    return run_stages(stages, stages_.size(), static_cast<int>(micro_batches), shared_, sends_beside_).total;
}

HEDDLE_INLINE rounds_planner::rounds_and_time rounds_planner::expected(std::int64_t micro_batches) const {
    rounds_and_time best{2, expected(micro_batches, 2)};
    constexpr std::size_t most = 16; // what more would save is a sixteenth of what waits at first
    for (std::size_t rounds = 3; rounds <= std::min(most, layers_.size() / stages_.size()); ++rounds)
        if (double const time = expected(micro_batches, rounds); time < best.time) best = {rounds, time};
    return best;
}

HEDDLE_INLINE staged_plan rounds_planner::plan(std::int64_t micro_batches, std::size_t rounds) {
    auto draft = *in_rounds(once_, rounds, times_);
    draft.micro_batches = micro_batches;
    return drafts_.plan(draft, layers_, stage_effort::one_axis);
}

HEDDLE_INLINE void rounds_planner::search(double enough, std::function<void(staged_plan)> const& note) {
    double least = enough;
    // Returns whether so many micro-batches take less than all before; they are planned if that is expected.
    auto const is_better = [&](std::size_t n, double worth) {
        auto const best = n == from_ ? first_ : expected(counts_[n]);
        if (best.time >= worth * least) return false;
        auto found = plan(counts_[n], best.rounds);
        bool const is_less = found.exists() && found.cost() < least;
        if (is_less) least = found.cost();
        note(std::move(found));
        return is_less;
    };
    if (!is_worth(enough) || !is_better(from_, 1)) return;
    constexpr double others = 0.97; // whose stages were not planned
    for (auto fewer = from_; fewer > 0 && is_better(--fewer, others);) {}
    for (auto more = from_; ++more < counts_.size() && is_better(more, others);) {}
}

} // namespace heddle::detail

#endif
