// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs an iteration of micro-batches in turn, event by event: the computation and collectives of every device
/// side by side.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/timeline.hpp>
#include <heddle/plan/plan.hpp>

#include <boost/container/small_vector.hpp>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

struct simulation_options {
    /// If set, slots of `duplex` begin together on all devices, and turning takes its time. Otherwise everything starts
    /// as soon as what it needs is there, in the same order.
    bool barriers = false;
    /// The factor by which work takes longer while collectives run on the device, and collectives while some device
    /// works.
    double slower_work = 1, slower_collectives = 1;
    /// Is added to every collective: the average wait until the last rank is there.
    seconds wait{};
    /// If set, what is gathered or scattered is copied part by part on the network's channel, as by a library that
    /// gives and takes lists of tensors.
    bool copies_parts = false;
    /// If set, parameters are gathered and gradients reduced at their place in the program: when the first micro-batch
    /// has computed what comes before, or the last has computed the gradient; that micro-batch goes on when the
    /// collective is done. Otherwise they run when the network is free.
    bool in_place = false;
    /// If set, a collective on a device that computes starts when the kernel ends that runs or starts at the moment
    /// when the collective could start. Otherwise it starts at once.
    bool between_kernels = false;
};

namespace detail {

/// The simulation of one iteration.
///
/// Devices and the network each have their jobs in the order of the slots of `duplex`. The computation of a micro-batch
/// in a stage needs its collectives there; in the stage after, the collectives need the computation. What kernels wait
/// for has its place in the work: the network takes it when all devices have come to it, and what else it does gives
/// way. Parameters to gather and gradients to reduce run when the network is free, and give way to others; only a
/// parameter that its stage would have to wait for has a place in the order.
class interleaved_run {
public:
    interleaved_run(std::size_t devices, int count, double turn, simulation_options const& options)
        : options_(options), count_(static_cast<std::size_t>(count)), turn_(turn), queues_(devices) {}

    using phase = timeline_event::phase;
    /// A piece of work: the work of one step on each device, or a collective.
    struct piece {
        std::size_t step = 0;
        std::optional<std::size_t> transfer{};
        std::vector<double> seconds;
        /// The number of the work's kernels, which are taken to be equally long.
        int kernels = 1;
    };
    /// A stage in one direction; see `duplex`. Its work has what kernels wait for in between.
    struct stage_side {
        std::vector<piece> work, transfers, urgent, patient, again;
    };
    struct stage {
        stage_side forward, backward;
    };

    timeline run(std::vector<stage> const& stages, std::vector<piece> const& updates,
                 std::vector<piece> const& refreshes);

private:
    static constexpr std::size_t none = ~std::size_t{0};
    using counters = boost::container::small_vector<std::size_t, 4>;
    struct job {
        piece const* what;
        phase when;
        std::size_t micro_batch, slot;
        /// The counters of jobs to be done before this one; and those that this job is counted in.
        counters needs{}, counted{};
        bool may_wait = false;
        double left = 0;
        /// The seconds of each kernel, if this is work; the moment at which it starts, if this is a collective between
        /// kernels.
        double kernel = 0;
        std::optional<double> starts_at{};
    };
    struct queue {
        std::vector<job> jobs;
        std::size_t next = 0;
    };

    std::size_t new_counter();
    /// Makes jobs of the work of a stage, with what its kernels wait for, which follow the work that was added before.
    void add_work(std::vector<piece> const& pieces, phase when, std::size_t micro_batch, std::size_t slot,
                  counters const& needs, std::size_t counter);
    void add_transfers(std::vector<job>& into, std::vector<piece> const& pieces, phase when, std::size_t micro_batch,
                       std::size_t slot, std::size_t need, std::size_t counter, bool may_wait = false);
    void add(std::vector<job>& into, job j);
    /// Makes the next slot; each has the time that turning takes before the next one.
    std::size_t new_slot(double turns);

    void lay_out(std::vector<stage> const& stages);

    [[nodiscard]] bool is_ready(job const& j) const;
    /// Returns what the network does now: what kernels wait for, or else the next job in its order, or one that may
    /// wait.
    job* network_job();

    void record(job const& j, std::size_t device, double start, double end);
    void finish(job& j);

