// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Strategies as pipeline plans, and back.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/pipeline/strategy.hpp>
#include <heddle/pipeline/strategy_problem.hpp>
#include <heddle/pipeline/strategy_record.hpp>
#include <heddle/plan/pipeline_plan.hpp>

#include <cstddef>
#include <string>

namespace heddle {

/// Returns a plan of a problem without stages.
[[nodiscard]] pipeline_plan blank_pipeline_plan(strategy_problem const& p);

/// Returns a strategy of a problem as a plan, without status, bound and baselines. *Throws* `input_error` for a
/// strategy that is none of the problem.
[[nodiscard]] pipeline_plan make_pipeline_plan(strategy_problem const& p, strategy const& s);

/// The strategy to use of a search's result as a plan, with status and bound; without one, why there is none.
/// *Precondition:* the result is of the problem. *Throws* `input_error`.
[[nodiscard]] pipeline_plan lay_out(strategy_problem const& p, strategy_ranking const& r);

/// The strategy that a plan is. *Precondition:* the plan exists. *Throws* `input_error` if its tensor groups are not
/// all of one size.
[[nodiscard]] strategy strategy_of(pipeline_plan const& plan);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE pipeline_plan blank_pipeline_plan(strategy_problem const& p) {
    strategy_model const model(p);
    pipeline_plan plan;
    plan.provenance.cluster = p.name;
    for (auto const& l : p.layers) plan.layers.push_back({l.name});
    for (std::size_t d = 0; d < p.device_count(); ++d) {
        auto const& type = p.types[model.type_of(d)];
        plan.devices.push_back({type.name, model.machine_of(d), bytes(0), type.memory});
    }
    return plan;
}

HEDDLE_INLINE pipeline_plan make_pipeline_plan(strategy_problem const& p, strategy const& s) {
    auto const cost = evaluate(p, s);
    auto plan = blank_pipeline_plan(p);
    auto const [pipeline, data, tensor] = s.degrees();
    for (std::size_t stage = 0; stage < pipeline; ++stage) {
        auto& made = plan.stages.emplace_back(pipeline_stage{s.cuts[stage],
                                                             s.cuts[stage + 1],
                                                             {},
                                                             cost.stages[stage],
                                                             stage > 0 ? cost.boundaries[stage - 1] : seconds(0)});
        for (std::size_t copy = 0; copy < data; ++copy) {
            made.devices.push_back(s.placement.tensor_group(stage, copy));
            for (auto const d : made.devices.back()) plan.devices[d].memory = cost.memory[stage];
        }
    }
    plan.micro_batches = s.micro_batches;
    plan.micro_batch_size = s.micro_batch_size;
    plan.global_batch = p.global_batch;
    plan.time = {cost.pipeline, cost.synchronisation, cost.update};
    plan.bubble = cost.bubble;
    return plan;
}

HEDDLE_INLINE pipeline_plan lay_out(strategy_problem const& p, strategy_ranking const& r) {
    auto plan = r.best ? make_pipeline_plan(p, r.record[*r.best].plan) : blank_pipeline_plan(p);
    static_cast<search::outcome<>&>(plan) = r.plain();
    plan.space = r.space;
    plan.statistics = {{"shapes", r.statistics.shapes},
                       {"bounded", r.statistics.bounded},
                       {"infeasible", r.statistics.infeasible},
                       {"placements", r.statistics.placements},
                       {"annealing steps", r.statistics.annealing.steps}};
    plan.seconds = r.statistics.seconds;
    if (!r.unprofiled_degrees.empty()) {
        std::string degrees;
        for (auto const d : r.unprofiled_degrees) degrees += (degrees.empty() ? "" : ", ") + std::to_string(d);
        plan.warnings.push_back("tensor degrees without a profile on every type were not considered: " + degrees);
    }
    return plan;
}

HEDDLE_INLINE strategy strategy_of(pipeline_plan const& plan) {
    strategy s;
    s.placement.degrees = {plan.stages.size(), plan.copies(), plan.stages.front().degree()};
    s.micro_batch_size = plan.micro_batch_size;
    s.micro_batches = plan.micro_batches;
    s.cuts.push_back(0);
    for (auto const& stage : plan.stages) {
        if (stage.degree() != s.placement.degrees.tensor)
            throw input_error("pipeline plan, stages",
                              "tensor groups of several sizes, expected one: strategies have one tensor degree");
        s.cuts.push_back(stage.end);
        for (auto const& group : stage.devices)
            s.placement.devices.insert(s.placement.devices.end(), group.begin(), group.end());
    }
    return s;
}

} // namespace heddle

#endif
