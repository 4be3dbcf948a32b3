// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What label searches take and return: limits, solutions, statistics.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/search/limits.hpp>
#include <heddle/search/outcome.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

namespace heddle::search {

struct options {
    /// Nothing more is expanded once one of them is reached: unless they say otherwise, 4'000'000 labels kept or
    /// 10'000'000'000 pairs of them compared.
    search::limits limits{};
    /// The search looks only for solutions that cost less than this.
    double cutoff = std::numeric_limits<double>::infinity();
    /// The search stops if cost <= bound + relative_gap * |bound|. With a cutoff it also stops if no solution costs
    /// less than the cutoff by more than that.
    double relative_gap = 1e-12;
    /// How many of the cheapest solutions are sought. If actions can be hashed, solutions that differ only in their
    /// order count as one.
    std::size_t solution_count = 1;

    /// The limits and what holds where they say nothing.
    [[nodiscard]] search::limits all_limits() const {
        return limits.or_else({.labels = 4'000'000, .comparisons = 10'000'000'000});
    }
};

struct statistics {
    std::size_t expanded = 0;
    std::size_t generated = 0;
    /// The labels dropped because another was at least as good.
    std::size_t dominated = 0;
    /// The labels dropped because their bound reached the incumbent; several left out at once count as one.
    std::size_t bounded = 0;
    std::size_t kept = 0;
    /// The pairs of labels compared for dominance.
    std::size_t compared = 0;
    double seconds = 0;
    /// The parts of `seconds` that making successors and inserting them took, estimated from a few expansions. They are
    /// too high if a step takes no longer than a look at the clock.
    double successor_seconds = 0, insertion_seconds = 0;

    /// Adds another search's counts; `kept` becomes the larger of the two.
    statistics& operator+=(statistics const& other);
};

/// How far a search has come.
struct progress {
    search::statistics const& statistics;
    double lower_bound = 0;
    /// The cost of the best solution so far.
    std::optional<double> incumbent;
    /// Returns the distance between incumbent and bound relative to the incumbent's size, if there is an incumbent.
    [[nodiscard]] std::optional<double> gap() const;
};

template <class Action>
struct solution {
    double cost = 0;
    /// The first action comes first.
    std::vector<Action> actions;
};

template <class Action>
struct result : outcome<> {
    /// The cost of the best solution found.
    std::optional<double> cost;
    /// The best solution, first action first.
    std::vector<Action> actions;
    /// The next best solutions, best first, if more than one was sought. `optimal` covers them too. If there are fewer
    /// than were sought and no limit was reached, there are no more.
    std::vector<solution<Action>> runners_up;
    search::statistics statistics;
};

} // namespace heddle::search

#if HEDDLE_DEFINITIONS

namespace heddle::search {

HEDDLE_INLINE statistics& statistics::operator+=(statistics const& other) {
    expanded += other.expanded;
    generated += other.generated;
    dominated += other.dominated;
    bounded += other.bounded;
    kept = std::max(kept, other.kept);
    compared += other.compared;
    seconds += other.seconds;
    successor_seconds += other.successor_seconds;
    insertion_seconds += other.insertion_seconds;
    return *this;
}

HEDDLE_INLINE std::optional<double> progress::gap() const {
    if (!incumbent) return {};
    return *incumbent <= lower_bound ? 0.0 : (*incumbent - lower_bound) / std::abs(*incumbent);
}

} // namespace heddle::search

#endif
