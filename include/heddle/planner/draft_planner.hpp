// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans drafts of pipelines in full, stage by stage.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/pipeline/strategy.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/planner/stage_planner.hpp>
#include <heddle/synthesis/draft_pipelines.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Returns the stages of plans of AMP's and Ditto's kind, whatever they do inside.
[[nodiscard]] pipeline_draft draft_of(strategy const& s);
[[nodiscard]] pipeline_draft draft_of(pipeline_plan const& p);
/// Returns the stages of a plan, on meshes as they are. *Precondition:* they have whole layers.
[[nodiscard]] pipeline_draft draft_of(staged_plan const& p, program_layers const& layers);

/// Plans drafts of pipelines of a program on a cluster. *Lifetime:* refers to all that it is made of.
class draft_planner {
public:
    /// *Precondition:* `indexed` is of the program.
    draft_planner(program const& p, indexed_program const& indexed, cluster const& c, stage_planner& stages,
                  training_options const& training, bool sends_beside)
        : program_(p), indexed_(indexed), cluster_(c), devices_(c.devices().size()), stages_(stages),
          training_(training), sends_beside_(sends_beside) {}

    /// Plans every stage of a draft in full; of several rounds, on one axis or the mesh of the tensor groups asked for.
    /// Returns a plan without stages, with the reason, if that cannot be done; or if a stage alone takes `worth_below` or
    /// more, with what it takes as a lower bound.
    [[nodiscard]] staged_plan plan(pipeline_draft const& draft, program_layers const& layers, stage_effort how,
                                   double worth_below = std::numeric_limits<double>::infinity());
    /// Returns what the stages took that were planned so far, those of plans that were not made in the end included.
    [[nodiscard]] std::vector<planned_stage_time> const& planned() const { return planned_; }
    /// Plans a stage on one axis.
    [[nodiscard]] heddle::plan stage_on_one_axis(staged_plan const& of, std::size_t stage);
    /// Plans a stage on one axis with two parts of each micro-batch that take turns, to take less than the plan's stage
    /// does; returns no steps if that cannot be done.
    [[nodiscard]] heddle::plan stage_in_turns(staged_plan const& of, std::size_t stage);

private:
    /// The program of a micro-batch, seen through its indices.
    std::pair<program, indexed_program> const& micro_batch(std::int64_t count);
    /// *Throws* `input_error` for a stage of devices or layers that there are not.
    void require_known(stage_draft const& d, std::size_t stage, program_layers const& layers) const;
    /// Notes the reason if a stage has no plan, or samples do not divide. *Throws* `input_error` as `part_of` does.
    /// Stages of several rounds may use a part of the devices' memory.
    void plan_stages(staged_plan& result, pipeline_draft const& draft, program_layers const& layers, stage_effort how,
                     double worth_below, double part_of_memory);

    /// The reason if each stage fits.
    static constexpr char const* too_little_together = "the stages of some devices do not fit into memory together";