    /// Returns when the kernels end that the devices are in.
    [[nodiscard]] double after_kernels(std::vector<job*> const& running) const;
    /// Goes on to the next moment at which something ends; returns false if nothing is left.
    bool step();

    struct slot_state {
        std::size_t left;
        double turn;
    };
    simulation_options options_;
    std::size_t count_;
    double turn_;
    std::vector<queue> queues_;
    queue network_, waits_, gradients_;
    std::vector<std::size_t> counters_;
    std::vector<slot_state> slots_;
    std::size_t slot_ = 0, waiting_ = 0;
    /// The counters of the work that was added last, by device, and of what kernels waited for last.
    std::vector<std::size_t> last_work_;
    std::size_t held_ = none;
    std::optional<double> opens_at_;
    double now_ = 0;
    std::vector<double> updated_;
    std::vector<std::size_t> last_event_;
    timeline result_;
};

} // namespace detail

/// Returns the events of one iteration of a plan whose micro-batches take turns.
///
/// With `barriers` alone the total is that of `duplex` up to rounding; with no option at all it is no more. Of a stage of
/// a pipeline these are the events of one micro-batch as if it were alone, whose passes meet.
/// *Precondition:* `p.provenance.training.interleaves()`. *Throws* what `evaluate` does.
/// *Complexity.* Linear in the steps, times micro-batches and the square of the devices.
[[nodiscard]] timeline simulate(plan const& p, cluster const& c, simulation_options const& options = {});

/// Returns the events of one iteration of any plan: with turns, those of `simulate`, where slots begin together if
/// turning takes time; otherwise those of `run_serial`.
[[nodiscard]] timeline timeline_of(plan const& p, cluster const& c);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/cost/duplex.hpp>
#include <heddle/plan/buckets.hpp>
#include <heddle/plan/evaluate.hpp>

