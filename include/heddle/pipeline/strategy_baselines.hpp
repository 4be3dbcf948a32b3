// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What people do without a planner: Megatron's heuristics, layers balanced by count or by parameters, and
/// random strategies.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/strategy.hpp>
#include <heddle/search/anneal.hpp>
#include <heddle/search/deadline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Divides layers as evenly by number as possible, with more in the first stages. *Precondition:* 0 < stages <= layers.
[[nodiscard]] std::vector<std::size_t> uniform_cuts(std::size_t layers, std::size_t stages);

/// Minimises the gradients, hence parameters, of the stage that has most. *Precondition:* 0 < stages <= layers.
[[nodiscard]] std::vector<std::size_t> parameter_cuts(strategy_problem const& p, std::size_t stages);

enum class layer_balance : unsigned char { count, parameters };

/// Returns Megatron's strategies, one for each micro-batch size: tensor groups are inside machines; of the degrees that
/// fit memory, it takes those with the smallest tensor * pipeline, and of equal ones the smaller tensor degree; the
/// placement is its own; layers are balanced as `balance` says. They are ordered by micro-batch size, and are those
/// found in time. *Throws* `input_error`. *Reference.* AMP section 4.1.
[[nodiscard]] std::vector<strategy> megatron_strategies(strategy_problem const& p, layer_balance balance,
                                                        search::deadline const& until = search::deadline());

/// Draws a shape, an order of machines, an order of axes and cuts, each uniformly, whether or not they fit memory.
/// *Throws* `input_error`.
[[nodiscard]] strategy random_strategy(strategy_problem const& p, search::random_stream& random);

/// Returns the least seconds of what people do without a planner, by name: data parallelism alone, and Megatron's
/// heuristics. The result is empty if time is over before all are known. *Throws* `input_error`.
[[nodiscard]] std::map<std::string, std::optional<double>> baselines_of(
    strategy_problem const& p, search::deadline const& until = search::deadline());

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/pipeline/placement.hpp>
#include <heddle/search/partition/partition.hpp>

namespace heddle {

HEDDLE_INLINE std::vector<std::size_t> uniform_cuts(std::size_t layers, std::size_t stages) {
    std::vector<std::size_t> cuts(stages + 1);
    for (std::size_t s = 0; s < stages; ++s) cuts[s + 1] = cuts[s] + layers / stages + (s < layers % stages ? 1 : 0);
    return cuts;
}

HEDDLE_INLINE std::vector<std::size_t> parameter_cuts(strategy_problem const& p, std::size_t stages) {
    search::partition_problem problem;
    problem.kinds.assign(stages, 0);
    problem.largest_weight = 1;
    auto& sizes = problem.sizes.emplace_back();
    for (auto const& l : p.layers) sizes.push_back(l.gradients.on(1).value);
    return search::partition(problem).cuts;
}

HEDDLE_INLINE std::vector<strategy> megatron_strategies(strategy_problem const& p, layer_balance balance,
                                                        search::deadline const& until) {
    validate(p);
    strategy_model const model(p);
    auto const usable = p.usable_degrees();
    std::map<std::int64_t, strategy> best;
    for (auto const& grid : all_shapes(p.device_count(), p.global_batch)) {
        if (until.is_over()) break;
        auto const& d = grid.degrees;
        if (algorithm::find(usable, d.tensor) == usable.end() || d.pipeline > p.layer_count()) continue;
        auto const found = best.find(grid.micro_batch_size);
        auto const rank = [](parallel_degrees x) { return std::pair(x.tensor * x.pipeline, x.tensor); };
        if (found != best.end() && rank(found->second.degrees()) <= rank(d)) continue;
        auto cuts =
            balance == layer_balance::count ? uniform_cuts(p.layer_count(), d.pipeline) : parameter_cuts(p, d.pipeline);
        strategy s{megatron_placement(d), grid.micro_batch_size, grid.micro_batches, std::move(cuts)};
        if (model.cost(s).fits()) best.insert_or_assign(grid.micro_batch_size, std::move(s));
    }
    std::vector<strategy> out;
    for (auto& [size, s] : best) out.push_back(std::move(s));
    return out;
}

HEDDLE_INLINE strategy random_strategy(strategy_problem const& p, search::random_stream& random) {
    validate(p);
    auto shapes = all_shapes(p.device_count(), p.global_batch);
    auto const usable = p.usable_degrees();
    std::erase_if(shapes, [&](parallel_shape const& s) {
        return algorithm::find(usable, s.degrees.tensor) == usable.end() || s.degrees.pipeline > p.layer_count();
    });
    if (shapes.empty())
        throw input_error("random strategy",
                          "there is none: no degrees multiply to " + std::to_string(p.device_count()) + " devices");
    auto const& grid = shapes[random.below(shapes.size())];
    std::vector<std::size_t> machines(p.machines.size());
    std::iota(machines.begin(), machines.end(), std::size_t{0});
    for (std::size_t i = machines.size(); i > 1; --i) std::swap(machines[i - 1], machines[random.below(i)]);
    auto const order = random.below(2) == 0 ? placement_order::copies_first : placement_order::stages_first;
    std::vector<std::size_t> inner(p.layer_count() - 1), cuts{0};
    std::iota(inner.begin(), inner.end(), std::size_t{1});
    for (std::size_t i = 0; i + 1 < grid.degrees.pipeline; ++i)
        std::swap(inner[i], inner[i + random.below(inner.size() - i)]);
    cuts.insert(cuts.end(), inner.begin(), inner.begin() + static_cast<std::ptrdiff_t>(grid.degrees.pipeline) - 1);
    cuts.push_back(p.layer_count());
    algorithm::sort(cuts);
    return {placement_space(p, grid.degrees.tensor).in_order(grid.degrees, machines, order), grid.micro_batch_size,
            grid.micro_batches, std::move(cuts)};
}

HEDDLE_INLINE std::map<std::string, std::optional<double>> baselines_of(strategy_problem const& p,
                                                                        search::deadline const& until) {
    strategy_model const model(p);
    std::map<std::string, std::optional<double>> best;
    auto const keep = [&](std::string const& name, strategy const& s) {
        auto const cost = model.cost(s);
        auto& least = best[name];
        if (cost.fits()) least = std::min(least.value_or(cost.total.value), cost.total.value);
    };
    for (auto const& grid : spread_shapes(p.device_count(), p.global_batch))
        if (auto const& d = grid.degrees;
            d.pipeline == 1 && d.tensor == 1 && algorithm::count(p.usable_degrees(), d.tensor) > 0)
            if (keep("data parallel",
                     {megatron_placement(d), grid.micro_batch_size, grid.micro_batches, {0, p.layer_count()}});
                until.is_over())
                return {};
    for (auto const& [name, balance] : {std::pair{"Megatron, equal layers", layer_balance::count},
                                        {"Megatron, equal parameters", layer_balance::parameters}}) {
        best[name] = std::nullopt;
        for (auto const& s : megatron_strategies(p, balance, until)) keep(name, s);
    }
    if (until.is_over()) best.clear();
    return best;
}

} // namespace heddle

#endif
