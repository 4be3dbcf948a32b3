// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Cuts a row of items into consecutive parts: least weighted sum of the largest part and all parts.
#pragma once

#include <heddle/search/result.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

namespace heddle::search {

/// Items in a row and the parts, none empty, to cut them into. Minimised is
/// `largest_weight * (size of the largest part) + (sizes of all parts) + (costs of all cuts)`.
///
/// *Preconditions.* All numbers are finite, sizes are not negative, every kind is one of `sizes`.
struct partition_problem {
    /// sizes[kind][i]: of item i in a part of that kind. One kind at least; rows of one length.
    std::vector<std::vector<double>> sizes;
    /// The kind of each part, first part first.
    std::vector<std::size_t> kinds;
    /// cut_costs[p][i]: of a cut before item i between parts p and p + 1. Empty: cuts are free.
    std::vector<std::vector<double>> cut_costs;
    /// reach[p][i]: where part p must end at the latest if it begins with item i; never falls in i. Empty: no limit.
    std::vector<std::vector<std::size_t>> reach;
    std::int64_t largest_weight = 0;

    [[nodiscard]] std::size_t item_count() const { return sizes.front().size(); }
    [[nodiscard]] std::size_t part_count() const { return kinds.size(); }
};

struct partition_options {
    /// Stops after so many cells; deterministic.
    std::size_t label_limit = std::numeric_limits<std::size_t>::max();
    /// Only partitions cheaper than this are sought.
    double cutoff = std::numeric_limits<double>::infinity();
    std::stop_token stop{};
};

struct partition_statistics {
    /// Thresholds for which the rest was minimised, and the (part, item) pairs looked at for them.
    std::size_t thresholds = 0, cells = 0;
    double seconds = 0;

    partition_statistics& operator+=(partition_statistics const& other) {
        thresholds += other.thresholds;
        cells += other.cells;
        seconds += other.seconds;
        return *this;
    }
};

struct partition_result {
    search::status status = search::status::infeasible;
    limit_kind which_limit = limit_kind::none;
    std::optional<double> cost;
    /// No partition costs less.
    double lower_bound = 0;
    /// Part p holds the items [cuts[p], cuts[p + 1]).
    std::vector<std::size_t> cuts;
    partition_statistics statistics;
};

namespace detail {

class partition_run {
    /// Sizes and costs are whole numbers of a unit so small that the cost of any partition is below 2^60: sums are
    /// exact, so that ties are ties in whatever order one adds.
    using ticks = std::int64_t;
    static constexpr ticks infinite = std::numeric_limits<ticks>::max();

public:
    partition_run(partition_problem const& p, partition_options const& o)
        : problem_(p), options_(o), items_(p.item_count()), parts_(p.part_count()) {
        measure();
        read();
        last_start_.resize(parts_ + 1);
        best_end_.resize(parts_ * (items_ + 1));
        rest_.resize(items_ + 1);
        rest_before_.resize(items_ + 1);
        window_.resize(items_ + 1);
        cuts_.resize(parts_ + 1);
    }

    partition_result run() {
        auto const start = std::chrono::steady_clock::now();
        if (parts_ != 0 && parts_ <= items_) descend();
        else if (parts_ == 0 && items_ == 0) result_.cuts = {0}, best_ = 0;
        result_.statistics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        bool const stopped = result_.which_limit != limit_kind::none;
        if (!result_.cuts.empty()) result_.cost = in_units(best_);
        result_.lower_bound = stopped ? in_units(std::min(proven_, best_)) : result_.cost.value_or(options_.cutoff);
        result_.status = stopped ? status::limit : result_.cost ? status::optimal : status::infeasible;
        return std::move(result_);
    }

private:
    struct outcome {
        bool feasible = false;
        ticks largest = 0, rest = 0;
    };

    void measure() {
        double size = 0, cost = 0;
        for (std::size_t i = 0; i < items_; ++i) {
            double most = 0;
            for (auto const& row : problem_.sizes) most = std::max(most, row[i]);
            size += most;
        }
        for (auto const& row : problem_.cut_costs) {
            double most = 0;
            for (double c : row) most = std::max(most, std::abs(c));
            cost += most;
        }
        double const bound = size * (static_cast<double>(problem_.largest_weight) + 1) + cost;
        int exponent = 0;
        std::frexp(bound, &exponent);
        ticks_per_unit_ = std::ldexp(1.0, std::min(60 - exponent, 1000));
    }
    /// Exact but for the rounding: the factor is a power of two.
    [[nodiscard]] ticks in_ticks(double x) const { return static_cast<ticks>(x * ticks_per_unit_ + (x < 0 ? -0.5 : 0.5)); }
    [[nodiscard]] double in_units(ticks x) const { return static_cast<double>(x) / ticks_per_unit_; }

    void read() {
        for (auto const& row : problem_.sizes) {
            auto& sums = before_.emplace_back(1, 0);
            for (double x : row) sums.push_back(sums.back() + in_ticks(x));
        }
        for (auto const& row : problem_.cut_costs) {
            auto& costs = cut_costs_.emplace_back();
            for (double x : row) costs.push_back(in_ticks(x));
        }
        if (std::isfinite(options_.cutoff) && options_.cutoff * ticks_per_unit_ < 0x1p61) best_ = in_ticks(options_.cutoff);
    }

