// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Weights under which the costs of steps add up to a bound of their time.
#pragma once

#include <heddle/cost/cost_model.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// Weights of the backward pass's work and of the gradients' collectives; its own collectives always count in full.
struct side_weights {
    double backward = 1, gradients = 1;
};

/// Where gradients are reduced beside the backward pass, it ends neither before its own work and collectives nor, for any level of the
/// program, before those above that level and then all collectives up to it. Any mean of these ends is a bound; this one says which.
class gradient_turns {
public:
    /// Moves part of all weight to the end that waits for the collectives up to a level, or for the backward work alone.
    void move(double part, std::optional<std::size_t> level) {
        backward_alone_ *= 1 - part;
        for (auto& [where, weight] : turns_) weight *= 1 - part;
        if (!level) {
            backward_alone_ += part;
            return;
        }
        auto const at = std::ranges::lower_bound(turns_, *level, {}, &turn::first);
        if (at != turns_.end() && at->first == *level) at->second += part;
        else turns_.insert(at, {*level, part});
    }
    [[nodiscard]] bool contains(std::optional<std::size_t> level) const {
        return !level || std::ranges::binary_search(turns_, *level, {}, &turn::first);
    }
    /// Multiplies each end's weight by `factor(level)`, the backward work alone by `factor(nullopt)`, and makes them sum to one again.
    template <class Factor>
    void scale(Factor&& factor) {
        double sum = backward_alone_ *= factor(std::nullopt);
        for (auto& [where, weight] : turns_) sum += weight *= factor(std::optional(where));
        backward_alone_ /= sum;
        for (auto& [where, weight] : turns_) weight /= sum;
    }
    /// Number of a level among those of different weights.
    [[nodiscard]] std::size_t part_of(std::size_t level) const {
        return static_cast<std::size_t>(std::ranges::lower_bound(turns_, level, {}, &turn::first) - turns_.begin());
    }
    [[nodiscard]] std::size_t part_count() const { return turns_.size() + 1; }
    [[nodiscard]] side_weights of_part(std::size_t part) const {
        double before = backward_alone_;
        for (std::size_t n = 0; n < part; ++n) before += turns_[n].second;
        return {before, 1 - before};
    }

private:
    using turn = std::pair<std::size_t, double>;
    double backward_alone_ = 1;
    std::vector<turn> turns_;
};

/// What the parts of a step count in a relaxation; which weights give a bound is the accumulator's to say.
struct relaxation_weights {
    /// Of each class's work; they sum to one, or to what `network` leaves where work and collectives run beside each other.
    std::vector<double> clock;
    /// Of gradients that overlap; none: they follow the backward pass, and everything counts in full.
    std::optional<gradient_turns> turns{};
    /// Of collectives, and of those among them that may wait for a free network: at most as much.
    double network = 1, patient = 1;

    [[nodiscard]] std::size_t part_count() const { return turns ? turns->part_count() : 1; }
    [[nodiscard]] std::size_t part_of(std::size_t level) const { return turns ? turns->part_of(level) : 0; }
    [[nodiscard]] side_weights of_part(std::size_t part) const { return turns ? turns->of_part(part) : side_weights{}; }
    [[nodiscard]] side_weights at(std::size_t level) const { return of_part(part_of(level)); }

    /// Of a step on a level.
    [[nodiscard]] double price(step_cost const& s, std::size_t level) const {
        auto const side = at(level);
        double sum = s.forward_transfer + s.refresh + s.backward_transfer + side.gradients * s.deferred;
        for (std::size_t k = 0; k < clock.size(); ++k) sum += clock[k] * (s.forward[k] + s.update[k] + side.backward * s.backward[k]);
        return sum;
    }
};

} // namespace heddle
