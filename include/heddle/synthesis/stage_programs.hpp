// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The programs that a stage is planned with, and what they cost on a cluster.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/synthesis/balance_program.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/pins.hpp>
#include <heddle/synthesis/planning_options.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/operator_kinds.hpp>
#include <heddle/theory/reductions.hpp>
#include <heddle/theory/view_conversions.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// The programs at hand are those of a graph, which is explored under restrictions that keep the pins. Ratios are those
/// of device types.
class stage_programs {
public:
    stage_programs(indexed_program const& program, heddle::cluster const& c, planning_options const& options,
                   search::deadline const& until)
        : cluster_(c), options_(options), until_(until), space_(program, operator_kinds(program), options.cuts),
          types_(c), model_(model_on(c)) {
        if (options.training.interleaves()) space_.divide_into_stages();
    }

    [[nodiscard]] heddle::cluster const& cluster() const { return cluster_; }
    [[nodiscard]] indexed_program const& program() const { return space_.program(); }
    [[nodiscard]] training_options const& training() const { return options_.training; }
    [[nodiscard]] cut_space const& space() const { return space_; }
    [[nodiscard]] cut_graph const& graph() const { return graph_; }
    /// Returns the steps of the instructions met.
    [[nodiscard]] std::vector<step_work> const& steps() const { return steps_; }
    [[nodiscard]] device_types const& types() const { return types_; }
    [[nodiscard]] cost_model const& model() const { return model_; }

    /// Explores the programs of some instructions; if time is over, few of them.
    [[nodiscard]] cut_graph explore(instruction_filter allowed);
    /// Takes the programs that may be the fastest if memory does not matter. Pins may forbid what is fastest without
    /// them; then all programs are taken.
    void take_fastest();
    /// Takes also the programs that are never faster, only smaller. Returns whether they were missing.
    bool take_all();
    [[nodiscard]] bool has_all() const { return has_all_; }
    /// Tells whether the graph has every program of the space.
    [[nodiscard]] bool is_complete() const { return graph_.is_complete && space_.is_complete(); }
    /// Tells whether orders were left out that may matter.
    [[nodiscard]] bool lacks_orders() const { return options_.training.interleaves() && !space_.cuts().is_complete(); }

    /// Returns ratios that are the same in every segment.
    [[nodiscard]] ratio_table everywhere(std::vector<double> const& per_type) const {
        return ratio_table(segment_count(program()), per_type);
    }
    [[nodiscard]] ratio_table compute_proportional_ratios() const {
        return everywhere(compute_proportional(model_, main_type(program())));
    }
    [[nodiscard]] ratio_table even_ratios() const { return everywhere(heddle::even_ratios(model_)); }
    [[nodiscard]] ratio_table memory_proportional_ratios() const { return everywhere(memory_proportional(model_)); }

    /// Returns prices of programs in which each type is priced as its device with the largest share.
    [[nodiscard]] priced_graph price(cut_graph const& graph, cost_model const& model, ratio_table const& ratios) const;
    [[nodiscard]] priced_graph price(ratio_table const& ratios) const { return price(graph_, model_, ratios); }
    /// Returns a model of device types, on the cluster or on one that differs from it in the numbers of the types.
    [[nodiscard]] cost_model model_on(heddle::cluster const& c) const {
        return {c, types_.classes, main_type(program()), options_.training.bucket};
    }

    [[nodiscard]] std::pair<plan, plan_cost> realise(move_list const& path, ratio_table const& ratios,
                                                     training_options const& training) const {
        return heddle::realise(path, space_, steps_, cluster_, types_.per_device(ratios), training);
    }
    [[nodiscard]] std::pair<plan, plan_cost> realise(move_list const& path, ratio_table const& ratios) const {
        return realise(path, ratios, options_.training);
    }
    /// Tells whether a program of the graph, or of a restriction of it, keeps the pins.
    [[nodiscard]] bool keeps_pins(plan const& p) const {
        return algorithm::all_of(
            p.steps, [&](plan_step const& s) { return heddle::keeps_pins(program(), options_.pinned, s.instruction); });
    }
    [[nodiscard]] bool has_instruction(move_list const& path,
                                       std::function<bool(instruction const&)> const& sought) const;

    /// The fastest program if work by other instructions than those sought took a thousand times as long, or, where it
    /// has none of these then, a million times, and so on.
    [[nodiscard]] std::optional<move_list> most_of(priced_graph const& priced,
                                                   std::function<bool(instruction const&)> const& sought) const;

