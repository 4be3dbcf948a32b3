// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The accumulator of HAP's cost model: stages between synchronisations, with one clock per class.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/time_accumulator.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace heddle {

/// The time of a program: the forward pass, then the adjoints in reverse, then the deferred collectives, then the
/// update (HAP section 3.2, with both directions kept).
///
/// A collective closes only the direction in which it has a cost; the turn from forward to backward is no barrier. The
/// total is closed + max(forward + backward) + deferred + max(update).
class serial {
public:
    static constexpr char const* name = "serial";
    static constexpr auto relaxation = relaxation_kind::clocks;

    struct label {
        /// `deferred` holds the gradients' collectives and those after the update.
        double closed = 0, deferred = 0;
        /// The open forward work, the open backward work and the update work, per class.
        per_class forward, backward, update;
    };

    explicit serial(std::size_t class_count, training_options const& = {}) : class_count_(class_count) {}

    [[nodiscard]] label initial() const;

    void extend(label& l, step_cost const& s) const;

    [[nodiscard]] double total(label const& l) const;

    /// Tells whether every continuation costs at most as much after `a` as after `b`. It is exact: where it does not
    /// hold, some continuation is cheaper after `b`.
    [[nodiscard]] bool dominates(label const& a, label const& b) const { return most_later(a, b) <= 0; }
    [[nodiscard]] double most_later(label const& a, label const& b) const;
    /// Each clock counts as far as it is ahead of the weighted mean, which is closed.
    [[nodiscard]] label joined(label a, label b, relaxation_weights const& w) const;

    /// Whatever the weights and the order of steps, the time is no less than the weighted means of the clocks and of
    /// the updates.
    [[nodiscard]] static double relaxed(label const& l, relaxation_weights const& w, std::size_t);

private:
    void close(double& closed, per_class& open, double transfer) const;

    std::size_t class_count_;
};
static_assert(joining_accumulator<serial>);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE serial::label serial::initial() const {
    per_class const zero(class_count_, 0.0);
    return {0, 0, zero, zero, zero};
}

HEDDLE_INLINE void serial::extend(label& l, step_cost const& s) const {
    close(l.closed, l.forward, s.forward_transfer);
    close(l.closed, l.backward, s.backward_transfer);
    l.deferred += s.deferred + s.refresh;
    for (std::size_t k = 0; k < class_count_; ++k) {
        l.forward[k] += s.forward[k];
        l.backward[k] += s.backward[k];
        l.update[k] += s.update[k];
    }
}

HEDDLE_INLINE double serial::total(label const& l) const {
    double open = 0;
    for (std::size_t k = 0; k < class_count_; ++k) open = std::max(open, l.forward[k] + l.backward[k]);
    return l.closed + open + l.deferred + algorithm::max(l.update);
}

HEDDLE_INLINE double serial::most_later(label const& a, label const& b) const {
    return a.closed - b.closed + most_above(a.forward, b.forward) + most_above(a.backward, b.backward) +
           (a.deferred - b.deferred) + most_above(a.update, b.update);
}

HEDDLE_INLINE serial::label serial::joined(label a, label b, relaxation_weights const& w) const {
    for (auto* l : {&a, &b}) {
        l->closed += std::exchange(l->deferred, 0.0) + take_mean(l->forward, w.clock) +
                     take_mean(l->backward, w.clock) + take_mean(l->update, w.update);
    }
    if (a.closed > b.closed) std::swap(a, b);
    double spare = b.closed - a.closed;
    for (auto open : {&label::forward, &label::backward, &label::update}) {
        take_least(a.*open, b.*open, spare);
        a.closed += take_minimum(a.*open);
    }
    return a;
}

HEDDLE_INLINE double serial::relaxed(label const& l, relaxation_weights const& w, std::size_t) {
    double sum = l.closed + l.deferred;
    for (std::size_t k = 0; k < w.clock.size(); ++k)
        sum += w.clock[k] * (l.forward[k] + l.backward[k]) + w.update[k] * l.update[k];
    return sum;
}

HEDDLE_INLINE void serial::close(double& closed, per_class& open, double transfer) const {
    if (transfer == 0) return;
    closed += algorithm::max(open) + transfer;
    algorithm::fill(open, 0.0);
}

} // namespace heddle

#endif
