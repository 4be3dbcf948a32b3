// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A lower bound of the programs on a mesh, by a table for each axis.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/mesh_step.hpp>
#include <heddle/cost/relaxation_weights.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/synthesis/mesh_axis.hpp>
#include <heddle/theory/axis_program.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace heddle {

/// Bounds what programs on a mesh of two axes cost, of which each axis keeps to the programs of a graph.
///
/// What both axes choose at an operator, or for a parameter's read, costs `cost(t, u)`. It is split into a number for
/// each axis's choice, `a(t) + b(u) <= cost(t, u)`; a conversion of one axis costs no less than it does in the cheapest
/// form of the other. So the shortest path of each axis under its numbers, added up, is a lower bound, however costs are
/// split. They are split operator by operator, in the order of the program, in the way that is best for the bound while
/// all others stay: half of what the best program through a choice leaves goes to either axis. So the bound rises.
///
/// Sontag, Globerson and Jaakkola, Introduction to Dual Decomposition for Inference (2011), section 1.5: their update of
/// both sides of an edge, with a shortest path for the tree on each side.
class mesh_bound {
public:
    /// `space` is that of the searched program on one axis, explored as `graph`. Costs are those of serial time under
    /// weights of classes, at the shares of the outermost axis.
    mesh_bound(searched_program const& searched, mesh const& m, cut_space const& space, cut_graph const& graph,
               cost_model const& model, share_vector const& shares, training_options const& training,
               relaxation_weights const& weights);

    /// Splits costs anew for so many rounds, and returns the best bound so far. It ends early when that reaches
    /// `target`, less one part in `10'000`, or rises by less than that in ten rounds.
    /// *Complexity.* Linear in the links of the graph, per round.
    [[nodiscard]] double improve(double target, int rounds);

private:
    using numbers = std::vector<double>;
    /// Stands for what is impossible: no program takes as many seconds.
    static constexpr double never = 1e6;
    /// Instructions among which every axis chooses one, by their places among those of the kind, and the cost of each
    /// pair, by the outer axis's.
    struct choice {
        std::vector<std::size_t> places;
        std::vector<std::uint32_t> instructions;
        std::vector<numbers> cost;
    };
    /// The moves of a kind of operators; of each the places of its instructions.
    struct of_kind {
        std::vector<cut_space::action> moves;
        std::vector<std::vector<std::size_t>> places;
        std::vector<std::uint32_t> instructions;
        std::vector<choice> choices;
        /// What the instructions of each axis start from.
        std::array<numbers, 2> first;
    };
    /// What is known of an axis while a round is at a level.
    struct side {
        std::vector<numbers> to_end; ///< by level and position
        numbers here;                ///< from the start, by position
        numbers around;              ///< by move of the kind: the least rest of a path with it
        numbers of_move;             ///< by move of the kind
    };

    [[nodiscard]] double price(mesh_instruction const& in_searched) const;
    [[nodiscard]] bool go_together(instruction const& outer, instruction const& inner) const;
    /// The least cost of a conversion on an axis, whatever the form of the other.
    [[nodiscard]] double least(instruction const& i, axis_number axis) const;
    void add_choices(of_kind& kind);

    [[nodiscard]] of_kind const& kind_at(std::size_t level) const { return kinds_[space_.kind(level)]; }
    [[nodiscard]] numbers moves_at(std::size_t level, axis_number axis) const;
    /// The least cost of every bundle of a level, which are made when they are asked for.
    [[nodiscard]] double of_bundle(std::uint32_t bundle, numbers const& of_move);
    void find_ends(axis_number axis);
    void look_around(std::size_t level, axis_number axis);
    void split(std::size_t level, choice const& c);
    void pass(std::size_t level, axis_number axis);
    [[nodiscard]] double round();

