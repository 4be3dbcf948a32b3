// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs an iteration of a plan of stages, pass by pass.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/timeline.hpp>
#include <heddle/pipeline/schedule.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/staged_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <tuple>
#include <vector>

namespace heddle {

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
/// together the reduction of gradients and the update.
///
/// A pass starts when its input is there and the stage is free. If sends block, a transfer occupies both stages, and
/// starts when both are in no pass; the stage that sends goes on behind it. Otherwise it occupies the link between them.
/// *Throws* as `evaluate` does. *Complexity.* O(s^2 m) for s stages and m micro-batches.
[[nodiscard]] staged_timeline simulate(staged_plan const& p, cluster const& c);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

class staged_run {
public:
    staged_run(staged_plan const& p, cluster const& c) : plan_(p), cost_(evaluate(p, c)) {
        std::size_t const stages = p.stages.size();
        for (std::size_t s = 0; s < stages; ++s) {
            auto const& t = cost_.stages[s].time;
            double const whole = t.compute + t.forward_communication + t.backward_communication,
                         forward = whole * forward_part(p.stages[s].plan, cluster_of(c, p.stages[s]));
            stage added{one_f_one_b{}.passes(s, {stages, p.micro_batches}), forward, whole - forward};
            for (auto* there : {&added.values, &added.cotangents})
                there->resize(static_cast<std::size_t>(p.micro_batches));
            if (s == 0) algorithm::fill(added.values, 0.0);
            stages_.push_back(std::move(added));
        }
        link_is_free_.resize(stages);
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
        std::vector<pipeline_pass> passes;
        double forward, backward;
        /// When what comes from the stage before and behind is there, by micro-batch.
        std::vector<std::optional<double>> values{}, cotangents{};
        std::size_t next = 0;
        double is_free = 0;
        /// What waits to be sent.
        std::deque<outgoing> values_out{}, cotangents_out{};
    };
    struct action {
        double start;
        std::size_t stage;
        bool is_transfer, is_values;
    };

    [[nodiscard]] static double forward_part(plan const& p, cluster const& c) {
        double forward = 0, both = 0;
        for (auto const& e : run_serial(p, c).events) {
            if (e.when != timeline_event::phase::forward && e.when != timeline_event::phase::backward) continue;
            auto& end = e.when == timeline_event::phase::forward ? forward : both;
            end = std::max(end, e.start + e.duration);
        }
        return both > 0 ? forward / std::max(forward, both) : 1;
    }
    [[nodiscard]] std::size_t receiver(std::size_t s, bool is_values) const { return is_values ? s + 1 : s - 1; }
    /// The links are numbered by the stage behind them.
    [[nodiscard]] static std::size_t link(std::size_t s, bool is_values) { return is_values ? s + 1 : s; }

    [[nodiscard]] std::optional<action> first_to_start() const {
        std::optional<action> first;
        auto const offer = [&](action a) {
            if (!first || a.start < first->start) first = a;
        };
        for (std::size_t s = 0; s < stages_.size(); ++s)
            for (bool const is_values : {true, false}) {
                auto const& waiting = is_values ? stages_[s].values_out : stages_[s].cotangents_out;
                if (waiting.empty()) continue;
                double const can_start = plan_.sends_beside
                                             ? link_is_free_[link(s, is_values)]
                                             : std::max(stages_[s].is_free, stages_[receiver(s, is_values)].is_free);
                offer({std::max(waiting.front().ready, can_start), s, true, is_values});
            }
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            auto const& at = stages_[s];
            bool const sends = !at.values_out.empty() || !at.cotangents_out.empty();
            if (at.next == at.passes.size() || (sends && !plan_.sends_beside)) continue;
            auto const [is_forward, micro_batch] = at.passes[at.next];
            auto const& there = (is_forward ? at.values : at.cotangents)[static_cast<std::size_t>(micro_batch)];
            if (there) offer({std::max(*there, at.is_free), s, false, is_forward});
        }
        return first;
    }

    void pass(action const& a) {
        auto& at = stages_[a.stage];
        auto const [is_forward, number] = at.passes[at.next++];
        auto const m = static_cast<int>(number);
        double const duration = is_forward ? at.forward : at.backward, end = a.start + duration;
        record({a.stage, is_forward ? kind::forward : kind::backward, m, true, a.start, duration});
        at.is_free = end;
        bool const is_last = a.stage + 1 == stages_.size();
        if (is_forward && is_last) at.cotangents[static_cast<std::size_t>(m)] = end;
        else if (is_forward) at.values_out.push_back({m, end});
        else if (a.stage > 0) at.cotangents_out.push_back({m, end});
    }

    void transfer(action const& a) {
        auto& from = stages_[a.stage];
        std::size_t const behind = link(a.stage, a.is_values), other = receiver(a.stage, a.is_values);
        auto& to = stages_[other];
        auto& waiting = a.is_values ? from.values_out : from.cotangents_out;
        auto const m = waiting.front().micro_batch;
        waiting.pop_front();
        auto const& times = cost_.boundaries[behind];
        double const duration = (a.is_values ? times.values : times.cotangents).value, end = a.start + duration;
        record({a.stage, kind::send, m, a.is_values, a.start, duration});
        if (plan_.sends_beside) link_is_free_[behind] = end;
        else {
            record({other, kind::receive, m, a.is_values, a.start, duration});
            from.is_free = to.is_free = end;
        }
        (a.is_values ? to.values : to.cotangents)[static_cast<std::size_t>(m)] = end;
    }

    /// Each stage reduces its gradients when its passes are done; those that several stages have are added up when all are.
    void finish() {
        double const m = plan_.micro_batches;
        for (std::size_t s = 0; s < stages_.size(); ++s)
            add(s, kind::gradients, m * cost_.stages[s].time.gradient_communication);
        if (double const shared = cost_.time.shared.value; shared > 0) {
            double all = 0;
            for (auto const& s : stages_) all = std::max(all, s.is_free);
            for (std::size_t s = 0; s < stages_.size(); ++s) {
                stages_[s].is_free = all;
                add(s, kind::shared_gradients, shared);
            }
        }
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            add(s, kind::update, m * cost_.stages[s].time.update);
            result_.total = std::max(result_.total, stages_[s].is_free);
        }
    }
    void add(std::size_t s, kind what, double duration) {
        record({s, what, 0, true, stages_[s].is_free, duration});
        stages_[s].is_free += duration;
    }
    void record(staged_event const& e) {
        if (e.duration > 0) result_.events.push_back(e);
    }

    staged_plan const& plan_;
    staged_cost cost_;
    std::vector<stage> stages_;
    std::vector<double> link_is_free_;
    staged_timeline result_;
};

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE staged_timeline simulate(staged_plan const& p, cluster const& c) {
    return detail::staged_run(p, c).run();
}

} // namespace heddle

#endif
