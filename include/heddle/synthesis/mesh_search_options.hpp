// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a search on a mesh is asked for, and what it returns.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/cost/step.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/search/limits.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/search/result.hpp>
#include <heddle/synthesis/pins.hpp>
#include <heddle/synthesis/synthesis_options.hpp>
#include <heddle/theory/instruction_filter.hpp>

#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// By axis, outermost first.
using pins_of_axes = std::array<std::vector<pinned_tensor>, 3>;

struct mesh_search_options {
    training_options training{};
    /// For the search of one axis at the others' fixed programs.
    synthesis_options synthesis{.relaxation_rounds = 8, .search = {.limits = {.labels = 2'000}}};
    /// How many times an axis is planned anew from each start, and how many times shares and programs take turns.
    int turns = 8, rounds = 4;
    /// The rounds in which costs are split between axes for the bound.
    int bound_rounds = 400;
    /// The search is content with a program that is this close to the bound.
    double gap = 0.01;
    /// States kept per cut.
    std::size_t width = 20'000;
    /// Where a cut has more, tensors are loosened for the bound. Four tensors of seven forms at once, one of them an
    /// embedding that is used again for logits, fit: without its form bound and plan were worth little.
    std::size_t bound_width = 2'500;
    /// If set, shares stay at these, by type of devices.
    std::optional<std::vector<double>> ratios{};
    /// Tensors that are to have given forms on an axis, or not to have them.
    pins_of_axes pinned{};
    /// A strategy, unless empty: what each axis may do, outermost first, in place of all that gathers a parameter once.
    /// There is no bound then, and one of two axes may gather parameters for each use.
    std::vector<instruction_filter> strategy{};
    /// Whether planners price well-known strategies beside the plan.
    bool compares = true;
    /// On two axes, programs of as many seconds are not wanted: nothing is searched where the bound at the
    /// first shares is no less, or by far, where memory binds, that at those at hand.
    double worth_below = std::numeric_limits<double>::infinity();
    search::limits limits{};
};

/// Tells whether axes are not to do alike.
[[nodiscard]] inline bool restricts_axes(mesh_search_options const& options) {
    return !options.strategy.empty() ||
           algorithm::any_of(options.pinned, [](auto const& of_axis) { return !of_axis.empty(); });
}

/// A program on a mesh. Cost and bound are at its shares, rounded to whole parts of each factor; the bound is of the
/// programs of which each axis keeps to those of one axis.
struct mesh_search_result : search::outcome<> {
    std::optional<mesh_program> program;
    /// The costs of the program's steps.
    std::vector<step_work> steps;
    /// The shares of the outermost axis, by type of its devices.
    std::vector<double> ratios;
    /// Seconds of an iteration, and bytes by type.
    double cost = std::numeric_limits<double>::infinity();
    std::vector<double> memory;
    /// In words, what the bound is of.
    std::string space;
    search::statistics statistics;
};

} // namespace heddle
