// SPDX-License-Identifier: BSL-1.0
// heddle plan --planner amp turns a model and a cluster, or a profile of layers, into a pipeline strategy.
#include "make_plan.hpp"

#include <heddle/json/layer_profile.hpp>
#include <heddle/planner/amp.hpp>

#include <algorithm>

namespace heddle::cli {

namespace {

amp_options amp_options_of(plan_arguments const& arguments, attended_run& attended) {
    auto const& asked = arguments.amp;
    amp_options options;
    if (arguments.record) options.record = *arguments.record;
    options.shapes.tensor_degrees = asked.tensor_degrees;
    options.shapes.pipeline = asked.pipeline;
    options.shapes.data = asked.data;
    options.shapes.spread_unevenly = !asked.even;
    options.all_placements = asked.placements;
    options.machine_orders = asked.machine_orders;
    options.annealing.steps = asked.annealing_steps;
    options.limits = {.seconds = arguments.time_limit, .stop = attended.stop()};
    options.progress = shown_by(attended, "amp");
    return options;
}

} // namespace

pipeline_plan plan_by_amp(plan_arguments const& arguments, plan_input const& input, cluster const& c,
                          attended_run& attended) {
    attended.show("amp, layers");
    return plan_amp(input.model.program, layers_of(arguments, input.model.program, c), c,
                    amp_options_of(arguments, attended), {.training = training_of(arguments)});
}

pipeline_plan plan_profile_by_amp(plan_arguments const& arguments, attended_run& attended) {
    auto problem = json::read_layer_profile(arguments.profile);
    if (arguments.batch) problem.global_batch = *arguments.batch;
    if (arguments.memory_limit)
        for (auto& type : problem.types) type.memory = std::min(type.memory, bytes(*arguments.memory_limit));
    return make_pipeline_plan(problem, plan_amp(problem, amp_options_of(arguments, attended)));
}

} // namespace heddle::cli