    /// Returns the program of least memory. Its communication buffers count as if all existed at once, or not at all.
    [[nodiscard]] std::optional<move_list> least_memory(priced_graph const& priced, bool count_buffers) const;
    [[nodiscard]] std::optional<move_list> path_of(search::shortest_paths const& paths) const {
        return std::isfinite(paths.to_goal()) ? std::optional(search::follow(graph_, paths)) : std::nullopt;
    }

    /// Returns in words what status and bounds refer to.
    [[nodiscard]] std::string space_name() const;

private:
    /// Returns the filter of all plans: programs keep the pins, and convert before views.
    [[nodiscard]] instruction_filter wanted(instruction_filter allowed) const {
        return converting_before_views(program(), with_pins(program(), options_.pinned, std::move(allowed)));
    }

    heddle::cluster const& cluster_;
    planning_options const& options_;
    search::deadline const& until_;
    cut_space space_;
    cut_graph graph_;
    std::vector<step_work> steps_;
    device_types types_;
    cost_model model_;
    bool has_all_ = false;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE cut_graph stage_programs::explore(instruction_filter allowed) {
    constexpr std::size_t width_in_haste = 20;
    space_.restrict_to(std::move(allowed));
    auto graph = search::explore(
        space_, [&] { return until_.is_over() ? std::min(options_.width, width_in_haste) : options_.width; });
    while (steps_.size() < space_.instructions().size())
        steps_.push_back(make_step(program(), space_.instructions()[steps_.size()], options_.training));
    return graph;
}

HEDDLE_INLINE void stage_programs::take_fastest() {
    auto const gather = options_.training.interleaves()      ? best_gather::before_use
                        : options_.training.copies_gradients ? best_gather::either
                                                             : best_gather::after_update;
    bool const is_known = options_.training.accumulator.name.empty(); // which programs are never the fastest
    if (options_.pinned.empty() && is_known) graph_ = explore(wanted(fastest_programs(program(), gather)));
    else take_all();
}

HEDDLE_INLINE bool stage_programs::take_all() {
    if (std::exchange(has_all_, true)) return false;
    graph_ = explore(wanted(instruction_filter::everything()));
    return true;
}

HEDDLE_INLINE priced_graph stage_programs::price(cut_graph const& graph, cost_model const& model,
                                                 ratio_table const& ratios) const {
    largest_shares const shares(integral_shares(program(), types_.per_device(ratios)), types_.of_device);
    return {space_, graph, steps_, model, shares, options_.training};
}

HEDDLE_INLINE bool stage_programs::has_instruction(move_list const& path,
                                                   std::function<bool(instruction const&)> const& sought) const {
    return algorithm::any_of(path, [&](auto a) {
        return algorithm::any_of(space_.moves()[a].instructions,
                                 [&](auto i) { return sought(space_.instructions()[i]); });
    });
}

HEDDLE_INLINE std::optional<move_list> stage_programs::most_of(
    priced_graph const& priced, std::function<bool(instruction const&)> const& sought) const {
    for (double times = 1e3; times < 1e15; times *= 1e3) {
        auto const cost = [&](std::size_t level, cut_space::action a) {
            auto const price = priced.price(level, a);
            double const work = algorithm::max(price.work) + algorithm::max(price.backward_work);
            return price.transfers.total() + (has_instruction({a}, sought) ? 1 : times) * work;
        };
        auto const paths = search::paths_to_goal(priced.graph(), cost);
        if (!std::isfinite(paths.to_goal())) break;
        auto path = search::follow(priced.graph(), paths);
        if (has_instruction(path, sought)) return path;
    }
    return std::nullopt;
}

HEDDLE_INLINE std::optional<move_list> stage_programs::least_memory(priced_graph const& priced,
                                                                    bool count_buffers) const {
    return path_of(priced.shortest_under([&](move_price const& move) {
        double sum = 0;
        for (std::size_t k = 0; k < move.memory.size(); ++k)
            sum += (move.memory[k] + (count_buffers ? move.buffer : 0)) / model_.memory_limit(k);
        return sum;
    }));
}

HEDDLE_INLINE std::string stage_programs::space_name() const {
    auto const& training = options_.training;
    return std::string("one-axis programs") + (has_groups(cluster_) ? " of device groups" : "") +
           (training.interleaves() ? " of " + std::to_string(training.micro_batches) + " micro-batches in turn" : "") +
           (options_.pinned.empty() ? "" : " that keep the pins");
}

} // namespace heddle

#endif
