// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans programs in one segment, and with ratios for each of several.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/concepts.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/balance_program.hpp>
#include <heddle/synthesis/planning_options.hpp>

#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Indexes a program of some type, with factors and sizes of its own for each segment of operators. Without segments
/// the program is one segment.
using program_indexer = std::function<indexed_program(std::vector<segment_number> const&)>;

/// Indexes a program whenever it is asked to. It keeps a reference to the program.
template <single_device_program Program>
[[nodiscard]] program_indexer indexer_of(Program const& program) {
    return [&program](std::vector<segment_number> const& segments) {
        return segments.empty() ? index_program(program) : index_program(program, segments);
    };
}

/// Plans an indexed program, from ratios per device by segment or, if there are none, from starts of its own.
using indexed_planner =
    std::function<plan(indexed_program const&, planning_options const&, std::optional<ratio_table> const&)>;

namespace detail {

/// Returns the two segments whose ratios differ least over all devices. *Precondition:* there are two at least.
[[nodiscard]] std::pair<segment_number, segment_number> nearest_segments(ratio_table const& ratios);

/// Continues from a plan in one segment: gives all segments ratios of their own; then, one pair after the other, lets
/// the segments whose ratios are nearest have equal ratios again; keeps the cheapest plan. It ends when `until` says
/// so.
[[nodiscard]] plan refine_by_segments(program_indexer const& index, planning_options options, plan best,
                                      search::deadline const& until, indexed_planner const& plan_from);

} // namespace detail

/// Plans a program in one segment and, if segments are asked for, continues in those. `plan_from` plans one indexed
/// program.
/// *Throws* `input_error` for a cluster that `validate` refuses, a program that is not well formed, or segments that do
/// not fit it or the solver.
[[nodiscard]] plan plan_in_segments(program_indexer const& index, cluster const& c, planning_options options,
                                    ratio_balancer const& balance, indexed_planner const& plan_from);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/search/outcome.hpp>
#include <heddle/synthesis/pins.hpp>
#include <heddle/synthesis/segments.hpp>
#include <heddle/theory/batch.hpp>
#include <heddle/theory/recomputation.hpp>

namespace heddle::detail {

HEDDLE_INLINE std::pair<segment_number, segment_number> nearest_segments(ratio_table const& ratios) {
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

HEDDLE_INLINE plan refine_by_segments(program_indexer const& index, planning_options options, plan best,
                                      search::deadline const& until, indexed_planner const& plan_from) {
    auto segments = numbered_in_order(options.segments);
    auto const start = best.ratios.front();
    for (;;) {
        auto indexed = index(segments);
        recompute(indexed, options.training.recomputes, options.training.in_flight);
        std::size_t const count = segment_count(indexed);
        if (count == 1) return best;
        if (auto const reached = until.reached(); reached != search::limit_kind::none) {
            if (best.which_limit == search::limit_kind::none) best.which_limit = reached;
            search::conclude(best, best.cost(), best.lower_bound);
            return best;
        }
        options.limits = until.rest(options.limits);
        auto found = plan_from(indexed, options, ratio_table(count, start));
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

namespace heddle {

HEDDLE_INLINE plan plan_in_segments(program_indexer const& index, cluster const& c, planning_options options,
                                    ratio_balancer const& balance, indexed_planner const& plan_from) {
    validate(c);
    auto indexed = index({});
    if (!options.segments.empty()) {
        if (options.segments.size() != indexed.operators.size())
            throw input_error("segments",
                              "there are " + std::to_string(options.segments.size()) + ", expected one per operator");
        if (has_groups(c)) throw input_error("segments", "device groups are planned in one segment only");
        std::size_t const count = algorithm::max(numbered_in_order(options.segments)) + std::size_t{1};
        if (!balance.takes(count, false)) throw input_error("segments", "the ratio solver does not take so many");
    }
    if (has_groups(c)) split_inside(indexed);
    recompute(indexed, options.training.recomputes, options.training.in_flight);
    find_cuts(indexed, options.pinned);
    search::deadline const until(options.limits);
    plan one = plan_from(indexed, options, std::nullopt);
    return options.segments.empty() || !one.exists()
               ? one
               : detail::refine_by_segments(index, std::move(options), std::move(one), until, plan_from);
}

} // namespace heddle

#endif
