// SPDX-License-Identifier: BSL-1.0
#include "even_pipelines.hpp"

#include <heddle/base/algorithm.hpp>
#include <heddle/planner/strategies.hpp>
#include <heddle/program/program_part.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/synthesis/work_bound.hpp>
#include <heddle/theory/batch.hpp>
#include <heddle/theory/rescale.hpp>

#include <cstddef>
#include <map>
#include <utility>

namespace heddle::cli {

std::vector<even_pipeline> even_pipelines(staged_plan const& of, program const& model, cluster const& c) {
    if (of.stages.size() < 2) return {};
    auto const whole = index_program(model);
    auto const micro_batch =
        of.micro_batches == 1 ? model : with_part_of_batch(model, batch_size_of(whole) / of.micro_batches);
    auto const indexed = index_program(micro_batch);
    std::map<std::string, std::vector<plan>> by_strategy; // and stage
    for (auto const& stage : of.stages) {
        auto origin = stage.plan.provenance;
        origin.planner = "strategies";
        origin.training.micro_batches = 1;
        origin.training.recomputes = recomputation::none;
        auto const devices = cluster_of(c, stage.devices, std::vector<int>(stage.devices.size(), 1));
        auto const part = part_of(micro_batch, indexed, stage.first, stage.end).program;
        for (auto& [name, found] : plan_strategies(part, devices, origin.training)) {
            found.provenance = origin;
            by_strategy[name].push_back(std::move(found));
        }
    }
    std::vector<even_pipeline> result;
    for (auto& [name, plans] : by_strategy) {
        if (plans.size() != of.stages.size()) continue; // some stage has none
        auto p = of;
        p.families.clear();
        p.provenance.planner = "strategies";
        p.provenance.training.recomputes = recomputation::none;
        for (std::size_t s = 0; s < plans.size(); ++s) p.stages[s].plan = std::move(plans[s]);
        if (!price(p, c)) continue;
        p.space = "plans of all stages, forms, shares and micro-batches";
        p.which_limit = search::limit_kind::none;
        search::conclude(p, p.cost(), work_bound(whole, c).value);
        result.push_back({name, std::move(p)});
    }
    algorithm::sort(result, {}, [](even_pipeline const& p) { return std::pair(p.plan.cost(), p.strategy); });
    return result;
}

} // namespace heddle::cli
