// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Layered state spaces as explicit graphs, and shortest paths to their end.
///
/// Where the states of a problem do not depend on its costs, the graph is explored once and priced
/// many times.
#pragma once

#include <heddle/search/numbering.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <ranges>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace heddle::search {

/// States in levels: every action leads from one level to the next. All states of the last level
/// are goals.
///
/// *Optional.* `space.alike(level)`, a number. *Axiom.* On levels of one number, the same state has the same successors by
/// the same actions in the same order. What repeats from level to level is then explored once.
template <class Space>
concept layered_space = requires(Space& space, std::size_t level, typename Space::state const& s) {
    typename Space::action;
    { space.level_count() } -> std::convertible_to<std::size_t>;
    { space.initial() } -> std::convertible_to<typename Space::state>;
    space.for_each_successor(level, s, [](typename Space::action const&, typename Space::state const&) {});
    { std::hash<typename Space::state>{}(s) } -> std::convertible_to<std::size_t>;
};

/// A state of a `state_graph`: its level and its position there.
struct graph_node {
    std::uint32_t level = 0, position = 0;
    friend bool operator==(graph_node, graph_node) = default;
};

} // namespace heddle::search

template <>
struct std::hash<heddle::search::graph_node> {
    std::size_t operator()(heddle::search::graph_node n) const { return std::hash<std::uint64_t>{}((std::uint64_t{n.level} << 32) | n.position); }
};

namespace heddle::search {

/// Levels of states as a graph. Levels that are alike share their edges.
template <class Action>
struct state_graph {
    /// `to` is a position in the next level.
    struct edge {
        std::uint32_t to;
        Action action;
    };
    /// The edges from one level to the next, by position in it.
    struct segment {
        std::vector<std::uint32_t> first_edge{0};
        std::vector<edge> edges;
        [[nodiscard]] std::size_t size() const { return first_edge.size() - 1; }
        [[nodiscard]] std::span<edge const> out(std::size_t position) const {
            return {edges.data() + first_edge[position], edges.data() + first_edge[position + 1]};
        }
    };
    std::vector<segment> segments;
    /// By level, all but the last.
    std::vector<std::uint32_t> segment_of_level;
    /// Nodes are numbered level by level; node 0 is the initial state.
    std::vector<std::uint32_t> first_of_level;
    /// False where a width bound left out states.
    bool is_complete = true;

