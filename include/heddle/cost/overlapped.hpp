// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The accumulator of gradient overlap: `serial`, but parameter gradients' collectives run on a channel of their
/// own.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/time_accumulator.hpp>

#include <algorithm>
#include <cstddef>

namespace heddle {

/// Time of a program whose gradients are reduced while the backward pass goes on, as data-parallel trainers do: the
/// deferred collectives queue on a second channel in the order of the backward pass, each from the moment the last
/// device has the gradient. The network is one: they stand still while a collective of the backward pass runs. The
/// update follows the channel and the backward pass; then whole copies are brought up to date.
///
/// Steps are added in forward order, so each is put before all others in the backward pass. With one class, backward
/// work `g` and a gradient's collective `s`, the channel's end moves by `X <- max(g + X, g + s + N); N <- N + s`, `N`
/// being all that the network has to do from there on; a collective of the backward pass adds to both.
class overlapped {
public:
    static constexpr char const* name = "overlapped";
    static constexpr auto relaxation = relaxation_kind::turns;

    struct label {
        /// Closed stages of either direction; all that the network does in the backward pass; what follows the update.
        double forward_closed = 0, backward_closed = 0, network = 0, refresh = 0;
        /// Open forward work, open backward work and update work, per class.
        per_class forward, backward, update;
        /// End of the channel, as class k's work puts it: seconds from the start of the open backward stage.
        per_class channel;
    };

    explicit overlapped(std::size_t class_count, training_options const& = {}) : class_count_(class_count) {}

    [[nodiscard]] label initial() const;

    void extend(label& l, step_cost const& s) const;

    [[nodiscard]] double total(label const& l) const;
    /// Sound: where it holds, every continuation costs at most as much after `a` as after `b`. Backward pass, channel
    /// and network move together under all that can follow, so the one that `a` is furthest behind in decides.
    [[nodiscard]] bool dominates(label const& a, label const& b) const;

    /// What a label adds to the cost of all steps from a level on, on any weights with turns: the work above the levels
    /// of its steps delays all that it has of the backward pass, its collectives follow those that wait for levels
    /// further on.
    [[nodiscard]] static double relaxed(label const& l, relaxation_weights const& w, std::size_t level);

private:
    std::size_t class_count_;
};
static_assert(time_accumulator<overlapped>);

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

HEDDLE_INLINE bool overlapped::dominates(label const& a, label const& b) const {
    double behind = a.network - b.network;
    for (std::size_t k = 0; k < class_count_; ++k)
        behind = std::max({behind, a.backward_closed + a.backward[k] - b.backward_closed - b.backward[k],
                           a.channel[k] - b.channel[k]});
    return a.forward_closed + most_above(a.forward, b.forward) + behind + most_above(a.update, b.update) + a.refresh <=
           b.forward_closed + b.refresh;
}

HEDDLE_INLINE double overlapped::relaxed(label const& l, relaxation_weights const& w, std::size_t level) {
    double const waiting = w.at(level).gradients;
    double sum = l.forward_closed + l.refresh + waiting * l.network;
    for (std::size_t k = 0; k < w.clock.size(); ++k)
        sum += w.clock[k] *
               (l.forward[k] + l.update[k] + (1 - waiting) * std::max(l.backward_closed + l.backward[k], l.channel[k]));
    return sum;
}

} // namespace heddle

#endif
