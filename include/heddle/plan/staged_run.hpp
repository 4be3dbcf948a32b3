// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs the passes of micro-batches through stages, one forward, one backward, with what is sent between them.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle {

/// The seconds of what a stage does for each micro-batch; of what comes from the stage before and goes back; and of
/// what it does once for all of them.
struct stage_times {
    double forward = 0, backward = 0;
    double values = 0, cotangents = 0;
    double gradients = 0, update = 0;
};

/// Something that a stage does, on all of its devices.
struct staged_event {
    enum class kind : std::uint8_t { forward, backward, send, receive, gradients, shared_gradients, update };
    std::size_t stage = 0;
    kind what = kind::forward;
    int micro_batch = 0;
    /// Of what is sent or received: whether it is values, for the stage behind, or their cotangents.
    bool is_values = true;
    double start = 0, duration = 0;
};

struct staged_timeline {
    /// In the order in which they start.
    std::vector<staged_event> events;
    double total = 0;
};

/// Runs the passes of one forward, one backward (`one_f_one_b`), what passes between stages, and for all micro-batches
/// together the reduction of gradients and the update. `shared` is the seconds to add up gradients of several stages.
/// Stage s is on the devices number `s % places`; what is done once for all micro-batches follows on all of its passes.
///
/// A pass starts when its input is there and the devices are free. If sends block, a transfer occupies the devices of
/// both stages, and starts when both are in no pass; those that send go on behind it. Otherwise it occupies the link
/// between them, which has one transfer at a time: the only one if all stages are on two sets of devices.
/// *Precondition:* there is a micro-batch, as many stages on all devices, and `one_f_one_b` can run.
/// *Complexity.* O(s^2 m) for s stages and m micro-batches.
[[nodiscard]] staged_timeline run_stages(std::vector<stage_times> const& stages, std::size_t places, int micro_batches,
                                         double shared, bool sends_beside);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/plan/schedule.hpp>

namespace heddle::detail {

class staged_run {
public:
    staged_run(std::vector<stage_times> const& times, std::size_t places, int micro_batches, double shared,
               bool sends_beside)
        : shared_(shared), sends_beside_(sends_beside), places_(places) {
        one_f_one_b const schedule{times.size() / places};
        for (std::size_t d = 0; d < places; ++d) places_[d].passes = schedule.passes(d, {places, micro_batches});
        for (auto const& of_stage : times) {
            auto& added = stages_.emplace_back(stage{of_stage});
            for (auto* there : {&added.values, &added.cotangents})
                there->resize(static_cast<std::size_t>(micro_batches));
        }
        algorithm::fill(stages_.front().values, 0.0);
    }

    staged_timeline run() {
        while (auto const next = first_to_start()) next->is_transfer ? transfer(*next) : pass(*next);
        finish();
        algorithm::sort(result_.events, {},
                        [](auto const& e) { return std::tuple(e.start, e.stage, e.what, e.micro_batch); });
        return std::move(result_);
    }

private:
    using kind = staged_event::kind;
    struct outgoing {
        int micro_batch;
        double ready;
    };
    struct stage {
        stage_times times;
        /// When what comes from the stage before and behind is there, by micro-batch.
        std::vector<std::optional<double>> values{}, cotangents{};
        /// What waits to be sent.
        std::deque<outgoing> values_out{}, cotangents_out{};
        [[nodiscard]] bool sends() const { return !values_out.empty() || !cotangents_out.empty(); }
    };
    /// The devices of stages, and the link by which values enter them.
    struct place {
        std::vector<pipeline_pass> passes{};
        std::size_t next = 0;
        double is_free = 0, link_is_free = 0;
    };
    struct action {
        double start;
        std::size_t stage;
        bool is_transfer, is_values;
    };

    [[nodiscard]] place& of(std::size_t s) { return places_[s % places_.size()]; }
    [[nodiscard]] static std::size_t receiver(std::size_t s, bool is_values) { return is_values ? s + 1 : s - 1; }
    /// Returns the stage that is entered by what lies between a stage and the one that it sends to.
    [[nodiscard]] static std::size_t entered(std::size_t s, bool is_values) { return is_values ? s + 1 : s; }
    /// Returns the devices that have the link by which values enter a stage.
    [[nodiscard]] place& link_into(std::size_t s) { return places_.size() == 2 ? places_[1] : of(s); }
    /// Tells whether devices, by the number of their place, send before they go on.
    [[nodiscard]] bool is_sending(std::size_t d) const {
        for (auto s = d; s < stages_.size() && !sends_beside_; s += places_.size())
            if (stages_[s].sends()) return true;
        return false;
    }

