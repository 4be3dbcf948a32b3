// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The accumulator of HiDup's cost model: micro-batches take turns, and one communicates while another computes.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/time_accumulator.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace heddle {

/// The paper's recurrence for two micro-batches and the forward pass alone (HiDup section 4.2, equations (4) and (5)).
struct forward_duplex {
    /// `psi` is the seconds until both halves are through the last stage; `phi` is minus the time that this stage
    /// computes for one half.
    struct label {
        double psi = 0, phi = 0;
    };
    static void extend(label& l, double communication, double computation);
    [[nodiscard]] static double total(label const& l) { return l.psi; }
    /// Dominance is exact. Let A = psi + phi and c = -phi. A continuation (m, ...) makes max(A + c, A + m) + f(m, ...)
    /// of a label; the empty one makes A + c. If both A and A + c are no greater, neither is the maximum. If A + c is
    /// greater, the empty continuation shows it; if A is greater, one stage with m above both c shows it. The paper's
    /// theorem 1 asks for psi and phi; that implies this condition, since A is their sum, but keeps more labels than
    /// are needed.
    [[nodiscard]] static bool dominates(label const& a, label const& b) {
        return a.psi <= b.psi && a.psi + a.phi <= b.psi + b.phi;
    }
};

/// The time of a batch in k >= 2 micro-batches, forward and backward, one stage at a time. Steps are those of one
/// micro-batch.
///
/// A stage is a communication step, then a computation step. Stage i has the collectives m and the computation c of one
/// micro-batch; c' is the computation of the stage before. In the forward pass the stage has k slots. In the first slot
/// the last micro-batch computes c' while the m of the first runs; in the others micro-batch j computes c while the m
/// of the next runs. So the computations of one micro-batch and the collectives of another fill `max(c', m) + (k - 1)
/// max(m, c)`, which is equation (5) for k = 2. The backward pass, with n and b of its own, is the same in reversed
/// time.
///
/// Collectives of parameters run once for all micro-batches. What the forward pass keeps anyway is gathered before its
/// stage at any time at which the network is free; likewise gradients that are kept are reduced at any such time after
/// they are computed. So if the slots of a direction take T and its collectives take N up to a stage, `T <- max(T +
/// max(c', m + u), N + m + u + p)`, where p may wait, but u, of parameters that are whole only during their stage, may
/// not. What is gathered again for the backward pass of a stage comes in the slot before it. At the turn from forward
/// to backward the last micro-batch computes, then the first, with no barrier.
///
/// A computation may exchange something while it runs, such as statistics of rows. Its kernels wait for that, in the
/// slot of their micro-batch, and the network has nothing else then; so its time adds to the slots and to the network
/// alike, whatever runs beside. All devices have done what comes before: c is a sum of maxima over the devices.
///
/// In a stage of a pipeline the passes do not meet, so nothing runs beside a direction's last computation, and
/// gradients are reduced when all micro-batches are through, beside nothing.
///
/// Without p and u, and with one class, this is `a <- a + max(c, m) + max(m, c') + max(b, n) + max(n, b')`, and the
/// total is a + c + b.
class duplex {
public:
    static constexpr char const* name = "duplex";
    static constexpr auto relaxation = relaxation_kind::directions;

    /// One direction. All times of the backward pass are counted from its end.
    struct side {
        /// Numbers of the closed stages: their seconds without the last stage's computation, the seconds of the network
        /// in them, that last computation, and what must be gathered before it.
        double slots = 0, network = 0, last = 0, ahead = 0;
        /// Numbers of the open stage: the collectives of one micro-batch; those of parameters that run at once, and
        /// those that may wait; and what must be gathered before its computation in the other direction.
        double transfer = 0, urgent = 0, patient = 0, again = 0;
        /// Of its computation, what comes before the last that kernels wait for, and the rest.
        double awaited = 0;
        per_class work;
        [[nodiscard]] double computation() const { return awaited + algorithm::max(work); }
    };
    struct label {
        side forward, backward;
        per_class update;
        /// The seconds of what kernels wait for, of all micro-batches; what follows the passes or the update.
        double waits = 0, refresh = 0;
        /// Tells whether the open stage has computed something.
        bool computes = false;
    };

    duplex(std::size_t class_count, training_options const& training)
        : class_count_(class_count), count_(training.micro_batches), turn_(training.turn.value),
          is_in_pipeline_(training.accumulated > 1) {}

    [[nodiscard]] label initial() const;