namespace heddle::detail {

HEDDLE_INLINE timeline interleaved_run::run(std::vector<stage> const& stages, std::vector<piece> const& updates,
                                            std::vector<piece> const& refreshes) {
    lay_out(stages);
    while (step()) {}
    double& now = result_.total = now_;
    for (auto const& p : updates) // all devices at once, each on its own
        for (std::size_t d = 0; d < queues_.size(); ++d) {
            if (p.seconds[d] <= 0) continue;
            result_.events.push_back({p.step, d, phase::update, {}, now + updated_[d], p.seconds[d]});
            updated_[d] += p.seconds[d];
        }
    now += updated_.empty() ? 0 : algorithm::max(updated_);
    for (auto const& p : refreshes) {
        for (std::size_t d = 0; d < queues_.size(); ++d)
            result_.events.push_back({p.step, d, phase::update, p.transfer, now, p.seconds[0]});
        now += p.seconds[0];
    }
    return std::move(result_);
}

HEDDLE_INLINE std::size_t interleaved_run::new_counter() {
    counters_.push_back(0);
    return counters_.size() - 1;
}

HEDDLE_INLINE void interleaved_run::add_work(std::vector<piece> const& pieces, phase when, std::size_t micro_batch,
                                             std::size_t slot, counters const& needs, std::size_t counter) {
    auto const needed = [&] {
        auto all = needs;
        all.push_back(held_);
        return all;
    };
    auto section = new_counter(); // of work without a wait
    for (auto const& p : pieces) {
        if (!p.transfer) {
            for (std::size_t d = 0; d < queues_.size(); ++d) {
                if (p.seconds[d] <= 0) continue;
                last_work_[d] = section;
                add(queues_[d].jobs, {&p,
                                      when,
                                      micro_batch,
                                      slot,
                                      needed(),
                                      {counter, section},
                                      false,
                                      p.seconds[d],
                                      p.seconds[d] / p.kernels});
            }
        } else if (p.seconds[0] > 0) {
            auto before = needed();
            before.insert(before.end(), last_work_.begin(), last_work_.end());
            held_ = new_counter();
            section = new_counter();
            add(waits_.jobs,
                {&p, when, micro_batch, slot, before, {counter, held_}, false, p.seconds[0] + options_.wait.value});
        }
    }
}

HEDDLE_INLINE void interleaved_run::add_transfers(std::vector<job>& into, std::vector<piece> const& pieces, phase when,
                                                  std::size_t micro_batch, std::size_t slot, std::size_t need,
                                                  std::size_t counter, bool may_wait) {
    for (auto const& p : pieces)
        if (p.seconds[0] > 0)
            add(into, {&p, when, micro_batch, slot, {need}, {counter}, may_wait, p.seconds[0] + options_.wait.value});
}

HEDDLE_INLINE void interleaved_run::add(std::vector<job>& into, job j) {
    for (auto c : j.counted)
        if (c != none) ++counters_[c];
    if (j.when != phase::gradient) ++slots_[j.slot].left; // a slot does not wait for gradients
    into.push_back(std::move(j));
}

HEDDLE_INLINE std::size_t interleaved_run::new_slot(double turns) {
    slots_.push_back({0, turns * turn_});
    return slots_.size() - 1;
}

HEDDLE_INLINE void interleaved_run::lay_out(std::vector<stage> const& stages) {
    std::size_t const last = stages.size() - 1, k = count_;
    updated_.assign(queues_.size(), 0.0);
    last_work_.assign(queues_.size(), none);
    std::vector<std::size_t> computed(k, none), arrived(k, none);
    auto const new_counters = [&](std::vector<std::size_t>& list) {
        for (auto& c : list) c = new_counter();
    };
    // What is still to be placed of a stage's computation: that of the last micro-batch, which goes into the first slot
    // of the next stage.
    counters open_needs;
    std::size_t open_counter = none;
    for (std::size_t i = 0; i <= last; ++i) {
        auto const& s = stages[i].forward;
        std::size_t slot = new_slot(0), parameters = new_counter();
        if (i > 0) add_work(stages[i - 1].forward.work, phase::forward, k - 1, slot, open_needs, open_counter);
        auto const before = computed;
        new_counters(computed);
        new_counters(arrived);
        for (std::size_t j = 0; j < k; ++j) {
            if (j > 0) {
                slot = new_slot(j == 1 ? 2 : 1);
                add_work(s.work, phase::forward, j - 1, slot, {arrived[j - 1], parameters}, computed[j - 1]);
            }
            add_transfers(network_.jobs, s.transfers, phase::forward, j, slot, before[j], arrived[j]);
            if (j > 0) continue;
            auto const need = options_.in_place ? before[0] : none;
            add_transfers(network_.jobs, s.urgent, phase::forward, 0, slot, need, parameters);
            add_transfers(network_.jobs, s.patient, phase::forward, 0, slot, need, parameters, !options_.in_place);
        }
        open_needs = {arrived[k - 1], parameters};
        open_counter = computed[k - 1];
    }
    std::size_t slot = new_slot(0), again = new_counter();
    add_work(stages[last].forward.work, phase::forward, k - 1, slot, open_needs, open_counter);
    add_transfers(network_.jobs, stages[last].backward.again, phase::backward, 0, slot, none, again);
    std::vector<std::size_t> const whole = computed;
    arrived = whole; // the first collectives of the backward pass were the forward pass
    for (std::size_t i = last + 1; i-- > 0;) {
        auto const& s = stages[i].backward;
        new_counters(computed);
        std::size_t const next_again = new_counter();
        add_work(s.work, phase::backward, 0, slot, {arrived[0], again}, computed[0]);
        auto const to_arrive = arrived;
        new_counters(arrived);
        for (std::size_t j = 1; j < k; ++j) {
            slot = new_slot(j == 1 ? 2 : 1);
            add_work(s.work, phase::backward, j, slot, {to_arrive[j], again}, computed[j]);
            add_transfers(network_.jobs, s.transfers, phase::backward, j - 1, slot, computed[j - 1], arrived[j - 1]);
            if (j == k - 1 && i > 0)
                add_transfers(network_.jobs, stages[i - 1].backward.again, phase::backward, 0, slot, none, next_again);
        }
        slot = new_slot(0);
        auto const counter = options_.in_place ? arrived[k - 1] : none;
        add_transfers(options_.in_place ? network_.jobs : gradients_.jobs, s.patient, phase::gradient, 0, slot,
                      computed[k - 1], counter);
        add_transfers(network_.jobs, s.transfers, phase::backward, k - 1, slot, computed[k - 1], arrived[k - 1]);
        add_transfers(network_.jobs, s.urgent, phase::backward, 0, slot, computed[k - 1], counter);
        again = next_again;
    }
}

HEDDLE_INLINE bool interleaved_run::is_ready(job const& j) const {
    if (options_.barriers && j.slot > slot_) return false;
    return algorithm::all_of(j.needs, [&](std::size_t c) { return c == none || counters_[c] == 0; });
}

HEDDLE_INLINE interleaved_run::job* interleaved_run::network_job() {
    auto& w = waits_;
    while (w.next < w.jobs.size() && w.jobs[w.next].left <= 0) ++w.next;
    if (w.next < w.jobs.size() && is_ready(w.jobs[w.next])) return &w.jobs[w.next];
    auto& [jobs, next] = network_;
    while (next < jobs.size() && jobs[next].left <= 0) ++next;
    if (next < jobs.size() && (jobs[next].may_wait || is_ready(jobs[next]))) return &jobs[next];
    for (auto n = std::max(next, waiting_); n < jobs.size(); ++n) {
        waiting_ = n;
        if (jobs[n].may_wait && jobs[n].left > 0) return &jobs[n];
    }
    waiting_ = jobs.size();
    auto& g = gradients_;
    while (g.next < g.jobs.size() && g.jobs[g.next].left <= 0) ++g.next;
    return g.next < g.jobs.size() && is_ready(g.jobs[g.next]) ? &g.jobs[g.next] : nullptr;
}

HEDDLE_INLINE void interleaved_run::record(job const& j, std::size_t device, double start, double end) {
    if (end <= start) return;
    auto& events = result_.events;
    auto& last = last_event_[device * 2 + (j.what->transfer ? 1 : 0)];
    if (last != none && events[last].step == j.what->step && events[last].when == j.when &&
        events[last].transfer == j.what->transfer && events[last].micro_batch == static_cast<int>(j.micro_batch) &&
        events[last].start + events[last].duration == start) {
        events[last].duration = end - events[last].start;
        return;
    }
    last = events.size();
    events.push_back(
        {j.what->step, device, j.when, j.what->transfer, start, end - start, static_cast<int>(j.micro_batch)});
}

HEDDLE_INLINE void interleaved_run::finish(job& j) {
    j.left = 0;
    for (auto c : j.counted)
        if (c != none) --counters_[c];
    if (j.when != phase::gradient) --slots_[j.slot].left;
}

HEDDLE_INLINE double interleaved_run::after_kernels(std::vector<job*> const& running) const {
    double last = now_;
    for (auto const* j : running) {
        if (!j) continue;
        double const rest = std::fmod(j->left, j->kernel);
        last = std::max(last, now_ + (rest < j->kernel * 1e-9 ? j->kernel : rest));
    }
    return last;
}

HEDDLE_INLINE bool interleaved_run::step() {
    if (last_event_.empty()) last_event_.assign(2 * queues_.size(), none);
    if (options_.barriers && slot_ < slots_.size() && slots_[slot_].left == 0 && !opens_at_)
        opens_at_ = now_ + slots_[slot_].turn;
    if (opens_at_ && *opens_at_ <= now_) {
        ++slot_;
        opens_at_.reset();
        return true;
    }
    std::vector<job*> running(queues_.size(), nullptr);
    bool works = false;
    for (std::size_t d = 0; d < queues_.size(); ++d) {
        auto& q = queues_[d];
        while (q.next < q.jobs.size() && q.jobs[q.next].left <= 0) ++q.next;
        if (q.next < q.jobs.size() && is_ready(q.jobs[q.next])) running[d] = &q.jobs[q.next], works = true;
    }
    job* carried = network_job();
    if (!works && !carried && !opens_at_) return false;
    if (carried && options_.between_kernels && !carried->starts_at) carried->starts_at = after_kernels(running);
    double const wait = carried && carried->starts_at && *carried->starts_at > now_ ? *carried->starts_at - now_ : 0;
    if (wait > 0) carried = nullptr;
    double const work_rate = carried ? 1 / options_.slower_work : 1,
                 network_rate = works ? 1 / options_.slower_collectives : 1;
    double length = opens_at_ ? *opens_at_ - now_ : std::numeric_limits<double>::infinity();
    for (auto* j : running)
        if (j) length = std::min(length, j->left / work_rate);
    if (carried) length = std::min(length, carried->left / network_rate);
    if (wait > 0) length = std::min(length, wait);
    double const end = opens_at_ && length >= *opens_at_ - now_ ? *opens_at_ : now_ + length;
    auto const advance = [&](job& j, double rate) {
        j.left = j.left / rate <= length * (1 + 1e-12) ? 0 : j.left - length * rate;
        if (j.left <= 0) finish(j);
    };
    for (std::size_t d = 0; d < queues_.size(); ++d) {
        if (carried) record(*carried, d, now_, end);
        if (!running[d]) continue;
        record(*running[d], d, now_, end);
        advance(*running[d], work_rate);
    }
    if (carried) advance(*carried, network_rate);
    now_ = end;
    return true;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE timeline simulate(plan const& p, cluster const& c, simulation_options const& options) {
    auto const model = per_device_model(c, p);
    if (model.class_count() != p.devices.size())
        throw input_error("cluster '" + c.name + "'", "has " + std::to_string(model.class_count()) +
                                                          " devices, the plan is for " +
                                                          std::to_string(p.devices.size()) + ", expected as many");
    auto const shares = shares_of(p);
    auto const& training = p.provenance.training;
    duplex const clock(model.class_count(), training);
    double slowest = model.bandwidth(0);
    for (std::size_t k = 1; k < model.class_count(); ++k) slowest = std::min(slowest, model.bandwidth(k));
    using run = detail::interleaved_run;
    std::vector<run::stage> stages(1);
    std::vector<run::piece> updates, refreshes;
    auto label = clock.initial();
    auto forced = p.stages.begin();
    auto const gradients = gradient_collectives(p, model, shares);
    for (std::size_t n = 0; n < p.steps.size(); ++n) {
        auto const& s = p.steps[n].step;
        auto const price = model.price(s, shares);
        bool const begins = forced != p.stages.end() && *forced == n;
        if (begins) ++forced, clock.close(label);
        if (begins || duplex::ends_stage(label, price)) stages.emplace_back();
        clock.extend(label, price);
        auto const add_one = [&](std::vector<run::piece>& into, std::size_t t, collective kind, double taken,
                                 bytes carried) {
            bool const has_parts = kind == collective::all_gather || kind == collective::reduce_scatter;
            double const copied = options.copies_parts && has_parts && taken > 0 ? 2 * carried.value : 0;
            into.push_back({n, t, {taken + copied / slowest}});
        };
        auto const add = [&](std::vector<run::piece>& into, transfer_list const& transfers) {
            for (std::size_t t = 0; t < transfers.size(); ++t) {
                auto const chosen = model.decided(transfers[t], shares);
                add_one(into, t, transfers[t].kind, chosen.seconds, payload(chosen.what, model.ranks(), shares));
            }
        };
        auto const part = [&](per_class const& all, local_work const& work) {
            run::piece mine{n, {}, {all.begin(), all.end()}, std::max(1, work.launches + work.kernels_beside)};
            for (auto& x : mine.seconds) x /= s.once ? training.micro_batches : 1;
            return mine;
        };
        auto& [forward, backward] = stages.back();
        bool const is_unsharded = s.transient.value > 0;
        std::vector<run::piece> work_back{part(price.backward, s.backward)};
        if (s.waits) {
            add(forward.work, s.forward_transfers);
            add(work_back, s.backward_transfers);
        } else {
            add(!s.once ? forward.transfers : is_unsharded ? forward.urgent : forward.patient, s.forward_transfers);
            add(!s.once ? backward.transfers : is_unsharded ? backward.urgent : backward.again, s.backward_transfers);
        }
        if (!s.reduces_gradients()) add(backward.patient, s.deferred_transfers);
        else if (!s.deferred_transfers.empty())
            add_one(backward.patient, 0, s.deferred_transfers[0].kind, gradients[n].seconds, gradients[n].payload);
        forward.work.push_back(part(price.forward, s.forward));
        backward.work.insert(backward.work.begin(), work_back.begin(), work_back.end());
        updates.push_back({n, {}, {price.update.begin(), price.update.end()}});
        add(refreshes, s.update_transfers);
    }
    return run(model.class_count(), training.micro_batches, training.turn.value, options)
        .run(stages, updates, refreshes);
}

HEDDLE_INLINE timeline timeline_of(plan const& p, cluster const& c) {
    auto const& training = p.provenance.training;
    if (!training.interleaves()) return run_serial(p, c);
    return simulate(p, c, {.barriers = training.turn.value > 0});
}

} // namespace heddle

#endif
