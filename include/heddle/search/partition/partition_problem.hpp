// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Rows of items to be cut into consecutive parts: the problem, and its numbers in exact form.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/search/budget.hpp>
#include <heddle/search/limits.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/search/partition/end_window.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::search {

/// A row of items, and the number of parts to cut it into, none of them empty. The cost to minimise is
/// `largest_weight * (size of the largest part) + (sizes of all parts) + (costs of all cuts)`.
///
/// *Preconditions.* All numbers are finite, sizes are not negative, and every kind is one of `sizes`.
struct partition_problem {
    /// sizes[kind][i] is the size of item i in a part of that kind. There is one kind at least; all rows have one
    /// length.
    std::vector<std::vector<double>> sizes;
    /// The kind of each part, first part first.
    std::vector<std::size_t> kinds;
    /// cut_costs[p][i] is the cost of a cut before item i between the parts p and p + 1. If empty, cuts are free.
    std::vector<std::vector<double>> cut_costs;
    /// reach[p][i] is where part p must end at the latest if it begins with item i; it never falls in i. If empty,
    /// there is no limit.
    std::vector<std::vector<std::size_t>> reach;
    /// Is not negative.
    std::int64_t largest_weight = 0;

    [[nodiscard]] std::size_t item_count() const { return sizes.front().size(); }
    [[nodiscard]] std::size_t part_count() const { return kinds.size(); }
};

struct partition_options {
    /// Labels are cells.
    search::limits limits{};
    /// The search looks only for partitions that cost less than this.
    double cutoff = std::numeric_limits<double>::infinity();
};

struct partition_statistics {
    /// The thresholds for which the rest was minimised, and the (part, item) pairs looked at for them.
    std::size_t thresholds = 0, cells = 0;
    double seconds = 0;

    partition_statistics& operator+=(partition_statistics const& other);
};

struct partition_result : outcome<> {
    std::optional<double> cost;
    /// Part p holds the items [cuts[p], cuts[p + 1]).
    std::vector<std::size_t> cuts;
    partition_statistics statistics;
};

namespace detail {

/// A partition problem in whole numbers of a unit so small that any partition costs less than 2^60. Sums are exact, so
/// that ties are ties in whatever order one adds.
class partition_in_ticks {
protected:
    /// The size of a part is counted at most `most_weight` times.
    partition_in_ticks(partition_problem const& p, partition_options const& o, std::int64_t most_weight);

    [[nodiscard]] double in_units(ticks x) const { return static_cast<double>(x) / ticks_per_unit_; }
    [[nodiscard]] std::vector<ticks> const& before(std::size_t part) const { return before_[problem_.kinds[part]]; }
    [[nodiscard]] ticks cut_cost(std::size_t part, std::size_t item) const {
        return part + 1 < parts_ && !cut_costs_.empty() ? cut_costs_[part][item] : 0;
    }
    [[nodiscard]] std::size_t latest_end(std::size_t part, std::size_t start) const {
        return problem_.reach.empty() ? items_ : problem_.reach[part][start];
    }

    /// Fills `last_start_`. Returns whether the parts can reach the end of the row with no part above the threshold.
    bool bound_starts(ticks threshold);

    bool is_stopped() { return budget_.is_spent(result_.statistics.cells); }

    /// `search` leaves the best partition in `best_` and `result_.cuts`; if it stops early, it leaves a bound in
    /// `proven_`.
    template <class Search>
    partition_result run(Search const& search) {
        if (parts_ != 0 && parts_ <= items_) {
            search();
        } else if (parts_ == 0 && items_ == 0) {
            result_.cuts = {0};
            best_ = 0;
        }
        result_.statistics.seconds = budget_.elapsed();
        result_.which_limit = budget_.reached();
        if (!result_.cuts.empty()) result_.cost = in_units(best_);
        double const wanted = result_.cost.value_or(options_.cutoff);
        conclude(result_, result_.cost,
                 result_.which_limit == limit_kind::none ? wanted : in_units(std::min(proven_, best_)), wanted);
        return std::move(result_);
    }

    partition_problem const& problem_;
    partition_options const& options_;
    std::size_t items_, parts_;
    std::vector<std::vector<ticks>> before_, cut_costs_;
    /// Where each part may begin at the latest under the current threshold.
    std::vector<std::size_t> last_start_;
    std::vector<std::size_t> cuts_;
    ticks best_ = infinite, proven_ = 0;
    partition_result result_;
    budget budget_{options_.limits};

private:
    /// Is exact except for the rounding, because the factor is a power of two.
    [[nodiscard]] ticks in_ticks(double x) const {
        return static_cast<ticks>(x * ticks_per_unit_ + (x < 0 ? -0.5 : 0.5));
    }

    double ticks_per_unit_ = 1;
};

} // namespace detail
} // namespace heddle::search

#if HEDDLE_DEFINITIONS

namespace heddle::search {

HEDDLE_INLINE partition_statistics& partition_statistics::operator+=(partition_statistics const& other) {
    thresholds += other.thresholds;
    cells += other.cells;
    seconds += other.seconds;
    return *this;
}

} // namespace heddle::search

namespace heddle::search::detail {

HEDDLE_INLINE partition_in_ticks::partition_in_ticks(partition_problem const& p, partition_options const& o,
                                                     std::int64_t most_weight)
    : problem_(p), options_(o), items_(p.item_count()), parts_(p.part_count()), last_start_(parts_ + 1),
      cuts_(parts_ + 1) {
    double size = 0, cost = 0;
    for (std::size_t i = 0; i < items_; ++i) {
        double most = 0;
        for (auto const& row : p.sizes) most = std::max(most, row[i]);
        size += most;
    }
    for (auto const& row : p.cut_costs) {
        double most = 0;
        for (double c : row) most = std::max(most, std::abs(c));
        cost += most;
    }
    int exponent = 0;
    std::frexp(size * static_cast<double>(most_weight) + cost, &exponent);
    ticks_per_unit_ = std::ldexp(1.0, std::min(60 - exponent, 1000));
    for (auto const& row : p.sizes) {
        auto& sums = before_.emplace_back(1, 0);
        for (double x : row) sums.push_back(sums.back() + in_ticks(x));
    }
    for (auto const& row : p.cut_costs) {
        auto& costs = cut_costs_.emplace_back();
        for (double x : row) costs.push_back(in_ticks(x));
    }
    if (o.cutoff * ticks_per_unit_ < 0x1p61) best_ = in_ticks(o.cutoff);
}

HEDDLE_INLINE bool partition_in_ticks::bound_starts(ticks threshold) {
    for (std::size_t p = 0; p < parts_; ++p) {
        auto const start = last_start_[p];
        auto const from = before(p).begin() + static_cast<std::ptrdiff_t>(start);
        auto const fitting =
            static_cast<std::size_t>(std::upper_bound(from, before(p).end(), *from + threshold) - from) - 1;
        last_start_[p + 1] = std::min({start + fitting, latest_end(p, start), items_ - (parts_ - 1 - p)});
        if (last_start_[p + 1] <= p) return false; // some part would be empty
    }
    return last_start_[parts_] == items_;
}

} // namespace heddle::search::detail

#endif
