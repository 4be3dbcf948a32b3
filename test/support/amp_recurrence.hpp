// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief AMP's own dynamic programme for layers to stages, to compare with (AMP section 3.5, eqs. (6)-(8)).
#pragma once

#include <heddle/search/partition/partition.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace heddle::test {

/// Returns the least `largest_weight * largest + sizes + cuts`, by O(parts * items^4) steps as published. It ignores
/// `reach`.
inline double amp_recurrence(search::partition_problem const& p) {
    std::size_t const items = p.item_count();
    auto const weight = static_cast<double>(p.largest_weight);
    std::vector<std::vector<double>> before;
    for (auto const& row : p.sizes) {
        auto& sums = before.emplace_back(1, 0.0);
        for (double x : row) sums.push_back(sums.back() + x);
    }
    std::vector<double> tolerances{0};
    for (auto const& sums : before)
        for (std::size_t end = 1; end <= items; ++end)
            for (std::size_t first = 0; first < end; ++first) tolerances.push_back(sums[end] - sums[first]);
    std::ranges::sort(tolerances);
    tolerances.erase(std::unique(tolerances.begin(), tolerances.end()), tolerances.end());
    auto const index = [&](double x) {
        return static_cast<std::size_t>(std::ranges::lower_bound(tolerances, x) - tolerances.begin());
    };

    // last[end][t] is for the first `end` items in the parts so far, with tolerance t.
    std::size_t const width = tolerances.size();
    constexpr double unreached = std::numeric_limits<double>::infinity();
    std::vector<double> last((items + 1) * width, unreached), next;
    for (std::size_t part = 0; part < p.part_count(); ++part) {
        auto const& sums = before[p.kinds[part]];
        next.assign(last.size(), unreached);
        for (std::size_t end = part + 1; end <= items; ++end)
            for (std::size_t first = part == 0 ? 0 : part; first < (part == 0 ? 1 : end); ++first) {
                double const size = sums[end] - sums[first];
                double const cut = part == 0 || p.cut_costs.empty() ? 0 : p.cut_costs[part - 1][first];
                std::size_t const at = index(size);
                for (std::size_t t = 0; t < width; ++t) {
                    double const so_far = part == 0 ? 0 : last[first * width + std::max(at, t)];
                    double const cost = so_far + weight * std::max(0.0, size - tolerances[t]) + size + cut;
                    next[end * width + t] = std::min(next[end * width + t], cost);
                }
            }
        std::swap(last, next);
    }
    return last[items * width];
}

} // namespace heddle::test
