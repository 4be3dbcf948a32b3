// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What devices do in an iteration of serial execution, event by event, and how much of it overlaps.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/cost_model.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Something that a device does. A collective has one event per device, all at the same time.
struct timeline_event {
    enum class phase : std::uint8_t { forward, backward, gradient, update };
    /// The position in the list of steps.
    std::size_t step = 0;
    std::size_t device = 0;
    phase when = phase::forward;
    /// If the event is a collective, its place among the step's collectives of that phase.
    std::optional<std::size_t> transfer{};
    double start = 0, duration = 0;
    /// The micro-batch, if micro-batches take turns. What is done once for all of them has the number of the first.
    int micro_batch = 0;
    /// The device's slice, or group, communicates inside: it does not compute.
    bool is_inside = false;
    [[nodiscard]] bool communicates() const { return transfer || is_inside; }
};

struct timeline {
    std::vector<timeline_event> events;
    double total = 0;
};

/// The seconds in which a device computes, in which it communicates, and in which it does both.
struct overlap {
    double compute = 0, communication = 0, both = 0;
    /// Returns the part of the shorter of the two that runs beside the other.
    [[nodiscard]] double ratio() const { return both > 0 ? both / std::min(compute, communication) : 0; }
};

[[nodiscard]] overlap overlap_of(timeline const& t, std::size_t device);

/// Runs the steps forward, their adjoints backward, each with the step itself if that runs again, the deferred
/// collectives and the update, each device on its own clock. A collective starts when the last device reaches it.
/// Deferred collectives follow the backward pass or, if gradients overlap, queue on a channel of their own when their
/// step's adjoint is done, and pause for the others. `model` has one class per device. `gradients` says for each step
/// the seconds of the gradients' collective that is sent after it; if it is empty, each gradient has its own. The total
/// is that of `serial` or `overlapped` up to rounding. What slices or groups communicate inside follows their work.
template <class Shares>
[[nodiscard]] timeline run_serial(std::span<step_work const> steps, cost_model const& model, Shares const& shares,
                                  bool overlaps_gradients = false, std::span<double const> gradients = {}) {
    using phase = timeline_event::phase;
    timeline result;
    std::vector<double> clock(model.class_count(), 0.0);
    auto const work = [&](std::size_t number, phase when, per_class const& durations, per_class const& own) {
        for (std::size_t d = 0; d < clock.size(); ++d) {
            double const inside = durations[d] - own[d];
            if (own[d] > 0) result.events.push_back({number, d, when, {}, clock[d], own[d]});
            if (inside > 0) result.events.push_back({number, d, when, {}, clock[d] + own[d], inside, 0, true});
            clock[d] += durations[d];
        }
    };
    struct gradient_transfer {
        std::size_t step, which;
        double ready, duration;
    };
    std::vector<gradient_transfer> beside;
    std::vector<std::pair<double, double>> occupied; // the network, by the backward pass's own collectives
    auto const communicate = [&](std::size_t number, phase when, transfer_list const& transfers) {
        bool const are_gradients = when == phase::gradient && steps[number].reduces_gradients();
        for (std::size_t which = 0; which < transfers.size(); ++which) {
            double const duration = are_gradients && !gradients.empty()
                                        ? gradients[number]
                                        : model.decided(transfers[which], shares, are_gradients).seconds;
            if (duration <= 0) continue;
            double const start = algorithm::max(clock);
            if (overlaps_gradients && when == phase::gradient) {
                beside.push_back({number, which, start, duration});
                continue;
            }
            if (when == phase::backward) occupied.push_back({start, start + duration});
            algorithm::fill(clock, start + duration);
            for (std::size_t d = 0; d < clock.size(); ++d)
                result.events.push_back({number, d, when, which, start, duration});
        }
    };
    std::vector<step_cost> costs, own; // with and without what is communicated inside
    for (auto const& s : steps) {
        costs.push_back(model.price(s, shares));
        own.push_back(communicates_inside(s) ? model.price(without_inside(s), shares) : costs.back());
    }
    for (std::size_t n = 0; n < steps.size(); ++n) {
        communicate(n, phase::forward, steps[n].forward_transfers);
        work(n, phase::forward, costs[n].forward, own[n].forward);
    }
    for (std::size_t n = steps.size(); n-- > 0;) {
        work(n, phase::backward, costs[n].backward, own[n].backward);
        communicate(n, phase::backward, steps[n].backward_transfers);
        if (overlaps_gradients) communicate(n, phase::gradient, steps[n].deferred_transfers);
    }
    double channel = 0; // when it is free
    auto next = occupied.begin();
    for (auto const& t : beside) {
        channel = std::max(channel, t.ready);
        for (double left = t.duration; left > 0;) {
            for (; next != occupied.end() && next->first <= channel; ++next) channel = std::max(channel, next->second);
            double const piece = next == occupied.end() ? left : std::min(left, next->first - channel);
            for (std::size_t d = 0; d < clock.size(); ++d)
                result.events.push_back({t.step, d, phase::gradient, t.which, channel, piece});
            channel = piece < left ? next->first : channel + piece;
            left -= piece;
        }
    }
    algorithm::fill(clock, std::max(channel, algorithm::max(clock)));
    if (!overlaps_gradients)
        for (std::size_t n = steps.size(); n-- > 0;) communicate(n, phase::gradient, steps[n].deferred_transfers);
    for (std::size_t n = 0; n < steps.size(); ++n) work(n, phase::update, costs[n].update, own[n].update);
    for (std::size_t n = 0; n < steps.size(); ++n) communicate(n, phase::update, steps[n].update_transfers);
    result.total = algorithm::max(clock);
    return result;
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE overlap overlap_of(timeline const& t, std::size_t device) {
    std::vector<std::pair<double, int>> moments; // 1 and -1: computation begins and ends; 2 and -2: communication
    for (auto const& e : t.events) {
        if (e.device != device) continue;
        int const kind = e.communicates() ? 2 : 1;
        moments.push_back({e.start, kind});
        moments.push_back({e.start + e.duration, -kind});
    }
    algorithm::sort(moments);
    overlap result;
    int computes = 0, communicates = 0;
    double before = 0;
    for (auto const& [now, kind] : moments) {
        if (computes > 0) result.compute += now - before;
        if (communicates > 0) result.communication += now - before;
        if (computes > 0 && communicates > 0) result.both += now - before;
        (kind == 1 || kind == -1 ? computes : communicates) += kind > 0 ? 1 : -1;
        before = now;
    }
    return result;
}

} // namespace heddle

#endif