    searched_program const& searched_;
    mesh const& mesh_;
    cut_space const& space_;
    cut_graph const& graph_;
    cost_model const& model_;
    equal_shares shares_;
    training_options const& training_;
    relaxation_weights const& weights_;
    std::vector<of_kind> kinds_;
    /// The place of each move among those of its kind.
    std::vector<std::size_t> place_of_move_;
    /// By level and axis, the numbers of the kind's instructions.
    std::vector<std::array<numbers, 2>> numbers_;
    std::array<side, 2> sides_;
    /// By bundle: the level and axis for which it is made, and its least cost.
    std::vector<std::pair<std::size_t, double>> bundles_;
    std::size_t epoch_ = 0;
    double best_ = 0;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE mesh_bound::mesh_bound(searched_program const& searched, mesh const& m, cut_space const& space,
                                     cut_graph const& graph, cost_model const& model, share_vector const& shares,
                                     training_options const& training, relaxation_weights const& weights)
    : searched_(searched), mesh_(m), space_(space), graph_(graph), model_(model), shares_(shares), training_(training),
      weights_(weights), kinds_(space.level_count()), place_of_move_(space.moves().size()),
      bundles_(graph.bundle_count()) {
    std::vector<std::size_t> place(space.instructions().size(), ~std::size_t{0});
    for (cut_space::action a = 0; a < space.moves().size(); ++a) {
        auto const& move = space.moves()[a];
        auto& kind = kinds_[move.kind];
        place_of_move_[a] = kind.moves.size();
        kind.moves.push_back(a);
        auto& places = kind.places.emplace_back();
        for (auto i : move.instructions) {
            if (place[i] == ~std::size_t{0}) {
                place[i] = kind.instructions.size();
                kind.instructions.push_back(i);
            }
            places.push_back(place[i]);
        }
    }
    for (auto& kind : kinds_) add_choices(kind);
    for (std::size_t level = 0; level + 1 < graph.level_count(); ++level) numbers_.push_back(kind_at(level).first);
}

HEDDLE_INLINE void mesh_bound::add_choices(of_kind& kind) {
    auto const instruction_at = [&](std::size_t place) -> auto& {
        return space_.instructions()[kind.instructions[place]];
    };
    for (auto& of_axis : kind.first) of_axis.assign(kind.instructions.size(), 0);
    std::map<tensor_id, choice> chosen; // computations, and the ways to read each parameter
    for (std::size_t n = 0; n < kind.instructions.size(); ++n) {
        auto const& i = instruction_at(n);
        auto const* const change = i.change();
        if (i.is<instruction::convert>())
            for (axis_number a = 0; a < 2; ++a) kind.first[a][n] = least(i, a);
        else if (!change || searched_.program().tensors[change->tensor].is_parameter())
            chosen[change ? change->tensor : ~tensor_id{0}].places.push_back(n);
    }
    for (auto& [t, c] : chosen) {
        for (auto outer : c.places) {
            auto& row = c.cost.emplace_back();
            for (auto inner : c.places) {
                auto const &a = instruction_at(outer), &b = instruction_at(inner);
                row.push_back(go_together(a, b) ? price(mesh_instruction({a, b})) : never);
            }
        }
        kind.choices.push_back(std::move(c));
    }
}

HEDDLE_INLINE double mesh_bound::price(mesh_instruction const& in_searched) const {
    mesh_instruction on = in_searched;
    for (auto& of_axis : on.axes) {
        auto const there = searched_.in_given(of_axis);
        if (!there) return 0;
        of_axis = *there;
    }
    return weights_.price(model_.price(make_step(searched_.given(), on, mesh_, training_), shares_), 0);
}

HEDDLE_INLINE bool mesh_bound::go_together(instruction const& outer, instruction const& inner) const {
    mesh_instruction const both({outer, inner});
    if (outer.is<instruction::compute>())
        return goes_together(searched_.program(), both) &&
               goes_together(searched_.given(), mesh_instruction({searched_.part_of(outer), searched_.part_of(inner)}));
    return is_read_together(searched_.program().tensors[both.tensor()], both);
}

HEDDLE_INLINE double mesh_bound::least(instruction const& i, axis_number axis) const {
    auto const& change = *i.change();
    auto const& tensor = searched_.program().tensors[change.tensor];
    double result = std::numeric_limits<double>::infinity();
    for (std::uint16_t code = 0; code < 3 + tensor.factors.size(); ++code) {
        auto const other = tensor_form::from_code(code);
        product_form f(axis == 0 ? change.from : other);
        f.push_back(axis == 0 ? other : change.from);
        if (find_conversion(f, axis, change.to, tensor))
            result = std::min(result, price(mesh_instruction::on_axis(axis, i, f)));
    }
    return result;
}

HEDDLE_INLINE mesh_bound::numbers mesh_bound::moves_at(std::size_t level, axis_number axis) const {
    auto const& kind = kind_at(level);
    numbers of_move(kind.moves.size());
    for (std::size_t n = 0; n < of_move.size(); ++n)
        for (auto place : kind.places[n]) of_move[n] += numbers_[level][axis][place];
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

HEDDLE_INLINE void mesh_bound::split(std::size_t level, choice const& c) {
    auto const& kind = kind_at(level);
    std::vector<std::size_t> number(kind.instructions.size(), c.places.size());
    for (std::size_t n = 0; n < c.places.size(); ++n) number[c.places[n]] = n;
    std::array<numbers, 2> rest; // of the best path of each axis with a choice
    for (axis_number a = 0; a < 2; ++a) {
        rest[a].assign(c.places.size(), never);
        for (std::size_t m = 0; m < kind.moves.size(); ++m)
            for (auto place : kind.places[m])
                if (auto const n = number[place]; n < c.places.size())
                    rest[a][n] =
                        std::min(rest[a][n], sides_[a].around[m] + sides_[a].of_move[m] - numbers_[level][a][place]);
    }
    for (axis_number a = 0; a < 2; ++a)
        for (std::size_t mine = 0; mine < c.places.size(); ++mine) {
            double least = never;
            for (std::size_t other = 0; other < c.places.size(); ++other)
                least = std::min(least, (a == 0 ? c.cost[mine][other] : c.cost[other][mine]) + rest[1 - a][other]);
            numbers_[level][a][c.places[mine]] = (least - rest[a][mine]) / 2;
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
