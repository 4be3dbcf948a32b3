// SPDX-License-Identifier: BSL-1.0
#include <heddle/search/state_graph.hpp>

#include <doctest/doctest.h>

#include <cmath>

namespace {

using namespace heddle;

/// Levels 0 to 3; states are sums of digits 0 .. 2, all of which join in one state at the end.
struct digits {
    using state = int;
    using action = int;
    [[nodiscard]] std::size_t level_count() const { return 4; }
    [[nodiscard]] state initial() const { return 0; }
    template <class Visit>
    void for_each_successor(std::size_t level, state s, Visit&& visit) {
        if (level == 2) return visit(s, 0);
        for (int d = 0; d < 3; ++d) visit(d, s + d);
    }
};

} // namespace

TEST_CASE("explore numbers the states level by level") {
    digits space;
    auto const graph = search::explore(space);
    CHECK(graph.is_complete);
    CHECK(graph.node_count() == 1 + 3 + 5 + 1);
    CHECK(graph.first_of_level == std::vector<std::uint32_t>{0, 1, 4, 9, 10});
    CHECK(graph.out(0).size() == 3);
    CHECK(graph.out(4).size() == 1);
    CHECK(graph.is_last(9));
    CHECK_FALSE(graph.is_last(8));
    CHECK(graph.out(9).empty());
}

TEST_CASE("explore keeps as many states per level as asked for, and says so") {
    digits space;
    auto const graph = search::explore(space, 2);
    CHECK_FALSE(graph.is_complete);
    CHECK(graph.node_count() == 1 + 2 + 2 + 1);
}

TEST_CASE("shortest paths to the last level") {
    digits space;
    auto const graph = search::explore(space);
    auto const cost = [](int d) { return std::abs(d - 2) + 0.5; };
    auto const paths = search::paths_to_goal(graph, cost);
    // 0 + 2, then the sum 2 costs nothing; or 1 + 1, dearer.
    CHECK(paths.to_goal() == 2 + 0.5 * 3);
    double sum = 0;
    for (int d : search::follow(graph, paths)) sum += cost(d);
    CHECK(sum == paths.to_goal());
    CHECK(search::follow(graph, paths).size() == 3);
    CHECK(paths.to_goal({3, 0}) == 0);
}
