// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What every search takes and returns: limits, status, bound, statistics.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stop_token>
#include <vector>

namespace heddle::search {

enum class status : std::uint8_t {
    optimal,   ///< the cost is proven least
    feasible,  ///< done, with a proven bound below the cost
    limit,     ///< stopped by a limit; a solution may or may not have been found
    infeasible ///< proven that there is no solution (below the cutoff, if one was given)
};

enum class limit_kind : std::uint8_t { none, labels, comparisons, time, stopped };

[[nodiscard]] constexpr char const* name(status s) {
    switch (s) {
    case status::optimal: return "optimal";
    case status::feasible: return "feasible";
    case status::limit: return "limit";
    case status::infeasible: return "infeasible";
    }
    return "";
}

[[nodiscard]] constexpr char const* name(limit_kind k) {
    switch (k) {
    case limit_kind::none: return "none";
    case limit_kind::labels: return "labels";
    case limit_kind::comparisons: return "comparisons";
    case limit_kind::time: return "time";
    case limit_kind::stopped: return "stopped";
    }
    return "";
}

struct options {
    /// Nothing more is expanded once so many labels are kept, or so many pairs of labels compared.
    /// Deterministic, unlike the time limit.
    std::size_t label_limit = 4'000'000;
    std::size_t comparison_limit = 10'000'000'000;
    std::optional<double> time_limit_seconds{};
    /// Only solutions cheaper than this are sought.
    double cutoff = std::numeric_limits<double>::infinity();
    /// Stop when cost <= bound * (1 + relative_gap); with a cutoff, also when no solution costs less than
    /// cutoff / (1 + relative_gap).
    double relative_gap = 1e-12;
    std::stop_token stop{};
};

struct statistics {
    std::size_t expanded = 0;
    std::size_t generated = 0;
    /// Labels dropped because another was at least as good.
    std::size_t dominated = 0;
    /// Labels dropped because their bound reached the incumbent.
    std::size_t bounded = 0;
    std::size_t kept = 0;
    /// Pairs of labels of one state compared for dominance.
    std::size_t compared = 0;
    double seconds = 0;

    /// Adds another search's counts; `kept` is the larger.
    statistics& operator+=(statistics const& other) {
        expanded += other.expanded;
        generated += other.generated;
        dominated += other.dominated;
        bounded += other.bounded;
        kept = std::max(kept, other.kept);
        compared += other.compared;
        seconds += other.seconds;
        return *this;
    }
};

template <class Action>
struct result {
    search::status status = search::status::infeasible;
    limit_kind which_limit = limit_kind::none;
    /// Cost of the best solution found.
    std::optional<double> cost;
    /// No solution costs less.
    double lower_bound = 0;
    /// The best solution, first action first.
    std::vector<Action> actions;
    search::statistics statistics;
};

} // namespace heddle::search
