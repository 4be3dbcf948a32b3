// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Whether the figures of a pipeline plan agree with each other, and with those of the same plan priced anew.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/plan/figures.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace heddle {

namespace detail {

/// Calls `use` with the schedule by which a plan's time is estimated, known by its name. *Throws* `input_error` for
/// another name, and for a schedule that cannot run the plan. *Precondition:* the plan exists.
template <class Use>
void with_schedule(pipeline_plan const& plan, Use const& use) {
    std::string const place = "pipeline plan, schedule";
    bool const is_estimate = plan.schedule == oobleck_estimate::name;
    if (plan.more_slots != 0 && !is_estimate)
        throw input_error(place, "is '" + plan.schedule + "', but slots are added, which only '" +
                                     oobleck_estimate::name + "' does");
    if (plan.schedule == one_f_one_b::name) return use(one_f_one_b{});
    if (plan.schedule == gpipe::name) return use(gpipe{});
    if (!is_estimate)
        throw input_error(place, "is '" + plan.schedule + "', expected '" + one_f_one_b::name + "', '" + gpipe::name +
                                     "' or '" + oobleck_estimate::name + "'");
    oobleck_estimate const estimate{plan.more_slots};
    if (!estimate.can_run({plan.stages.size(), plan.micro_batches}))
        throw input_error(place, "cannot run " + std::to_string(plan.micro_batches) + " micro-batches on " +
                                     std::to_string(plan.stages.size()) + " stages with " +
                                     std::to_string(plan.more_slots) + " slots added");
    use(estimate);
}

} // namespace detail

/// Returns in a sentence the first prediction of a plan that differs when the plan is `priced` on a cluster; nothing if
/// all agree to rounding.
/// *Precondition:* `again` is the plan priced.
[[nodiscard]] std::string difference(pipeline_plan const& plan, pipeline_plan const& again);

/// Checks whether the figures of a pipeline plan agree with each other: the pipeline's time and bubble with its stages'
/// times; the memory of a stage's devices; limits; bound and status with the cost; and those of the groups' plans with
/// their steps. It does not check what a stage takes, which needs the model and a cluster.
/// *Precondition.* `verify`, or a reader, has accepted the plan.
[[nodiscard]] verification verify_figures(pipeline_plan const& p);

/// Tells whether what the stages hold follows from the model alone: stages have one device each and, if they are
/// templates, could not have more.
[[nodiscard]] bool has_plain_memory(pipeline_plan const& p);

/// Returns the fields of a pipeline plan's file that nobody can derive from the plan, its model and its cluster.
[[nodiscard]] std::vector<std::string> claims_of(pipeline_plan const& p, bool has_cluster);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/pipeline/template_plan.hpp>

