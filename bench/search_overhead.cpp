// SPDX-License-Identifier: BSL-1.0
// What generality costs: shortest paths on a weighted grid by `best_first` and by a loop written for that grid, which
// break ties alike and so expand the same cells.
// Counter `ratio`: CPU time of the engine over that of the loop. README.md says how to count instructions.
#include "grid.hpp"

#include <heddle/search/best_first.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <queue>
#include <unordered_map>
#include <vector>

namespace {

using namespace heddle::bench;

struct path {
    double cost = 0;
    std::size_t expanded = 0;
    std::vector<cell> cells;
};

/// This problem belongs to this file alone, as a program's own would: compilers then inline as freely as in a loop by
/// hand.
struct own_problem : grid_problem {};

[[gnu::noinline]] path by_engine(grid const& map) {
    auto const r = heddle::search::best_first(own_problem{{map}});
    return {*r.cost, r.statistics.expanded, r.actions};
}

[[gnu::noinline]] path by_hand(grid const& map) {
    struct node {
        cell where;
        int cost, depth;
        std::uint32_t parent;
        bool is_stale;
    };
    struct entry {
        int bound, depth;
        std::uint32_t node;
        bool operator<(entry const& other) const {
            if (bound != other.bound) return bound > other.bound;
            if (depth != other.depth) return depth < other.depth;
            return node < other.node;
        }
    };
    std::vector<node> nodes{{0, 0, 0, 0, false}};
    std::unordered_map<cell, std::uint32_t> newest{{0, 0}};
    std::priority_queue<entry> open;
    open.push({map.distance(0), 0, 0});
    std::uint32_t goal = 0;
    path found;
    while (!open.empty()) {
        auto const top = open.top();
        open.pop();
        if (goal && top.bound >= nodes[goal].cost) break;
        auto const from = nodes[top.node];
        if (from.is_stale) continue;
        ++found.expanded;
        map.for_each_neighbour(from.where, [&](cell next) {
            int const cost = from.cost + map.costs[next], bound = cost + map.distance(next), depth = from.depth + 1;
            if (goal && bound >= nodes[goal].cost) return;
            auto const number = static_cast<std::uint32_t>(nodes.size());
            auto const [place, is_new] = newest.try_emplace(next, number);
            if (!is_new) {
                auto& old = nodes[place->second];
                if (old.cost <= cost) return;
                old.is_stale = true;
                place->second = number;
            }
            nodes.push_back({next, cost, depth, top.node, false});
            if (next == map.last()) goal = number;
            else open.push({bound, depth, number});
        });
    }
    found.cost = nodes[goal].cost;
    for (auto n = goal; n; n = nodes[n].parent) found.cells.push_back(nodes[n].where);
    std::ranges::reverse(found.cells);
    return found;
}

void ratio(benchmark::State& state) {
    grid const map(static_cast<std::uint32_t>(state.range(0)));
    std::clock_t engine = 0, hand = 0;
    path mine, theirs;
    for (auto _ : state) {
        auto const start = std::clock();
        mine = by_engine(map);
        auto const between = std::clock();
        theirs = by_hand(map);
        hand += std::clock() - between;
        engine += between - start;
    }
    if (mine.cost != theirs.cost || mine.cells != theirs.cells || mine.expanded != theirs.expanded)
        state.SkipWithError("the two differ");
    state.counters["expanded"] = static_cast<double>(mine.expanded);
    state.counters["ratio"] = static_cast<double>(engine) / static_cast<double>(hand);
}
BENCHMARK(ratio)->Arg(100)->Arg(300)->Arg(1000)->Unit(benchmark::kMillisecond);

} // namespace

BENCHMARK_MAIN();
