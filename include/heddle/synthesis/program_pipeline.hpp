// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a pipeline plan says of the program and the cluster that it is of.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/pipeline/template_layout.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/program_profile.hpp>

#include <cstddef>
#include <vector>

namespace heddle {

/// The devices of a cluster as a plan has them, machine by machine; nothing is held on them.
[[nodiscard]] std::vector<placed_device> placed_devices(cluster const& c);

/// Returns the machines of a cluster by type, in the order of `types_in_use`.
[[nodiscard]] machine_numbers numbered_in_cluster(cluster const& c);

/// Names the program's operators in a plan, says how tensor groups compute them, and warns of an operator that cannot
/// run in micro-batches.
void describe(pipeline_plan& plan, program const& p, program_layers const& layers, cluster const& c,
              training_options const& training);

/// A plan of nothing, as layers could not be priced in time.
[[nodiscard]] pipeline_plan unpriced_plan(program const& p, program_layers const& layers, cluster const& c,
                                          profile_options const& profile, search::deadline const& until);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/synthesis/tensor_groups.hpp>
#include <heddle/theory/batch_split.hpp>

namespace heddle {

HEDDLE_INLINE std::vector<placed_device> placed_devices(cluster const& c) {
    std::vector<placed_device> devices;
    auto const types = c.devices();
    std::size_t machine = 0;
    for (auto const& m : c.machines)
        for (int n = 0; n < m.count; ++n, ++machine)
            for (int k = 0; k < m.devices; ++k) {
                auto const& type = c.types[types[devices.size()]];
                devices.push_back({type.name, machine, bytes(0), type.memory});
            }
    return devices;
}

HEDDLE_INLINE machine_numbers numbered_in_cluster(cluster const& c) {
    auto const types = detail::types_in_use(c);
    machine_numbers numbers(types.size());
    std::size_t next = 0;
    for (auto const& m : c.machines)
        for (int n = 0; n < m.count; ++n)
            numbers[static_cast<std::size_t>(algorithm::find(types, m.type) - types.begin())].push_back(next++);
    return numbers;
}

HEDDLE_INLINE void describe(pipeline_plan& plan, program const& p, program_layers const& layers, cluster const& c,
                            training_options const& training) {
    for (std::size_t l = 0; l < plan.layers.size(); ++l) plan.layers[l].operators = layers.cuts[l + 1] - layers.cuts[l];
    plan.provenance.training = training;
    add_groups(plan, p, layers, c, training);
    try {
        (void)split_along_batch(index_program(p));
    } catch (input_error const& e) { plan.warnings.push_back(e.what()); }
}

HEDDLE_INLINE pipeline_plan unpriced_plan(program const& p, program_layers const& layers, cluster const& c,
                                          profile_options const& profile, search::deadline const& until) {
    pipeline_plan plan;
    plan.provenance.cluster = c.name;
    for (auto const& name : layers.names) plan.layers.push_back({name});
    plan.devices = placed_devices(c);
    plan.global_batch = profile.global_batch.value_or(batch_size_of(index_program(p)));
    plan.status = search::status::limit;
    plan.which_limit = until.reached();
    plan.seconds = until.elapsed();
    return plan;
}

} // namespace heddle

#endif
