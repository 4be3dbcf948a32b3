// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A lower bound of the programs on a mesh, by a table for each axis.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/repeated_levels.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/synthesis/mesh_choices.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace heddle {

/// Bounds what programs on a mesh of two axes cost, of which each axis keeps to the programs of a graph.
///
/// What both axes choose at an operator costs `cost(t, u)` at least, for its computation and for each operand that is
/// brought (`mesh_choice`). It is split into a number for each axis's choice, `a(t) + b(u) <= cost(t, u)`. So the
/// shortest path of each axis under its numbers, added up, is a lower bound, however costs are split. They are split
/// operator by operator, in the order of the program, in the way that is best for the bound while all others stay: half
/// of what the best program through a choice leaves goes to either axis. So the bound rises.
///
/// Sontag, Globerson and Jaakkola, Introduction to Dual Decomposition for Inference (2011), section 1.5: their update of
/// both sides of an edge, with a shortest path for the tree on each side.
class mesh_bound {
public:
    /// `programs` are those of one axis of the searched program, or loosened ones that bound these. Prices are at given
    /// shares of the outermost axis and weights of classes.
    mesh_bound(loosened_space const& programs, mesh_prices const& price);

    /// Takes other prices; costs are split from where they are.
    void reprice(mesh_prices const& price);

    /// Splits costs anew for so many rounds, and returns the best bound so far. It ends early when that reaches
    /// `target`, less one part in `10'000`, or rises by less than that in ten rounds. What repeats in the program is
    /// split once first, in as many rounds; all layers begin with what one ends with. When time is over no further round
    /// begins.
    /// *Complexity.* Linear in the links of the graph, per round.
    [[nodiscard]] double improve(double target, int rounds, search::deadline const& until);
    /// Returns the cheapest of an axis's programs as costs are split.
    [[nodiscard]] std::vector<cut_space::action> cheapest(axis_number axis);

private:
    using numbers = std::vector<double>;
    /// What is known of an axis while a round is at a level.
    struct side {
        std::vector<numbers> to_end; ///< by place of the level among those at hand, and position
        numbers here;                ///< from the start, by position
        numbers around;              ///< by move of the kind: the least rest of a path with it
        numbers of_move;             ///< by move of the kind
    };

    [[nodiscard]] mesh_choices const& kind_at(std::size_t level) const { return kinds_[space_.kind(level)]; }
    [[nodiscard]] numbers moves_at(std::size_t level, axis_number axis) const;
    /// The least cost of a bundle of a level.
    [[nodiscard]] double of_bundle(std::uint32_t bundle, numbers const& of_move);
    void find_ends(axis_number axis);
    void look_around(std::size_t place, axis_number axis);
    void split(std::size_t level, mesh_choice const& c);
    void pass(std::size_t place, axis_number axis);
    [[nodiscard]] double round();
    /// Makes rounds until a bound reaches the target, or has hardly risen in some of them, and returns the best.
    [[nodiscard]] double improve_at_hand(double target, int rounds, int patience, search::deadline const& until);

