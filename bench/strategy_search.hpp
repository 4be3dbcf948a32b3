// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Finds the best programs of some instructions at even ratios on one kind of device, again and again with other
/// estimates.
#pragma once

#include <heddle/planner/hidup.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/theory/micro_batch.hpp>

#include <utility>
#include <vector>

namespace heddle::bench {

struct found_plan {
    plan what;
    /// The gap of the search, by its estimates.
    double gap = 0;
};

/// The instructions of the fastest programs, of the whole batch and of micro-batches in turn.
inline constexpr auto fastest = [](indexed_program const& p) { return fastest_programs(p); };
inline constexpr auto fastest_in_turn = [](indexed_program const& p) {
    return fastest_programs(p, best_gather::before_use);
};

/// The space of programs of a batch at once, or of micro-batches in turn.
class strategy_search {
public:
    /// `filter(indexed_program)` says which instructions there are. Without `repeats` equal operators have steps of
    /// their own.
    template <class Filter>
    strategy_search(program const& whole, cluster c, training_options const& training, Filter const& filter,
                    bool repeats = true)
        : training_(training), cluster_(std::move(c)),
          program_(index_program(training.interleaves() ? micro_batch_of(whole, training.micro_batches) : whole)),
          space_(program_, repeats ? operator_kinds(program_) : std::vector<operator_id>{},
                 training.interleaves() ? hidup_options{}.planning.cuts : 1) {
        if (training.interleaves()) space_.divide_into_stages();
        space_.restrict_to(filter(program_));
        graph_ = search::explore(space_, 20'000);
        for (auto const& i : space_.instructions()) steps_.push_back(make_step(program_, i, training));
    }
    strategy_search(strategy_search const&) = delete;
    strategy_search& operator=(strategy_search const&) = delete;

    [[nodiscard]] indexed_program const& program() const { return program_; }
    [[nodiscard]] cluster const& devices() const { return cluster_; }
    [[nodiscard]] std::vector<instruction> const& instructions() const { return space_.instructions(); }
    [[nodiscard]] std::vector<step_work> const& steps() const { return steps_; }

    /// The best plan by the accumulator. *Throws* `input_error` if none fits.
    template <class Accumulator>
    [[nodiscard]] found_plan best() const {
        return best<Accumulator>(steps_, cluster_);
    }
    /// Returns the plan that is best under the estimated steps and cluster, priced by the real ones.
    template <class Accumulator>
    [[nodiscard]] found_plan best(std::vector<step_work> const& estimates, cluster const& estimated) const {
        device_types const types(cluster_);
        cost_model const model(estimated, types.classes, element_type::float32, training_.bucket);
        std::vector<double> const even(model.class_count(), 1.0 / model.ranks());
        priced_graph const priced(space_, graph_, estimates, model, uniform_shares(even), training_);
        auto const found = synthesise<Accumulator>(
            priced,
            {.engine = training_.interleaves() ? search_engine::pareto_dp : search_engine::best_first, .beam = 100});
        if (!found.path) throw input_error("plan", "no program of this strategy fits");
        return {realise(*found.path, space_, steps_, cluster_, types.per_device({even}), training_).first,
                1 - found.lower_bound / found.cost.seconds};
    }

private:
    training_options training_;
    cluster cluster_;
    indexed_program program_;
    cut_space space_;
    search::state_graph<cut_space::action> graph_;
    std::vector<step_work> steps_;
};

} // namespace heddle::bench