    program const& program_;
    indexed_program const& indexed_;
    cluster const& cluster_;
    std::size_t devices_;
    stage_planner& stages_;
    training_options const& training_;
    bool sends_beside_;
    std::map<std::int64_t, std::pair<program, indexed_program>> micro_batches_;
    std::vector<planned_stage_time> planned_;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

#include <heddle/plan/verify_staged.hpp>
#include <heddle/program/program_part.hpp>
#include <heddle/theory/micro_batch.hpp>
#include <heddle/theory/rescale.hpp>

#include <algorithm>
#include <string>

namespace heddle::detail {

HEDDLE_INLINE pipeline_draft draft_of(strategy const& s) {
    pipeline_draft draft;
    auto const [pipeline, data, tensor] = s.degrees();
    draft.micro_batches = s.micro_batches;
    for (std::size_t k = 0; k < pipeline; ++k) {
        stage_draft stage{s.cuts[k], s.cuts[k + 1], {}, tensor};
        for (std::size_t copy = 0; copy < data; ++copy) {
            auto const group = s.placement.tensor_group(k, copy);
            stage.devices.insert(stage.devices.end(), group.begin(), group.end());
        }
        algorithm::sort(stage.devices);
        draft.stages.push_back(std::move(stage));
    }
    return draft;
}

HEDDLE_INLINE pipeline_draft draft_of(pipeline_plan const& p) {
    pipeline_draft draft;
    draft.micro_batches = p.micro_batches;
    for (auto const& s : p.stages) {
        stage_draft stage{s.first, s.end, {}, s.degree()};
        for (auto const& group : s.devices) stage.devices.insert(stage.devices.end(), group.begin(), group.end());
        algorithm::sort(stage.devices);
        draft.stages.push_back(std::move(stage));
    }
    return draft;
}

HEDDLE_INLINE pipeline_draft draft_of(staged_plan const& p, program_layers const& layers) {
    pipeline_draft draft;
    draft.micro_batches = p.micro_batches;
    for (auto const& s : p.stages)
        draft.stages.push_back({layers.layer_of(s.first), layers.layer_of(s.end - 1) + 1, s.devices,
                                s.plan.is_on_mesh() ? s.plan.inner_sizes.front() : 1});
    return draft;
}

HEDDLE_INLINE staged_plan draft_planner::plan(pipeline_draft const& draft, program_layers const& layers,
                                              stage_effort how, double worth_below) {
    auto const planned = [&](double part_of_memory) {
        staged_plan result;
        try {
            plan_stages(result, draft, layers, how, worth_below, part_of_memory);
        } catch (input_error const& e) { result.reason = e.what(); }
        if (!result.reason.empty()) result.stages.clear();
        return result;
    };
    auto result = planned(1);
    if (result.reason == too_little_together)
        result = planned(static_cast<double>(draft.places()) / static_cast<double>(draft.stages.size()));
    return result;
}

HEDDLE_INLINE std::pair<program, indexed_program> const& draft_planner::micro_batch(std::int64_t count) {
    auto const found = micro_batches_.find(count);
    if (found != micro_batches_.end()) return found->second;
    auto part = count == 1 ? program_ : with_part_of_batch(program_, batch_size_of(indexed_) / count);
    auto indexed = index_program(part);
    return micro_batches_.emplace(count, std::pair(std::move(part), std::move(indexed))).first->second;
}

HEDDLE_INLINE void draft_planner::require_known(stage_draft const& d, std::size_t stage,
                                                program_layers const& layers) const {
    bool const has_devices = !d.devices.empty() && algorithm::all_of(d.devices, [&](auto n) { return n < devices_; });
    bool const has_layers = d.first < d.end && d.end < layers.cuts.size();
    bool const is_divided = d.tensor > 0 && d.devices.size() % d.tensor == 0;
    if (!has_devices || !has_layers || !is_divided)
        throw input_error("stage " + std::to_string(stage),
                          "expected devices of the cluster, in equal groups, and layers of the program");
}

HEDDLE_INLINE void draft_planner::plan_stages(staged_plan& result, pipeline_draft const& draft,
                                              program_layers const& layers, stage_effort how, double worth_below,
                                              double part_of_memory) {
    result.device_count = devices_;
    result.micro_batches = static_cast<int>(draft.micro_batches);
    result.sends_beside = sends_beside_;
    auto const samples = batch_size_of(indexed_);
    if (draft.micro_batches < 1 || samples % draft.micro_batches != 0) {
        result.reason = std::to_string(samples) + " samples do not make " + std::to_string(draft.micro_batches) +
                        " equal micro-batches";
        return;
    }
    auto const& [micro, indexed] = micro_batch(draft.micro_batches);
    std::size_t const count = draft.stages.size(), places = draft.places();
    one_f_one_b const schedule{count / places};
    if (places < count && (count % places != 0 || !schedule.can_run({places, draft.micro_batches})))
        result.reason = std::to_string(draft.micro_batches) + " micro-batches do not pass " + std::to_string(count) +
                        " stages on " + std::to_string(places) + " sets of devices in rounds";
    if (!result.reason.empty()) return;
    std::vector<program_part> parts;
    for (std::size_t s = 0; s < count; ++s) {
        auto const& d = draft.stages[s];
        require_known(d, s, layers);
        parts.push_back(part_of(micro, indexed, layers.cuts[d.first], layers.cuts[d.end]));
    }
    if (places < count) result.reason = obstacle_to_rounds(micro, parts, places);
    auto const in_flight_of = [&](std::size_t s) {
        return static_cast<int>(schedule.in_flight(s, {places, draft.micro_batches}));
    };
    for (std::size_t s = 0; s < count && result.reason.empty(); ++s) // before any of them is planned
        if (auto why = stages_.why_nothing_fits(parts[s].program, draft.stages[s].devices, draft.micro_batches,
                                                in_flight_of(s)))
            result.reason = "stage " + std::to_string(s) + ": " + *why;
    if (!result.reason.empty()) return;
    for (std::size_t s = 0; s < count; ++s) {
        auto const& d = draft.stages[s];
        auto const& part = parts[s];
        auto const in_flight = in_flight_of(s);
        auto const inner = d.tensor < d.devices.size() ? d.tensor : 1;
        auto const passes = static_cast<double>(draft.micro_batches);
        auto found = places < count ? stages_.plan_on(part.program, d.devices, inner, draft.micro_batches, in_flight,
                                                      part_of_memory, worth_below / passes)
                                    : stages_.plan(part.program, d.devices, d.tensor, draft.micro_batches, in_flight,
                                                   how, worth_below / passes);
        auto const why_not = [&](std::string const& reason) {
            result.reason = "stage " + std::to_string(s) + ": " + reason;
        };
        if (!found.exists()) return why_not(found.reason);
        planned_.push_back({d, draft.micro_batches, passes * found.cost()});
        if (planned_.back().seconds >= worth_below) {
            result.lower_bound = planned_.back().seconds;
            return why_not("takes " + std::to_string(result.lower_bound) + " s, as long as another plan");
        }
        result.provenance.training = training_;
        result.stages.push_back({part.first, part.end, d.devices, std::move(found), seconds(0)});
    }
    if (!price(result, cluster_))
        result.reason = places < count ? too_little_together : "a stage does not fit into memory";
    for (auto const& s : result.stages) // searches took a part of the memory for all that there is
        if (auto const checked = verify_figures(s.plan); part_of_memory < 1 && !checked)
            result.reason = checked.problem;
}

HEDDLE_INLINE plan draft_planner::stage_on_one_axis(staged_plan const& of, std::size_t stage) {
    auto const& here = of.stages[stage];
    auto const& [micro, indexed] = micro_batch(of.micro_batches);
    return stages_.plan_on(part_of(micro, indexed, here.first, here.end).program, here.devices, 1, of.micro_batches,
                           here.plan.provenance.training.in_flight);
}

HEDDLE_INLINE plan draft_planner::stage_in_turns(staged_plan const& of, std::size_t stage) try {
    constexpr int turns = 2;
    auto const& here = of.stages[stage];
    auto const parts = std::int64_t{of.micro_batches} * turns;
    if (batch_size_of(indexed_) % parts != 0) return {};
    auto const stage_of = [&](std::int64_t count) {
        auto const& [micro, indexed] = micro_batch(count);
        return part_of(micro, indexed, here.first, here.end).program;
    };
    return stages_.plan_in_turns(stage_of(parts), here.devices, turns, of.micro_batches,
                                 here.plan.provenance.training.in_flight, stage_of(of.micro_batches), here.plan);
} catch (input_error const&) { return {}; } // parts that cannot be cut as the micro-batch

} // namespace heddle::detail

#endif
