// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Assigns consecutive layers to pipeline stages, exactly.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/pipeline/layer_assignment_problem.hpp>
#include <heddle/pipeline/stage_memory.hpp>
#include <heddle/plan/schedule.hpp>
#include <heddle/search/limits.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/search/partition/partition.hpp>
#include <heddle/search/partition/partition_with_tail.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

struct layer_assignment_options {
    /// Labels are pairs of a stage and a layer.
    search::limits limits{};
    /// The search looks only for assignments that are faster than this.
    seconds cutoff{std::numeric_limits<double>::infinity()};
};

/// The time of an iteration by term, and the memory of every stage.
struct pipeline_cost {
    seconds total, slowest;
    /// The times by stage; and by boundary, which are one fewer.
    std::vector<seconds> stages, boundaries;
    std::vector<bytes> memory;
};

struct layer_assignment : search::outcome<seconds> {
    /// Stage s holds the layers [cuts[s], cuts[s + 1]). It is empty if nothing was found.
    std::vector<std::size_t> cuts;
    std::optional<pipeline_cost> cost;
    std::optional<memory_shortage> shortage;
    search::partition_statistics statistics;

    [[nodiscard]] std::size_t stage_count() const { return cuts.empty() ? 0 : cuts.size() - 1; }
};

namespace detail {

template <pipeline_schedule Schedule>
class layer_assigner {
public:
    layer_assigner(layer_assignment_problem const& p, Schedule const& schedule)
        : problem_(p), schedule_(schedule), stages_(p.devices.size() * schedule.stages_per_device()),
          memory_(p.memory, p.recompute) {
        if (!schedule.can_run(p.shape()))
            throw input_error("layer assignment", "the schedule cannot run " + std::to_string(p.micro_batches) +
                                                      " micro-batches on " + std::to_string(p.devices.size()) +
                                                      " devices");
        partition_.largest_weight = schedule.bottleneck_weight(p.shape());
        for (std::size_t t = 0; t < p.times.size(); ++t) {
            auto& row = partition_.sizes.emplace_back();
            for (std::size_t l = 0; l < p.layer_count(); ++l) row.push_back(p.time_on(t, l).value);
        }
        bool limited = false;
        for (std::size_t s = 0; s < stages_; ++s) {
            partition_.kinds.push_back(p.devices[p.device_of(s)].type);
            limited |= limit(s).value < std::numeric_limits<double>::infinity();
            if (p.links.empty() || s + 1 == stages_) continue;
            auto& row = partition_.cut_costs.emplace_back();
            for (std::size_t l = 0; l < p.layer_count(); ++l) row.push_back(p.boundary(s, l).value);
        }
        if (limited)
            for (std::size_t s = 0; s < stages_; ++s) partition_.reach.push_back(memory_.reach(limit(s), in_flight(s)));
    }

    layer_assignment run(layer_assignment_options const& o) {
        search::partition_options const options{o.limits, o.cutoff.value};
        auto found = Schedule::counts_tail ? search::partition_with_tail(partition_, options)
                                           : search::partition(partition_, options);
        layer_assignment out{{found.status, found.which_limit, seconds(found.lower_bound)},
                             std::move(found.cuts),
                             {},
                             {},
                             found.statistics};
        if (!out.cuts.empty()) {
            out.cost = cost(out.cuts);
            if (out.status == search::status::optimal) out.lower_bound = out.cost->total;
        } else if (out.status == search::status::infeasible) {
            explain(out, o);
        }
        return out;
    }

    [[nodiscard]] pipeline_cost cost(std::span<std::size_t const> cuts) const {
        pipeline_cost c;
        seconds tail;
        std::size_t slowest = 0;
        for (std::size_t s = 0; s < stages_; ++s) {
            seconds time;
            for (auto l = cuts[s]; l < cuts[s + 1]; ++l) time += problem_.time_on(partition_.kinds[s], l);
            c.stages.push_back(time);
            if (time.value >= c.slowest.value * (1 - 1e-13)) { // equal up to rounding
                c.slowest = std::max(c.slowest, time);
                slowest = s;
                tail = {};
            }
            tail += time;
            c.total += time;
            c.memory.push_back(memory_.of(cuts[s], cuts[s + 1], in_flight(s)));
            if (s == 0) continue;
            c.boundaries.push_back(problem_.boundary(s - 1, cuts[s]));
            c.total += c.boundaries.back();
        }
        c.total += static_cast<double>(partition_.largest_weight) * c.slowest;
        if (Schedule::counts_tail) c.total += static_cast<double>(slowest) * c.slowest + tail;
        return c;
    }

private:
    [[nodiscard]] std::int64_t in_flight(std::size_t stage) const {
        return schedule_.in_flight(stage, problem_.shape());
    }
    [[nodiscard]] bytes limit(std::size_t stage) const {
        return problem_.devices[problem_.device_of(stage)].memory_limit /
               static_cast<double>(schedule_.stages_per_device());
    }

