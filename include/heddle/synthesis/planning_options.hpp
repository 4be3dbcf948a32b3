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
#include <heddle/synthesis/synthesis_options.hpp>
#include <heddle/theory/instruction_filter.hpp>

#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

namespace heddle {

struct planning_options {
    training_options training{};
    synthesis_options synthesis{};
    /// The limits of one last search at the best ratios. It runs if a search before it was cut short. If memory binds
    /// and something fits, or gradients overlap, it runs only if an earlier search paid; see
    /// `synthesis_result::search_pays`.
    search::options last_search{.limits = {.labels = 200'000, .comparisons = 50'000'000}};
    /// How many pairs of program and ratios are tried from each start.
    int rounds = 6;
    /// States kept per cut; where that leaves any out, bounds are of programs that cost no more, with narrower cuts.
    std::size_t width = 20'000;
    /// How many cuts of equally many operators are kept; one cut is that of the given order. Other orders are useful if
    /// micro-batches take turns; if some are left out, their bound is that of added costs. See `operator_cuts`.
    std::size_t cuts = 1;
    /// The segment of each operator; segments may have ratios of their own. If it is empty, the program is one segment.
    /// See synthesis/segments.hpp.
    std::vector<segment_number> segments{};
    /// Tensors that may be read or computed in these forms alone, or in any but these. Baselines that do otherwise are priced all the same.
    std::vector<pinned_tensor> pinned{};
    /// Where it is set, the computations of the indexed program's operators that programs may have; it allows all other
    /// instructions. Bounds are of such programs alone, and no strategies are priced beside the plan.
    std::optional<instruction_filter> allowed_computations{};
    /// Whether well-known strategies are priced beside the plan; not, where many plans are made to be compared.
    bool compares = true;
    /// Whether bounds are proven, which may meet a better program; likewise.
    bool proves = true;
    /// Plans that cost more are of no use: where searches find none that costs about as little, what they find is
    /// neither improved further nor proven; and of what takes turns smaller programs are not searched where even the
    /// fastest ones cost more by far, or do not fit.
    double worth_below = std::numeric_limits<double>::infinity();
    /// Time and the token hold for the plan as a whole.
    search::limits limits{};
    progress_function progress{};
};

} // namespace heddle
