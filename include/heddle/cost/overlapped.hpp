// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The accumulator of gradient overlap: it is `serial`, but the collectives of parameter gradients have a
/// channel of their own.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/time_accumulator.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace heddle {

/// The time of a program whose gradients are reduced during the backward pass, as data-parallel trainers do. The
/// deferred collectives queue on a second channel in the order of the backward pass; each may start when the last
/// device has the gradient. There is one network, so they pause while a collective of the backward pass runs. The
/// update follows both the channel and the backward pass; then whole copies are brought up to date.
///
/// Steps are added in forward order, so each step goes in front of all earlier ones in the backward pass. With one
/// class, backward work `g` and a gradient's collective `s`, the channel's end moves by `X <- max(g + X, g + s + N); N
/// <- N + s`, where `N` is all that the network still has to do; a collective of the backward pass adds to both.
class overlapped {
public:
    static constexpr char const* name = "overlapped";
    static constexpr auto relaxation = relaxation_kind::turns;

    struct label {
        /// The closed stages of either direction; all that the network does in the backward pass; what follows the
        /// update.
        double forward_closed = 0, backward_closed = 0, network = 0, refresh = 0;
        /// The open forward work, the open backward work and the update work, per class.
        per_class forward, backward, update;
        /// The end of the channel if class k's work decides it, in seconds from the start of the open backward stage.
        per_class channel;
    };

    explicit overlapped(std::size_t class_count, training_options const& = {}) : class_count_(class_count) {}

    [[nodiscard]] label initial() const;

    void extend(label& l, step_cost const& s) const;

    [[nodiscard]] double total(label const& l) const;
    /// Dominance is sound: where it holds, every continuation costs at most as much after `a` as after `b`. Backward
    /// pass, channel and network move together under all that can follow, so what `a` is furthest behind in decides.
    [[nodiscard]] bool dominates(label const& a, label const& b) const { return most_later(a, b) <= 0; }
    [[nodiscard]] double most_later(label const& a, label const& b) const;
    /// Each clock counts as far as it is ahead of the weighted mean, which is closed.
    [[nodiscard]] label joined(label a, label b, relaxation_weights const& w) const;

    /// Returns what a label adds to the cost of all steps from a level on, under any weights with turns. The work above
    /// the levels of its steps delays all of its backward pass, and its collectives follow those that wait for later
    /// levels.
    [[nodiscard]] static double relaxed(label const& l, relaxation_weights const& w, std::size_t level);

private:
    std::size_t class_count_;
};
static_assert(joining_accumulator<overlapped>);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE overlapped::label overlapped::initial() const {
    per_class const zero(class_count_, 0.0);
    return {0, 0, 0, 0, zero, zero, zero, zero};
}

HEDDLE_INLINE void overlapped::extend(label& l, step_cost const& s) const {
    if (s.forward_transfer != 0) {
        l.forward_closed += algorithm::max(l.forward) + s.forward_transfer;
        algorithm::fill(l.forward, 0.0);
    }
    if (s.deferred != 0) {
        l.network += s.deferred;
        for (auto& end : l.channel) end = std::max(end, l.network);
    }
    if (s.backward_transfer != 0) {
        l.network += s.backward_transfer;
        l.backward_closed += algorithm::max(l.backward) + s.backward_transfer;
        algorithm::fill(l.backward, 0.0);
        algorithm::fill(l.channel, algorithm::max(l.channel) + s.backward_transfer);
    }
    l.refresh += s.refresh;
    for (std::size_t k = 0; k < class_count_; ++k) {
        l.forward[k] += s.forward[k];
        l.backward[k] += s.backward[k];
        l.channel[k] += s.backward[k];
        l.update[k] += s.update[k];
    }
}

HEDDLE_INLINE double overlapped::total(label const& l) const {
    double last = 0;
    for (std::size_t k = 0; k < class_count_; ++k)
        last = std::max(last, l.forward[k] + std::max(l.backward_closed + l.backward[k], l.channel[k]));
    return l.forward_closed + last + algorithm::max(l.update) + l.refresh;
}

HEDDLE_INLINE double overlapped::most_later(label const& a, label const& b) const {
    double behind = a.network - b.network;
    for (std::size_t k = 0; k < class_count_; ++k)
        behind = std::max({behind, a.backward_closed + a.backward[k] - b.backward_closed - b.backward[k],
                           a.channel[k] - b.channel[k]});
    return a.forward_closed - b.forward_closed + most_above(a.forward, b.forward) + behind +
           most_above(a.update, b.update) + a.refresh - b.refresh;
}

HEDDLE_INLINE overlapped::label overlapped::joined(label a, label b, relaxation_weights const& w) const {
    // The backward pass's clocks: of each class's work, of the channel, and of the network.
    auto const backward_of = [&](label const& l) {
        per_class clocks;
        for (double open : l.backward) clocks.push_back(l.backward_closed + open);
        clocks.insert(clocks.end(), l.channel.begin(), l.channel.end());
        clocks.push_back(l.network);
        return clocks;
    };
    std::vector<double> weights;
    for (double share : {0.4, 0.4})
        for (double weight : w.clock) weights.push_back(share * weight);
    weights.push_back(0.2);
    auto backward = backward_of(a), others = backward_of(b);
    auto const close_means = [&](label& l, per_class& clocks) {
        l.forward_closed += std::exchange(l.refresh, 0.0) + take_mean(l.forward, w.clock) + take_mean(clocks, weights) +
                            take_mean(l.update, w.update);
    };
    close_means(a, backward);
    close_means(b, others);
    if (a.forward_closed > b.forward_closed) {
        std::swap(a, b);
        std::swap(backward, others);
    }
    double spare = b.forward_closed - a.forward_closed;
    take_least(a.forward, b.forward, spare);
    take_least(backward, others, spare);
    take_least(a.update, b.update, spare);
    a.forward_closed += take_minimum(a.forward) + take_minimum(backward) + take_minimum(a.update);
    a.backward_closed = 0;
    a.backward.assign(backward.begin(), backward.begin() + static_cast<std::ptrdiff_t>(class_count_));
    a.channel.assign(backward.begin() + static_cast<std::ptrdiff_t>(class_count_), backward.end() - 1);
    a.network = backward.back();
    return a;
}

HEDDLE_INLINE double overlapped::relaxed(label const& l, relaxation_weights const& w, std::size_t level) {
    double const waiting = w.at(level).gradients;
    double sum = l.forward_closed + l.refresh + waiting * l.network;
    for (std::size_t k = 0; k < w.clock.size(); ++k)
        sum += w.clock[k] * (l.forward[k] + (1 - waiting) * std::max(l.backward_closed + l.backward[k], l.channel[k])) +
               w.update[k] * l.update[k];
    return sum;
}

} // namespace heddle

#endif
