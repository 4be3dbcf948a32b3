// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Tells which rank of a pipeline runs what: stage, copy and part of a tensor group; operators; places of the
/// batch.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/pipeline/stage_program.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/schedule.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/theory/batch_split.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Holds a pipeline plan's stages as parts of a program on a tensor group, and its micro-batches as ranges of the
/// batch.
///
/// Ranks are numbered by stage, then by copy, then by device. References to all arguments are kept.
class pipeline_layout {
public:
    struct place {
        std::size_t stage = 0, copy = 0, part = 0;
    };

    /// *Throws* `input_error` if the plan is none of the program, or does not say how a tensor group computes the
    /// program, or says it in a way that stages cannot run.
    pipeline_layout(indexed_program const& p, pipeline_plan const& what, batch_split const& batch);

    [[nodiscard]] std::size_t stages() const { return plan_.stages.size(); }
    [[nodiscard]] std::size_t copies() const { return plan_.copies(); }
    /// Returns the number of devices that share a stage in a copy.
    [[nodiscard]] std::size_t degree(std::size_t stage) const { return plan_.stages[stage].degree(); }
    [[nodiscard]] std::size_t ranks() const { return first_rank_.back(); }
    [[nodiscard]] std::size_t rank(place const& at) const {
        return first_rank_[at.stage] + at.copy * degree(at.stage) + at.part;
    }
    [[nodiscard]] place place_of(std::size_t rank) const;
    [[nodiscard]] pipeline_shape shape() const { return {stages(), plan_.micro_batches}; }
    /// Returns the operators [first, end) of a stage.
    [[nodiscard]] std::pair<operator_id, operator_id> operators(std::size_t stage) const {
        return {cuts_[stage], cuts_[stage + 1]};
    }
    [[nodiscard]] std::size_t stage_of(operator_id o) const {
        return static_cast<std::size_t>(algorithm::upper_bound(cuts_, o) - cuts_.begin()) - 1;
    }
    [[nodiscard]] stage_program const& computation(std::size_t stage) const { return programs_[stage]; }
    /// Returns the plan of the whole program on a group as large as the stage's.
    [[nodiscard]] plan const& group_plan(std::size_t stage) const {
        return degree(stage) > 1 ? plan_.groups.at(degree(stage)) : undivided_;
    }
    /// Returns the number of parts of the batch, over all copies.
    [[nodiscard]] std::size_t parts() const { return ranges_.size(); }
    /// Returns the first place of a copy's micro-batch, and the number of its places, which may be zero.
    [[nodiscard]] std::pair<extent, extent> places(std::size_t copy, std::int64_t micro_batch) const {
        return ranges_[copy * static_cast<std::size_t>(plan_.micro_batches) + static_cast<std::size_t>(micro_batch)];
    }

private:
    [[noreturn]] static void fail(std::string const& place, std::string const& problem) {
        throw input_error("pipeline plan, " + place, problem);
    }

    void divide_operators(indexed_program const& p, batch_split const& batch);
    [[nodiscard]] std::vector<instruction> program_on(std::size_t devices, indexed_program const& p) const;
    void divide_batch(extent places);

    pipeline_plan const& plan_;
    plan undivided_;
    std::vector<operator_id> cuts_;
    std::vector<std::size_t> first_rank_;
    std::vector<stage_program> programs_;
    std::vector<std::pair<extent, extent>> ranges_;
};