    loosened_space const& programs_;
    cut_space const& space_;
    search::state_graph<cut_space::action> const& graph_;
    std::vector<mesh_choices> kinds_;
    /// The place of each move among those of its kind.
    std::vector<std::size_t> place_of_move_;
    /// By level and axis, the numbers of the kind's items.
    std::vector<std::array<numbers, 2>> numbers_;
    /// The levels at hand.
    std::vector<std::size_t> levels_;
    std::array<side, 2> sides_;
    /// By bundle: when it was made, and its number then.
    std::vector<std::pair<std::size_t, double>> bundles_;
    std::size_t epoch_ = 0;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE mesh_bound::mesh_bound(loosened_space const& programs, mesh_prices const& price)
    : programs_(programs), space_(*programs.space), graph_(programs.graph), kinds_(choices_of(programs, price)),
      place_of_move_(space_.moves().size()), bundles_(graph_.bundle_count()) {
    for (auto const& kind : kinds_)
        for (std::size_t n = 0; n < kind.moves.size(); ++n) place_of_move_[kind.moves[n]] = n;
    for (std::size_t level = 0; level + 1 < graph_.level_count(); ++level) {
        numbers const none(kind_at(level).item_count);
        numbers_.push_back({none, none});
    }
}

HEDDLE_INLINE void mesh_bound::reprice(mesh_prices const& price) { kinds_ = choices_of(programs_, price); }

HEDDLE_INLINE mesh_bound::numbers mesh_bound::moves_at(std::size_t level, axis_number axis) const {
    auto const& kind = kind_at(level);
    numbers of_move(kind.moves.size());
    for (std::size_t n = 0; n < of_move.size(); ++n)
        for (auto item : kind.items[n]) of_move[n] += numbers_[level][axis][item];
    return of_move;
}

HEDDLE_INLINE double mesh_bound::of_bundle(std::uint32_t bundle, numbers const& of_move) {
    auto& [made_for, least] = bundles_[bundle];
    if (std::exchange(made_for, epoch_) != epoch_) {
        least = never;
        for (auto a : graph_.bundle(bundle)) least = std::min(least, of_move[place_of_move_[a]]);
    }
    return least;
}

HEDDLE_INLINE void mesh_bound::find_ends(axis_number axis) {
    auto& to_end = sides_[axis].to_end;
    to_end.resize(levels_.size() + 1);
    to_end.back().assign(graph_.node_count() - graph_.first_of_level[graph_.level_count() - 1], 0);
    for (std::size_t place = levels_.size(); place-- > 0;) {
        ++epoch_;
        auto const of_move = moves_at(levels_[place], axis);
        auto const& segment = graph_.from_level(levels_[place]);
        to_end[place].assign(segment.size(), never);
        for (std::size_t n = 0; n < segment.size(); ++n)
            for (auto const& l : segment.out(n))
                to_end[place][n] = std::min(to_end[place][n], of_bundle(l.bundle, of_move) + to_end[place + 1][l.to]);
    }
    sides_[axis].here = {0};
}

HEDDLE_INLINE void mesh_bound::look_around(std::size_t place, axis_number axis) {
    auto& s = sides_[axis];
    s.of_move = moves_at(levels_[place], axis);
    s.around.assign(s.of_move.size(), never);
    auto const& segment = graph_.from_level(levels_[place]);
    ++epoch_;
    std::vector<std::uint32_t> met;
    for (std::size_t n = 0; n < segment.size(); ++n)
        for (auto const& l : segment.out(n)) {
            auto& [made_for, least] = bundles_[l.bundle];
            if (std::exchange(made_for, epoch_) != epoch_) least = never, met.push_back(l.bundle);
            least = std::min(least, s.here[n] + s.to_end[place + 1][l.to]);
        }
    for (auto b : met)
        for (auto a : graph_.bundle(b)) {
            double& around = s.around[place_of_move_[a]];
            around = std::min(around, bundles_[b].second);
        }
}

HEDDLE_INLINE void mesh_bound::split(std::size_t level, mesh_choice const& c) {
    std::size_t const count = c.items.size();
    std::array<numbers, 2> rest; // of the best path of each axis with an item
    for (axis_number a = 0; a < 2; ++a) {
        rest[a].assign(count, never);
        for (auto const& [move, n] : c.taken)
            rest[a][n] =
                std::min(rest[a][n], sides_[a].around[move] + sides_[a].of_move[move] - numbers_[level][a][c.items[n]]);
    }
    numbers more(count);
    for (axis_number a = 0; a < 2; ++a) {
        for (std::size_t mine = 0; mine < count; ++mine) {
            double least = never;
            for (std::size_t other = 0; other < count; ++other)
                least = std::min(least, (a == 0 ? c.cost[mine][other] : c.cost[other][mine]) + rest[1 - a][other]);
            double& number = numbers_[level][a][c.items[mine]];
            double const before = std::exchange(number, (least - rest[a][mine]) / 2);
            more[mine] = number - before;
        }
        for (auto const& [move, n] : c.taken) sides_[a].of_move[move] += more[n];
    }
}

HEDDLE_INLINE void mesh_bound::pass(std::size_t place, axis_number axis) {
    auto& s = sides_[axis];
    auto const& segment = graph_.from_level(levels_[place]);
    numbers next(s.to_end[place + 1].size(), never);
    ++epoch_;
    for (std::size_t n = 0; n < segment.size(); ++n)
        for (auto const& l : segment.out(n))
            next[l.to] = std::min(next[l.to], s.here[n] + of_bundle(l.bundle, s.of_move));
    s.here = std::move(next);
}

HEDDLE_INLINE double mesh_bound::round() {
    for (axis_number a = 0; a < 2; ++a) find_ends(a);
    for (std::size_t place = 0; place < levels_.size(); ++place) {
        for (axis_number a = 0; a < 2; ++a) look_around(place, a);
        for (auto const& c : kind_at(levels_[place]).choices) split(levels_[place], c);
        for (axis_number a = 0; a < 2; ++a) pass(place, a);
    }
    return sides_[0].here[0] + sides_[1].here[0];
}

HEDDLE_INLINE double mesh_bound::improve_at_hand(double target, int rounds, int patience,
                                                 search::deadline const& until) {
    double best = 0, before = 0;
    for (int n = 0; n < rounds && best < target * (1 - 1e-4) && (n == 0 || !until.is_over()); ++n) {
        best = std::max(best, round());
        if (n % patience != patience - 1) continue;
        if (best < before * (1 + 1e-4)) break;
        before = best;
    }
    return best;
}

HEDDLE_INLINE double mesh_bound::improve(double target, int rounds, search::deadline const& until) {
    std::vector<std::pair<std::uint32_t, operator_id>> keys;
    for (std::size_t level = 0; level < numbers_.size(); ++level)
        keys.push_back({graph_.segment_of_level[level], space_.kind(level)});
    auto const shorter = search::without_repetitions(keys);
    int patience = 10;
    if (shorter.kept.size() < keys.size()) {
        levels_ = shorter.kept;
        static_cast<void>(improve_at_hand(std::numeric_limits<double>::infinity(), rounds, patience, until));
        for (std::size_t level = 0; level < keys.size(); ++level) numbers_[level] = numbers_[shorter.like[level]];
        patience = 2;
    }
    levels_.resize(keys.size());
    std::iota(levels_.begin(), levels_.end(), std::size_t{0});
    return improve_at_hand(target, rounds, patience, until);
}

HEDDLE_INLINE std::vector<cut_space::action> mesh_bound::cheapest(axis_number axis) {
    find_ends(axis);
    std::vector<cut_space::action> path;
    for (std::size_t place = 0, at = 0; place < levels_.size(); ++place) {
        ++epoch_;
        auto const of_move = moves_at(levels_[place], axis);
        auto const links = graph_.from_level(levels_[place]).out(at);
        auto const best = algorithm::min_element(links, {}, [&](auto const& l) {
            return of_bundle(l.bundle, of_move) + sides_[axis].to_end[place + 1][l.to];
        });
        path.push_back(*algorithm::min_element(graph_.bundle(best->bundle), {},
                                               [&](cut_space::action a) { return of_move[place_of_move_[a]]; }));
        at = best->to;
    }
    return path;
}

} // namespace heddle

#endif
