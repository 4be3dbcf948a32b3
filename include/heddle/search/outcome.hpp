// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What every search and every planner says about its result.
#pragma once

#include <heddle/base/requirements.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

namespace heddle::search {

enum class status : std::uint8_t {
    optimal,   ///< the cost is proven least
    feasible,  ///< done, with a proven bound below the cost
    limit,     ///< stopped by a limit; a solution may or may not have been found
    infeasible ///< proven that there is no solution (below the cutoff, if one was given)
};

/// `width` is a limit on what is kept at each step of a search, such as a beam.
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

/// The part of every result that reads alike, whatever was searched. `Cost` is a number or a quantity.
template <class Cost = double>
struct outcome {
    search::status status = search::status::infeasible;
    /// Says what ended the search if the status is `limit`.
    limit_kind which_limit = limit_kind::none;
    /// No solution costs less.
    Cost lower_bound{};
    /// Says why there is no solution, if that is known.
    std::string reason{};

    /// Returns the same outcome in plain numbers.
    [[nodiscard]] outcome<> plain() const { return {status, which_limit, lower_bound / Cost(1), reason}; }
};

/// Costs whose relative distance is below this count as equal, because they are sums that are added in different
/// orders.
inline constexpr double equal_costs = 1e-9;

/// Returns a number plus a part of its size.
[[nodiscard]] inline double raised(double x, double part) { return std::isfinite(x) ? x + part * std::abs(x) : x; }
/// Tells whether a bound proves that nothing costs less than `cost`.
[[nodiscard]] inline bool proves(double bound, double cost) { return raised(bound, equal_costs) >= cost; }

/// Fills in the status and bound of a search that is over. No solution that it has not found costs less than `bound`,
/// and a solution that it still wanted would have had to cost less than `wanted`.
/// *Precondition:* `which_limit` says what stopped the search, and `cost` is that of the best solution found.
template <class Cost>
void conclude(outcome<Cost>& out, std::optional<Cost> const& cost, Cost bound, Cost wanted) {
    bool const stopped = out.which_limit != limit_kind::none;
    out.lower_bound = bound;
    if (!cost) {
        out.status = stopped ? status::limit : status::infeasible;
    } else if (proves(bound / Cost(1), wanted / Cost(1))) {
        out.status = status::optimal;
        out.which_limit = limit_kind::none;
        out.lower_bound = *cost;
    } else {
        out.status = stopped ? status::limit : status::feasible;
        out.lower_bound = std::min(bound, *cost);
    }
}
/// As above, where the search wanted whatever costs less than what it found.
template <class Cost>
void conclude(outcome<Cost>& out, Cost cost, Cost bound) {
    conclude(out, std::optional(cost), bound, cost);
}

} // namespace heddle::search
