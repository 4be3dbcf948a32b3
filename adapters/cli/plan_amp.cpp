// SPDX-License-Identifier: BSL-1.0
// heddle plan --planner amp turns a model and a cluster, or a profile of layers, into a pipeline strategy.
#include "plan_input.hpp"

#include <heddle/json/file.hpp>
#include <heddle/json/layer_profile.hpp>
#include <heddle/planner/amp.hpp>

#include <algorithm>
#include <utility>

namespace heddle::cli {

namespace {

amp_options amp_options_of(plan_arguments const& arguments, attended_run& attended) {
    auto const& asked = arguments.amp;
    amp_options options;
    options.record = asked.record;
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

pipeline_plan plan_by_amp(plan_arguments const& arguments, plan_input const& input, attended_run& attended) {
    attended.show("amp, layers");
    return plan_amp(input.model.program, layers_of(arguments, input), input.cluster,
                    amp_options_of(arguments, attended), {.training = training_of(arguments)});
}

} // namespace

int run_plan_amp(plan_arguments const& arguments) {
    if (!arguments.out.empty()) json::require_writable(arguments.out);
    if (arguments.profile.empty()) {
        auto const input = read_input(arguments);
        auto plan = [&] {
            attended_run attended;
            return plan_by_amp(arguments, input, attended);
        }();
        return finish(arguments, std::move(plan), &input);
    }
    auto problem = json::read_layer_profile(arguments.profile);
    if (arguments.batch) problem.global_batch = *arguments.batch;
    if (arguments.memory_limit)
        for (auto& type : problem.types) type.memory = std::min(type.memory, bytes(*arguments.memory_limit));
    auto const found = [&] {
        attended_run attended;
        return plan_amp(problem, amp_options_of(arguments, attended));
    }();
    return finish(arguments, make_pipeline_plan(problem, found), nullptr);
}

} // namespace heddle::cli
