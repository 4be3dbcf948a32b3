// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Layered state spaces as explicit graphs, and shortest paths to their end.
///
/// If the states of a problem do not depend on its costs, the graph is explored once and priced many times.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/search/numbering.hpp>
#include <heddle/search/state_table.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
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
/// *Optional.* Successors may be given in place of their states, if they convert to these and `successor.name()` is a
/// number. *Axiom.* Of successors of one level, those of equal names are equal states.
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

/// All edges from a state to the state at position `to` of the next level; `bundle` is a place among the bundles of its
/// segment.
struct segment_link {
    std::uint32_t to, bundle;
    friend bool operator==(segment_link, segment_link) = default;
};

/// The links from one level to the next, by position in it, and the numbers of their bundles.
struct graph_segment {
    std::vector<std::uint32_t> first_link{0};
    std::vector<segment_link> links;
    std::vector<std::uint32_t> bundles;
    [[nodiscard]] std::size_t size() const { return first_link.size() - 1; }
    [[nodiscard]] std::span<segment_link const> out(std::size_t position) const {
        return {links.data() + first_link[position], links.data() + first_link[position + 1]};
    }
    friend bool operator==(graph_segment const&, graph_segment const&) = default;
};

/// Levels of states as a graph. Levels that are alike share their edges, and the edges between two states are one link
/// with a bundle of actions.
template <class Action>
struct state_graph {
    /// `to` is a position in the next level.
    struct edge {
        std::uint32_t to;
        Action action;
    };
    std::vector<graph_segment> segments;
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
    /// Tells whether some path leads from the initial state to the last level.
    [[nodiscard]] bool has_goal() const { return first_of_level[level_count() - 1] < node_count(); }
    /// *Complexity.* Logarithmic in the levels.
    [[nodiscard]] std::size_t level_of(std::size_t node) const {
        return static_cast<std::size_t>(algorithm::upper_bound(first_of_level, node) - first_of_level.begin()) - 1;
    }
    [[nodiscard]] bool is_last(std::size_t node) const { return node >= first_of_level[first_of_level.size() - 2]; }
    [[nodiscard]] graph_segment const& from_level(std::size_t level) const { return segments[segment_of_level[level]]; }
    [[nodiscard]] std::size_t bundle_count() const { return first_action.size() - 1; }
    /// Adds a bundle of these actions, and returns its number.
    template <std::ranges::range Actions>
    std::uint32_t add_bundle(Actions const& of_it) {
        actions.insert(actions.end(), std::ranges::begin(of_it), std::ranges::end(of_it));
        first_action.push_back(static_cast<std::uint32_t>(actions.size()));
        return static_cast<std::uint32_t>(bundle_count() - 1);
    }
    [[nodiscard]] std::span<Action const> bundle(std::size_t number) const {
        return {actions.data() + first_action[number], actions.data() + first_action[number + 1]};
    }
    /// Calls `visit(to, action)` for the edges of a state; `to` is a position in the next level.
    template <class Visit>
    void for_each_edge(graph_node n, Visit&& visit) const {
        auto const& links = from_level(n.level);
        for (auto const& l : links.out(n.position))
            for (auto const& action : bundle(links.bundles[l.bundle])) visit(l.to, action);
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

/// The states of a space that are reachable from the initial one, level by level. They can be cut back to a level and
/// explored on from there, if the space is another behind it. *Lifetime:* refers to the space.
template <layered_space Space>
class exploration {
public:
    using graph_type = state_graph<typename Space::action>;

    explicit exploration(Space& space) : space_(space) {
        lists_.insert({space.initial()});
        list_of_level_ = {0};
        graph_.first_of_level = {0, 1};
    }

    /// Explores the levels that are not. At most `width()` states of a level are kept, those found first;
    /// `is_complete` tells whether that left any out. The width is asked for before each level, so that it may depend
    /// on the time that is left. Once states were left out, at most `width_after` are kept of the levels that follow;
    /// if that is none, exploration ends there.
    /// *Complexity.* Linear in states and links of levels that are not alike, expected, and in levels.
    template <std::invocable Width>
    void go_on(Width&& width, std::size_t width_after = std::numeric_limits<std::size_t>::max()) {
        auto const has_ended = [&] { return !graph_.is_complete && width_after == 0; };
        for (auto level = graph_.segment_of_level.size(); level + 1 < space_.level_count() && !has_ended(); ++level) {
            std::uint64_t kind = level;
            if constexpr (requires { space_.alike(level); }) kind = space_.alike(level);
            auto const [step, is_new] = steps_.insert({kind, list_of_level_.back()});
            if (is_new) explore(level, width, width_after);
            graph_.segment_of_level.push_back(step);
            list_of_level_.push_back(targets_[step]);
            auto const size = static_cast<std::uint32_t>(lists_[targets_[step]].size());
            graph_.first_of_level.push_back(graph_.first_of_level.back() + size);
        }
    }
    /// Forgets all that lies behind a level. *Preconditions:* nothing was left out before it; successors there are, and
    /// levels are alike, as they were.
    void cut_back(std::size_t level) {
        auto& g = graph_;
        if (level >= g.segment_of_level.size()) return;
        g.segment_of_level.resize(level);
        g.first_of_level.resize(level + 2);
        list_of_level_.resize(level + 1);
        // Segments, lists and bundles are numbered as they are met.
        auto const after = [](auto const& numbers) { return numbers.empty() ? 0 : algorithm::max(numbers) + 1; };
        g.segments.resize(after(g.segment_of_level));
        steps_.cut_back(g.segments.size());
        targets_.resize(g.segments.size());
        lists_.cut_back(after(list_of_level_));
        auto const bundles = g.segments.empty() ? 0 : bundles_after_[g.segments.size() - 1];
        bundles_after_.resize(g.segments.size());
        g.first_action.resize(bundles + 1);
        g.actions.resize(g.first_action.back());
        for (auto& number : number_here_)
            if (number >= bundles) number = none;
        last_place_.clear();
        g.is_complete = true;
    }
    [[nodiscard]] graph_type const& graph() const& { return graph_; }
    [[nodiscard]] graph_type graph() && { return std::move(graph_); }

private:
    using state_type = typename Space::state;
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    struct place_in_segment {
        std::uint32_t segment = 0, place = 0; // counted from one, and from zero
    };

    template <class Width>
    void explore(std::size_t level, Width&& width, std::size_t width_after) {
        std::size_t const most = graph_.is_complete ? width() : std::min<std::size_t>(width(), width_after);
        auto& segment = graph_.segments.emplace_back();
        state_table<state_type> next;
        state_table<std::uint64_t> names;
        std::vector<std::optional<std::uint32_t>> named; // positions by number of names
        auto const position_of = [&]<class Successor>(Successor const& successor) {
            auto const find = [&](state_type const& state) {
                return next.size() < most ? std::optional(next.insert(state).first) : next.find(state);
            };
            if constexpr (requires { successor.name(); }) {
                auto const [name, is_new] = names.insert(successor.name());
                if (is_new) named.push_back(find(successor));
                return named[name];
            } else {
                return find(successor);
            }
        };
        for (auto const& state : lists_[list_of_level_.back()]) {
            if (!graph_.is_complete && width_after == 0) break;
            space_.for_each_successor(level, state, [&](auto const& action, auto const& successor) {
                auto const to = position_of(successor);
                if (to) segment.links.push_back({*to, place_of(bundle_of(action))});
                else graph_.is_complete = false;
            });
            segment.first_link.push_back(static_cast<std::uint32_t>(segment.links.size()));
        }
        targets_.push_back(lists_.insert(std::move(next).states()).first);
        bundles_after_.push_back(graph_.bundle_count());
    }
    template <class Action>
    std::uint32_t bundle_of(Action const& action) {
        if constexpr (requires { space_.bundle(action); }) {
            if (number_here_.size() <= action) number_here_.resize(action + 1, none);
            auto& number = number_here_[action];
            return number == none ? number = graph_.add_bundle(space_.bundle(action)) : number;
        } else {
            return graph_.add_bundle(std::span(&action, 1));
        }
    }
    std::uint32_t place_of(std::uint32_t bundle) {
        auto const number = static_cast<std::uint32_t>(graph_.segments.size());
        auto& bundles = graph_.segments.back().bundles;
        last_place_.resize(graph_.bundle_count());
        auto& [segment, place] = last_place_[bundle];
        if (std::exchange(segment, number) != number) {
            place = static_cast<std::uint32_t>(bundles.size());
            bundles.push_back(bundle);
        }
        return place;
    }

    Space& space_;
    graph_type graph_;
    numbering<std::vector<state_type>, list_hash<state_type>> lists_;
    std::vector<std::uint32_t> list_of_level_;
    /// The way from the states of a level to those of the next: the segment and its list of targets.
    numbering<std::array<std::uint64_t, 2>, list_hash<std::uint64_t>> steps_;
    std::vector<std::uint32_t> targets_;
    /// By segment, how many bundles there are after it.
    std::vector<std::size_t> bundles_after_;
    std::vector<std::uint32_t> number_here_;   // by bundle of the space
    std::vector<place_in_segment> last_place_; // by bundle of the graph: where it is in the last segment that has it
};

/// Explores all states, as `exploration` does.
template <layered_space Space, std::invocable Width>
[[nodiscard]] state_graph<typename Space::action> explore(
    Space& space, Width&& width, std::size_t width_after = std::numeric_limits<std::size_t>::max()) {
    exploration<Space> explored(space);
    explored.go_on(width, width_after);
    return std::move(explored).graph();
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

/// The least cost from every node to the last level, infinite if that cannot be reached. Copies share what was
/// computed.
class shortest_paths {
public:
    [[nodiscard]] double to_goal(graph_node n = {}) const {
        return made_->rest_of_level[n.level] + values_of(n.level)[n.position];
    }
    /// Returns what the cheapest action of each bundle costs, of those of the level's segment.
    [[nodiscard]] std::vector<double> const& costs(std::size_t level) const { return choices_of(level).costs; }
    /// Returns the least costs from the states of a level to the last level, relative to the least of them.
    [[nodiscard]] std::vector<double> const& rest(std::size_t level) const { return values_of(level); }
    /// Returns a number: levels of one number have the same links at the same costs, and their costs to the goal differ
    /// by a summand.
    [[nodiscard]] std::uint32_t stage_of(std::size_t level) const { return made_->stage_of_level[level]; }
    /// Where the cheapest path goes: a position in the next level, and an action's place among the graph's.
    struct turn {
        std::uint32_t to, action;
    };
    /// Returns the least cost from a level to the last over one of the links of its segment.
    [[nodiscard]] double through(std::size_t level, segment_link const& l) const {
        return choices_of(level).costs[l.bundle] + to_goal({static_cast<std::uint32_t>(level + 1), l.to});
    }
    /// Returns the first of the best turns from a node, whose level has that segment. *Precondition:* the cost to the
    /// goal is finite.
    [[nodiscard]] turn best(graph_node n, graph_segment const& segment) const {
        auto const& choices = choices_of(n.level);
        auto const& next = values_of(n.level + 1);
        segment_link best{};
        double least = std::numeric_limits<double>::infinity();
        for (auto const& l : segment.out(n.position))
            if (double const cost = choices.costs[l.bundle] + next[l.to]; cost < least) least = cost, best = l;
        return {best.to, choices.actions[best.bundle]};
    }

    /// Returns the least cost from any state of a level.
    [[nodiscard]] double least_from(std::size_t level) const {
        return algorithm::min(values_of(level)) + made_->rest_of_level[level];
    }

    /// *Complexity.* Linear in levels, in the bundles of those that differ in links or costs, and in the links of those
    /// that also differ in the costs from there on by more than a summand and what rounding does.
    template <class Action, action_cost<Action> Cost>
    shortest_paths(state_graph<Action> const& graph, Cost const& cost)
        : shortest_paths(graph, cost, graph.level_count() - 1) {}

    /// As above, to any state of level `last`; levels behind it have no paths.
    template <class Action, action_cost<Action> Cost>
    shortest_paths(state_graph<Action> const& graph, Cost const& cost, std::size_t last) {
        key_numbering segments;
        std::vector<choice_list> choices;
        std::vector<std::uint32_t> choices_of_level(last);
        for (std::size_t level = last; level-- > 0;) {
            std::uint64_t kind = level;
            if constexpr (requires { cost.alike(level); }) kind = cost.alike(level);
            else if constexpr (std::invocable<Cost const&, Action const&>) kind = 0;
            auto const [number, is_new] = segments.insert({graph.segment_of_level[level], kind});
            if (is_new) choices.push_back(cheapest(graph, level, cost));
            choices_of_level[level] = number;
        }
        std::size_t const goals = graph.first_of_level[last + 1] - graph.first_of_level[last];
        relax({graph.segments, graph.segment_of_level, choices_of_level}, std::move(choices), goals);
    }

private:
    using value_numbering = numbering<std::vector<double>, list_hash<double>>;
    using key_numbering = numbering<std::array<std::uint64_t, 2>, list_hash<std::uint64_t>>;
    /// The costs of one level to the goal: the least of them, relative to the least of the next level, and the others
    /// relative to it; and the list of choices that they come from.
    struct stage {
        std::uint32_t values, segment;
        double least;
    };
    /// The cheapest action of each bundle of a segment, and what it costs.
    struct choice_list {
        std::vector<double> costs;
        std::vector<std::uint32_t> actions;
    };
    struct tables {
        std::vector<stage> stages;
        std::vector<choice_list> choices;
        value_numbering values;
        std::vector<std::uint32_t> stage_of_level;
        std::vector<double> rest_of_level;
    };

    [[nodiscard]] std::vector<double> const& values_of(std::size_t level) const {
        return made_->values[made_->stages[made_->stage_of_level[level]].values];
    }
    [[nodiscard]] choice_list const& choices_of(std::size_t level) const {
        return made_->choices[made_->stages[made_->stage_of_level[level]].segment];
    }

    template <class Action, class Cost>
    static choice_list cheapest(state_graph<Action> const& graph, std::size_t level, Cost const& cost) {
        auto const& bundles = graph.from_level(level).bundles;
        choice_list result;
        result.costs.reserve(bundles.size());
        result.actions.reserve(bundles.size());
        for (auto const bundle : bundles) {
            double least = std::numeric_limits<double>::infinity();
            std::uint32_t best = 0;
            for (auto a = graph.first_action[bundle]; a < graph.first_action[bundle + 1]; ++a) {
                double here = 0;
                if constexpr (requires { cost(graph.actions[a]); }) here = cost(graph.actions[a]);
                else here = cost(level, graph.actions[a]);
                if (here < least) least = here, best = a;
            }
            result.costs.push_back(least);
            result.actions.push_back(best);
        }
        return result;
    }

    /// The segment of each level that paths begin in, and its list of choices.
    struct priced_levels {
        std::span<graph_segment const> segments;
        std::span<std::uint32_t const> segment_of_level, choices_of_level;
    };
    /// Finds the paths, from the last of the levels to the first; the level behind it has so many goals.
    void relax(priced_levels const& levels, std::vector<choice_list> choices, std::size_t goals);
    /// Returns the least of the costs of a level, and all relative to it.
    [[nodiscard]] static std::pair<double, std::vector<double>> relax(graph_segment const& segment,
                                                                      std::vector<double> const& costs,
                                                                      std::vector<double> const& next);

    std::shared_ptr<tables const> made_;
};

namespace detail {

/// Tells whether values differ by no more than rounding does, where the least of them is `rest`.
[[nodiscard]] bool are_near(std::vector<double> const& a, std::vector<double> const& b, double rest);

} // namespace detail

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
        auto const [to, action] = paths.best(from, graph.from_level(from.level));
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

#if HEDDLE_DEFINITIONS

namespace heddle::search {

HEDDLE_INLINE void shortest_paths::relax(priced_levels const& levels, std::vector<choice_list> choices,
                                         std::size_t goals) {
    std::size_t const last = levels.choices_of_level.size();
    auto made = std::make_shared<tables>();
    made->stage_of_level.resize(last + 1);
    made->rest_of_level.resize(last + 1);
    auto& values = made->values;
    key_numbering stages;
    std::vector<std::optional<std::uint32_t>> last_values(choices.size());
    made->stages.push_back({values.insert(std::vector<double>(goals, 0.0)).first, 0, 0});
    made->stage_of_level[last] = 0;
    for (std::size_t level = last; level-- > 0;) {
        std::uint32_t const segment = levels.choices_of_level[level];
        std::uint32_t const next = made->stages[made->stage_of_level[level + 1]].values;
        double const rest = made->rest_of_level[level + 1];
        auto const [number, is_new] = stages.insert({segment, next});
        if (is_new) {
            auto [least, to_goal] =
                relax(levels.segments[levels.segment_of_level[level]], choices[segment].costs, values[next]);
            // Where levels repeat, so do values but for rounding, which would make each level another one.
            auto& known = last_values[segment];
            if (!known || !detail::are_near(to_goal, values[*known], rest + least))
                known = values.insert(std::move(to_goal)).first;
            made->stages.push_back({*known, segment, least});
        }
        made->stage_of_level[level] = number + 1;
        made->rest_of_level[level] = rest + made->stages[number + 1].least;
    }
    made->choices = std::move(choices);
    made_ = std::move(made);
}

HEDDLE_INLINE std::pair<double, std::vector<double>> shortest_paths::relax(graph_segment const& segment,
                                                                           std::vector<double> const& costs,
                                                                           std::vector<double> const& next) {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    std::vector<double> to_goal(segment.size());
    double least = infinite;
    for (std::size_t n = 0; n < to_goal.size(); ++n) {
        double best = infinite;
        for (auto const& l : segment.out(n)) best = std::min(best, costs[l.bundle] + next[l.to]);
        to_goal[n] = best;
        least = std::min(least, best);
    }
    if (least == infinite) least = 0;
    for (auto& v : to_goal) v -= least;
    return {least, std::move(to_goal)};
}

HEDDLE_INLINE bool detail::are_near(std::vector<double> const& a, std::vector<double> const& b, double rest) {
    constexpr double rounding = 8 * std::numeric_limits<double>::epsilon();
    return algorithm::equal(a, b, [&](double x, double y) {
        return x == y || std::abs(x - y) <= rounding * (std::abs(rest) + std::min(x, y));
    });
}

} // namespace heddle::search

#endif
