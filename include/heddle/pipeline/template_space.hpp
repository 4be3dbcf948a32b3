// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Pipeline templates as a search problem, built from the last stage to the first.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/device_walk.hpp>
#include <heddle/pipeline/stage_kinds.hpp>
#include <heddle/pipeline/stage_memory.hpp>
#include <heddle/pipeline/template_problem.hpp>
#include <heddle/plan/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace heddle {

struct template_search_state {
    device_walk::state devices = 0;
    /// The position at which the stages behind begin.
    std::size_t position = 0;
    friend bool operator==(template_search_state const&, template_search_state const&) = default;
};

/// Where stages may be cut, and how long they may be. The unit is positions, not layers.
struct template_cuts {
    /// The layer at each position, from 0 to the number of layers, never falling.
    std::vector<std::size_t> layers;
    /// The fewest and most positions that a stage of each kind spans.
    std::vector<std::pair<std::size_t, std::size_t>> spans;

    /// Makes every layer a position, and lets stages be of any length.
    static template_cuts all(std::size_t layers, stage_kinds const& kinds);
};

/// A levelled problem whose goals are the templates that use all devices, except for machines that may be left out, and
/// that are cut at the given cuts.
///
/// A label has the sum of the stages, the slowest stage with the cost it would have as the slowest, and the number of
/// stages. A stage in front becomes the slowest only if it is slower than all behind it, and then costs the same
/// whatever was the slowest before.
template <pipeline_schedule Schedule>
class template_space {
public:
    using state = template_search_state;
    struct label {
        double sum = 0, slowest = 0, cost = 0;
        std::size_t stages = 0;
    };
    struct action {
        std::size_t kind = 0, first = 0, end = 0;
    };

    /// Keeps references. *Precondition:* `detail::check(p, schedule)` passed.
    template_space(template_problem const& p, stage_kinds const& kinds, device_walk const& walk,
                   template_cuts const& cuts, Schedule const& schedule)
        : problem_(p), kinds_(kinds), walk_(walk), cuts_(cuts), schedule_(schedule), memory_(p.memory, false),
          least_slots_(slots(std::min(p.device_count(), p.layer_count()) - 1)) {
        for (auto const& t : p.types) is_limited_ |= t.memory_limit.value < std::numeric_limits<double>::infinity();
    }

    [[nodiscard]] std::pair<state, label> initial() const {
        return {{device_walk::none(), cuts_.layers.size() - 1}, {}};
    }
    [[nodiscard]] bool is_goal(state const& s) const { return s.position == 0 && walk_.is_complete(s.devices); }
    [[nodiscard]] std::size_t level(state const& s) const { return cuts_.layers.size() - 1 - s.position; }
    [[nodiscard]] double total(label const& l) const { return l.cost; }

    [[nodiscard]] double bound(state const& s, label const& l) const {
        auto const end = cuts_.layers[s.position];
        double const slowest = std::max(l.slowest, kinds_.least_slowest(end, walk_, s.devices));
        return (l.sum + kinds_.least_sum(end) + (least_slots_ + (Schedule::counts_tail ? 1 : 0)) * slowest) *
               (1 - 1e-13);
    }

    /// If the tail counts, a stage in front may be slower than the slowest of a and not than that of b. It is then the
    /// slowest of a alone. That costs no more than b: the stages of b in front of its slowest are no slower than that,
    /// and a has no fewer stages.
    [[nodiscard]] bool dominates(label const& a, label const& b) const {
        if (a.sum > b.sum || a.slowest > b.slowest || (is_limited_ && a.stages > b.stages)) return false;
        return !Schedule::counts_tail || (a.cost <= b.cost && a.stages >= b.stages);
    }

    template <class Visit>
    void for_each_successor(state const& s, label const& l, Visit&& visit) const {
        walk_.for_each_choice(s.devices, [&](std::size_t type, std::size_t devices, device_walk::state next) {
            auto const kind = kinds_.number(type, devices);
            auto const [least, most] = cuts_.spans[kind];
            auto const limit = problem_.types[type].memory_limit * static_cast<double>(devices);
            for (std::size_t span = least; span <= std::min(most, s.position); ++span) {
                auto const first = cuts_.layers[s.position - span], end = cuts_.layers[s.position];
                if (first == end) continue;
                if (is_limited_ && memory_.of(first, end, in_flight(l.stages)) > limit) break;
                double const time = kinds_.time(kind, first, end);
                label longer{l.sum + time, l.slowest, l.cost + time, l.stages + 1};
                if (l.stages == 0 || time > l.slowest * (1 + 1e-13)) { // not equal up to rounding
                    longer.slowest = time;
                    longer.cost = (slots(l.stages) + tail_factor) * time + tail_factor * l.sum;
                }
                visit(action{kind, first, end}, state{next, s.position - span}, longer);
            }
        });
    }

    /// Returns the stages of a path, first stage first.
    [[nodiscard]] std::vector<template_stage> stages_of(std::vector<action> const& actions) const {
        std::vector<template_stage> stages;
        for (auto a = actions.rbegin(); a != actions.rend(); ++a) {
            auto const& kind = kinds_.all()[a->kind];
            stages.push_back({kind.type, 0, kind.devices, a->first, a->end});
        }
        return stages;
    }

private:
    static constexpr double tail_factor = Schedule::counts_tail ? 2 : 1;
    [[nodiscard]] double slots(std::size_t behind) const {
        return static_cast<double>(slots_of_slowest(schedule_, problem_.micro_batches, behind));
    }
    [[nodiscard]] std::int64_t in_flight(std::size_t behind) const {
        return schedule_.in_flight(0, {behind + 1, problem_.micro_batches});
    }

    template_problem const& problem_;
    stage_kinds const& kinds_;
    device_walk const& walk_;
    template_cuts const& cuts_;
    Schedule const& schedule_;
    stage_memory memory_;
    double least_slots_;
    bool is_limited_ = false;
};

} // namespace heddle

template <>
struct std::hash<heddle::template_search_state> {
    std::size_t operator()(heddle::template_search_state const& s) const noexcept {
        return (s.devices * 0x9e3779b97f4a7c15u) ^ (s.position * 0xbf58476d1ce4e5b9u);
    }
};

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE template_cuts template_cuts::all(std::size_t layers, stage_kinds const& kinds) {
    template_cuts cuts;
    for (std::size_t l = 0; l <= layers; ++l) cuts.layers.push_back(l);
    cuts.spans.assign(kinds.all().size(), {1, layers});
    return cuts;
}

} // namespace heddle

#endif
