// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Layered state spaces as explicit graphs, and shortest paths to their end.
///
/// If the states of a problem do not depend on its costs, the graph is explored once and priced many times.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/search/numbering.hpp>
#include <heddle/search/state_table.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle::search {

/// States in levels: every action leads from one level to the next. All states of the last level are goals.
///
/// *Optional.* `space.alike(level)` is a number. *Axiom.* On levels of one number, the same state has the same
/// successors by the same actions in the same order. What repeats from level to level is then explored once.
/// *Optional.* `space.bundle(number)` is a range of actions. Then a successor is visited once, with the number of the
/// bundle of all actions that lead there; a bundle may be given for many states, and is stored once.
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
    std::size_t operator()(heddle::search::graph_node n) const {
        return std::hash<std::uint64_t>{}((std::uint64_t{n.level} << 32) | n.position);
    }
};

namespace heddle::search {

/// Levels of states as a graph. Levels that are alike share their edges, and the edges between two states are one link
/// with a bundle of actions.
template <class Action>
struct state_graph {
    /// `to` is a position in the next level.
    struct edge {
        std::uint32_t to;
        Action action;
    };
    struct link {
        std::uint32_t to, bundle;
        friend bool operator==(link, link) = default;
    };
    /// The links from one level to the next, by position in it.
    struct segment {
        std::vector<std::uint32_t> first_link{0};
        std::vector<link> links;
        [[nodiscard]] std::size_t size() const { return first_link.size() - 1; }
        [[nodiscard]] std::span<link const> out(std::size_t position) const {
            return {links.data() + first_link[position], links.data() + first_link[position + 1]};
        }
    };
    std::vector<segment> segments;
    /// Where the actions of each bundle begin among all actions.
    std::vector<std::uint32_t> first_action{0};
    std::vector<Action> actions;
    /// The segment of each level except the last.
    std::vector<std::uint32_t> segment_of_level;
    /// Nodes are numbered level by level; node 0 is the initial state.
    std::vector<std::uint32_t> first_of_level;
    /// Is false if a width bound left out states.
    bool is_complete = true;

