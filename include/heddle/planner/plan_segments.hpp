// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans with ratios for each segment, from a plan in one segment.
#pragma once

#include <heddle/planner/hap_run.hpp>
#include <heddle/planner/segments.hpp>

#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

namespace heddle::detail {

/// The two segments whose ratios differ least over all devices. *Precondition:* there are two at least.
[[nodiscard]] inline std::pair<segment_number, segment_number> nearest_segments(ratio_table const& ratios) {
    std::pair<segment_number, segment_number> nearest{0, 1};
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t a = 0; a < ratios.size(); ++a)
        for (std::size_t b = a + 1; b < ratios.size(); ++b) {
            double distance = 0;
            for (std::size_t d = 0; d < ratios[a].size(); ++d) distance += std::abs(ratios[a][d] - ratios[b][d]);
            if (distance < least) {
                least = distance;
                nearest = {static_cast<segment_number>(a), static_cast<segment_number>(b)};
            }
        }
    return nearest;
}

/// Goes on from a plan in one segment: all segments with ratios of their own, then, one pair after the other, segments whose ratios
/// are nearest get the same again; keeps the cheapest. A time limit counts from `start_time`.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan plan_segments(Program const& program, cluster const& c, Solver& solver, hap_options options, plan best, std::chrono::steady_clock::time_point start_time) {
    auto const whole_limit = options.time_limit_seconds;
    auto segments = numbered_in_order(options.segments);
    auto const start = best.ratios.front();
    for (;;) {
        auto const indexed = index_program(program, segments);
        std::size_t const count = segment_count(indexed);
        if (count == 1) return best;
        if (options.stop.stop_requested()) {
            if (best.status == search::status::feasible) best.status = search::status::limit;
            if (best.status == search::status::limit) best.which_limit = search::limit_kind::stopped;
            return best;
        }
        if (whole_limit) {
            double const left = *whole_limit - std::chrono::duration<double>(std::chrono::steady_clock::now() - start_time).count();
            if (left <= 0) return best;
            options.time_limit_seconds = left;
        }
        auto found = with_accumulator(indexed, c, solver, options, [&](auto&& run) { return run.run_from(ratio_table(count, start)); });
        if (!found.exists()) return best;
        best.statistics += found.statistics;
        auto const [kept, merged] = nearest_segments(found.ratios);
        bool const is_better = found.cost() < best.cost();
        if (is_better) {
            found.baselines = best.baselines;
            found.other_baselines = best.other_baselines;
            found.statistics = best.statistics;
            found.trajectory.insert(found.trajectory.begin(), best.trajectory.begin(), best.trajectory.end());
            best = std::move(found);
        } else if (!best.segments.empty()) {
            return best;
        }
        for (auto& s : segments)
            if (s == merged) s = kept;
        segments = numbered_in_order(std::move(segments));
    }
}

} // namespace heddle::detail