    /// Ends a stage. Collectives that need what it computes end it in any case.
    void close(label& l) const;

    /// Tells whether a step's collectives need what the open stage computes, so that the step begins the next stage.
    [[nodiscard]] static bool ends_stage(label const& l, step_cost const& s) {
        return l.computes && !s.once && !s.waits && (s.forward_transfer != 0 || s.backward_transfer != 0);
    }

    void extend(label& l, step_cost const& s) const;

    [[nodiscard]] double total(label const& l) const;

    /// Dominance is sound: where it holds, every continuation costs at most as much after `a` as after `b`. At the end
    /// of a stage it is exact.
    ///
    /// Slots are maxima of sums, and `max(x, y) - max(x', y') <= max(x - x', y - y')`; what a continuation adds to an
    /// open stage it adds to both labels. So a direction of `a` falls behind that of `b` by no more than `behind`, in
    /// which each maximum of `close` and of the slots after it is replaced by the maximum of differences. At the end of
    /// a stage it is `max(dT + max(dc, 0), dN)`, where d is a's value less b's: each term is what a continuation of
    /// short, of long or of patient collectives makes of the difference. The directions are independent, as a
    /// continuation may have any costs in each. Without N the condition is `dF + dB + max(dc, 0) + max(db, 0) <= 0`,
    /// which is a condition on the four sums a, a + c, a + b and a + c + b. Two sums, of the forward pass and of both
    /// passes together, do not suffice: c and b trade against collectives of their own.
    [[nodiscard]] bool dominates(label const& a, label const& b) const;

    /// Bounds the time of all programs that the label and the following steps can make, in any order if all steps
    /// follow. A direction lasts at least as long as a weighted mean of its slots and of the network's time in it, and
    /// a slot at least as long as a mean of its computation and collectives. So the label's value plus the weighted
    /// costs of the steps that follow is a bound. Each direction may have weights of its own except at the turn, which
    /// takes `max(c + b, again + b)`: there the value is a bound if `again` weighs no more than in either direction. In
    /// either direction the last stage is still to be closed, and its micro-batches have to turn.
    ///
    /// In the mean of a direction slots weigh 1 - q, and the network weighs q, the weight of what may wait. The weights
    /// n and w, of network and work, sum to 1. A slot of work c and collectives m takes `(1 - q) max(c, m) >= w c + v
    /// m` with v = n - q, as w and v sum to 1 - q; the network has m at weight q; together this is w c + n m. Let the
    /// slots so far take T, the network N, and the last computation c; let the first slot of the open stage have the
    /// collectives f, and let p wait. When that slot is over, slots have taken at least `max(T + max(c, f), N + f +
    /// p)`. For this the mean counts `(1 - q) T + w c + v f`, and the excess of `(1 - q) (N + f + p)` over it, if any,
    /// which nothing hides any more. Adding to f raises the sum by `(1 - q) - v = w`; adding to p raises it by 1 - q,
    /// and `close` moves it into the slots. So no step lowers the bound.
    [[nodiscard]] double relaxed(label const& l, relaxation_weights const& w, std::size_t) const;

private:
    void close(side& s) const;

    /// Makes kernels of all micro-batches wait.
    void wait(label& l, side& s, double transfer) const;

    [[nodiscard]] double behind(side const& a, side const& b) const;

    std::size_t class_count_;
    int count_;
    double turn_;
    bool is_in_pipeline_;
};
static_assert(staged_accumulator<duplex>);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE void forward_duplex::extend(label& l, double communication, double computation) {
    l.psi += l.phi + std::max(-l.phi, communication) + std::max(communication, computation) + computation;
    l.phi = -computation;
}

HEDDLE_INLINE duplex::label duplex::initial() const {
    per_class const zero(class_count_, 0.0);
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, zero}, {0, 0, 0, 0, 0, 0, 0, 0, 0, zero}, zero, 0, 0, false};
}

HEDDLE_INLINE void duplex::close(label& l) const {
    close(l.forward);
    close(l.backward);
    l.computes = false;
}

