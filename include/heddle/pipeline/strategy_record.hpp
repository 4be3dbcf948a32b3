// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The best strategies met, and the one among them that is the fastest when run.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/strategy.hpp>
#include <heddle/search/anneal.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/search/partition/partition_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

struct ranked_strategy {
    strategy plan;
    strategy_cost cost;
    /// Tells whether the strategy was tried; the time of an iteration, which is absent if the trial failed.
    bool is_tried = false;
    std::optional<seconds> measured{};
};

struct ranking_statistics {
    /// The numbers of all shapes, of those that their bound excluded, and of those that fit no placement; and the
    /// number of placements whose layers were assigned.
    std::size_t shapes = 0, bounded = 0, infeasible = 0, placements = 0;
    search::partition_statistics assignment;
    search::annealing_statistics annealing;
    double seconds = 0;
};

/// What a search for strategies returns. The bound is one on every strategy's predicted time, whatever its placement
/// and layers.
struct strategy_ranking : search::outcome<seconds> {
    /// Best first by predicted time; equal ones by shape.
    std::vector<ranked_strategy> record;
    /// The strategy of the record to use: the fastest of those tried; if all trials failed, the first that was not
    /// tried.
    std::optional<std::size_t> best;
    /// What status and bound refer to, in words that follow "optimal among".
    std::string space;
    /// Tensor degrees that divide every machine but were not considered, because they lack a profile.
    std::vector<std::size_t> unprofiled_degrees;
    ranking_statistics statistics;
};

/// The best strategies by predicted time, so many, no two of one shape. Equal ones are ordered by shape.
/// *Lifetime:* refers to the model.
class strategy_record {
public:
    strategy_record(strategy_model const& model, std::size_t most)
        : model_(model), most_(std::max<std::size_t>(most, 1)) {}

    [[nodiscard]] std::vector<ranked_strategy> const& ranked() const { return ranked_; }
    [[nodiscard]] bool is_empty() const { return ranked_.empty(); }
    [[nodiscard]] std::optional<seconds> best_cost() const {
        return ranked_.empty() ? std::nullopt : std::optional(ranked_.front().cost.total);
    }
    /// The time at which a strategy is not kept any more.
    [[nodiscard]] seconds cutoff() const {
        return ranked_.size() < most_ ? seconds(std::numeric_limits<double>::infinity()) : ranked_.back().cost.total;
    }
    /// Takes a strategy in if it is better than what is there.
    void keep(strategy s);

private:
    strategy_model const& model_;
    std::size_t most_;
    std::vector<ranked_strategy> ranked_;
};

/// Runs the first so many of a record by `run(strategy, cost)`, which returns the time of an iteration or nothing if
/// that failed. *Returns* the fastest; the first that was not tried where all failed, if there is one.
template <class Run>
[[nodiscard]] std::optional<std::size_t> try_strategies(std::vector<ranked_strategy>& ranked, std::size_t trials,
                                                        Run const& run) {
    std::optional<std::size_t> fastest;
    trials = std::min(trials, ranked.size());
    for (std::size_t i = 0; i < trials; ++i) {
        auto& entry = ranked[i];
        entry.is_tried = true;
        entry.measured = run(entry.plan, entry.cost);
        if (entry.measured && (!fastest || *entry.measured < *ranked[*fastest].measured)) fastest = i;
    }
    if (fastest || trials == ranked.size()) return fastest;
    return trials;
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE void strategy_record::keep(strategy s) {
    auto const key = [](strategy const& x) { return std::pair(x.degrees(), x.micro_batch_size); };
    auto cost = model_.cost(s);
    if (!(cost.total < cutoff())) return;
    auto const same = algorithm::find_if(ranked_, [&](auto const& r) { return key(r.plan) == key(s); });
    if (same != ranked_.end()) {
        if (!(cost.total < same->cost.total)) return;
        ranked_.erase(same);
    }
    auto const less = [&](ranked_strategy const& a, ranked_strategy const& b) {
        return a.cost.total != b.cost.total ? a.cost.total < b.cost.total : key(a.plan) < key(b.plan);
    };
    ranked_strategy entry{std::move(s), std::move(cost)};
    ranked_.insert(algorithm::upper_bound(ranked_, entry, less), std::move(entry));
    if (ranked_.size() > most_) ranked_.pop_back();
}

} // namespace heddle

#endif