    void descend() {
        auto const weight = problem_.largest_weight;
        proven_ = -infinite;
        auto const widest = evaluate(infinite / 4);
        if (!widest.feasible) return;
        proven_ = widest.rest;
        // The rest never grows with the threshold, so bisection for the least threshold meets good partitions on its way.
        ticks least = -1; // no partition's largest part is as small as this
        for (ticks most = widest.largest; weight > 0 && weight * (most - least) > (best_ >> 20) && most - least > 1;) {
            if (stopped()) return;
            auto const middle = evaluate(least + (most - least) / 2);
            if (middle.feasible) most = middle.largest;
            else least += (most - least) / 2;
            proven_ = widest.rest + weight * (least + 1);
        }
        // Having minimised the rest at a threshold, no partition below it costs less than weight * its largest + rest.
        for (auto at = widest; weight > 0 && best_ >= at.rest;) {
            auto const threshold = std::min(at.largest - 1, (best_ - at.rest) / weight);
            if (threshold <= least) return;
            proven_ = at.rest + weight * (least + 1);
            if (stopped()) return;
            at = evaluate(threshold);
            if (!at.feasible) return;
        }
    }

    bool stopped() {
        if (options_.stop.stop_requested()) result_.which_limit = limit_kind::stopped;
        else if (result_.statistics.cells >= options_.label_limit) result_.which_limit = limit_kind::labels;
        return result_.which_limit != limit_kind::none;
    }

    [[nodiscard]] std::size_t latest_end(std::size_t part, std::size_t start) const {
        return problem_.reach.empty() ? items_ : problem_.reach[part][start];
    }

    /// Least cost without the largest part's weight where no part is above the threshold.
    outcome evaluate(ticks threshold) {
        ++result_.statistics.thresholds;
        last_start_[0] = 0;
        for (std::size_t p = 0; p < parts_; ++p) {
            auto const& before = before_[problem_.kinds[p]];
            auto const start = last_start_[p];
            auto const fits = std::upper_bound(before.begin() + static_cast<std::ptrdiff_t>(start), before.end(), before[start] + threshold) - before.begin() - 1;
            last_start_[p + 1] = std::min({static_cast<std::size_t>(fits), latest_end(p, start), items_ - (parts_ - 1 - p)});
        }
        if (last_start_[parts_] < items_) return {};
        // The next part begins in [first, last]; rest_ is the least cost from there on.
        std::size_t first = items_, last = items_;
        rest_[items_] = 0;
        for (std::size_t p = parts_; p-- > 0;) {
            auto const& before = before_[problem_.kinds[p]];
            auto const* const cut_costs = p + 1 < parts_ && !cut_costs_.empty() ? cut_costs_[p].data() : nullptr;
            // Both ends of the window of possible ends fall with the start. Its front is the cheapest end, of equals the first.
            std::size_t front = 0, back = 0;
            std::size_t const last_start = std::min(last_start_[p], last - 1);
            std::size_t new_first = last_start + 1, pushed = last + 1, end = last;
            for (std::size_t start = last_start + 1; start-- > p;) {
                end = std::min(end, latest_end(p, start));
                while (before[end] - before[start] > threshold) --end;
                if (end < first) break;
                for (std::size_t const stop = std::max(start + 1, first); pushed > stop;) {
                    --pushed;
                    if (pushed > end || rest_[pushed] == infinite) continue;
                    ticks const through = before[pushed] + rest_[pushed] + (cut_costs ? cut_costs[pushed] : 0);
                    while (back > front && window_[back - 1].through >= through) --back;
                    window_[back++] = {through, pushed};
                }
                while (front < back && window_[front].end > end) ++front;
                new_first = start;
                rest_before_[start] = front < back ? window_[front].through - before[start] : infinite;
                best_end_[p * (items_ + 1) + start] = front < back ? window_[front].end : 0;
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
            auto const& before = before_[problem_.kinds[p]];
            found.largest = std::max(found.largest, before[end] - before[start]);
            cuts_[p + 1] = start = end;
        }
        ticks const cost = problem_.largest_weight * found.largest + found.rest;
        if (cost < best_ || (cost == best_ && !result_.cuts.empty() && cuts_ < result_.cuts)) {
            best_ = cost;
            result_.cuts = cuts_;
        }
        return found;
    }

    struct candidate {
        ticks through;
        std::size_t end;
    };

    partition_problem const& problem_;
    partition_options const& options_;
    std::size_t items_, parts_;
    double ticks_per_unit_ = 1;
    std::vector<std::vector<ticks>> before_, cut_costs_;
    /// Where a part may begin at the latest, under the threshold at hand.
    std::vector<std::size_t> last_start_;
    std::vector<std::size_t> best_end_, cuts_;
    std::vector<ticks> rest_, rest_before_;
    std::vector<candidate> window_;
    ticks best_ = infinite, proven_ = 0;
    partition_result result_;
};

} // namespace detail

/// Finds a cheapest partition; of equally cheap ones the lexicographically smallest cuts.
///
/// For one threshold on the size of a part, the rest of the cost is a shortest path over cuts. A part's possible ends
/// form a window that moves one way, as sizes are not negative; a monotone queue keeps its minimum, so one threshold
/// takes O(parts * items). Let f(T) be that minimum and t <= T the largest part of its solution. As f never grows with
/// T, a partition whose largest part lies in (c, T] costs more than `best` if c = (best - f(T)) / largest_weight, and
/// none in [t, T] costs less than this solution: the next threshold to try is the smaller of c and the value below t.
/// Each threshold is followed by the smallest one that f alone cannot rule out, so with the optimum known no sequence
/// of thresholds proves it sooner; bisection for the least feasible threshold finds good incumbents first.
/// *Returns* `optimal`, `infeasible` (below the cutoff, if one was given) or `limit`.
/// Numbers are rounded to a fixed grid, at most 2^-59 of a bound on any partition's cost apart.
/// *Complexity.* O(parts * items) a threshold and in memory; at most one threshold per distinct f near the optimum, in
/// the worst case O(kinds * items^2) of them.
[[nodiscard]] inline partition_result partition(partition_problem const& p, partition_options const& o = {}) {
    return detail::partition_run(p, o).run();
}

} // namespace heddle::search
