// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the strategies that trainers offer cost on a cluster.
#pragma once

#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/synthesis/baselines.hpp>
#include <heddle/synthesis/relaxation_bounds.hpp>
#include <heddle/synthesis/stage_run.hpp>

#include <concepts>
#include <optional>
#include <string>
#include <type_traits>

namespace heddle {

struct priced_strategies {
    strategy_costs baselines, other_baselines;
};

namespace detail {

/// Prices a strategy's best program at some ratios by `cost_of(path)`. There is an entry only if there are such
/// programs.
template <time_accumulator Accumulator, class CostOf>
void price_strategy(stage_programs const& programs, baseline const& b, priced_graph const& priced,
                    std::string const& name, strategy_costs& costs, CostOf const& cost_of) {
    auto const bounds = improve_bounds<Accumulator>(priced, 6);
    if (bounds.path ? !programs.has_instruction(*bounds.path, b.witness) : !bounds.memory_binds) return;
    auto const cost = bounds.path ? cost_of(*bounds.path) : std::nullopt; // or none fits
    auto& least = costs[name];
    if (cost && (!least || *cost < *least)) least = cost;
}

} // namespace detail

/// Prices each strategy at its best, at even and at compute-proportional ratios: under the plan's options, and some
/// strategies also with the other choice of gradient overlap. Those under the plan's options are considered as plans.
template <time_accumulator Accumulator>
[[nodiscard]] priced_strategies price_strategies(stage_run<Accumulator>& run) {
    using other_accumulator = std::conditional_t<std::same_as<Accumulator, overlapped>, serial, overlapped>;
    constexpr bool is_ours = std::same_as<Accumulator, serial> || std::same_as<Accumulator, overlapped>;
    auto& programs = run.programs;
    auto& record = run.record;
    auto other_training = run.options.training;
    other_training.overlaps_gradients = !other_training.overlaps_gradients;
    std::string const otherwise =
        other_training.overlaps_gradients ? ", with gradient overlap" : ", without gradient overlap";
    priced_strategies found;
    for (auto const& b : baselines_of(programs.program())) {
        auto const is_late = [&] { return run.until.is_over() && !record.is_empty(); };
        if (is_late()) break;
        record.tell("baseline " + b.at_even);
        auto const graph = programs.explore(b.allowed);
        auto const price_at = [&](std::string const& name, ratio_table const& ratios) {
            auto const priced = programs.price(graph, programs.model(), ratios);
            detail::price_strategy<Accumulator>(programs, b, priced, name, found.baselines, [&](move_list const& path) {
                return record.consider(name, path, ratios);
            });
            if (!b.in_both_overlaps || !is_ours || is_late()) return;
            detail::price_strategy<other_accumulator>(
                programs, b, priced, name + otherwise, found.other_baselines, [&](move_list const& path) {
                    auto const [p, cost] = programs.realise(path, ratios, other_training);
                    return cost.fits ? std::optional(p.cost()) : std::nullopt;
                });
        };
        price_at(b.at_even, programs.even_ratios());
        if (!is_late()) price_at(b.at_proportional, programs.compute_proportional_ratios());
    }
    return found;
}

} // namespace heddle