    [[nodiscard]] std::size_t level_count() const { return first_of_level.size() - 1; }
    [[nodiscard]] std::size_t node_count() const { return first_of_level.back(); }
    /// *Complexity.* Logarithmic in the levels.
    [[nodiscard]] std::size_t level_of(std::size_t node) const {
        return static_cast<std::size_t>(algorithm::upper_bound(first_of_level, node) - first_of_level.begin()) - 1;
    }
    [[nodiscard]] bool is_last(std::size_t node) const { return node >= first_of_level[first_of_level.size() - 2]; }
    [[nodiscard]] segment const& from_level(std::size_t level) const { return segments[segment_of_level[level]]; }
    [[nodiscard]] std::size_t bundle_count() const { return first_action.size() - 1; }
    [[nodiscard]] std::span<Action const> bundle(std::size_t number) const {
        return {actions.data() + first_action[number], actions.data() + first_action[number + 1]};
    }
    /// Calls `visit(to, action)` for the edges of a state; `to` is a position in the next level.
    template <class Visit>
    void for_each_edge(graph_node n, Visit&& visit) const {
        for (auto const& l : from_level(n.level).out(n.position))
            for (auto const& action : bundle(l.bundle)) visit(l.to, action);
    }
    /// Returns the edges of a state; `to` is a position in the next level.
    [[nodiscard]] std::vector<edge> out(graph_node n) const { return edges(n, 0); }
    /// Returns the edges of a node; `to` is the number of a node.
    [[nodiscard]] std::vector<edge> out(std::size_t node) const {
        std::size_t const level = level_of(node);
        if (is_last(node)) return {};
        return edges({static_cast<std::uint32_t>(level), static_cast<std::uint32_t>(node - first_of_level[level])},
                     first_of_level[level + 1]);
    }

private:
    [[nodiscard]] std::vector<edge> edges(graph_node n, std::uint32_t first) const {
        std::vector<edge> result;
        for_each_edge(n, [&](std::uint32_t to, Action const& action) { result.push_back({first + to, action}); });
        return result;
    }
};

/// Explores all states reachable from the initial one. At most `width()` states of a level are kept, those found first;
/// `is_complete` tells whether that left any out. The width is asked for before each level, so that it may depend on
/// the time that is left. Once states were left out, at most `width_after` are kept of the levels that follow; if that
/// is none, exploration ends there.
/// *Complexity.* Linear in states and links of levels that are not alike, expected, and in levels.
template <layered_space Space, std::invocable Width>
[[nodiscard]] state_graph<typename Space::action> explore(
    Space& space, Width&& width, std::size_t width_after = std::numeric_limits<std::size_t>::max()) {
    using state_type = typename Space::state;
    using graph_type = state_graph<typename Space::action>;
    graph_type graph;
    numbering<std::vector<state_type>, list_hash<state_type>> lists;
    // The way from the states of a level to those of the next: the segment and its list of targets.
    numbering<std::vector<std::uint64_t>, list_hash<std::uint64_t>> steps;
    std::vector<std::uint32_t> targets;

    constexpr std::uint32_t none = ~std::uint32_t{0};
    auto const add_bundle = [&](auto const& actions) {
        graph.actions.insert(graph.actions.end(), std::ranges::begin(actions), std::ranges::end(actions));
        graph.first_action.push_back(static_cast<std::uint32_t>(graph.actions.size()));
        return static_cast<std::uint32_t>(graph.bundle_count() - 1);
    };
    std::vector<std::uint32_t> number_here; // by bundle of the space
    auto const bundle_of = [&](auto const& action) {
        if constexpr (requires { space.bundle(action); }) {
            if (number_here.size() <= action) number_here.resize(action + 1, none);
            auto& number = number_here[action];
            return number == none ? number = add_bundle(space.bundle(action)) : number;
        } else {
            return add_bundle(std::span(&action, 1));
        }
    };
    auto const has_ended = [&] { return !graph.is_complete && width_after == 0; };
    auto const explore_level = [&](std::size_t level, std::vector<state_type> const& states) {
        std::size_t const most = graph.is_complete ? width() : std::min<std::size_t>(width(), width_after);
        auto& segment = graph.segments.emplace_back();
        state_table<state_type> next;
        for (auto const& state : states) {
            if (has_ended()) break;
            space.for_each_successor(level, state, [&](auto const& action, state_type const& successor) {
                auto const to = next.size() < most ? next.insert(successor).first : next.find(successor);
                if (to) segment.links.push_back({*to, bundle_of(action)});
                else graph.is_complete = false;
            });
            segment.first_link.push_back(static_cast<std::uint32_t>(segment.links.size()));
        }
        targets.push_back(lists.insert(std::move(next).states()).first);
    };

    std::uint32_t list = lists.insert({space.initial()}).first;
    graph.first_of_level = {0, 1};
    for (std::size_t level = 0; level + 1 < space.level_count() && !has_ended(); ++level) {
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
template <layered_space Space>
[[nodiscard]] state_graph<typename Space::action> explore(Space& space,
                                                          std::size_t width = std::numeric_limits<std::size_t>::max()) {
    return explore(space, [width] { return width; });
}

/// Tells what actions cost where they stand. *Optional.* `cost.alike(level)` is a number. *Axiom.* On levels of one
/// number, an action costs the same. A function of the action alone costs the same everywhere.
template <class Cost, class Action>
concept action_cost =
    std::invocable<Cost const&, Action const&> || std::invocable<Cost const&, std::size_t, Action const&>;

/// The least cost from every node to the last level, and the action to take; infinite if the last level cannot be
/// reached.
class shortest_paths {
public:
    [[nodiscard]] double to_goal(graph_node n = {}) const {
        return rest_of_level_[n.level] + values_[stages_[stage_of_level_[n.level]].values][n.position];
    }
    /// Where the cheapest path goes: a position in the next level, and an action's place among the graph's.
    struct turn {
        std::uint32_t to, action;
    };
    /// Returns the least cost from a level to the last over a link that leads to `to`; `link` is its number among those
    /// of the level's segment.
    [[nodiscard]] double through(std::size_t level, std::size_t link, std::uint32_t to) const {
        return choices_[stages_[stage_of_level_[level]].segment][link].cost +
               to_goal({static_cast<std::uint32_t>(level + 1), to});
    }
    /// *Precondition:* the cost to the goal is finite.
    [[nodiscard]] turn best(graph_node n) const { return stages_[stage_of_level_[n.level]].best[n.position]; }

    /// Returns the least cost from any state of a level.
    [[nodiscard]] double least_from(std::size_t level) const {
        return algorithm::min(values_[stages_[stage_of_level_[level]].values]) + rest_of_level_[level];
    }

    /// *Complexity.* Linear in levels, in the links and bundles of those that differ in links or costs, and in the
    /// links of those that also differ in the costs from there on by more than a summand.
    template <class Action, action_cost<Action> Cost>
    shortest_paths(state_graph<Action> const& graph, Cost const& cost)
        : shortest_paths(graph, cost, graph.level_count() - 1) {}

    /// As above, to any state of level `last`; levels behind it have no paths.
    template <class Action, action_cost<Action> Cost>
    shortest_paths(state_graph<Action> const& graph, Cost const& cost, std::size_t last)
        : stage_of_level_(last + 1), rest_of_level_(last + 1) {
        value_numbering values;
        key_numbering stages, segments;
        std::vector<cheapest_action> bundles(graph.bundle_count());
        std::size_t const goals = graph.first_of_level[last + 1] - graph.first_of_level[last];
        stages_.push_back({values.insert(std::vector<double>(goals, 0.0)).first, 0, 0, {}});
        stage_of_level_[last] = 0;
        for (std::size_t level = last; level-- > 0;) {
            std::uint64_t kind = level;
            if constexpr (requires { cost.alike(level); }) kind = cost.alike(level);
            else if constexpr (std::invocable<Cost const&, Action const&>) kind = 0;
            auto const [segment, is_new_segment] = segments.insert({graph.segment_of_level[level], kind});
            std::uint32_t const next = stages_[stage_of_level_[level + 1]].values;
            if (is_new_segment)
                choices_.push_back(
                    cheapest(graph, level, cost, bundles, static_cast<std::uint32_t>(choices_.size() + 1)));
            auto const [number, is_new] = stages.insert({segment, next});
            if (is_new) {
                stages_.push_back(relax(graph.from_level(level), choices_[segment], values[next], values));
                stages_.back().segment = segment;
            }
            stage_of_level_[level] = number + 1;
            rest_of_level_[level] = rest_of_level_[level + 1] + stages_[number + 1].least;
        }
        for (std::uint32_t v = 0; v < values.size(); ++v) values_.push_back(values[v]);
    }

private:
    using value_numbering = numbering<std::vector<double>, list_hash<double>>;
    /// The costs of one level to the goal: the least of them, relative to the least of the next level, and the others
    /// relative to it; and the list of choices that they come from.
    struct stage {
        std::uint32_t values, segment;
        double least;
        std::vector<turn> best;
    };

    using key_numbering = numbering<std::vector<std::uint64_t>, list_hash<std::uint64_t>>;
    /// The cheapest action of a bundle, and its cost; made for one level.
    struct cheapest_action {
        std::uint32_t made_for = 0, action = 0;
        double cost = 0;
    };
    /// The choice for each link of a segment.
    struct choice {
        std::uint32_t action;
        double cost;
    };
    using choice_list = std::vector<choice>;

    template <class Action, class Cost>
    static choice_list cheapest(state_graph<Action> const& graph, std::size_t level, Cost const& cost,
                                std::vector<cheapest_action>& bundles, std::uint32_t number) {
        choice_list result;
        auto const& links = graph.from_level(level).links;
        result.reserve(links.size());
        for (auto const& link : links) {
            auto& best = bundles[link.bundle];
            if (std::exchange(best.made_for, number) != number) {
                best.cost = std::numeric_limits<double>::infinity();
                for (auto a = graph.first_action[link.bundle]; a < graph.first_action[link.bundle + 1]; ++a) {
                    double here = 0;
                    if constexpr (requires { cost(graph.actions[a]); }) here = cost(graph.actions[a]);
                    else here = cost(level, graph.actions[a]);
                    if (here < best.cost) best.cost = here, best.action = a;
                }
            }
            result.push_back({best.action, best.cost});
        }
        return result;
    }

    template <class Segment>
    static stage relax(Segment const& segment, choice_list const& choices, std::vector<double> const& next,
                       value_numbering& values) {
        constexpr double infinite = std::numeric_limits<double>::infinity();
        std::size_t const size = segment.size();
        stage result{0, 0, 0, std::vector<turn>(size)};
        std::vector<double> to_goal(size, infinite);
        for (std::size_t n = 0; n < size; ++n)
            for (auto l = segment.first_link[n]; l < segment.first_link[n + 1]; ++l) {
                auto const to = segment.links[l].to;
                double const through = choices[l].cost + next[to];
                if (through < to_goal[n]) to_goal[n] = through, result.best[n] = {to, choices[l].action};
            }
        double const least = to_goal.empty() ? infinite : algorithm::min(to_goal);
        if (least < infinite) {
            result.least = least;
            for (auto& v : to_goal) v -= least;
        }
        result.values = values.insert(std::move(to_goal)).first;
        return result;
    }

    std::vector<stage> stages_;
    std::vector<choice_list> choices_;
    std::vector<std::vector<double>> values_;
    std::vector<std::uint32_t> stage_of_level_;
    std::vector<double> rest_of_level_;
};

/// The first edge wins ties.
template <class Action, action_cost<Action> Cost>
[[nodiscard]] shortest_paths paths_to_goal(state_graph<Action> const& graph, Cost const& cost) {
    return shortest_paths(graph, cost);
}

/// Returns the actions of the shortest path from a state, one per level. *Precondition:* the goal can be reached from
/// there.
template <class Action>
[[nodiscard]] std::vector<Action> follow(state_graph<Action> const& graph, shortest_paths const& paths,
                                         graph_node from = {}) {
    std::vector<Action> actions;
    for (; from.level + 1 < graph.level_count(); ++from.level) {
        auto const [to, action] = paths.best(from);
        actions.push_back(graph.actions[action]);
        from.position = to;
    }
    return actions;
}

/// Returns the states of a path from the initial state; each is known by the action that leads there. *Precondition:*
/// there is such a path.
template <class Action>
[[nodiscard]] std::vector<graph_node> states_along(state_graph<Action> const& graph, std::vector<Action> const& path) {
    std::vector<graph_node> states{{}};
    for (auto const& given : path) {
        graph_node next{states.back().level + 1, 0};
        graph.for_each_edge(states.back(), [&](std::uint32_t to, Action const& action) {
            if (action == given) next.position = to;
        });
        states.push_back(next);
    }
    return states;
}

} // namespace heddle::search