    [[nodiscard]] std::size_t level_count() const { return first_of_level.size() - 1; }
    [[nodiscard]] std::size_t node_count() const { return first_of_level.back(); }
    /// *Complexity.* Logarithmic in the levels.
    [[nodiscard]] std::size_t level_of(std::size_t node) const {
        return static_cast<std::size_t>(std::ranges::upper_bound(first_of_level, node) - first_of_level.begin()) - 1;
    }
    [[nodiscard]] bool is_last(std::size_t node) const { return node >= first_of_level[first_of_level.size() - 2]; }
    [[nodiscard]] segment const& from_level(std::size_t level) const { return segments[segment_of_level[level]]; }
    /// The edges of a node, `to` being the number of a node.
    [[nodiscard]] auto out(std::size_t node) const {
        std::size_t const level = level_of(node);
        auto const edges = is_last(node) ? std::span<edge const>{} : from_level(level).out(node - first_of_level[level]);
        std::uint32_t const next = is_last(node) ? 0 : first_of_level[level + 1];
        return std::views::transform(edges, [next](edge const& e) { return edge{next + e.to, e.action}; });
    }
};

/// All states reachable from the initial one. At most `width` states are kept per level, those found
/// first; `is_complete` tells whether that left any out.
/// *Complexity.* Linear in states and actions of levels that are not alike, expected, and in levels.
template <layered_space Space>
[[nodiscard]] state_graph<typename Space::action> explore(Space& space, std::size_t width = std::numeric_limits<std::size_t>::max()) {
    using state_type = typename Space::state;
    using graph_type = state_graph<typename Space::action>;
    graph_type graph;
    numbering<std::vector<state_type>, list_hash<state_type>> lists;
    // From the states of a level to those of the next: the segment and its list of targets.
    numbering<std::vector<std::uint64_t>, list_hash<std::uint64_t>> steps;
    std::vector<std::uint32_t> targets;
    std::vector<bool> cut_short;

    auto const explore_level = [&](std::size_t level, std::vector<state_type> const& states) {
        auto& segment = graph.segments.emplace_back();
        std::unordered_map<state_type, std::uint32_t> number;
        std::vector<state_type> next;
        bool complete = true;
        for (auto const& state : states) {
            space.for_each_successor(level, state, [&](typename Space::action const& action, state_type const& successor) {
                auto const found = number.find(successor);
                if (found != number.end()) {
                    segment.edges.push_back({found->second, action});
                    return;
                }
                if (next.size() == width) { complete = false; return; }
                auto const n = static_cast<std::uint32_t>(next.size());
                number.emplace(successor, n);
                next.push_back(successor);
                segment.edges.push_back({n, action});
            });
            segment.first_edge.push_back(static_cast<std::uint32_t>(segment.edges.size()));
        }
        graph.is_complete = graph.is_complete && complete;
        targets.push_back(lists.insert(std::move(next)).first);
    };

    std::uint32_t list = lists.insert({space.initial()}).first;
    graph.first_of_level = {0, 1};
    for (std::size_t level = 0; level + 1 < space.level_count(); ++level) {
        std::uint64_t kind = level;
        if constexpr (requires { space.alike(level); }) kind = space.alike(level);
        auto const [step, is_new] = steps.insert({kind, list});
        if (is_new) explore_level(level, lists[list]);
        graph.segment_of_level.push_back(step);
        list = targets[step];
        graph.first_of_level.push_back(graph.first_of_level.back() + static_cast<std::uint32_t>(lists[list].size()));
    }
    return graph;
}

/// What actions cost where they stand. *Optional.* `cost.alike(level)`, a number. *Axiom.* On levels of one number, an action
/// costs the same. A function of the action alone costs the same everywhere.
template <class Cost, class Action>
concept action_cost = std::invocable<Cost const&, Action const&> || std::invocable<Cost const&, std::size_t, Action const&>;

/// Least cost from every node to the last level, and the edge to take; infinite where there is none.
class shortest_paths {
public:
    [[nodiscard]] double to_goal(graph_node n = {}) const { return rest_of_level_[n.level] + values_[stages_[stage_of_level_[n.level]].values][n.position]; }
    /// Position among the edges of its level. *Precondition:* the cost to the goal is finite.
    [[nodiscard]] std::uint32_t best_edge(graph_node n) const { return stages_[stage_of_level_[n.level]].best_edge[n.position]; }

    /// *Complexity.* Linear in levels, in the edges of those that differ in edges or costs, and in the pairs of states that edges
    /// join on those that differ also in the costs from there on, up to a summand.
    template <class Action, action_cost<Action> Cost>
    shortest_paths(state_graph<Action> const& graph, Cost const& cost)
        : stage_of_level_(graph.level_count()), rest_of_level_(graph.level_count()) {
        value_numbering values;
        key_numbering stages, segments;
        std::vector<choice_list> choices;
        std::size_t const last = graph.level_count() - 1;
        stages_.push_back({values.insert(std::vector<double>(graph.node_count() - graph.first_of_level[last], 0.0)).first, 0, {}});
        stage_of_level_[last] = 0;
        for (std::size_t level = last; level-- > 0;) {
            std::uint64_t kind = level;
            if constexpr (requires { cost.alike(level); }) kind = cost.alike(level);
            else if constexpr (std::invocable<Cost const&, Action const&>) kind = 0;
            auto const [segment, is_new_segment] = segments.insert({graph.segment_of_level[level], kind});
            std::uint32_t const next = stages_[stage_of_level_[level + 1]].values;
            if (is_new_segment) choices.push_back(cheapest(graph.from_level(level), level, cost, values[next].size()));
            auto const [number, is_new] = stages.insert({segment, next});
            if (is_new) stages_.push_back(relax(choices[segment], values[next], values));
            stage_of_level_[level] = number + 1;
            rest_of_level_[level] = rest_of_level_[level + 1] + stages_[number + 1].least;
        }
        for (std::uint32_t v = 0; v < values.size(); ++v) values_.push_back(values[v]);
    }

private:
    using value_numbering = numbering<std::vector<double>, list_hash<double>>;
    /// One level's costs to the goal: the least of them more than the least of the next level, and the others beyond it.
    struct stage {
        std::uint32_t values;
        double least;
        std::vector<std::uint32_t> best_edge;
    };

