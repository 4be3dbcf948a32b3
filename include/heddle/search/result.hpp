// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What every search takes and returns: limits, status, bound, statistics.
#pragma once

#include <heddle/base/requirements.hpp>

#include <algorithm>
#include <cmath>
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

/// `width`: of what is kept at each step of a search, such as a beam.
enum class limit_kind : std::uint8_t { none, labels, comparisons, memory, time, stopped, width };

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
    case limit_kind::memory: return "memory";
    case limit_kind::time: return "time";
    case limit_kind::stopped: return "stopped";
    case limit_kind::width: return "width";
    }
    return "";
}

struct options {
    /// Nothing more is expanded once so many labels are kept, or so many pairs of labels compared.
    /// Deterministic, unlike the time limit.
    std::size_t label_limit = 4'000'000;
    std::size_t comparison_limit = 10'000'000'000;
    /// The same once the labels and states kept take so many bytes, as the problem counts them.
    std::size_t memory_limit_bytes = std::numeric_limits<std::size_t>::max();
    /// Looked at about every millisecond, and after every expansion that takes longer.
    std::optional<double> time_limit_seconds{};
    /// Only solutions cheaper than this are sought.
    double cutoff = std::numeric_limits<double>::infinity();
    /// Stop when cost <= bound + relative_gap * |bound|; with a cutoff, also when no solution costs less than it by more than that.
    double relative_gap = 1e-12;
    /// How many of the cheapest solutions are sought, those that differ in their order alone counted once
    /// where actions can be hashed.
    std::size_t solution_count = 1;
    std::stop_token stop{};
};

struct statistics {
    std::size_t expanded = 0;
    std::size_t generated = 0;
    /// Labels dropped because another was at least as good.
    std::size_t dominated = 0;
    /// Labels dropped because their bound reached the incumbent; several left out at once count as one.
    std::size_t bounded = 0;
    std::size_t kept = 0;
    /// Pairs of labels compared for dominance.
    std::size_t compared = 0;
    double seconds = 0;
    /// Of `seconds`, what making successors and inserting them took, estimated from a few expansions; too
    /// high where a step takes no longer than a look at the clock.
    double successor_seconds = 0, insertion_seconds = 0;

    /// Adds another search's counts; `kept` is the larger.
    statistics& operator+=(statistics const& other) {
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
};

/// How far a search has come.
struct progress {
    search::statistics const& statistics;
    double lower_bound = 0;
    /// Cost of the best solution so far.
    std::optional<double> incumbent;
    /// Distance between incumbent and bound in parts of the incumbent's size, if there is an incumbent.
    [[nodiscard]] std::optional<double> gap() const {
        if (!incumbent) return {};
        return *incumbent <= lower_bound ? 0.0 : (*incumbent - lower_bound) / std::abs(*incumbent);
    }
};

template <class Action>
struct solution {
    double cost = 0;
    /// First action first.
    std::vector<Action> actions;
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
    /// The next best ones, best first, if more than one was sought. `optimal` covers them too; fewer than
    /// sought means, unless a limit was reached, that there are no more.
    std::vector<solution<Action>> runners_up;
    search::statistics statistics;
};

namespace detail {

/// A bound or cost, and a part of its size more.
[[nodiscard]] inline double raised(double x, double part) { return std::isfinite(x) ? x + part * std::abs(x) : x; }
/// Whether what costs no less than a bound is too dear, where only what costs less than `wanted` is sought.
[[nodiscard]] inline bool is_hopeless(double bound, double wanted, options const& o) { return raised(bound, o.relative_gap) >= wanted; }

/// Fills in status and bound of a search that is over: no solution that it has not found costs less than `bound`, and one that it still wanted
/// would have had to cost less than `wanted`.
/// *Precondition:* `cost` and `which_limit` say what was found and what stopped the search.
template <class Action>
void conclude(result<Action>& out, double bound, double wanted) {
    bool const stopped = out.which_limit != limit_kind::none;
    if (!out.cost) {
        out.status = stopped ? status::limit : status::infeasible;
        out.lower_bound = bound;
        return;
    }
    out.status = raised(bound, 1e-9) >= wanted ? status::optimal : stopped ? status::limit : status::feasible;
    out.lower_bound = out.status == status::optimal ? *out.cost : std::min(bound, *out.cost);
    if (out.status == status::optimal) out.which_limit = limit_kind::none;
}

} // namespace detail

} // namespace heddle::search
