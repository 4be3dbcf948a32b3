// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The searches that depend on how time accumulates, with the accumulator's type behind them.
#pragma once

#include <heddle/cost/priced_graph.hpp>
#include <heddle/cost/program_cost.hpp>
#include <heddle/cost/relaxation.hpp>
#include <heddle/cost/time_accumulator.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/exchange_moves.hpp>
#include <heddle/synthesis/relaxation_bounds.hpp>
#include <heddle/synthesis/synthesise.hpp>

#include <limits>
#include <optional>

namespace heddle {

/// All of planning that an accumulator takes part in. What plans by these is no template, and is compiled once for all
/// accumulators.
struct timed_searches {
    relaxation_kind kind;
    bool joins_labels;
    /// As the functions of these names.
    synthesis_result (*synthesise)(priced_graph const& priced, synthesis_options const& options);
    relaxation_bounds (*improve_bounds)(priced_graph const& priced, int rounds, std::optional<multipliers> const& start,
                                        search::deadline const& until);
    std::optional<move_list> (*exchange_moves)(priced_graph const& priced, move_list path, int rounds,
                                               search::deadline const& until);
    double (*raise_bound)(priced_graph const& priced, double bound, relaxation const& under, double most,
                          std::size_t front);
    double (*worth_at_start)(priced_graph const& priced, relaxation const& under);
};

/// Returns what a relaxation counts before the first move; minus infinity if the accumulator has none.
template <time_accumulator Accumulator>
[[nodiscard]] double worth_at_start(priced_graph const& priced, relaxation const& under) {
    if constexpr (Accumulator::relaxation == relaxation_kind::none) return -std::numeric_limits<double>::infinity();
    else {
        program_clock<Accumulator> const clock(priced);
        return clock.time().relaxed(clock.time().initial(), under.weights.time, 0);
    }
}

template <time_accumulator Accumulator>
[[nodiscard]] constexpr timed_searches searches_by() {
    return {Accumulator::relaxation,     joining_accumulator<Accumulator>, synthesise<Accumulator>,
            improve_bounds<Accumulator>, exchange_moves<Accumulator>,      raise_bound<Accumulator>,
            worth_at_start<Accumulator>};
}

} // namespace heddle