    [[nodiscard]] std::optional<action> first_to_start() {
        std::optional<action> first;
        auto const offer = [&](action a) {
            if (!first || a.start < first->start) first = a;
        };
        for (std::size_t s = 0; s < stages_.size(); ++s)
            for (bool const is_values : {true, false}) {
                auto const& waiting = is_values ? stages_[s].values_out : stages_[s].cotangents_out;
                if (waiting.empty()) continue;
                double const can_start = sends_beside_ ? link_into(entered(s, is_values)).link_is_free
                                                       : std::max(of(s).is_free, of(receiver(s, is_values)).is_free);
                offer({std::max(waiting.front().ready, can_start), s, true, is_values});
            }
        for (std::size_t d = 0; d < places_.size(); ++d) {
            auto const& at = places_[d];
            if (at.next == at.passes.size() || is_sending(d)) continue;
            auto const [is_forward, micro_batch, round] = at.passes[at.next];
            auto const s = round * places_.size() + d;
            auto const& there = is_forward ? stages_[s].values : stages_[s].cotangents;
            if (auto const& since = there[static_cast<std::size_t>(micro_batch)])
                offer({std::max(*since, at.is_free), s, false, is_forward});
        }
        return first;
    }

    void pass(action const& a) {
        auto& at = stages_[a.stage];
        auto& on = of(a.stage);
        auto const& next = on.passes[on.next++];
        bool const is_forward = next.is_forward;
        auto const m = static_cast<int>(next.micro_batch);
        double const duration = is_forward ? at.times.forward : at.times.backward, end = a.start + duration;
        record({a.stage, is_forward ? kind::forward : kind::backward, m, true, a.start, duration});
        on.is_free = end;
        bool const is_last = a.stage + 1 == stages_.size();
        if (is_forward && is_last) at.cotangents[static_cast<std::size_t>(m)] = end;
        else if (is_forward) at.values_out.push_back({m, end});
        else if (a.stage > 0) at.cotangents_out.push_back({m, end});
    }

    void transfer(action const& a) {
        auto& from = stages_[a.stage];
        std::size_t const behind = entered(a.stage, a.is_values), other = receiver(a.stage, a.is_values);
        auto& to = stages_[other];
        auto& waiting = a.is_values ? from.values_out : from.cotangents_out;
        auto const m = waiting.front().micro_batch;
        waiting.pop_front();
        auto const& times = stages_[behind].times;
        double const duration = a.is_values ? times.values : times.cotangents, end = a.start + duration;
        record({a.stage, kind::send, m, a.is_values, a.start, duration});
        if (sends_beside_) link_into(behind).link_is_free = end;
        else {
            record({other, kind::receive, m, a.is_values, a.start, duration});
            of(a.stage).is_free = of(other).is_free = end;
        }
        (a.is_values ? to.values : to.cotangents)[static_cast<std::size_t>(m)] = end;
    }

    /// Each stage reduces its gradients when its passes are done; those that several stages have are added up when all
    /// are.
    void finish() {
        for (std::size_t s = 0; s < stages_.size(); ++s) add(s, kind::gradients, stages_[s].times.gradients);
        if (shared_ > 0) {
            double all = 0;
            for (auto const& p : places_) all = std::max(all, p.is_free);
            for (auto& p : places_) p.is_free = all;
            for (std::size_t s = 0; s < places_.size(); ++s) add(s, kind::shared_gradients, shared_);
        }
        for (std::size_t s = 0; s < stages_.size(); ++s) add(s, kind::update, stages_[s].times.update);
        for (auto const& p : places_) result_.total = std::max(result_.total, p.is_free);
    }
    void add(std::size_t s, kind what, double duration) {
        record({s, what, 0, true, of(s).is_free, duration});
        of(s).is_free += duration;
    }
    void record(staged_event const& e) {
        if (e.duration > 0) result_.events.push_back(e);
    }

    double shared_;
    bool sends_beside_;
    std::vector<place> places_;
    std::vector<stage> stages_;
    staged_timeline result_;
};

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE staged_timeline run_stages(std::vector<stage_times> const& stages, std::size_t places, int micro_batches,
                                         double shared, bool sends_beside) {
    return detail::staged_run(stages, places, micro_batches, shared, sends_beside).run();
}

} // namespace heddle

#endif
