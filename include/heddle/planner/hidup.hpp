// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The HiDup planner: shardings and stages for micro-batches that take turns, one's communication beside the other's computation.
///
/// HiDup (SoCC '22), sections 3 and 4.
#pragma once

#include <heddle/planner/hap.hpp>
#include <heddle/theory/rescale.hpp>

#include <optional>
#include <string>
#include <utility>

namespace heddle {

/// The first operator that puts numbers of the whole batch together (a batch norm's statistics, a mean over the targets not ignored),
/// so that parts of the batch one after the other compute something else.
[[nodiscard]] inline std::optional<operator_id> first_batch_statistic(indexed_program const& p) {
    auto const batch = batch_factors(p);
    for (operator_id o = 0; o < p.operators.size(); ++o)
        for (auto const& loop : p.operators[o].loops)
            if (detail::has_statistics(loop) && is_of(p.operators[o], loop, batch)) return o;
    return std::nullopt;
}

/// The program of one of `count` equal parts of the batch. *Throws* `input_error` if the batch is no multiple of it, and as `with_batch_size`.
[[nodiscard]] inline program micro_batch_of(program const& p, int count) {
    auto const indexed = index_program(p);
    auto const batch = batch_of_inputs(indexed);
    if (batch.empty()) throw input_error("micro-batches", "no input has a batch");
    extent const size = indexed.tensors[batch.front().tensor].factors[static_cast<std::size_t>(batch.front().factor)].extent;
    if (count < 2 || size % count != 0)
        throw input_error("micro-batches", std::to_string(count) + ", expected two or more that divide the batch of " + std::to_string(size));
    return with_batch_size(p, size / count);
}

struct hidup_options {
    /// Segments, pins, limits and training, as for `plan_hap`; the engine is Pareto dynamic programming unless it is said otherwise.
    hap_options planning{.synthesis = {.engine = search_engine::pareto_dp}};
    int micro_batches = 2;
    /// Of turning from one micro-batch to the next; see `training_options`.
    seconds turn{};
    /// Batch norms and the like compute other statistics, of a part of the batch: a warning instead of an error.
    bool allows_batch_statistics = false;
    /// Also plans the whole batch at once, with gradients reduced beside the backward pass: a baseline, beside that plan's own.
    bool compares = true;
};

/// Plans a program whose batch is run in parts that take turns. The plan is one of `micro_batch_of(program, micro_batches)`.
///
/// Alternates as `plan_hap` does, from compute-proportional and even ratios; on equal devices that is one search. `optimal` is over all programs of
/// the theory, as `cut_space` has it, and all stages that begin at a collective or before an operator that reads a parameter.
/// *Throws* `input_error` for a batch that cannot be divided so, device groups, and an operator with statistics of the batch.
template <ratio_solver Solver>
[[nodiscard]] plan plan_hidup(program const& p, cluster const& c, Solver&& solver, hidup_options const& options = {}) {
    auto const statistic = first_batch_statistic(index_program(p));
    std::string const problem = statistic ? "operator '" + p.name(*statistic) + "' puts numbers of the whole batch together, which parts of it one after the other cannot" : "";
    if (statistic && !options.allows_batch_statistics) throw input_error("micro-batches", problem);
    auto planning = options.planning;
    planning.training.micro_batches = options.micro_batches;
    planning.training.turn = options.turn;
    auto result = plan_hap(micro_batch_of(p, options.micro_batches), c, solver, planning);
    result.provenance.planner = "hidup";
    if (statistic) result.warnings.push_back(problem + ": statistics are those of each micro-batch");
    if (!options.compares) return result;
    planning.training = options.planning.training;
    planning.training.overlaps_gradients = true;
    planning.synthesis.engine = search_engine::best_first;
    auto const whole = plan_hap(p, c, solver, planning);
    result.baselines = whole.baselines;
    result.baselines["whole batch"] = whole.exists() ? std::optional(whole.cost()) : std::nullopt;
    return result;
}

} // namespace heddle
