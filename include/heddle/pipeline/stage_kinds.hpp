// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The kinds of stages that a cluster allows, and what all devices together can do at most.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/device_walk.hpp>
#include <heddle/pipeline/layer_assignment_problem.hpp>
#include <heddle/pipeline/template_problem.hpp>
#include <heddle/plan/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// A number of devices of one type.
struct stage_kind {
    std::size_t type = 0, devices = 1;
};

/// Returns how often the slowest stage counts besides once in the sum of all, by the number of stages behind it.
/// *Precondition:* the schedule has one stage per device.
template <pipeline_schedule Schedule>
[[nodiscard]] std::int64_t slots_of_slowest(Schedule const& schedule, std::int64_t micro_batches, std::size_t behind) {
    // With n stages it is stage k = n - 1 - behind. If the tail counts, the weight falls by one per stage and k is
    // added.
    return schedule.bottleneck_weight({behind + 1, micro_batches});
}

namespace detail {

/// *Precondition:* there are machines.
[[nodiscard]] std::size_t any_type(template_problem const& p);

/// Returns the least that a device of a type needs for a unit of work, over all layers that have work.
[[nodiscard]] double inverse_speed(template_problem const& p, std::size_t type, std::span<double const> work);

} // namespace detail

/// Returns what one micro-batch costs at least if many keep all devices busy, whichever device does which layer.
/// *Precondition:* `detail::check(p)` passed. *Complexity.* O(types * layers).
[[nodiscard]] seconds least_time_per_micro_batch(template_problem const& p);

/// All kinds of stages, with the times of all layers.
class stage_kinds {
public:
    /// *Precondition:* `detail::check(p)` passed.
    explicit stage_kinds(template_problem const& p);

    [[nodiscard]] std::span<stage_kind const> all() const { return kinds_; }
    [[nodiscard]] std::size_t number(std::size_t type, std::size_t devices) const { return numbers_[type][devices]; }
    /// Returns the seconds of the layers [first, end) on a kind, as a difference of sums.
    [[nodiscard]] double time(std::size_t kind, std::size_t first, std::size_t end) const {
        return before_[kind][end] - before_[kind][first];
    }

    /// Returns the seconds that the layers before `end` take at least, wherever they are.
    [[nodiscard]] double least_sum(std::size_t end) const { return least_before_[end]; }
    /// Returns the seconds that the slowest of the stages with the layers before `end` takes at least if they are on
    /// the devices left: a device does at most the work that it is best at.
    [[nodiscard]] double least_slowest(std::size_t end, device_walk const& walk, device_walk::state taken) const;

private:
    std::size_t layers_;
    std::vector<stage_kind> kinds_;
    std::vector<std::vector<std::size_t>> numbers_;
    std::vector<std::vector<double>> before_;
    /// Seconds per layer on one device of some type; and, by type, the least that a device needs for a second of it.
    std::vector<double> work_, inverse_speed_;
    std::vector<double> least_before_, work_before_;
};

/// Returns what an iteration takes at least on these machines, whatever the template.
/// *Precondition:* `detail::check(p)` passed. *Complexity.* That of reading the profile.
template <pipeline_schedule Schedule>
[[nodiscard]] seconds template_lower_bound(template_problem const& p, stage_kinds const& kinds, device_walk const& walk,
                                           Schedule const& schedule) {
    auto const layers = p.layer_count();
    auto const slots = slots_of_slowest(schedule, p.micro_batches, std::min(p.device_count(), layers) - 1);
    auto const times = static_cast<double>(slots + (Schedule::counts_tail ? 1 : 0));
    return seconds(kinds.least_sum(layers) + times * kinds.least_slowest(layers, walk, device_walk::none()));
}

namespace detail {

/// *Throws* `input_error` if the schedule cannot run with as many stages as there may be.
template <pipeline_schedule Schedule>
void check(template_problem const& p, Schedule const& schedule) {
    check(p);
    if (schedule.stages_per_device() != 1)
        throw input_error("template", "the schedule has several stages per device, expected one");
    auto const stages = std::min(p.device_count(), p.layer_count());
    if (!schedule.can_run({stages, p.micro_batches}))
        throw input_error("template", "the schedule cannot run " + std::to_string(p.micro_batches) +
                                          " micro-batches on the " + std::to_string(stages) + " stages there may be");
}

} // namespace detail
} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE std::size_t any_type(template_problem const& p) {
    std::size_t type = 0;
    while (p.types[type].device_count() == 0) ++type;
    return type;
}

HEDDLE_INLINE double inverse_speed(template_problem const& p, std::size_t type, std::span<double const> work) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t l = 0; l < work.size(); ++l)
        if (work[l] > 0) least = std::min(least, p.time_on(type, l, 1).value / work[l]);
    return least;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE seconds least_time_per_micro_batch(template_problem const& p) {
    std::vector<double> work;
    double all = 0, capacity = 0;
    for (std::size_t l = 0; l < p.layer_count(); ++l)
        all += work.emplace_back(p.time_on(detail::any_type(p), l, 1).value);
    for (std::size_t t = 0; t < p.types.size(); ++t)
        if (auto const n = p.types[t].device_count())
            capacity += static_cast<double>(n) / detail::inverse_speed(p, t, work);
    return seconds(capacity > 0 ? all / capacity : 0);
}

HEDDLE_INLINE stage_kinds::stage_kinds(template_problem const& p)
    : layers_(p.layer_count()), numbers_(p.types.size()), inverse_speed_(p.types.size()) {
    for (std::size_t l = 0; l < layers_; ++l) work_.push_back(p.time_on(detail::any_type(p), l, 1).value);
    for (std::size_t t = 0; t < p.types.size(); ++t) {
        auto const& type = p.types[t];
        if (type.device_count() == 0) continue;
        inverse_speed_[t] = detail::inverse_speed(p, t, work_);
        numbers_[t].resize(type.devices_per_machine + 1);
        for (std::size_t group = 1; group <= type.devices_per_machine; ++group) {
            if (!p.may_take(t, 0, group)) continue; // nor any later ones of a machine
            numbers_[t][group] = kinds_.size();
            kinds_.push_back({t, group});
            auto& before = before_.emplace_back(1, 0.0);
            for (std::size_t l = 0; l < layers_; ++l) before.push_back(before.back() + p.time_on(t, l, group).value);
        }
    }
    least_before_.assign(1, 0.0);
    work_before_.assign(1, 0.0);
    for (std::size_t l = 0; l < layers_; ++l) {
        double least = std::numeric_limits<double>::infinity();
        for (auto const& k : kinds_) least = std::min(least, p.time_on(k.type, l, k.devices).value);
        least_before_.push_back(least_before_.back() + least);
        work_before_.push_back(work_before_.back() + work_[l]);
    }
}

HEDDLE_INLINE double stage_kinds::least_slowest(std::size_t end, device_walk const& walk,
                                                device_walk::state taken) const {
    double capacity = 0;
    for (std::size_t t = 0; t < inverse_speed_.size(); ++t)
        if (auto const left = walk.devices_left(taken, t)) capacity += static_cast<double>(left) / inverse_speed_[t];
    return capacity > 0 ? work_before_[end] / capacity : 0;
}

} // namespace heddle

#endif
