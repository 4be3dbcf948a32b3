// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A pipeline plan says where every layer is, whoever planned it. It is plain data that stands on its own.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/search/outcome.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// One device; devices are listed machine by machine in the order of the plan.
struct placed_device {
    std::string type;
    std::size_t machine = 0;
    /// The most that its stage makes it hold, which is nothing if the plan does not use the device; and its limit.
    bytes memory, memory_limit;
};

struct pipeline_layer {
    std::string name;
    /// The number of the model's operators in the layer; layers have them in the model's order. It is zero if the
    /// layers are a profile's.
    std::size_t operators = 0;
};

/// The layers [first, end), on one tensor group for each copy of the model.
struct pipeline_stage {
    std::size_t first = 0, end = 0;
    /// The devices that share the layers, by copy. The groups of all copies are equally large.
    std::vector<std::vector<std::size_t>> devices;
    /// The forward and backward time of one micro-batch in the slowest copy; and the time of what enters the stage,
    /// from the stage before.
    seconds time, boundary;

    /// Returns the number of devices in a group.
    [[nodiscard]] std::size_t degree() const { return devices.empty() ? 0 : devices.front().size(); }
};

/// The predicted seconds of an iteration; the terms add up.
struct pipeline_times {
    /// The pipeline's time in the slowest copy; the time to sum the copies' gradients; the longest step of an
    /// optimiser.
    seconds pipeline, synchronisation, update{};
    [[nodiscard]] double total() const { return (pipeline + synchronisation + update).value; }
};

/// Micro-batches pass through the stages in turn, one forward, one backward (1F1B): stage s holds at most those of the
/// `stages - s` next micro-batches.
struct pipeline_plan : search::outcome<> {
    heddle::provenance provenance;
    std::vector<pipeline_layer> layers;
    std::vector<placed_device> devices;
    std::vector<pipeline_stage> stages;
    /// How tensor groups of several devices compute the whole model, by their size; a stage's group has the part of its
    /// operators. It is empty if layers are a profile's.
    std::map<std::size_t, plan> groups;
    /// The number of micro-batches of one copy per iteration.
    std::int64_t micro_batches = 1;
    /// The schedule by which an iteration's time is estimated; plans are run as 1F1B.
    std::string schedule = "1f1b";
    /// The slots of the slowest stage that an estimate was told to add.
    std::int64_t more_slots = 0;
    /// The samples of a micro-batch and of an iteration; zero if the profile does not say. A copy's last micro-batch
    /// may have fewer.
    std::int64_t micro_batch_size = 0, global_batch = 0;

    pipeline_times time;
    /// The average share of the pipeline's time that its stages spend waiting.
    double bubble = 0;
    /// What status and lower bound refer to, in words that follow "optimal among"; empty if nobody said.
    std::string space;
    /// The seconds per iteration of other strategies under the same model; absent if memory forbids the strategy.
    std::map<std::string, std::optional<double>> baselines;
    /// What the search counted, by name.
    std::map<std::string, std::size_t> statistics;
    /// The seconds that the search took.
    double seconds = 0;
    std::vector<std::string> warnings;

    [[nodiscard]] bool exists() const { return !stages.empty(); }
    [[nodiscard]] std::size_t copies() const { return stages.empty() ? 0 : stages.front().devices.size(); }
    [[nodiscard]] double cost() const { return time.total(); }
    /// Returns the relative distance between cost and bound.
    [[nodiscard]] double gap() const { return cost() > 0 ? 1 - lower_bound / cost() : 0; }
    [[nodiscard]] std::size_t operator_count() const;
    /// Whether stages are all that takes time, as templates have it: one copy of the model, and nothing for what stages
    /// send each other, for gradients and for the optimiser, which strategies count.
    [[nodiscard]] bool counts_stages_alone() const;
};

/// *Throws* `input_error` that names the first thing that is wrong: stages that do not hold each layer once and in
/// order, groups of a stage that are not equally large in every copy, or a device that is in two groups, does not
/// exist, or holds more than its limit.
void validate(pipeline_plan const& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::size_t pipeline_plan::operator_count() const {
    std::size_t count = 0;
    for (auto const& l : layers) count += l.operators;
    return count;
}

HEDDLE_INLINE bool pipeline_plan::counts_stages_alone() const {
    return copies() <= 1 && time.synchronisation.value == 0 && time.update.value == 0 &&
           std::all_of(stages.begin(), stages.end(), [](auto const& s) { return s.boundary.value == 0; });
}

HEDDLE_INLINE void validate(pipeline_plan const& p) {
    auto const fail = [](std::string const& place, std::string const& problem) { throw input_error(place, problem); };
    if (!p.exists()) return;
    if (p.micro_batches < 1) fail("micro-batches", std::to_string(p.micro_batches) + ", expected one at least");
    std::vector<bool> taken(p.devices.size());
    std::size_t next = 0;
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        auto const& stage = p.stages[s];
        std::string const place = "stage " + std::to_string(s);
        if (stage.first != next || stage.end <= stage.first || stage.end > p.layers.size())
            fail(place, "has the layers " + std::to_string(stage.first) + " to before " + std::to_string(stage.end) +
                            ", expected those from " + std::to_string(next) + " on");
        next = stage.end;
        if (stage.devices.empty() || stage.devices.size() != p.copies())
            fail(place, std::to_string(stage.devices.size()) +
                            " copies, expected as many as the first stage has, one at least");
        for (auto const& group : stage.devices) {
            if (group.empty() || group.size() != stage.devices.front().size())
                fail(place, "tensor groups of different sizes, expected as many devices in every copy, one at least");
            for (auto const d : group) {
                if (d >= p.devices.size())
                    fail(place,
                         "device " + std::to_string(d) + ", expected one of " + std::to_string(p.devices.size()));
                if (taken[d])
                    fail(place, "device " + std::to_string(d) + " has a place already, expected one place for each");
                taken[d] = true;
            }
        }
    }
    if (next != p.layers.size())
        fail("stages",
             "they hold " + std::to_string(next) + " layers, expected all " + std::to_string(p.layers.size()));
    for (std::size_t d = 0; d < p.devices.size(); ++d)
        if (p.devices[d].memory > p.devices[d].memory_limit)
            fail("device " + std::to_string(d), "holds " + std::to_string(p.devices[d].memory.value) +
                                                    " bytes, expected at most its " +
                                                    std::to_string(p.devices[d].memory_limit.value));
}

} // namespace heddle

#endif
