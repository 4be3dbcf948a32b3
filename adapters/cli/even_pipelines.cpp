// SPDX-License-Identifier: BSL-1.0
#include "even_pipelines.hpp"

#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/planner/amp.hpp>
#include <heddle/planner/draft_planner.hpp>
#include <heddle/planner/strategies.hpp>
#include <heddle/program/program_part.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/synthesis/program_profile.hpp>
#include <heddle/synthesis/work_bound.hpp>
#include <heddle/theory/batch.hpp>
#include <heddle/theory/micro_batch.hpp>
#include <heddle/theory/rescale.hpp>

#include <cstddef>
#include <map>
#include <utility>

namespace heddle::cli {

namespace {

/// Plans with the stages of AMP's best pipelines, which are not planned.
std::vector<staged_plan> with_stages_of_amp(staged_plan const& origin, program const& model,
                                            indexed_program const& indexed, cluster const& c) {
    constexpr std::size_t most = 4;
    std::vector<staged_plan> result;
    auto const obstacles = obstacles_to_micro_batches(indexed);
    auto const layers = repeated_layers(indexed);
    if (layers.size() < 2 || obstacles.statistic || obstacles.operation) return result;
    auto training = origin.provenance.training;
    training.micro_batches = training.accumulated = training.in_flight = 1;
    training.recomputes = recomputation::none;
    strategy_ranking ranked;
    try {
        ranked = plan_amp(make_strategy_problem(model, layers, c, {.training = training}));
    } catch (input_error const&) { return result; } // a batch or layers that AMP cannot price
    std::vector<pipeline_draft> known;
    for (auto const& strategy : ranked.record) {
        auto draft = detail::draft_of(strategy.plan);
        for (auto& s : draft.stages) s.tensor = 1; // strategies of all degrees are tried
        bool const is_known = algorithm::any_of(known, [&](pipeline_draft const& other) {
            return other.micro_batches == draft.micro_batches && other.stages == draft.stages;
        });
        bool const divides = batch_size_of(indexed) % draft.micro_batches == 0;
        if (draft.stages.size() < 2 || !divides || is_known || result.size() == most) continue;
        known.push_back(draft);
        auto& p = result.emplace_back(origin);
        p.micro_batches = static_cast<int>(draft.micro_batches);
        p.stages.clear();
        for (auto const& s : draft.stages)
            p.stages.push_back({layers.cuts[s.first], layers.cuts[s.end], s.devices, {}, seconds(0)});
    }
    return result;
}

/// Plans the stages of a plan by each strategy that all of them have.
void plan_evenly(staged_plan const& of, program const& model, indexed_program const& indexed, cluster const& c,
                 std::vector<even_pipeline>& result) {
    auto const part_of_batch =
        of.micro_batches == 1 ? model : with_part_of_batch(model, batch_size_of(indexed) / of.micro_batches);
    auto const micro_batch = index_program(part_of_batch);
    auto origin = of.provenance;
    origin.planner = "strategies";
    auto& training = origin.training;
    training.overlaps_gradients = false; // the last micro-batch alone could hide them
    training.recomputes = recomputation::none;
    training.micro_batches = 1;
    training.accumulated = of.micro_batches;
    std::map<std::string, std::vector<plan>> by_strategy; // and stage
    for (std::size_t s = 0; s < of.stages.size(); ++s) {
        auto const& stage = of.stages[s];
        training.in_flight = static_cast<int>(of.schedule().in_flight(s, of.shape()));
        auto const devices = cluster_of(c, stage.devices, std::vector<int>(stage.devices.size(), 1));
        auto const part = part_of(part_of_batch, micro_batch, stage.first, stage.end).program;
        for (auto& [name, found] : plan_strategies(part, devices, training)) {
            found.provenance = origin;
            by_strategy[name].push_back(std::move(found));
        }
    }
    training.accumulated = training.in_flight = 1;
    for (auto& [name, plans] : by_strategy) {
        if (plans.size() != of.stages.size()) continue; // some stage has none
        auto p = of;
        p.families.clear();
        p.warnings.clear();
        p.seconds = 0;
        p.provenance = origin;
        for (std::size_t s = 0; s < plans.size(); ++s) p.stages[s].plan = std::move(plans[s]);
        if (!price(p, c)) continue;
        p.space = "plans of all stages, forms, shares and micro-batches";
        p.which_limit = search::limit_kind::none;
        search::conclude(p, p.cost(), work_bound(indexed, c).value);
        result.push_back({name, std::move(p)});
    }
}

} // namespace

std::vector<even_pipeline> even_pipelines(staged_plan const& of, program const& model, cluster const& c) {
    std::vector<even_pipeline> result;
    auto const indexed = index_program(model);
    auto const add = [&](staged_plan const& p) {
        try {
            plan_evenly(p, model, indexed, c, result);
        } catch (input_error const&) {} // stages that cannot be cut out, or have no such devices
    };
    if (of.stages.size() > 1 && verify(model, of)) add(of);
    if (!has_groups(c))
        for (auto const& p : with_stages_of_amp(of, model, indexed, c)) add(p);
    return result;
}

} // namespace heddle::cli
