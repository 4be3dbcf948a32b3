// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Weights under which the costs of steps add up to a lower bound of their time.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/cost_model.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// Takes an exponentiated subgradient step: weight moves to where a load is larger. The weights sum to one again.
void shift_weights(std::vector<double>& weights, std::vector<double> const& loads, double rate);

/// The weights of the backward pass's work, of the gradients' collectives, and of work where they need not wait for it.
/// The pass's own collectives always count in full.
struct side_weights {
    double backward = 1, gradients = 1, beside = 1;
};

/// If gradients are reduced beside the backward pass, it ends neither before its own work and collectives nor, for any
/// level of the program, before the work and collectives from that level up followed by all gradient collectives up to
/// it, because a level's gradients follow its own work. Any mean of these ends is a lower bound; this class says which
/// mean.
class gradient_turns {
public:
    /// Moves part of all weight to the end that waits for the collectives up to a level; without a level, to that of
    /// the backward work alone.
    void move(double part, std::optional<std::size_t> level);
    [[nodiscard]] bool contains(std::optional<std::size_t> level) const {
        return !level || algorithm::binary_search(turns_, *level, {}, &turn::first);
    }
    /// Multiplies each end's weight by `factor(level)`, and that of the backward work alone by `factor(nullopt)`; then
    /// makes the weights sum to one again.
    template <class Factor>
    void scale(Factor&& factor) {
        double sum = backward_alone_ *= factor(std::nullopt);
        for (auto& [where, weight] : turns_) sum += weight *= factor(std::optional(where));
        backward_alone_ /= sum;
        for (auto& [where, weight] : turns_) weight /= sum;
    }
    [[nodiscard]] std::size_t count() const { return turns_.size(); }
    /// Returns the number of the part that a level is in: each turn is a part, and so is the range between two turns.
    [[nodiscard]] std::size_t part_of(std::size_t level) const;
    [[nodiscard]] std::size_t part_count() const { return 2 * turns_.size() + 1; }
    [[nodiscard]] side_weights of_part(std::size_t part) const;

private:
    using turn = std::pair<std::size_t, double>;
    double backward_alone_ = 1;
    std::vector<turn> turns_;
};

/// The weights in one direction of work, of collectives, and of collectives that may wait for a free network, which
/// weigh at most as much as the others. If work and collectives run beside each other, the first two sum to one.
struct direction_weights {
    double work = 1, network = 1, patient = 1;
};

/// The weights of the parts of a step in a relaxation. The accumulator says which weights give a bound.
struct relaxation_weights {
    relaxation_weights() = default;
    /// Work and updates weigh the same.
    relaxation_weights(std::vector<double> classes, std::optional<gradient_turns> of_gradients = {})
        : clock(std::move(classes)), update(clock), turns(std::move(of_gradients)) {}

    /// The weight of each class's work, and that of its update, which follows all work; either sum to one.
    std::vector<double> clock, update;
    /// The weights of gradients that overlap. If absent, gradients follow the backward pass, and everything counts in
    /// full.
    std::optional<gradient_turns> turns{};
    direction_weights forward{}, backward{};
    /// The weight of parameters that are gathered again for the backward pass: those of the last stage are gathered
    /// beside the last work of the forward pass.
    [[nodiscard]] double again() const { return std::min(forward.network, backward.network); }

    [[nodiscard]] std::size_t part_count() const { return turns ? turns->part_count() : 1; }
    [[nodiscard]] std::size_t part_of(std::size_t level) const { return turns ? turns->part_of(level) : 0; }
    [[nodiscard]] side_weights of_part(std::size_t part) const { return turns ? turns->of_part(part) : side_weights{}; }
    [[nodiscard]] side_weights at(std::size_t level) const { return of_part(part_of(level)); }

    /// Returns the weighted cost of a step on a level whose gradients follow its work. If micro-batches take turns, the
    /// step is that of one, and the cost is that of all of them.
    [[nodiscard]] double price(step_cost const& s, std::size_t level, int micro_batches = 1) const;
};

/// A set of kinds of small buckets (see `priced_graph`), as bits.
using bucket_kinds = std::uint32_t;

/// Weights that turn the costs of a move into one number.
struct multipliers {
    relaxation_weights time;
    /// Seconds per byte of memory above the limit.
    std::vector<double> memory;
    /// If set, only programs with small buckets of just these kinds count, and the buckets' latencies with them; if
    /// absent, all programs count, without latencies.
    std::optional<bucket_kinds> begun{};
    /// The prices of sides of links (see `loose_links`); none if links cost nothing.
    std::vector<double> links{};
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE void shift_weights(std::vector<double>& weights, std::vector<double> const& loads, double rate) {
    double const most = algorithm::max(loads),
                 mean = std::inner_product(loads.begin(), loads.end(), weights.begin(), 0.0);
    double sum = 0;
    for (std::size_t k = 0; k < weights.size(); ++k)
        sum += weights[k] *= most > 0 ? std::exp(rate * (loads[k] - mean) / most) : 1;
    for (auto& w : weights) w /= sum;
}

HEDDLE_INLINE void gradient_turns::move(double part, std::optional<std::size_t> level) {
    backward_alone_ *= 1 - part;
    for (auto& [where, weight] : turns_) weight *= 1 - part;
    if (!level) {
        backward_alone_ += part;
        return;
    }
    auto const at = algorithm::lower_bound(turns_, *level, {}, &turn::first);
    if (at != turns_.end() && at->first == *level) at->second += part;
    else turns_.insert(at, {*level, part});
}

HEDDLE_INLINE std::size_t gradient_turns::part_of(std::size_t level) const {
    auto const at = algorithm::lower_bound(turns_, level, {}, &turn::first);
    bool const is_turn = at != turns_.end() && at->first == level;
    return 2 * static_cast<std::size_t>(at - turns_.begin()) + (is_turn ? 1 : 0);
}

HEDDLE_INLINE side_weights gradient_turns::of_part(std::size_t part) const {
    double below = backward_alone_;
    for (std::size_t n = 0; n < part / 2; ++n) below += turns_[n].second;
    return {below + (part % 2 == 1 ? turns_[part / 2].second : 0), 1 - below, below};
}

HEDDLE_INLINE double relaxation_weights::price(step_cost const& s, std::size_t level, int micro_batches) const {
    auto const side = at(level);
    double const times = s.once ? 1 : micro_batches;
    bool const stays = s.once && s.transient == 0; // a parameter's: it may come earlier, or is gathered again
    double const ahead = s.waits ? 1
                         : stays ? forward.patient
                                 : forward.network,
                 behind = s.waits ? 1
                          : stays ? again()
                                  : backward.network;
    double sum = s.refresh + backward.patient * side.gradients * s.deferred + ahead * times * s.forward_transfer +
                 behind * times * s.backward_transfer;
    for (std::size_t k = 0; k < clock.size(); ++k)
        sum += clock[k] * times * (forward.work * s.forward[k] + backward.work * side.backward * s.backward[k]) +
               update[k] * s.update[k];
    return sum;
}

} // namespace heddle

#endif