    using key_numbering = numbering<std::vector<std::uint64_t>, list_hash<std::uint64_t>>;
    /// Of the edges that join two states, the cheapest.
    struct choice {
        std::uint32_t to, edge;
        double cost;
    };
    struct choice_list {
        std::vector<std::uint32_t> first{0};
        std::vector<choice> all;
    };

    template <class Segment, class Cost>
    static choice_list cheapest(Segment const& segment, std::size_t level, Cost const& cost, std::size_t target_count) {
        constexpr std::uint32_t none = ~std::uint32_t{0};
        choice_list result;
        std::vector<std::uint32_t> place(target_count, none);
        for (std::size_t n = 0; n < segment.size(); ++n) {
            for (std::uint32_t e = segment.first_edge[n]; e < segment.first_edge[n + 1]; ++e) {
                auto const& edge = segment.edges[e];
                choice c{edge.to, e, 0};
                if constexpr (requires { cost(edge.action); }) c.cost = cost(edge.action);
                else c.cost = cost(level, edge.action);
                auto& at = place[edge.to];
                if (at == none || at < result.first.back()) {
                    at = static_cast<std::uint32_t>(result.all.size());
                    result.all.push_back(c);
                } else if (c.cost < result.all[at].cost) {
                    result.all[at] = c;
                }
            }
            result.first.push_back(static_cast<std::uint32_t>(result.all.size()));
        }
        return result;
    }

    static stage relax(choice_list const& choices, std::vector<double> const& next, value_numbering& values) {
        constexpr double infinite = std::numeric_limits<double>::infinity();
        std::size_t const size = choices.first.size() - 1;
        stage result{0, 0, std::vector<std::uint32_t>(size, 0)};
        std::vector<double> to_goal(size, infinite);
        for (std::size_t n = 0; n < size; ++n)
            for (auto c = choices.first[n]; c < choices.first[n + 1]; ++c) {
                double const through = choices.all[c].cost + next[choices.all[c].to];
                if (through < to_goal[n]) { to_goal[n] = through; result.best_edge[n] = choices.all[c].edge; }
            }
        double const least = to_goal.empty() ? infinite : std::ranges::min(to_goal);
        if (least < infinite) {
            result.least = least;
            for (auto& v : to_goal) v -= least;
        }
        result.values = values.insert(std::move(to_goal)).first;
        return result;
    }

    std::vector<stage> stages_;
    std::vector<std::vector<double>> values_;
    std::vector<std::uint32_t> stage_of_level_;
    std::vector<double> rest_of_level_;
};

/// Ties go to the first edge.
template <class Action, action_cost<Action> Cost>
[[nodiscard]] shortest_paths paths_to_goal(state_graph<Action> const& graph, Cost const& cost) {
    return shortest_paths(graph, cost);
}

/// The actions of a path from the initial state, one per level: up to some level the given ones, from there on the shortest.
/// *Preconditions.* The given ones are those of a path, each known by its action, and the goal can be reached from its end.
template <class Action>
[[nodiscard]] std::vector<Action> follow(state_graph<Action> const& graph, shortest_paths const& paths,
                                         std::type_identity_t<std::span<Action const>> given = {}) {
    std::vector<Action> actions;
    for (graph_node n; n.level + 1 < graph.level_count(); ++n.level) {
        auto const& from = graph.from_level(n.level);
        auto const& edge = n.level < given.size() ? *std::ranges::find(from.out(n.position), given[n.level], &state_graph<Action>::edge::action)
                                                  : from.edges[paths.best_edge(n)];
        actions.push_back(edge.action);
        n.position = edge.to;
    }
    return actions;
}

} // namespace heddle::search
