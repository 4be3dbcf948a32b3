// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Layered state spaces as explicit graphs, and shortest paths to their end.
///
/// Where the states of a problem do not depend on its costs, the graph is explored once and priced
/// many times.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace heddle::search {

/// States in levels: every action leads from one level to the next. All states of the last level
/// are goals.
template <class Space>
concept layered_space = requires(Space& space, std::size_t level, typename Space::state const& s) {
    typename Space::action;
    { space.level_count() } -> std::convertible_to<std::size_t>;
    { space.initial() } -> std::convertible_to<typename Space::state>;
    space.for_each_successor(level, s, [](typename Space::action const&, typename Space::state const&) {});
    { std::hash<typename Space::state>{}(s) } -> std::convertible_to<std::size_t>;
};

template <class Action>
struct state_graph {
    struct edge {
        std::uint32_t to;
        Action action;
    };
    /// Nodes are numbered level by level; node 0 is the initial state.
    std::vector<std::uint32_t> first_of_level;
    std::vector<std::size_t> first_edge;
    std::vector<edge> edges;
    /// False where a width bound left out states.
    bool is_complete = true;

    [[nodiscard]] std::size_t node_count() const { return first_edge.size() - 1; }
    [[nodiscard]] std::span<edge const> out(std::size_t node) const {
        return {edges.data() + first_edge[node], edges.data() + first_edge[node + 1]};
    }
    [[nodiscard]] bool is_last(std::size_t node) const { return node >= first_of_level[first_of_level.size() - 2]; }
};

/// All states reachable from the initial one. At most `width` states are kept per level, those found
/// first; `is_complete` tells whether that left any out.
/// *Complexity.* Linear in states and actions, expected.
template <layered_space Space>
[[nodiscard]] state_graph<typename Space::action> explore(Space& space, std::size_t width = std::numeric_limits<std::size_t>::max()) {
    using state_type = typename Space::state;
    state_graph<typename Space::action> graph;
    std::vector<state_type> level{space.initial()};
    std::uint32_t first = 0;
    for (std::size_t l = 0; l + 1 < space.level_count(); ++l) {
        graph.first_of_level.push_back(first);
        auto const next_first = first + static_cast<std::uint32_t>(level.size());
        std::unordered_map<state_type, std::uint32_t> number;
        std::vector<state_type> next;
        for (auto const& state : level) {
            graph.first_edge.push_back(graph.edges.size());
            space.for_each_successor(l, state, [&](typename Space::action const& action, state_type const& successor) {
                auto const found = number.find(successor);
                if (found != number.end()) {
                    graph.edges.push_back({next_first + found->second, action});
                    return;
                }
                if (next.size() == width) { graph.is_complete = false; return; }
                auto const n = static_cast<std::uint32_t>(next.size());
                number.emplace(successor, n);
                next.push_back(successor);
                graph.edges.push_back({next_first + n, action});
            });
        }
        first = next_first;
        level = std::move(next);
    }
    graph.first_of_level.push_back(first);
    graph.first_of_level.push_back(first + static_cast<std::uint32_t>(level.size()));
    graph.first_edge.resize(graph.first_of_level.back() + 1, graph.edges.size());
    return graph;
}

/// Least cost from every node to the last level, and the edge to take; infinite where there is none.
struct shortest_paths {
    std::vector<double> to_goal;
    std::vector<std::size_t> best_edge;
};

/// *Complexity.* Linear in the edges. Ties go to the first edge.
template <class Action, std::invocable<Action const&> Cost>
[[nodiscard]] shortest_paths paths_to_goal(state_graph<Action> const& graph, Cost const& cost) {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    shortest_paths paths{std::vector<double>(graph.node_count(), infinite), std::vector<std::size_t>(graph.node_count(), 0)};
    for (std::size_t node = graph.node_count(); node-- > 0;) {
        if (graph.is_last(node)) { paths.to_goal[node] = 0; continue; }
        for (std::size_t e = graph.first_edge[node]; e < graph.first_edge[node + 1]; ++e) {
            double const through = cost(graph.edges[e].action) + paths.to_goal[graph.edges[e].to];
            if (through < paths.to_goal[node]) { paths.to_goal[node] = through; paths.best_edge[node] = e; }
        }
    }
    return paths;
}

/// The actions of the shortest path from the initial state. *Precondition:* there is one.
template <class Action>
[[nodiscard]] std::vector<Action> follow(state_graph<Action> const& graph, shortest_paths const& paths) {
    std::vector<Action> actions;
    for (std::size_t node = 0; !graph.is_last(node); node = graph.edges[paths.best_edge[node]].to)
        actions.push_back(graph.edges[paths.best_edge[node]].action);
    return actions;
}

} // namespace heddle::search
