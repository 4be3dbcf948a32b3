// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Branches on how large the largest part is, where that decides what other parts cost.
#pragma once

#include <heddle/base/requirements.hpp>
#include <heddle/search/budget.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/search/partition/end_window.hpp>

#include <initializer_list>
#include <queue>
#include <utility>

namespace heddle::search::detail {

/// Solutions whose largest part lies in (above, upto], relaxed: a chosen part lies there and is charged as if it were
/// the largest, and none is above `upto`.
struct largest_interval {
    ticks above, upto;
    /// What the cheapest of them costs, and in it the chosen part and the largest.
    ticks cost = 0, chosen = 0, largest = 0;
    friend bool operator<(largest_interval const& a, largest_interval const& b) {
        return a.cost != b.cost ? a.cost > b.cost : a.upto > b.upto;
    }
};

/// Finds the cheapest solution, given intervals that have all.
///
/// Relaxed, a solution is never charged too much, for it is charged the same with its largest part chosen. Where the
/// largest part of the cheapest is not the chosen one, splitting between the two rules it out on both sides; where it
/// is, but a later part is as large, so does splitting around that size. The interval with the least relaxed cost goes
/// first. `evaluate(interval)` fills in the rest of an interval and lowers `best` where its cheapest is a better
/// solution; false where there is none or the budget was spent on the way. `is_stopped` asks the budget. Leaves in
/// `proven` what no solution costs less than, unless `best` does.
template <class Evaluate, class IsStopped>
void branch_on_largest(std::initializer_list<largest_interval> all, budget const& limits, ticks const& best,
                       ticks& proven, IsStopped const& is_stopped, Evaluate const& evaluate) {
    std::priority_queue<largest_interval> open;
    auto const explore = [&](largest_interval n) {
        if (n.above < n.upto && evaluate(n) && n.cost < best) open.push(n);
    };
    for (auto const& n : all) explore(n);
    // What was cut short is bounded by what it is a part of.
    while (limits.reached() == limit_kind::none && !open.empty()) {
        auto const n = open.top();
        open.pop();
        proven = n.cost;
        if (n.cost >= best || is_stopped()) return;
        if (n.chosen < n.largest) {
            ticks const middle = n.chosen + (n.largest - n.chosen) / 2;
            explore({n.above, middle});
            explore({middle, n.upto});
        } else {
            explore({n.above, n.largest - 1});
            explore({n.largest - 1, n.largest});
            explore({n.largest, n.upto});
        }
    }
}

} // namespace heddle::search::detail