/// Checks whether a pipeline plan computes what a program does: layers are the program's operators, each stage and
/// device occurs once, memory is within its limits, micro-batches are the batch, and tensor groups compute the program
/// by a sound plan that stages can run. *Complexity.* That of `verify` of the groups' plans.
template <single_device_program Program>
[[nodiscard]] verification verify(Program const& p, pipeline_plan const& what) {
    try {
        auto const indexed = index_program(p);
        auto const batch = split_along_batch(indexed);
        (void)pipeline_layout(indexed, what, batch);
        return {};
    } catch (input_error const& e) { return {false, e.what()}; }
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE pipeline_layout::pipeline_layout(indexed_program const& p, pipeline_plan const& what,
                                               batch_split const& batch)
    : plan_(what) {
    validate(what);
    if (!what.exists()) fail("stages", "there are none");
    if (what.operator_count() != p.operators.size())
        fail("layers", "of " + std::to_string(what.operator_count()) + " operators, expected those of the model, " +
                           std::to_string(p.operators.size()));
    for (auto const& [devices, group] : what.groups)
        if (algorithm::none_of(what.stages, [&, n = devices](auto const& s) { return s.degree() == n; }))
            fail("groups of " + std::to_string(devices), "no stage has one");
    if (what.global_batch > 0 && what.global_batch != batch.places)
        fail("global batch",
             std::to_string(what.global_batch) + " samples, the model's batch has " + std::to_string(batch.places));
    divide_operators(p, batch);
    divide_batch(batch.places);
}

HEDDLE_INLINE pipeline_layout::place pipeline_layout::place_of(std::size_t rank) const {
    auto const stage = static_cast<std::size_t>(algorithm::upper_bound(first_rank_, rank) - first_rank_.begin()) - 1;
    auto const within = rank - first_rank_[stage];
    return {stage, within / degree(stage), within % degree(stage)};
}

HEDDLE_INLINE void pipeline_layout::divide_operators(indexed_program const& p, batch_split const& batch) {
    std::vector<operator_id> ends{0};
    for (auto const& l : plan_.layers) ends.push_back(ends.back() + static_cast<operator_id>(l.operators));
    cuts_.push_back(0);
    first_rank_.push_back(0);
    for (std::size_t s = 0; s < stages(); ++s) {
        cuts_.push_back(ends[plan_.stages[s].end]);
        first_rank_.push_back(first_rank_.back() + copies() * degree(s));
        std::vector<instruction> program;
        if (degree(s) == 1) program = undivided_program(p);
        else program = program_on(degree(s), p);
        check_for_stages(p, program, batch);
        programs_.push_back(program_of_stage(p, program, cuts_[s], cuts_[s + 1]));
    }
}

HEDDLE_INLINE std::vector<instruction> pipeline_layout::program_on(std::size_t devices,
                                                                   indexed_program const& p) const {
    std::string const group = "groups of " + std::to_string(devices);
    auto const found = plan_.groups.find(devices);
    if (found == plan_.groups.end()) fail(group, "there is no plan of the model on them");
    if (auto const checked = verify(p, found->second); !checked) fail(group, checked.problem);
    if (found->second.devices.size() != devices)
        fail(group, "the plan is for " + std::to_string(found->second.devices.size()) + " devices");
    std::vector<instruction> program;
    for (auto const& s : found->second.steps) program.push_back(s.instruction);
    return program;
}

HEDDLE_INLINE void pipeline_layout::divide_batch(extent places) {
    constexpr std::int64_t most = 1 << 20;
    if (plan_.micro_batches > most)
        fail("micro-batches", std::to_string(plan_.micro_batches) + ", expected at most " + std::to_string(most));
    auto const copies = static_cast<extent>(plan_.copies());
    if (extent const most_samples = (places + copies - 1) / copies; plan_.micro_batch_size > most_samples)
        fail("micro-batches", "of " + std::to_string(plan_.micro_batch_size) + " samples, a copy of the model has " +
                                  std::to_string(most_samples));
    for (extent c = 0, begin = 0; c < copies; ++c) {
        extent const samples = places / copies + (c < places % copies ? 1 : 0), end = begin + samples;
        extent const size = plan_.micro_batch_size > 0 ? plan_.micro_batch_size
                                                       : (samples + plan_.micro_batches - 1) / plan_.micro_batches;
        std::string const counts = std::to_string(plan_.micro_batches) + " of " + std::to_string(size);
        if (size * plan_.micro_batches < samples)
            fail("micro-batches", counts + ", expected enough for a copy's " + std::to_string(samples) + " samples");
        if (c == 0 && plan_.micro_batch_size > 0 && size * (plan_.micro_batches - 1) >= samples)
            fail("micro-batches",
                 counts + ", expected no more than a copy's " + std::to_string(samples) + " samples need");
        for (extent m = 0; m < plan_.micro_batches; ++m) {
            extent const first = std::min(begin + m * size, end);
            ranges_.push_back({first, std::min(size, end - first)});
        }
        begin = end;
    }
}

} // namespace heddle

#endif
