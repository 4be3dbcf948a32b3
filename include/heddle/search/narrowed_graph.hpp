// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A graph without what only long paths use.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/search/numbering.hpp>
#include <heddle/search/state_graph.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::search {

namespace detail {

/// The states of a level that are near, ascending: those through which paths lead that are longer than the shortest by
/// at most `more`. `here` is what leads to each, `rest` what leads on from there.
[[nodiscard]] std::vector<std::uint32_t> near_states(std::vector<double> const& here, std::vector<double> const& rest,
                                                     double more);
/// The least costs to the states of the next level from those of a level that are near, relative to the least of them.
[[nodiscard]] std::vector<double> costs_after(graph_segment const& segment, std::vector<double> const& costs,
                                              std::vector<double> const& here, std::vector<std::uint32_t> const& near,
                                              std::size_t next_size);
/// The links between the near states of two levels.
[[nodiscard]] graph_segment links_between(graph_segment const& segment, std::vector<std::uint32_t> const& from,
                                          std::vector<std::uint32_t> const& to, std::size_t next_size);

} // namespace detail

/// A part of a graph: the states through which paths lead that are longer than the shortest by no more than is given,
/// and the links between these.
template <class Action>
class narrowed_graph {
public:
    /// `paths` are those of the graph. *Precondition:* there is one from the initial state.
    /// *Complexity.* Linear in levels, in the states of those that differ, in the links of these from states that are
    /// near, and in the bundles of the graph.
    narrowed_graph(state_graph<Action> const& graph, shortest_paths const& paths, double more);

    [[nodiscard]] state_graph<Action> const& graph() const { return graph_; }
    /// Returns where a state of the given graph is in this; nothing if it is not. *Complexity.* Linear in what is left
    /// of the level.
    [[nodiscard]] std::optional<graph_node> find(graph_node given) const {
        auto const& list = near_[near_of_level_[given.level]];
        auto const at = algorithm::find(list, given.position);
        if (at == list.end()) return std::nullopt;
        return graph_node{given.level, static_cast<std::uint32_t>(at - list.begin())};
    }

private:
    state_graph<Action> graph_;
    numbering<std::vector<std::uint32_t>, list_hash<std::uint32_t>> near_; // lists of states
    std::vector<std::uint32_t> near_of_level_;
};

template <class Action>
narrowed_graph<Action>::narrowed_graph(state_graph<Action> const& graph, shortest_paths const& paths, double more) {
    constexpr auto none = ~std::uint32_t{0};
    graph_.first_of_level = {0};
    graph_.is_complete = false;
    numbering<std::vector<double>, list_hash<double>> costs; // to the states of a level
    numbering<std::array<std::uint64_t, 2>, list_hash<std::uint64_t>> steps;
    std::vector<std::uint32_t> costs_behind, near_behind; // by step
    std::vector<std::optional<std::uint32_t>> last_costs(graph.segments.size());
    std::vector<std::uint32_t> bundles(graph.bundle_count(), none); // here, by their numbers in the graph
    auto const take_bundle = [&](std::uint32_t& bundle) {
        auto& here = bundles[bundle];
        if (here == none) here = graph_.add_bundle(graph.bundle(bundle));
        bundle = here;
    };
    auto here = costs.insert(std::vector<double>{0.0}).first,
         here_near = near_.insert(std::vector<std::uint32_t>{0}).first;
    auto const add_level = [&] {
        near_of_level_.push_back(here_near);
        graph_.first_of_level.push_back(graph_.first_of_level.back() +
                                        static_cast<std::uint32_t>(near_[here_near].size()));
    };
    add_level();
    for (std::size_t level = 0; level + 1 < graph.level_count(); ++level) {
        auto const [step, is_new] = steps.insert({paths.stage_of(level), here});
        if (is_new) {
            auto const& segment = graph.from_level(level);
            auto const& rest = paths.rest(level + 1);
            auto next = detail::costs_after(segment, paths.costs(level), costs[here], near_[here_near], rest.size());
            auto& known = last_costs[graph.segment_of_level[level]];
            if (!known || !detail::are_near(next, costs[*known], paths.to_goal()))
                known = costs.insert(std::move(next)).first;
            auto const to = near_.insert(detail::near_states(costs[*known], rest, more)).first;
            auto& links =
                graph_.segments.emplace_back(detail::links_between(segment, near_[here_near], near_[to], rest.size()));
            for (auto& bundle : links.bundles) take_bundle(bundle);
            costs_behind.push_back(*known);
            near_behind.push_back(to);
        }
        graph_.segment_of_level.push_back(step);
        here = costs_behind[step], here_near = near_behind[step];
        add_level();
    }
}

} // namespace heddle::search

#if HEDDLE_DEFINITIONS

namespace heddle::search::detail {

HEDDLE_INLINE std::vector<std::uint32_t> near_states(std::vector<double> const& here, std::vector<double> const& rest,
                                                     double more) {
    double shortest = std::numeric_limits<double>::infinity();
    for (std::size_t n = 0; n < here.size(); ++n) shortest = std::min(shortest, here[n] + rest[n]);
    std::vector<std::uint32_t> result;
    for (std::size_t n = 0; n < here.size(); ++n)
        if (here[n] + rest[n] <= shortest + more) result.push_back(static_cast<std::uint32_t>(n));
    return result;
}

HEDDLE_INLINE std::vector<double> costs_after(graph_segment const& segment, std::vector<double> const& costs,
                                              std::vector<double> const& here, std::vector<std::uint32_t> const& near,
                                              std::size_t next_size) {
    std::vector<double> next(next_size, std::numeric_limits<double>::infinity());
    for (auto n : near)
        for (auto const& link : segment.out(n)) next[link.to] = std::min(next[link.to], here[n] + costs[link.bundle]);
    double const least = algorithm::min(next);
    for (auto& cost : next) cost -= least;
    return next;
}

HEDDLE_INLINE graph_segment links_between(graph_segment const& segment, std::vector<std::uint32_t> const& from,
                                          std::vector<std::uint32_t> const& to, std::size_t next_size) {
    constexpr auto none = ~std::uint32_t{0};
    std::vector<std::uint32_t> place_of_state(next_size, none), place_of_bundle(segment.bundles.size(), none);
    for (std::size_t n = 0; n < to.size(); ++n) place_of_state[to[n]] = static_cast<std::uint32_t>(n);
    graph_segment result;
    for (auto n : from) {
        for (auto const& link : segment.out(n)) {
            if (place_of_state[link.to] == none) continue;
            auto& bundle = place_of_bundle[link.bundle];
            if (bundle == none) {
                bundle = static_cast<std::uint32_t>(result.bundles.size());
                result.bundles.push_back(segment.bundles[link.bundle]);
            }
            result.links.push_back({place_of_state[link.to], bundle});
        }
        result.first_link.push_back(static_cast<std::uint32_t>(result.links.size()));
    }
    return result;
}

} // namespace heddle::search::detail

#endif
