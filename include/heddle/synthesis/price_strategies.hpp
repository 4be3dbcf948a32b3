// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the strategies that trainers offer cost on a cluster.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/synthesis/stage_run.hpp>
#include <heddle/synthesis/timed_searches.hpp>

#include <optional>
#include <string>
#include <vector>

namespace heddle {

struct priced_strategies {
    strategy_costs baselines, other_baselines;
    /// Why there is no program of some strategies.
    std::vector<std::string> warnings;
};

/// Each strategy at its best, at even and at compute-proportional ratios: under the plan's options and, some of them,
/// with the other choice of gradient overlap, by the searches `otherwise`, if there are any; null where none of its
/// programs fits, and where it has none. Those under the plan's options are considered as plans.
[[nodiscard]] priced_strategies price_strategies(stage_run& run, std::optional<timed_searches> const& otherwise);

/// A strategy as a plan of its own.
struct planned_strategy {
    std::string name;
    heddle::plan plan;
};

/// Returns each strategy's best plan at even ratios, of those that have one that fits.
[[nodiscard]] std::vector<planned_strategy> even_strategies(stage_run& run);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/baselines.hpp>

#include <cstddef>

namespace heddle {

namespace detail {

/// A strategy's best program at some ratios; null if none fits.
struct strategy_path {
    std::optional<move_list> path;
    /// There was time to look for one.
    bool is_known = true;
};

HEDDLE_INLINE strategy_path path_of(timed_searches const& by, stage_programs const& programs, baseline const& b,
                                    priced_graph const& priced) {
    auto const bounds = by.improve_bounds(priced, 6, {}, search::deadline());
    if (!bounds.path) return {{}, bounds.memory_binds};
    if (programs.has_instruction(*bounds.path, b.witness)) return {bounds.path};
    return {programs.most_of(priced, b.witness)};
}

/// Prices a strategy's best program at some ratios by `cost_of(path)`.
template <class CostOf>
void price_strategy(timed_searches const& by, stage_programs const& programs, baseline const& b,
                    priced_graph const& priced, std::string const& name, strategy_costs& costs, CostOf const& cost_of) {
    auto const [path, is_known] = path_of(by, programs, b, priced);
    if (!is_known) return;
    auto const cost = path ? cost_of(*path) : std::nullopt;
    auto& least = costs[name];
    if (cost && (!least || *cost < *least)) least = cost;
}

/// Why a strategy has no program; empty if it has one, or if that is not known.
HEDDLE_INLINE std::string obstacle_to(stage_programs const& programs, baseline const& b, cut_graph const& graph) {
    auto const& operators = programs.program().operators;
    for (std::size_t level = 0; level < operators.size(); ++level)
        if (graph.first_of_level[level + 1] == graph.first_of_level[level + 2])
            return graph.is_complete ? "operator '" + operators[level].name + "' has no computation that it allows"
                                     : "";
    bool const has_witness =
        algorithm::any_of(graph.actions, [&](auto a) { return programs.has_instruction({a}, b.witness); });
    return has_witness || !graph.is_complete ? "" : "there is nothing that it splits";
}

} // namespace detail

HEDDLE_INLINE priced_strategies price_strategies(stage_run& run, std::optional<timed_searches> const& otherwise) {
    auto& programs = run.programs;
    auto& record = run.record;
    auto other_training = run.options.training;
    other_training.overlaps_gradients = !other_training.overlaps_gradients;
    std::string const ending =
        other_training.overlaps_gradients ? ", with gradient overlap" : ", without gradient overlap";
    priced_strategies found;
    for (auto const& b : baselines_of(programs.given())) {
        auto const is_late = [&] { return run.until.is_over() && !record.is_empty(); };
        if (is_late()) break;
        record.tell("baseline " + b.at_even);
        auto const graph = programs.explore_given(b.allowed);
        if (auto const obstacle = detail::obstacle_to(programs, b, graph); !obstacle.empty()) {
            found.baselines[b.at_even] = found.baselines[b.at_proportional] = std::nullopt;
            found.warnings.push_back("no baseline '" + b.at_even + "': " + obstacle);
            continue;
        }
        auto const price_at = [&](std::string const& name, ratio_table const& ratios) {
            auto const priced = programs.price(graph, programs.model(), ratios);
            detail::price_strategy(run.by, programs, b, priced, name, found.baselines,
                                   [&](move_list const& path) { return record.consider(name, path, ratios); });
            if (!b.in_both_overlaps || !otherwise || is_late()) return;
            detail::price_strategy(*otherwise, programs, b, priced, name + ending, found.other_baselines,
                                   [&](move_list const& path) {
                                       auto const [p, cost] = programs.realise(path, ratios, other_training);
                                       return cost.fits ? std::optional(p.cost()) : std::nullopt;
                                   });
        };
        price_at(b.at_even, programs.even_ratios());
        if (!is_late()) price_at(b.at_proportional, programs.compute_proportional_ratios());
    }
    return found;
}

HEDDLE_INLINE std::vector<planned_strategy> even_strategies(stage_run& run) {
    auto& programs = run.programs;
    std::vector<planned_strategy> found;
    for (auto const& b : baselines_of(programs.given())) {
        if (run.until.is_over()) break;
        auto const graph = programs.explore_given(b.allowed);
        if (!detail::obstacle_to(programs, b, graph).empty()) continue;
        auto const ratios = programs.even_ratios();
        auto const path = detail::path_of(run.by, programs, b, programs.price(graph, programs.model(), ratios)).path;
        if (!path) continue;
        auto [p, cost] = programs.realise(*path, ratios);
        if (cost.fits) found.push_back({b.at_even, std::move(p)});
    }
    return found;
}

} // namespace heddle

#endif
