// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Cuts a row of items into consecutive parts whose cost depends on which part is the largest.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/search/partition/branch_on_largest.hpp>
#include <heddle/search/partition/end_window.hpp>
#include <heddle/search/partition/partition_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace heddle::search {

namespace detail {

class tailed_partition_run : partition_in_ticks {
public:
    tailed_partition_run(partition_problem const& p, partition_options const& o);

    partition_result run() {
        return partition_in_ticks::run([this] {
            proven_ = -infinite;
            branch_on_largest(
                {{-1, infinite / 4}}, budget_, best_, proven_, [this] { return is_stopped(); },
                [this](node& n) { return evaluate(n); });
        });
    }

private:
    using node = largest_interval;
    struct choice {
        std::size_t head_end, tail_end;
        bool is_largest;
    };
    /// Finds the cheapest of the relaxed partitions, and evaluates it as a partition.
    bool evaluate(node& n);

    void follow(node& n);

    std::vector<choice> choices_;
    /// The least cost from an item on, if the chosen part is still to come, and if it has passed.
    std::vector<ticks> head_, tail_, head_before_, tail_before_;
    end_window head_ends_, largest_ends_, tail_ends_;
};

} // namespace detail

/// Minimises `sum of all parts + (largest_weight + k) * (part k) + sum of the parts from k on + costs of all cuts`,
/// where part k is the largest, the last of equal ones.
///
/// Branches on the interval of the largest part's size, see `branch_on_largest`. Relaxed it is a shortest path over
/// cuts and whether the chosen part has passed, O(parts * items) with windows as in `partition`.
/// *Returns* as `partition`; of equally cheap partitions the first met, the same every time.
/// *Complexity.* O(parts * items) an interval; as many intervals as sizes in the worst case, tens as a rule.
[[nodiscard]] inline partition_result partition_with_tail(partition_problem const& p, partition_options const& o = {}) {
    return detail::tailed_partition_run(p, o).run();
}

} // namespace heddle::search

#if HEDDLE_DEFINITIONS

namespace heddle::search::detail {

HEDDLE_INLINE tailed_partition_run::tailed_partition_run(partition_problem const& p, partition_options const& o)
    : partition_in_ticks(p, o, p.largest_weight + static_cast<std::int64_t>(p.part_count()) + 2),
      choices_(parts_ * (items_ + 1)) {
    for (auto* row : {&head_, &tail_, &head_before_, &tail_before_}) row->resize(items_ + 1);
    for (auto* w : {&head_ends_, &largest_ends_, &tail_ends_}) *w = end_window(items_ + 1);
}

HEDDLE_INLINE bool tailed_partition_run::evaluate(node& n) {
    ++result_.statistics.thresholds;
    if (!bound_starts(n.upto)) return false;
    // The last of equally large parts counts: if only one size is left for it, those behind it are smaller.
    ticks const tail_upto = n.upto - n.above == 1 ? n.above : n.upto;
    auto const weight = [&](std::size_t p) { return problem_.largest_weight + static_cast<ticks>(p); };
    algorithm::fill(head_, infinite);
    algorithm::fill(tail_, infinite);
    tail_[items_] = 0;
    for (std::size_t p = parts_; p-- > 0;) {
        auto const& before = this->before(p);
        std::size_t const last = last_start_[p + 1];
        for (auto* w : {&head_ends_, &largest_ends_, &tail_ends_}) w->reset(p + 1, last);
        algorithm::fill(head_before_, infinite);
        algorithm::fill(tail_before_, infinite);
        auto const through = [&](ticks factor, std::vector<ticks> const& rest) {
            return [&, factor](std::size_t end) {
                return rest[end] == infinite ? infinite : factor * before[end] + cut_cost(p, end) + rest[end];
            };
        };
        ticks const largest_factor = 2 + weight(p);
        for (std::size_t start = std::min(last_start_[p], last - 1) + 1; start-- > p;) {
            ++result_.statistics.cells;
            auto& chosen = choices_[p * (items_ + 1) + start];
            auto const latest = latest_end(p, start);
            head_ends_.move_to(start, latest, before, -1, n.upto, through(1, head_));
            largest_ends_.move_to(start, latest, before, n.above, n.upto, through(largest_factor, tail_));
            tail_ends_.move_to(start, latest, before, -1, tail_upto, through(2, tail_));
            if (!tail_ends_.empty()) {
                tail_before_[start] = tail_ends_.best().through - 2 * before[start];
                chosen.tail_end = tail_ends_.best().end;
            }
            if (!head_ends_.empty()) {
                head_before_[start] = head_ends_.best().through - before[start];
                chosen.head_end = head_ends_.best().end;
                chosen.is_largest = false;
            }
            if (largest_ends_.empty()) continue;
            if (ticks const rest = largest_ends_.best().through - largest_factor * before[start];
                rest <= head_before_[start]) {
                head_before_[start] = rest;
                chosen.head_end = largest_ends_.best().end;
                chosen.is_largest = true;
            }
        }
        std::swap(head_, head_before_);
        std::swap(tail_, tail_before_);
    }
    n.cost = head_[0];
    if (n.cost == infinite) return false;
    follow(n);
    return true;
}

HEDDLE_INLINE void tailed_partition_run::follow(node& n) {
    bool in_tail = false;
    ticks tail = 0, all = 0;
    std::size_t largest_part = 0;
    for (std::size_t p = 0, start = 0; p < parts_; ++p) {
        auto const& chosen = choices_[p * (items_ + 1) + start];
        auto const end = in_tail ? chosen.tail_end : chosen.head_end;
        ticks const size = before(p)[end] - before(p)[start];
        if (!in_tail && chosen.is_largest) {
            in_tail = true;
            n.chosen = size;
        }
        if (size >= n.largest) {
            n.largest = size;
            largest_part = p;
            tail = 0;
        }
        tail += size;
        all += size + cut_cost(p, end);
        cuts_[p + 1] = start = end;
    }
    ticks const cost = all + tail + (problem_.largest_weight + static_cast<ticks>(largest_part)) * n.largest;
    if (cost >= best_) return;
    best_ = cost;
    result_.cuts = cuts_;
}

} // namespace heddle::search::detail

#endif
