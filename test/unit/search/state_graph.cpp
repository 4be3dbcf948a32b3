// SPDX-License-Identifier: BSL-1.0
#include "support/random_programs.hpp"

#include <heddle/search/narrowed_graph.hpp>
#include <heddle/search/problem.hpp>
#include <heddle/search/repeated_levels.hpp>
#include <heddle/search/state_graph.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

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
static_assert(search::layered_space<digits> && !search::problem<digits>);
static_assert(!search::problem<search::state_graph<int>>);

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
    std::size_t levels = 0; // as when time is over after the first level
    auto const narrowed = search::explore(space, [&] { return ++levels == 1 ? std::size_t{3} : std::size_t{1}; });
    CHECK_FALSE(narrowed.is_complete);
    CHECK(narrowed.node_count() == 1 + 3 + 1 + 1);
    auto const ended = search::explore(space, [] { return std::size_t{4}; }, 0);
    CHECK_FALSE(ended.is_complete);
    CHECK(ended.first_of_level == std::vector<std::uint32_t>{0, 1, 4, 8});
}

TEST_CASE("shortest paths to the last level cost what their steps add up to") {
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

TEST_CASE("the cheapest of the links from a state is where the shortest path goes") {
    digits space;
    auto const graph = search::explore(space);
    auto const paths = search::paths_to_goal(graph, [](int d) { return std::abs(d - 2) + 0.5; });
    for (std::uint32_t level = 0; level < 3; ++level) {
        auto const& segment = graph.from_level(level);
        for (std::uint32_t n = 0; n < segment.size(); ++n) {
            double least = std::numeric_limits<double>::infinity();
            for (auto const& link : segment.out(n)) {
                double const through = paths.through(level, link);
                CHECK(through >= paths.to_goal({level, n}));
                least = std::min(least, through);
            }
            CHECK(least == paths.to_goal({level, n}));
        }
    }
}

TEST_CASE("a path's states are where the shortest paths go on from") {
    digits space;
    auto const graph = search::explore(space);
    auto const paths = search::paths_to_goal(graph, [](int d) { return std::abs(d - 2) + 0.5; });
    std::vector<int> const path{1, 2, 3}; // the sum is 3
    auto const states = search::states_along(graph, path);
    CHECK(states == std::vector<search::graph_node>{{0, 0}, {1, 1}, {2, 3}, {3, 0}});
    CHECK(search::follow(graph, paths, states[2]) == std::vector<int>{3});
    CHECK(search::follow(graph, paths, states[1]) == std::vector<int>{1, 2});
    CHECK(search::follow(graph, paths, states[3]).empty());
}

namespace {

/// Levels of few sorts, in a sequence that may repeat itself; the states 0 .. 3 of a level lead on as its sort says,
/// often twice.
struct sorted_levels {
    using state = int;
    using action = int;
    struct move {
        int action, to;
    };
    std::vector<std::vector<std::vector<move>>> sorts;
    std::vector<std::size_t> sequence;
    bool tells_what_is_alike = true;
    int calls = 0;

    sorted_levels(test::random_source& random, std::size_t levels) : sorts(3, std::vector<std::vector<move>>(4)) {
        for (auto& sort : sorts)
            for (auto& from : sort)
                for (int count = random.between(0, 5); count > 0; --count)
                    from.push_back({random.between(0, 9), random.between(0, 3)});
        std::size_t const period = 1 + random.below(4);
        for (std::size_t l = 0; l < levels; ++l)
            sequence.push_back(l < period || random.chance(0.05) ? random.below(3) : sequence[l - period]);
    }
    [[nodiscard]] std::size_t level_count() const { return sequence.size() + 1; }
    [[nodiscard]] state initial() const { return 0; }
    [[nodiscard]] std::size_t alike(std::size_t level) const { return tells_what_is_alike ? sequence[level] : level; }
    template <class Visit>
    void for_each_successor(std::size_t level, state s, Visit&& visit) {
        ++calls;
        for (auto const& m : sorts[sequence[level]][static_cast<std::size_t>(s)]) visit(m.action, m.to);
    }
};

/// Whole numbers, so that sums have no rounding; another table on every third level.
struct table_costs {
    std::vector<std::vector<int>> tables;
    double operator()(std::size_t level, int action) const {
        return tables[alike(level)][static_cast<std::size_t>(action)];
    }
    [[nodiscard]] std::size_t alike(std::size_t level) const { return level % 3 == 0; }
};

/// The same in sevenths, whose sums are rounded.
struct rounded_costs {
    table_costs const& whole;
    double operator()(std::size_t level, int action) const { return whole(level, action) / 7; }
    [[nodiscard]] std::size_t alike(std::size_t level) const { return whole.alike(level); }
};

} // namespace

TEST_CASE("levels that are alike are explored and searched once, with the same outcome") {
    int calls = 0, calls_apart = 0, reached = 0;
    for (std::uint64_t seed = 1; seed <= 500; ++seed) {
        test::random_source random(seed);
        CAPTURE(seed);
        sorted_levels space(random, 1 + random.below(40));
        auto apart = space;
        apart.tells_what_is_alike = false;
        auto const width = random.chance(0.2) ? random.below(4) : 100;
        auto const graph = search::explore(space, width), plain = search::explore(apart, width);
        calls += space.calls;
        calls_apart += apart.calls;
        CHECK(graph.is_complete == plain.is_complete);
        REQUIRE(graph.first_of_level == plain.first_of_level);
        table_costs costs{{std::vector<int>(10), std::vector<int>(10)}};
        for (auto& table : costs.tables)
            for (auto& cost : table) cost = random.between(0, 20);
        auto const paths = search::paths_to_goal(graph, costs),
                   rounded = search::paths_to_goal(graph, rounded_costs{costs});
        std::vector<double> to_goal(plain.node_count(), std::numeric_limits<double>::infinity());
        for (std::size_t n = plain.node_count(); n-- > 0;) {
            auto const level = plain.level_of(n);
            auto const a = graph.out(n), b = plain.out(n);
            REQUIRE(a.size() == b.size());
            auto same = a.begin();
            for (auto const& e : b) {
                CHECK((*same).to == e.to);
                CHECK((*same).action == e.action);
                to_goal[n] = std::min(to_goal[n], costs(level, e.action) + to_goal[e.to]);
                ++same;
            }
            if (plain.is_last(n)) to_goal[n] = 0;
            search::graph_node const node{static_cast<std::uint32_t>(level),
                                          static_cast<std::uint32_t>(n - plain.first_of_level[level])};
            CHECK(paths.to_goal(node) == to_goal[n]);
            if (std::isfinite(to_goal[n]))
                CHECK(std::abs(7 * rounded.to_goal(node) - to_goal[n]) <= 1e-12 * to_goal[n]);
            else CHECK(rounded.to_goal(node) == to_goal[n]);
        }
        if (plain.level_of(0) != 0 || to_goal[0] == std::numeric_limits<double>::infinity()) continue;
        ++reached;
        double sum = 0;
        auto const actions = search::follow(graph, paths);
        for (std::size_t level = 0; level < actions.size(); ++level) sum += costs(level, actions[level]);
        CHECK(sum == to_goal[0]);
        double sum_rounded = 0;
        auto const others = search::follow(graph, rounded);
        for (std::size_t level = 0; level < others.size(); ++level) sum_rounded += costs(level, others[level]);
        CHECK(sum_rounded == to_goal[0]);
    }
    CHECK(reached > 100);
    CHECK(calls * 3 < calls_apart);
}

TEST_CASE("a narrowed graph has the states and links of the paths that are near the shortest") {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    std::size_t left = 0, all = 0, segments = 0, levels = 0;
    for (std::uint64_t seed = 1; seed <= 500; ++seed) {
        test::random_source random(seed);
        CAPTURE(seed);
        sorted_levels space(random, 1 + random.below(40));
        auto const graph = search::explore(space);
        table_costs costs{{std::vector<int>(10), std::vector<int>(10)}}, others = costs;
        for (auto* tables : {&costs.tables, &others.tables})
            for (auto& table : *tables)
                for (auto& cost : table) cost = random.between(0, 20);
        auto const paths = search::paths_to_goal(graph, costs);
        if (!std::isfinite(paths.to_goal())) continue;
        double const more = random.between(0, 30), longest = paths.to_goal() + more;
        search::narrowed_graph const part(graph, paths, more);
        auto const node_of = [&](std::size_t n) {
            auto const level = graph.level_of(n);
            return search::graph_node{static_cast<std::uint32_t>(level),
                                      static_cast<std::uint32_t>(n - graph.first_of_level[level])};
        };
        std::vector<double> from_start(graph.node_count(), infinite), other_rest = from_start;
        from_start[0] = 0;
        for (std::size_t n = 0; n < graph.node_count(); ++n)
            for (auto const& e : graph.out(n))
                from_start[e.to] = std::min(from_start[e.to], from_start[n] + costs(graph.level_of(n), e.action));
        auto const is_near = [&](std::size_t n) { return from_start[n] + paths.to_goal(node_of(n)) <= longest; };
        auto const other_paths = search::paths_to_goal(part.graph(), others);
        for (std::size_t n = graph.node_count(); n-- > 0;) {
            if (graph.is_last(n)) other_rest[n] = 0;
            for (auto const& e : graph.out(n))
                if (is_near(e.to))
                    other_rest[n] = std::min(other_rest[n], others(graph.level_of(n), e.action) + other_rest[e.to]);
            auto const found = part.find(node_of(n));
            REQUIRE(found.has_value() == is_near(n));
            if (found) CHECK(other_paths.to_goal(*found) == other_rest[n]);
        }
        CHECK(search::paths_to_goal(part.graph(), costs).to_goal() == paths.to_goal());
        search::narrowed_graph const rounded(graph, search::paths_to_goal(graph, rounded_costs{costs}),
                                             more / 7 + 1e-9);
        CHECK(rounded.graph().first_of_level == part.graph().first_of_level);
        all += graph.node_count(), left += part.graph().node_count();
        levels += graph.level_count() - 1, segments += part.graph().segments.size();
    }
    CHECK(left < all);        // it is a part
    CHECK(segments < levels); // and levels that are alike are so in it, too
    MESSAGE(left << " of " << all << " states, " << segments << " segments for " << levels << " levels");
}

TEST_CASE("a list without repetitions goes on as the list does") {
    std::vector<int> const layers{7, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 4, 4, 4, 9};
    auto const shorter = search::without_repetitions(layers);
    CHECK(shorter.kept == std::vector<std::size_t>{0, 1, 2, 3, 10, 11, 12, 15});
    std::size_t left_out = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        std::vector<int> keys;
        while (keys.size() < 30) { // parts of one to three keys, each a few times
            std::vector<int> part;
            for (int n = random.between(1, 3); n > 0; --n) part.push_back(random.between(0, 2));
            for (int n = random.between(1, 4); n > 0; --n) keys.insert(keys.end(), part.begin(), part.end());
        }
        auto const [kept, like] = search::without_repetitions(keys);
        left_out += keys.size() - kept.size();
        CHECK(kept.front() == 0);
        CHECK(keys[kept.back()] == keys.back());
        for (std::size_t n = 1; n < kept.size(); ++n) CHECK(keys[kept[n] - 1] == keys[kept[n - 1]]);
        for (std::size_t n = 0; n < keys.size(); ++n) {
            CHECK(keys[like[n]] == keys[n]);
            CHECK(std::ranges::binary_search(kept, like[n]));
        }
    }
    CHECK(left_out > 2000);
}