HEDDLE_INLINE void duplex::extend(label& l, step_cost const& s) const {
    double part = 1;
    if (s.once) {
        bool const is_unsharded = s.transient > 0; // else kept from now on, or dropped and gathered again
        (is_unsharded ? l.forward.urgent : l.forward.patient) += s.forward_transfer;
        (is_unsharded ? l.backward.urgent : l.backward.again) += s.backward_transfer;
        part = 1.0 / count_;
    } else if (s.waits) {
        wait(l, l.forward, s.forward_transfer);
        wait(l, l.backward, s.backward_transfer);
    } else {
        if (ends_stage(l, s)) close(l);
        l.forward.transfer += s.forward_transfer;
        l.backward.transfer += s.backward_transfer;
    }
    (is_in_pipeline_ ? l.refresh : l.backward.patient) += s.deferred;
    l.refresh += s.refresh;
    for (std::size_t k = 0; k < class_count_; ++k) {
        l.forward.work[k] += part * s.forward[k];
        l.backward.work[k] += part * s.backward[k];
        l.update[k] += s.update[k];
        if (!s.once && (s.forward[k] != 0 || s.backward[k] != 0)) l.computes = true;
    }
}

HEDDLE_INLINE double duplex::total(label const& l) const {
    double turn = 0;
    for (std::size_t k = 0; k < class_count_; ++k) turn = std::max(turn, l.forward.work[k] + l.backward.work[k]);
    turn = std::max(l.forward.awaited + turn + l.backward.awaited, l.backward.again + l.backward.computation());
    if (is_in_pipeline_) turn = l.forward.computation() + l.backward.again + l.backward.computation();
    label end = l;
    close(end);
    return end.forward.slots + turn + end.backward.slots + l.waits + algorithm::max(l.update) + l.refresh;
}

HEDDLE_INLINE bool duplex::dominates(label const& a, label const& b) const {
    if (a.computes != b.computes) return false; // a collective would end one stage and not the other
    return behind(a.forward, b.forward) + behind(a.backward, b.backward) + most_above(a.update, b.update) +
               (a.waits - b.waits) + (a.refresh - b.refresh) <=
           0;
}

HEDDLE_INLINE double duplex::relaxed(label const& l, relaxation_weights const& w, std::size_t) const {
    double sum = l.waits + l.refresh + w.again() * (l.forward.again + l.backward.again) + 2 * count_ * turn_;
    for (std::size_t k = 0; k < w.clock.size(); ++k)
        sum += w.clock[k] * count_ * (w.forward.work * l.forward.work[k] + w.backward.work * l.backward.work[k]) +
               w.update[k] * l.update[k];
    auto const add = [&](side const& s, direction_weights const& d) {
        sum += d.work * count_ * s.awaited;
        double const first = s.transfer + s.urgent;
        sum += (1 - d.patient) * s.slots + d.patient * (s.network + s.patient) + d.work * s.last +
               d.network * (count_ * s.transfer + s.urgent + s.ahead);
        sum += std::max(0.0, (1 - d.patient) * (s.network + first + s.patient - s.slots) - d.work * s.last -
                                 (d.network - d.patient) * first);
    };
    add(l.forward, w.forward);
    add(l.backward, w.backward);
    return sum;
}

HEDDLE_INLINE void duplex::close(side& s) const {
    double const computation = s.computation(), first = s.transfer + s.urgent;
    s.slots = std::max(s.slots + std::max(s.last, first), s.network + first + s.patient);
    s.slots +=
        (count_ - 2) * std::max(s.transfer, computation) + std::max(s.transfer + s.ahead, computation) + count_ * turn_;
    s.network += first + s.patient + (count_ - 1) * s.transfer + s.ahead;
    s.last = computation;
    s.ahead = s.again;
    s.transfer = s.urgent = s.patient = s.again = s.awaited = 0;
    algorithm::fill(s.work, 0.0);
}

HEDDLE_INLINE void duplex::wait(label& l, side& s, double transfer) const {
    if (transfer == 0) return;
    s.awaited = s.computation();
    algorithm::fill(s.work, 0.0);
    l.waits += count_ * transfer;
    l.computes = true;
}

HEDDLE_INLINE double duplex::behind(side const& a, side const& b) const {
    double const transfer = a.transfer - b.transfer, computation = a.awaited - b.awaited + most_above(a.work, b.work),
                 ahead = a.ahead - b.ahead;
    double const first = transfer + a.urgent - b.urgent, all = a.network - b.network + first + a.patient - b.patient;
    double const slots = std::max(a.slots - b.slots + std::max(a.last - b.last, first), all) +
                         (count_ - 2) * std::max(transfer, computation) + std::max(transfer + ahead, computation);
    return std::max(slots + std::max(computation, 0.0), all + (count_ - 1) * transfer + ahead) +
           std::max(a.again - b.again, 0.0);
}

} // namespace heddle

#endif
