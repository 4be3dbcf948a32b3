// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief How a program is searched for at given shares.
#pragma once

#include <heddle/cost/relaxation_weights.hpp>
#include <heddle/search/result.hpp>
#include <heddle/theory/cut_move.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace heddle {

enum class search_engine : std::uint8_t { best_first, pareto_dp };

struct synthesis_options {
    int relaxation_rounds = 20;
    search_engine engine = search_engine::best_first;
    /// For Pareto dynamic programming: the labels expanded per level in the last of its widening beams. What it leaves
    /// out counts in the bound.
    std::size_t beam = std::numeric_limits<std::size_t>::max();
    /// The width of the first beam, and the number of beams in a row without an improvement after which it ends.
    std::size_t narrowest = 1, patience = std::numeric_limits<std::size_t>::max();
    /// The time limit is for relaxations and searches together. If there are fewer labels than cuts, a search could not
    /// reach its end, so none is run.
    search::options search{.limits = {.labels = 10'000, .comparisons = 10'000'000}};
    /// A program that is known already, as a first incumbent.
    std::optional<move_list> start{};
    /// Weights to start relaxations from, such as those found at ratios nearby.
    std::optional<multipliers> weights{};
    /// The labels that each state keeps for a bound by fronts (see `bound_by_fronts`); if none, relaxations give it.
    std::size_t front = 0;
};

} // namespace heddle
