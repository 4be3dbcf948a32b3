// SPDX-License-Identifier: BSL-1.0
// heddle plan --planner amp: a model and a cluster, or a profile of layers, to a pipeline strategy.
#include "plan_input.hpp"

#include <heddle/json/file.hpp>
#include <heddle/json/layer_profile.hpp>
#include <heddle/planner/program_pipelines.hpp>

#include <algorithm>

namespace heddle::cli {

int run_plan_amp(plan_arguments const& arguments) {
    auto const& asked = arguments.amp;
    amp_options options;
    options.record = asked.record;
    options.tensor_degrees = asked.tensor_degrees;
    options.pipeline = asked.pipeline;
    options.data = asked.data;
    options.spread_unevenly = !asked.even;
    options.all_placements = asked.placements;
    options.machine_orders = asked.machine_orders;
    options.annealing.steps = asked.annealing_steps;
    options.time_limit_seconds = arguments.time_limit;
    if (!arguments.out.empty()) json::require_writable(arguments.out);
    if (arguments.profile.empty()) {
        auto const input = read_input(arguments);
        return finish(arguments, plan_amp(input.model.program, layers_of(arguments, input), input.cluster, options, {.training = {.optimizer_bytes_per_element = arguments.optimizer_bytes}}), &input);
    }
    auto problem = json::read_layer_profile(arguments.profile);
    if (arguments.batch) problem.global_batch = *arguments.batch;
    if (arguments.memory_limit)
        for (auto& type : problem.types) type.memory = std::min(type.memory, bytes(*arguments.memory_limit));
    return finish(arguments, make_pipeline_plan(problem, plan_amp(problem, options)), nullptr);
}

} // namespace heddle::cli
