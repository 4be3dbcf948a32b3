// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the planners of one stage let a caller choose.
#pragma once

#include <heddle/cost/step.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/search/limits.hpp>
#include <heddle/search/result.hpp>
#include <heddle/synthesis/pins.hpp>
#include <heddle/synthesis/planning_progress.hpp>
#include <heddle/synthesis/synthesise.hpp>

#include <cstddef>
#include <vector>

namespace heddle {

struct planning_options {
    training_options training{};
    synthesis_options synthesis{};
    /// Limits of one last search at the best ratios, run where one before it was cut short; where memory binds and
    /// something fits, or gradients overlap, only if one paid, see `synthesis_result::search_pays`.
    search::options last_search{.limits = {.labels = 200'000, .comparisons = 50'000'000}};
    /// Pairs of program and ratios tried from each start.
    int rounds = 6;
    /// States kept per cut; where that leaves any out, no bound is proven.
    std::size_t width = 20'000;
    /// Cuts of equally many operators that are kept: one, those of the order given. Other orders are of use where
    /// micro-batches take turns; where some are left out, their bound is that of added costs. See `operator_cuts`.
    std::size_t cuts = 1;
    /// Of each operator: segments may have ratios of their own. None: the program is one segment. See
    /// synthesis/segments.hpp.
    std::vector<segment_number> segments{};
    /// Tensors that are read or computed in these forms alone; baselines that do otherwise are priced all the same.
    std::vector<pinned_tensor> pinned{};
    /// Of the plan as a whole: time, and the token.
    search::limits limits{};
    progress_function progress{};
};

} // namespace heddle
