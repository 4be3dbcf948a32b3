// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Shortest paths on a weighted grid: a search problem of small integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace heddle::bench {

using cell = std::uint32_t;

/// Goes from one corner to the opposite one; entering a cell costs 1 to 9.
struct grid {
    std::uint32_t width;
    std::vector<std::uint8_t> costs;

    explicit grid(std::uint32_t w) : width(w), costs(std::size_t{w} * w) {
        std::uint64_t random = 1;
        for (auto& cost : costs) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            cost = static_cast<std::uint8_t>(1 + (random >> 33) % 9);
        }
    }
    [[nodiscard]] cell last() const { return width * width - 1; }
    [[nodiscard]] int distance(cell c) const { return static_cast<int>(2 * (width - 1) - c / width - c % width); }
    template <class Visit>
    void for_each_neighbour(cell c, Visit&& visit) const {
        auto const column = c % width;
        if (c >= width) visit(c - width);
        if (column > 0) visit(c - 1);
        if (column + 1 < width) visit(c + 1);
        if (c + width <= last()) visit(c + width);
    }
};

/// Keeps a reference to the grid.
struct grid_problem {
    using state = cell;
    using label = int;
    using action = cell;
    grid const& map;

    [[nodiscard]] std::pair<state, label> initial() const { return {0, 0}; }
    [[nodiscard]] bool is_goal(state s) const { return s == map.last(); }
    [[nodiscard]] int total(label l) const { return l; }
    [[nodiscard]] int bound(state s, label l) const { return l + map.distance(s); }
    [[nodiscard]] bool dominates(label a, label b) const { return a <= b; }
    template <class Visit>
    void for_each_successor(state s, label l, Visit&& visit) const {
        map.for_each_neighbour(s, [&](cell next) { visit(next, next, l + map.costs[next]); });
    }
};

} // namespace heddle::bench
