// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Cuts a row of items into consecutive parts of the least weighted sum of the largest part and all parts.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/search/partition/partition_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace heddle::search {

namespace detail {

class partition_run : partition_in_ticks {
public:
    partition_run(partition_problem const& p, partition_options const& o)
        : partition_in_ticks(p, o, p.largest_weight + 1), best_end_(parts_ * (items_ + 1)), rest_(items_ + 1),
          rest_before_(items_ + 1), ends_(items_ + 1) {}

    partition_result run() {
        return partition_in_ticks::run([this] { descend(); });
    }

private:
    struct outcome {
        bool feasible = false;
        ticks largest = 0, rest = 0;
    };

    void descend();

    /// Returns the least cost, without the weight of the largest part, over partitions in which no part is above the
    /// threshold.
    outcome evaluate(ticks threshold);

    std::vector<std::size_t> best_end_;
    std::vector<ticks> rest_, rest_before_;
    end_window ends_;
};

} // namespace detail

/// Finds a cheapest partition; of equally cheap ones, the one with the lexicographically smallest cuts.
///
/// For a given threshold on the size of a part, the rest of the cost is a shortest path over cuts. The possible ends of
/// a part form a window that moves one way, as sizes are not negative; a monotone queue keeps its minimum, so one
/// threshold takes O(parts * items). Let f(T) be that minimum and t <= T the largest part of its solution. f never
/// grows with T, so a partition whose largest part lies in (c, T] costs more than `best` if c = (best - f(T)) /
/// largest_weight, and none in [t, T] costs less than this solution; so the next threshold to try is the smaller of c
/// and the value below t. Each threshold is followed by the smallest one that f alone cannot rule out, so once the
/// optimum is known no sequence of thresholds proves it sooner. Bisection for the least feasible threshold finds good
/// incumbents first.
/// *Returns* `optimal`, `infeasible` (below the cutoff, if one was given) or `limit`. Numbers are rounded to a fixed
/// grid, whose step is at most 2^-59 of a bound on any partition's cost.
/// *Complexity.* O(parts * items) per threshold and in memory. There is at most one threshold per distinct f near the
/// optimum, which in the worst case is O(kinds * items^2) of them.
[[nodiscard]] inline partition_result partition(partition_problem const& p, partition_options const& o = {}) {
    return detail::partition_run(p, o).run();
}

} // namespace heddle::search

#if HEDDLE_DEFINITIONS

namespace heddle::search::detail {

HEDDLE_INLINE void partition_run::descend() {
    auto const weight = problem_.largest_weight;
    proven_ = -infinite;
    auto const widest = evaluate(infinite / 4);
    if (!widest.feasible) return;
    proven_ = widest.rest;
    // The rest never grows with the threshold, so bisection for the least threshold meets good partitions on its way.
    ticks least = -1; // no partition's largest part is as small as this
    for (ticks most = widest.largest; weight > 0 && weight * (most - least) > (best_ >> 20) && most - least > 1;) {
        if (is_stopped()) return;
        auto const middle = evaluate(least + (most - least) / 2);
        if (middle.feasible) most = middle.largest;
        else least += (most - least) / 2;
        proven_ = widest.rest + weight * (least + 1);
    }
    // If the rest is minimised at a threshold, no partition below it costs less than weight * its largest + rest.
    for (auto at = widest; weight > 0 && best_ >= at.rest;) {
        auto const threshold = std::min(at.largest - 1, (best_ - at.rest) / weight);
        if (threshold <= least) return;
        proven_ = at.rest + weight * (least + 1);
        if (is_stopped()) return;
        at = evaluate(threshold);
        if (!at.feasible) return;
    }
}

HEDDLE_INLINE partition_run::outcome partition_run::evaluate(ticks threshold) {
    ++result_.statistics.thresholds;
    if (!bound_starts(threshold)) return {};
    // The next part begins in [first, last]; rest_ is the least cost from there on.
    std::size_t first = items_, last = items_;
    rest_[items_] = 0;
    for (std::size_t p = parts_; p-- > 0;) {
        auto const& before = this->before(p);
        std::size_t const last_start = std::min(last_start_[p], last - 1);
        std::size_t new_first = last_start + 1;
        ends_.reset(first, last);
        auto const through = [&](std::size_t end) {
            return rest_[end] == infinite ? infinite : before[end] + cut_cost(p, end) + rest_[end];
        };
        for (std::size_t start = last_start + 1; start-- > p;) {
            if (!ends_.move_to(start, latest_end(p, start), before, -1, threshold, through)) break;
            new_first = start;
            rest_before_[start] = ends_.empty() ? infinite : ends_.best().through - before[start];
            best_end_[p * (items_ + 1) + start] = ends_.empty() ? 0 : ends_.best().end;
            ++result_.statistics.cells;
        }
        std::swap(rest_, rest_before_);
        first = new_first;
        last = last_start;
        if (first > last) return {};
    }
    if (first > 0 || rest_[0] == infinite) return {};
    outcome found{true, 0, rest_[0]};
    for (std::size_t p = 0, start = 0; p < parts_; ++p) {
        auto const end = best_end_[p * (items_ + 1) + start];
        found.largest = std::max(found.largest, before(p)[end] - before(p)[start]);
        cuts_[p + 1] = start = end;
    }
    ticks const cost = problem_.largest_weight * found.largest + found.rest;
    if (cost < best_ || (cost == best_ && !result_.cuts.empty() && cuts_ < result_.cuts)) {
        best_ = cost;
        result_.cuts = cuts_;
    }
    return found;
}

} // namespace heddle::search::detail

#endif