    void explain(layer_assignment& out, layer_assignment_options const& o) const {
        std::size_t const layers = problem_.layer_count();
        if (stages_ > layers) {
            out.reason =
                std::to_string(stages_) + " stages for " + std::to_string(layers) + " layers: every stage needs one";
            return;
        }
        if (!partition_.reach.empty()) out.shortage = shortage();
        if (out.shortage) {
            auto const& [stage, first, end, needed, limit] = *out.shortage;
            out.reason = "stage " + std::to_string(stage) + " cannot hold layers " + std::to_string(first) + " to " +
                         std::to_string(end - 1) + ", which need " + gigabytes(needed) + " GB of its " +
                         gigabytes(limit) + " GB with " + std::to_string(in_flight(stage)) + " micro-batches in flight";
        } else {
            out.reason = "no assignment takes less than " + std::to_string(o.cutoff.value) + " s";
        }
    }
    static std::string gigabytes(bytes b) {
        char text[32];
        std::snprintf(text, sizeof text, "%.4g", b.value / 1e9);
        return text;
    }

    /// Returns the first stage that can hold no layer wherever it may begin, or the last stage if it cannot hold the
    /// least that may be left.
    [[nodiscard]] std::optional<memory_shortage> shortage() const {
        std::size_t const layers = problem_.layer_count();
        std::vector<bool> begins(layers + 1);
        begins[0] = true;
        for (std::size_t s = 0; s < stages_; ++s) {
            std::vector<bool> ends(layers + 1);
            memory_shortage least{s, 0, 0, bytes(std::numeric_limits<double>::infinity()), limit(s)};
            bool any = false;
            for (std::size_t first = 0, filled = 0; first < layers; ++first) {
                if (!begins[first]) continue;
                bool const last = s + 1 == stages_;
                if (bytes const needed = memory_.of(first, last ? layers : first + 1, in_flight(s));
                    needed < least.needed)
                    least = {s, first, last ? layers : first + 1, needed, limit(s)};
                std::size_t const end = std::min(partition_.reach[s][first], layers - (stages_ - 1 - s));
                for (filled = std::max(filled, first); filled < end;) {
                    ends[++filled] = true;
                    any = true;
                }
            }
            if (!any || (s + 1 == stages_ && !ends[layers])) return least;
            begins = std::move(ends);
        }
        return {};
    }

    layer_assignment_problem const& problem_;
    Schedule const& schedule_;
    std::size_t stages_;
    stage_memory memory_;
    search::partition_problem partition_;
};

} // namespace detail

/// Returns the time and memory of an assignment, whether or not it fits. *Precondition:* cuts rise strictly from 0 to
/// the number of layers, over as many stages as the schedule has. *Throws* `input_error`.
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] pipeline_cost cost_of(layer_assignment_problem const& p, std::span<std::size_t const> cuts,
                                    Schedule const& schedule = {}) {
    detail::check(p);
    return detail::layer_assigner<Schedule>(p, schedule).cost(cuts);
}

/// Returns the fastest assignment of layers to all devices. Among equally fast ones it has the lexicographically
/// smallest cuts; if the schedule's tail counts, it is the same one every time.
///
/// A stage must hold a layer, and what its layers need with the micro-batches in flight must fit its device. If there
/// are several stages on a device, each has an equal part of the limit, which is sufficient but not necessary.
/// *Returns* `optimal`, `infeasible` with the reason, or `limit`. It is optimal up to the rounding of
/// `search::partition`. *Throws* `input_error` before work starts.
/// *Complexity.* That of `search::partition` or `search::partition_with_tail`: O(stages * layers) per threshold, tens
/// of thresholds as a rule.
/// *Reference.* AMP section 3.5 solves the same problem in O(stages * layers^4).
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] layer_assignment assign_layers(layer_assignment_problem const& p, layer_assignment_options const& o = {},
                                             Schedule const& schedule = {}) {
    detail::check(p);
    return detail::layer_assigner<Schedule>(p, schedule).run(o);
}

/// Returns the fastest assignment to the first n devices, for any n of at least one; among equally fast ones, that to
/// the fewest devices. Numbers of devices that the schedule cannot run are skipped. It *throws* and *returns* what
/// `assign_layers` does; statistics and limits are for all n together.
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] layer_assignment assign_layers_to_some(layer_assignment_problem p, layer_assignment_options o = {},
                                                     Schedule const& schedule = {}) {
    detail::check(p);
    layer_assignment best;
    best.lower_bound = o.cutoff;
    best.reason = "the schedule can run on no number of the devices";
    auto const all = std::exchange(p.devices, {});
    for (auto const& device : all) {
        p.devices.push_back(device);
        bool const is_possible =
            p.devices.size() == 1 || p.devices.size() * schedule.stages_per_device() <= p.layer_count();
        if (!schedule.can_run(p.shape()) || !is_possible) continue;
        auto found = assign_layers(p, o, schedule);
        best.statistics += found.statistics;
        if (auto& labels = o.limits.labels) *labels -= std::min(*labels, found.statistics.cells);
        if (o.limits.seconds) *o.limits.seconds -= found.statistics.seconds;
        best.lower_bound = std::min(best.lower_bound, found.lower_bound);
        if (found.cost && found.cost->total < o.cutoff) {
            o.cutoff = found.cost->total;
            best.cuts = std::move(found.cuts);
            best.cost = std::move(found.cost);
            best.reason.clear();
            best.shortage.reset();
        } else if (!best.cost) {
            best.reason = std::move(found.reason);
            best.shortage = found.shortage;
        }
        best.which_limit = found.which_limit;
        if (found.status == search::status::limit) break;
    }
    search::conclude(best, best.cost ? std::optional(best.cost->total) : std::nullopt, best.lower_bound, o.cutoff);
    return best;
}

} // namespace heddle
