// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs of a priced graph under weights that turn costs into numbers that add up.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/cost/relaxation_weights.hpp>
#include <heddle/search/state_graph.hpp>

#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// A relaxation: shortest paths under added costs.
///
/// Under the weights of an accumulator costs add up to no more than its total, and memory within the limit adds no more
/// than nothing. So a shortest path under `weights.time.price + sum_j l_j memory_j`, less `sum_j l_j limit_j`, is a
/// lower bound of every program of the theory, whatever the order of its instructions; with turns it is one for the
/// given order of operators.
struct relaxation {
    multipliers weights;
    search::shortest_paths paths;
    /// What memory within the limit and small buckets add to a path's cost, and what constants cost beside it.
    double credit = 0, constants = 0;
    [[nodiscard]] double bound() const { return paths.to_goal() + beside(); }
    /// What is added to a path's cost.
    [[nodiscard]] double beside() const { return constants - credit; }
};

/// Solves the relaxation with these weights, of all programs of a priced graph or of those of a part of it.
[[nodiscard]] relaxation relax(priced_graph const& priced, cut_graph const& programs, multipliers weights);
[[nodiscard]] inline relaxation relax(priced_graph const& priced, multipliers weights) {
    return relax(priced, priced.graph(), std::move(weights));
}

/// Returns what a move costs in a relaxation.
[[nodiscard]] double weighted_price(move_price const& move, multipliers const& weights, side_weights const& side);
[[nodiscard]] inline double weighted_price(priced_graph const& priced, multipliers const& weights, std::size_t level,
                                           cut_space::action a) {
    return weighted_price(priced.price(level, a), weights, weights.time.at(level));
}

/// The seconds of work, as a mean over the classes, and of collectives.
struct direction_loads {
    double work = 0, network = 0;
};
/// The loads of a path: the seconds of work per class, as `weights` count them, and of updates; its directions; and, if
/// there are turns, the ends of its backward pass (see `gradient_turns`) beside its own collectives: the end of its
/// work alone, the end by level, and which of them is last.
struct path_loads {
    std::vector<double> clock, update;
    direction_loads forward, backward;
    double backward_alone = 0;
    std::vector<double> ends;
    std::optional<std::size_t> last_turn;
    [[nodiscard]] double end(std::optional<std::size_t> level) const { return level ? ends[*level] : backward_alone; }
};
[[nodiscard]] path_loads loads_of(priced_graph const& priced, move_list const& path, relaxation_weights const& weights);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE relaxation relax(priced_graph const& priced, cut_graph const& programs, multipliers weights) {
    auto const& w = weights.time;
    std::vector<side_weights> sides;
    for (std::size_t part = 0; part < w.part_count(); ++part) sides.push_back(w.of_part(part));
    auto const number = [&](move_price const& move, std::size_t part) {
        return weighted_price(move, weights, sides[part]);
    };
    auto const part_of = [&](std::size_t level) { return w.part_of(level); };
    auto paths = priced.shortest_under(programs, number, sides.size(), part_of);
    double credit = 0;
    for (std::size_t k = 0; k < priced.model().class_count(); ++k)
        credit += weights.memory[k] * priced.model().memory_limit(k);
    if (weights.begun) credit -= priced.latency(*weights.begun);
    double const constants = w.forward.work * priced.constants();
    return {std::move(weights), std::move(paths), credit, constants};
}

HEDDLE_INLINE double weighted_price(move_price const& move, multipliers const& weights, side_weights const& side) {
    auto const& w = weights.time;
    auto const& t = move.transfers;
    if (weights.begun && (move.small_buckets & ~*weights.begun)) return std::numeric_limits<double>::infinity();
    double const backward = w.backward.work * move.backward_weight(side);
    double sum = w.forward.network * t.forward + w.forward.patient * t.early + w.backward.network * t.backward +
                 w.again() * t.again + w.backward.patient * side.gradients * t.gradients + t.alone;
    for (std::size_t k = 0; k < move.work.size(); ++k)
        sum += w.clock[k] * (w.forward.work * move.work[k] + backward * move.backward_work[k]) +
               w.update[k] * move.update[k] + weights.memory[k] * move.memory[k];
    if (!weights.links.empty())
        for (auto link : move.links) sum += weights.links[link];
    return sum;
}

HEDDLE_INLINE path_loads loads_of(priced_graph const& priced, move_list const& path,
                                  relaxation_weights const& weights) {
    std::vector<double> const none(priced.model().class_count());
    path_loads sum{none, none, {}, {}, 0, {}, {}};
    std::vector<double> backward; // by level; blocking transfers are of every end
    for (std::size_t level = 0; level < path.size(); ++level) {
        auto const move = priced.price(level, path[level]);
        auto const side = weights.at(level);
        sum.forward.network += move.transfers.forward + move.transfers.early;
        sum.backward.network += move.transfers.backward + move.transfers.again + move.transfers.gradients;
        double mine = 0;
        for (std::size_t k = 0; k < sum.clock.size(); ++k) {
            sum.update[k] += move.update[k];
            sum.clock[k] += weights.forward.work * move.work[k] +
                            weights.backward.work * move.backward_weight(side) * move.backward_work[k];
            sum.forward.work += weights.clock[k] * move.work[k];
            mine += weights.clock[k] * move.backward_work[k];
        }
        backward.push_back(mine);
        sum.backward_alone += mine;
    }
    sum.backward.work = sum.backward_alone;
    if (!weights.turns) return sum;
    double from_here = sum.backward_alone, collectives = 0;
    for (std::size_t level = 0; level < path.size(); ++level) {
        double const gradients = priced.price(level, path[level]).transfers.gradients;
        collectives += gradients;
        sum.ends.push_back(from_here + collectives);
        from_here -= backward[level];
        if (gradients > 0 && sum.ends[level] > sum.end(sum.last_turn)) sum.last_turn = level;
    }
    return sum;
}

} // namespace heddle

#endif
