// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Strategies as states of an annealing: degrees, micro-batches, tilings and orders of machines.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/layer_assignment.hpp>
#include <heddle/pipeline/placement.hpp>
#include <heddle/pipeline/strategy.hpp>
#include <heddle/search/anneal.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Returns the strategy that a placement of a shape makes if its layers are assigned for the fastest pipeline; nothing
/// if none fits.
[[nodiscard]] std::optional<strategy> assign_strategy(strategy_model const& model, parallel_shape const& grid,
                                                      device_placement placement,
                                                      layer_assignment_options const& o = {});

/// Walks over shapes, orders of machines and tilings; layers are assigned afresh in every state (AMP, Algorithm 2).
/// *Lifetime:* refers to model and shapes; there is at least one shape.
class strategy_walk {
public:
    struct state {
        std::size_t shape = 0;
        std::vector<std::size_t> machines;
        /// How many copies of each stage are on one machine, as `placement_space::tile` takes it.
        std::vector<std::size_t> heights;
    };

    strategy_walk(strategy_model const& model, std::span<parallel_shape const> shapes, std::size_t first)
        : model_(model), shapes_(shapes), first_(first) {
        for (auto const& s : shapes) spaces_.try_emplace(s.degrees.tensor, model.problem(), s.degrees.tensor);
    }

    /// Returns the first shape, with machines as they are numbered and the copies of a stage together.
    [[nodiscard]] state initial() const;

    /// Makes one of these steps: another shape that shares the tensor or the data degree; an exchange of two machines;
    /// a turn of a stage's block.
    [[nodiscard]] state neighbour(state s, search::random_stream& random) const;

    [[nodiscard]] double cost(state const& s) const;

    /// Returns the strategy of a state, if blocks and layers fit.
    [[nodiscard]] std::optional<strategy> decode(state const& s) const;

private:
    void change_shape(state& s, search::random_stream& random) const;
    /// Puts as many copies on a machine as divide both numbers, so that blocks fit if machines are alike.
    void reset_heights(state& s) const;

    strategy_model const& model_;
    std::span<parallel_shape const> shapes_;
    std::size_t first_;
    /// The placements by tensor degree.
    std::map<std::size_t, placement_space> spaces_;
};

static_assert(search::annealing_problem<strategy_walk>);

struct annealed_strategy {
    /// The best met; nothing where none fits.
    std::optional<strategy> best;
    search::annealing_statistics statistics;
};

/// Anneals from the shape of a strategy on. *Precondition:* the shape is one of those given.
[[nodiscard]] annealed_strategy anneal_strategies(strategy_model const& model, std::span<parallel_shape const> shapes,
                                                  strategy const& from, search::annealing_options const& o);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::optional<strategy> assign_strategy(strategy_model const& model, parallel_shape const& grid,
                                                      device_placement placement, layer_assignment_options const& o) {
    auto const problem = model.assignment(placement, grid.micro_batch_size, grid.micro_batches);
    bool const joined = algorithm::all_of(problem.links, [](auto const& link) { return link.bandwidth.value > 0; });
    if (!joined) return {};
    auto found = assign_layers(problem, o);
    if (found.cuts.empty()) return {};
    return strategy{std::move(placement), grid.micro_batch_size, grid.micro_batches, std::move(found.cuts)};
}

HEDDLE_INLINE strategy_walk::state strategy_walk::initial() const {
    state s{first_, std::vector<std::size_t>(model_.problem().machines.size()), {}};
    std::iota(s.machines.begin(), s.machines.end(), std::size_t{0});
    reset_heights(s);
    return s;
}

HEDDLE_INLINE strategy_walk::state strategy_walk::neighbour(state s, search::random_stream& random) const {
    switch (random.below(3)) {
    case 0: change_shape(s, random); break;
    case 1: std::swap(s.machines[random.below(s.machines.size())], s.machines[random.below(s.machines.size())]); break;
    default: {
        auto const choices = divisors(static_cast<std::int64_t>(shapes_[s.shape].degrees.data));
        s.heights[random.below(s.heights.size())] = static_cast<std::size_t>(choices[random.below(choices.size())]);
    }
    }
    return s;
}

HEDDLE_INLINE double strategy_walk::cost(state const& s) const {
    auto const found = decode(s);
    return found ? model_.cost(*found).total.value : std::numeric_limits<double>::infinity();
}

HEDDLE_INLINE std::optional<strategy> strategy_walk::decode(state const& s) const {
    auto const& grid = shapes_[s.shape];
    auto placement = spaces_.at(grid.degrees.tensor).tile(grid.degrees, s.machines, s.heights);
    if (!placement) return {};
    return assign_strategy(model_, grid, *std::move(placement));
}

HEDDLE_INLINE annealed_strategy anneal_strategies(strategy_model const& model, std::span<parallel_shape const> shapes,
                                                  strategy const& from, search::annealing_options const& o) {
    auto const first = algorithm::find_if(shapes, [&](parallel_shape const& s) {
        return s.degrees == from.degrees() && s.micro_batch_size == from.micro_batch_size;
    });
    strategy_walk const walk(model, shapes, static_cast<std::size_t>(first - shapes.begin()));
    auto const found = search::anneal(walk, o);
    bool const is_solution = found.state && found.cost;
    return {is_solution ? walk.decode(*found.state) : std::nullopt, found.statistics};
}

HEDDLE_INLINE void strategy_walk::change_shape(state& s, search::random_stream& random) const {
    auto const old = shapes_[s.shape].degrees;
    bool const keep_tensor = random.below(2) == 0;
    std::vector<std::size_t> near;
    for (std::size_t i = 0; i < shapes_.size(); ++i)
        if (keep_tensor ? shapes_[i].degrees.tensor == old.tensor : shapes_[i].degrees.data == old.data)
            near.push_back(i);
    s.shape = near[random.below(near.size())];
    if (shapes_[s.shape].degrees != old) reset_heights(s);
}

HEDDLE_INLINE void strategy_walk::reset_heights(state& s) const {
    auto const& degrees = shapes_[s.shape].degrees;
    auto const units = model_.problem().machines.front().devices / degrees.tensor;
    s.heights.assign(degrees.pipeline, std::gcd(units, degrees.data));
}

} // namespace heddle

#endif
