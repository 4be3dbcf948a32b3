// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The HAP planner: program synthesis at fixed ratios and ratios of a fixed program, in turn.
///
/// HAP (EuroSys '24), sections 3 to 5.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/synthesis/balance_program.hpp>
#include <heddle/synthesis/plan_segments.hpp>
#include <heddle/synthesis/planning_options.hpp>

#include <optional>
#include <string>
#include <utility>

namespace heddle {

using hap_options = planning_options;

namespace detail {

/// Plans a program of any type by any solver, as `plan_hap` does.
[[nodiscard]] plan plan_hap(program_indexer const& index, cluster const& c, ratio_balancer const& balance,
                            hap_options const& options);

} // namespace detail

/// Plans a program on a cluster.
///
/// Alternates between the best program at fixed ratios and the best ratios of a fixed program, from
/// compute-proportional and from even ratios. It prices every pair on integral shards, baselines included, and returns
/// the cheapest that fits into memory, with a bound for its shares. Each device group is planned as one device, which
/// is data-parallel inside. If there are segments, they start from the best ratios of one segment.
/// *Throws* `input_error` as `plan_in_segments` does, and for micro-batches in turn, which `plan_hidup` plans.
/// *Complexity.* Linear in the operators for a bounded number of tensors in use at a cut.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan plan_hap(Program const& program, cluster const& c, Solver&& solver,
                            hap_options const& options = {}) {
    return detail::plan_hap(indexer_of(program), c, ratio_balancer(solver), options);
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/planner/hap_by_accumulator.hpp>

namespace heddle::detail {

HEDDLE_INLINE plan plan_hap(program_indexer const& index, cluster const& c, ratio_balancer const& balance,
                            hap_options const& options) {
    if (options.training.interleaves())
        throw input_error("training, micro_batches", "are " + std::to_string(options.training.micro_batches) +
                                                         " in turn, expected 1; plan_hidup plans more");
    return plan_in_segments(
        index, c, options, balance,
        [&](indexed_program const& program, planning_options const& asked, std::optional<ratio_table> const& start) {
            auto by = searches_by<serial>(), otherwise = searches_by<overlapped>();
            if (options.training.overlaps_gradients) std::swap(by, otherwise);
            return run_hap(by, otherwise, program, c, balance, asked, start);
        });
}

} // namespace heddle::detail

#endif
