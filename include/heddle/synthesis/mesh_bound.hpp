// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A lower bound of the programs on a mesh, by a table for each axis.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/synthesis/mesh_choices.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
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
    /// `space` is that of the searched program on one axis, explored as `graph`. Prices are at given shares of the
    /// outermost axis and weights of classes.
    mesh_bound(cut_space const& space, cut_graph const& graph, mesh_prices const& price);

    /// Splits costs anew for so many rounds, and returns the best bound so far. It ends early when that reaches
    /// `target`, less one part in `10'000`, or rises by less than that in ten rounds.
    /// *Complexity.* Linear in the links of the graph, per round.
    [[nodiscard]] double improve(double target, int rounds);

private:
    using numbers = std::vector<double>;
    /// What is known of an axis while a round is at a level.
    struct side {
        std::vector<numbers> to_end; ///< by level and position
        numbers here;                ///< from the start, by position
        numbers around;              ///< by move of the kind: the least rest of a path with it
        numbers of_move;             ///< by move of the kind
    };

    [[nodiscard]] mesh_choices const& kind_at(std::size_t level) const { return kinds_[space_.kind(level)]; }
    [[nodiscard]] numbers moves_at(std::size_t level, axis_number axis) const;
    /// The least cost of a bundle of a level.
    [[nodiscard]] double of_bundle(std::uint32_t bundle, numbers const& of_move);
    void find_ends(axis_number axis);
    void look_around(std::size_t level, axis_number axis);
    void split(std::size_t level, mesh_choice const& c);
    void pass(std::size_t level, axis_number axis);
    [[nodiscard]] double round();

    cut_space const& space_;
    cut_graph const& graph_;
    std::vector<mesh_choices> kinds_;
    /// The place of each move among those of its kind.
    std::vector<std::size_t> place_of_move_;
    /// By level and axis, the numbers of the kind's items.
    std::vector<std::array<numbers, 2>> numbers_;
    std::array<side, 2> sides_;
    /// By bundle: when it was made, and its number then.
    std::vector<std::pair<std::size_t, double>> bundles_;
    std::size_t epoch_ = 0;
    double best_ = 0;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE mesh_bound::mesh_bound(cut_space const& space, cut_graph const& graph, mesh_prices const& price)
    : space_(space), graph_(graph), kinds_(choices_of(space, price)), place_of_move_(space.moves().size()),
      bundles_(graph.bundle_count()) {
    for (auto const& kind : kinds_)
        for (std::size_t n = 0; n < kind.moves.size(); ++n) place_of_move_[kind.moves[n]] = n;
    for (std::size_t level = 0; level + 1 < graph.level_count(); ++level) {
        numbers const none(kind_at(level).item_count);
        numbers_.push_back({none, none});
    }
}

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
    std::size_t const last = graph_.level_count() - 1;
    auto& to_end = sides_[axis].to_end;
    to_end.resize(last + 1);
    to_end[last].assign(graph_.node_count() - graph_.first_of_level[last], 0);
    for (std::size_t level = last; level-- > 0;) {
        ++epoch_;
        auto const of_move = moves_at(level, axis);
        auto const& segment = graph_.from_level(level);
        to_end[level].assign(segment.size(), never);
        for (std::size_t n = 0; n < segment.size(); ++n)
            for (auto const& l : segment.out(n))
                to_end[level][n] = std::min(to_end[level][n], of_bundle(l.bundle, of_move) + to_end[level + 1][l.to]);
    }
    sides_[axis].here = {0};
}

HEDDLE_INLINE void mesh_bound::look_around(std::size_t level, axis_number axis) {
    auto& s = sides_[axis];
    s.of_move = moves_at(level, axis);
    s.around.assign(s.of_move.size(), never);
    auto const& segment = graph_.from_level(level);
    ++epoch_;
    std::vector<std::uint32_t> met;
    for (std::size_t n = 0; n < segment.size(); ++n)
        for (auto const& l : segment.out(n)) {
            auto& [made_for, least] = bundles_[l.bundle];
            if (std::exchange(made_for, epoch_) != epoch_) least = never, met.push_back(l.bundle);
            least = std::min(least, s.here[n] + s.to_end[level + 1][l.to]);
        }
    for (auto b : met)
        for (auto a : graph_.bundle(b)) {
            double& around = s.around[place_of_move_[a]];
            around = std::min(around, bundles_[b].second);
        }
}

HEDDLE_INLINE void mesh_bound::split(std::size_t level, mesh_choice const& c) {
    auto const& kind = kind_at(level);
    std::vector<std::size_t> number(kind.item_count, c.items.size());
    for (std::size_t n = 0; n < c.items.size(); ++n) number[c.items[n]] = n;
    std::array<numbers, 2> rest; // of the best path of each axis with an item
    for (axis_number a = 0; a < 2; ++a) {
        auto const& mine = numbers_[level][a];
        rest[a].assign(c.items.size(), never);
        for (std::size_t m = 0; m < kind.moves.size(); ++m)
            for (auto item : kind.items[m])
                if (auto const n = number[item]; n < c.items.size())
                    rest[a][n] = std::min(rest[a][n], sides_[a].around[m] + sides_[a].of_move[m] - mine[item]);
    }
    for (axis_number a = 0; a < 2; ++a)
        for (std::size_t mine = 0; mine < c.items.size(); ++mine) {
            double least = never;
            for (std::size_t other = 0; other < c.items.size(); ++other)
                least = std::min(least, (a == 0 ? c.cost[mine][other] : c.cost[other][mine]) + rest[1 - a][other]);
            numbers_[level][a][c.items[mine]] = (least - rest[a][mine]) / 2;
        }
    for (axis_number a = 0; a < 2; ++a) sides_[a].of_move = moves_at(level, a);
}

HEDDLE_INLINE void mesh_bound::pass(std::size_t level, axis_number axis) {
    auto& s = sides_[axis];
    auto const& segment = graph_.from_level(level);
    numbers next(s.to_end[level + 1].size(), never);
    ++epoch_;
    for (std::size_t n = 0; n < segment.size(); ++n)
        for (auto const& l : segment.out(n))
            next[l.to] = std::min(next[l.to], s.here[n] + of_bundle(l.bundle, s.of_move));
    s.here = std::move(next);
}

HEDDLE_INLINE double mesh_bound::round() {
    for (axis_number a = 0; a < 2; ++a) find_ends(a);
    for (std::size_t level = 0; level < numbers_.size(); ++level) {
        for (axis_number a = 0; a < 2; ++a) look_around(level, a);
        for (auto const& c : kind_at(level).choices) split(level, c);
        for (axis_number a = 0; a < 2; ++a) pass(level, a);
    }
    return sides_[0].here[0] + sides_[1].here[0];
}

HEDDLE_INLINE double mesh_bound::improve(double target, int rounds) {
    constexpr int patience = 10;
    double before = 0;
    for (int n = 0; n < rounds && best_ < target * (1 - 1e-4); ++n) {
        best_ = std::max(best_, round());
        if (n % patience != patience - 1) continue;
        if (best_ < before + 1e-4 * target) break;
        before = best_;
    }
    return best_;
}

} // namespace heddle

#endif
