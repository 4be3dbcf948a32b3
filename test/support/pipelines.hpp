// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Pipeline plans that no planner made.
#pragma once

#include <heddle/pipeline/stage_program.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/program/program.hpp>
#include <support/random_plans.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace heddle::test {

/// Makes layers of one operator each, cut into stages; devices are in order, in groups of one size for each stage, or
/// alone.
[[nodiscard]] inline pipeline_plan pipeline_of(program const& p, std::vector<std::size_t> const& cuts,
                                               std::size_t copies, std::int64_t micro_batches, std::int64_t size = 0,
                                               std::vector<std::size_t> const& degrees = {}) {
    pipeline_plan plan;
    plan.status = search::status::feasible;
    plan.micro_batches = micro_batches;
    plan.micro_batch_size = size;
    for (operator_id o = 0; o < p.operator_count(); ++o) plan.layers.push_back({p.name(o), 1});
    for (std::size_t s = 0; s + 1 < cuts.size(); ++s) {
        auto& stage = plan.stages.emplace_back(pipeline_stage{cuts[s], cuts[s + 1], {}, seconds(1), seconds(0)});
        for (std::size_t c = 0; c < copies; ++c) {
            auto& group = stage.devices.emplace_back();
            for (std::size_t n = 0; n < (degrees.empty() ? 1 : degrees[s]); ++n) {
                group.push_back(plan.devices.size());
                plan.devices.push_back({"any", 0, bytes(0), bytes(1)});
            }
        }
    }
    return plan;
}

/// Returns a random plan of the theory on a group that stages can run, if one is found in this many attempts. Shares
/// are random; some of them are empty.
[[nodiscard]] inline std::optional<plan> random_group(indexed_program const& p, batch_split const& batch,
                                                      std::size_t devices, random_source& random, int attempts) {
    for (int n = 0; n < attempts; ++n) {
        auto found = random_plan(p, devices, random);
        std::vector<instruction> program;
        for (auto const& s : found.steps) program.push_back(s.instruction);
        try {
            check_for_stages(p, program, batch);
            return found;
        } catch (input_error const&) {}
    }
    return std::nullopt;
}

} // namespace heddle::test