namespace heddle {

HEDDLE_INLINE std::string difference(pipeline_plan const& plan, pipeline_plan const& again) {
    double const cost = again.cost();
    auto const compare = [&](std::string const& what, double said, double found, char const* unit) {
        detail::require_near(said, found, cost, what, unit);
    };
    return detail::verified([&] {
               for (std::size_t s = 0; s < plan.stages.size(); ++s) {
                   auto const &said = plan.stages[s], &found = again.stages[s];
                   std::string const stage = "stage " + std::to_string(s);
                   detail::require_figure(said.devices == found.devices,
                                          stage + " has other devices than its template gives it");
                   compare(stage + ": its time", said.time.value, found.time.value, " s");
                   compare(stage + ": what enters it", said.boundary.value, found.boundary.value, " s");
               }
               compare("the pipeline's time", plan.time.pipeline.value, again.time.pipeline.value, " s");
               compare("the gradients' time", plan.time.synchronisation.value, again.time.synchronisation.value, " s");
               compare("the optimiser's time", plan.time.update.value, again.time.update.value, " s");
               detail::limits_of_cluster limits;
               for (std::size_t d = 0; d < plan.devices.size(); ++d) {
                   auto const &said = plan.devices[d], &found = again.devices[d];
                   std::string const device = "device " + std::to_string(d);
                   detail::require_figure(said.machine == found.machine,
                                          device + " is on machine " + std::to_string(said.machine) +
                                              ", in the cluster on " + std::to_string(found.machine));
                   detail::require_near(said.memory.value, found.memory.value, 0, device + ": its memory", " bytes");
                   limits.add(device, said.memory_limit, found.memory_limit);
               }
               limits.check();
           })
        .problem;
}

HEDDLE_INLINE verification verify_figures(pipeline_plan const& p) {
    return detail::verified([&] {
        using detail::require_figure, detail::is_near;
        validate(p);
        require_figure(p.exists(), "the plan has no stages");
        detail::check_status(p);
        std::vector<double> times;
        double busy = 0, sum = 0, pace = 0;
        for (auto const& s : p.stages) {
            times.push_back(s.time.value);
            busy += s.time.value;
            sum += s.time.value + s.boundary.value;
            pace = std::max({pace, s.time.value, s.boundary.value});
            require_figure(s.time.value >= 0 && s.boundary.value >= 0, "the time of a stage is negative or no number");
        }
        auto const& t = p.time;
        require_figure(t.pipeline.value >= 0 && t.synchronisation.value >= 0 && t.update.value >= 0,
                       "a time is negative or no number");
        double pipeline = 0;
        detail::with_schedule(p, [&](auto const& schedule) {
            bool const is_estimate =
                std::remove_cvref_t<decltype(schedule)>::counts_tail; // of what enters stages it knows nothing
            pipeline = is_estimate ? detail::iteration_time(std::span<double const>(times), p.micro_batches, schedule)
                                   : sum + static_cast<double>(p.micro_batches - 1) * pace;
        });
        detail::require_near(t.pipeline.value, pipeline, 0, "the pipeline's time", " s");
        double const waits = t.pipeline.value > 0 ? 1 - static_cast<double>(p.micro_batches) * busy / t.pipeline.value /
                                                            static_cast<double>(p.stages.size())
                                                  : 0;
        detail::require_near(p.bubble, std::max(0.0, waits), 1e3, "the share of time that stages wait", "");
        std::vector<std::optional<bytes>> held(p.devices.size());
        for (std::size_t s = 0; s < p.stages.size(); ++s)
            for (auto const& group : p.stages[s].devices)
                for (auto const d : group) {
                    held[d] = p.devices[d].memory;
                    bytes const expected = p.devices[p.stages[s].devices.front().front()].memory;
                    detail::require_near(
                        held[d]->value, expected.value, 0,
                        "device " + std::to_string(d) + " of stage " + std::to_string(s) + ": its memory", " bytes");
                }
        detail::one_limit_per_type limits;
        for (std::size_t d = 0; d < p.devices.size(); ++d) {
            std::string const device = "device " + std::to_string(d);
            require_figure(held[d] || p.devices[d].memory == bytes(0),
                           device + " is in no stage, but holds " +
                               detail::in_words(p.devices[d].memory.value, " bytes"));
            limits.check(p.devices[d].type, p.devices[d].memory_limit, device);
        }
        for (auto const& [size, group] : p.groups) {
            std::string const place = "groups of " + std::to_string(size);
            if (auto const checked = verify_figures(group); !checked)
                throw detail::wrong_figure{place + ": " + checked.problem};
            auto const &theirs = group.provenance.training, &ours = p.provenance.training;
            require_figure(theirs.optimizer_bytes_per_element == ours.optimizer_bytes_per_element &&
                               theirs.keeps_master_weights == ours.keeps_master_weights,
                           place + " are planned for another optimiser");
        }
    });
}

HEDDLE_INLINE bool has_plain_memory(pipeline_plan const& p) {
    bool const is_alone = std::ranges::adjacent_find(p.devices, {}, &placed_device::machine) == p.devices.end();
    return algorithm::all_of(p.stages, [](pipeline_stage const& s) { return s.degree() == 1; }) &&
           (is_alone || !p.counts_stages_alone());
}

HEDDLE_INLINE std::vector<std::string> claims_of(pipeline_plan const& p, bool has_cluster) {
    std::vector<std::string> claims{"status", "lower_bound", "space"};
    if (p.schedule != one_f_one_b::name) claims.push_back("schedule"); // what runs is 1F1B
    if (p.more_slots != 0) claims.push_back("more_slots");
    if (!p.baselines.empty()) claims.push_back("baselines");
    for (char const* field : {"statistics", "seconds"}) claims.push_back(field);
    if (!p.groups.empty())
        for (auto const& claim : claims_of(p.groups.begin()->second, has_cluster)) claims.push_back("groups." + claim);
    if (has_cluster) return claims;
    for (char const* field :
         {"cost", "time", "stages.time", "stages.boundary", "devices.type", "devices.machine", "devices.memory_limit"})
        claims.push_back(field);
    if (!has_plain_memory(p)) claims.push_back("devices.memory");
    return claims;
}

} // namespace heddle

#endif
