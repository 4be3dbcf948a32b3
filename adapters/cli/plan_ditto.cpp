// SPDX-License-Identifier: BSL-1.0
// heddle plan --planner ditto turns a model and a cluster, or a profile of layers, into a pipeline template.
#include "make_plan.hpp"

#include <heddle/json/templates.hpp>
#include <heddle/planner/ditto.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace heddle::cli {

namespace {

ditto_options options_of(plan_arguments const& arguments, std::vector<std::string> const& types,
                         attended_run& attended) {
    auto const& asked = arguments.ditto;
    ditto_options options;
    options.method = asked.method == "recover" ? template_method::recover
                     : asked.method == "exact" ? template_method::exact
                                               : template_method::both;
    options.folding.communication = asked.fold_communication;
    options.folding.across_machines = seconds(asked.across_machines);
    options.folding.memory = asked.fold_memory;
    if (!asked.reference.empty()) {
        auto const found = std::ranges::find(types, asked.reference);
        if (found == types.end()) throw input_error("--reference " + asked.reference, "is no type of the machines");
        options.folding.reference = static_cast<std::size_t>(found - types.begin());
    }
    options.recovery.beam = asked.beam;
    options.recovery.slack = asked.slack;
    options.recovery.exchanges = asked.exchanges;
    options.limits = {.seconds = arguments.time_limit, .labels = arguments.label_limit, .stop = attended.stop()};
    options.progress = shown_by(attended, "ditto");
    return options;
}

/// Calls `use` with the schedule that the arguments ask for.
template <class Use>
pipeline_plan with_schedule(plan_arguments const& arguments, Use const& use) {
    if (arguments.ditto.schedule == "oobleck") return use(oobleck_estimate{arguments.ditto.more_slots});
    return use(one_f_one_b{});
}

} // namespace

pipeline_plan plan_by_ditto(plan_arguments const& arguments, plan_input const& input, cluster const& c,
                            attended_run& attended) {
    attended.show("ditto, layers");
    auto const& asked = arguments.ditto;
    ditto_program_options options;
    options.micro_batch_size = asked.micro_batch;
    if (!asked.split.empty()) options.split = json::value_of(json::machine_splits, asked.split).value();
    options.profile.training = training_of(arguments);
    std::vector<std::string> types;
    for (auto const t : detail::types_in_use(c)) types.push_back(c.types[t].name);
    options.planner = options_of(arguments, types, attended);
    return with_schedule(arguments, [&](auto const& schedule) {
        return plan_ditto(input.model.program, layers_of(arguments, input.model.program, c), c, options, schedule);
    });
}

pipeline_plan plan_profile_by_ditto(plan_arguments const& arguments, attended_run& attended) {
    auto const& asked = arguments.ditto;
    auto problem = json::read_template_problem(arguments.profile);
    if (!asked.split.empty()) problem.split = json::value_of(json::machine_splits, asked.split).value();
    if (arguments.memory_limit)
        for (auto& type : problem.types)
            type.memory_limit = std::min(type.memory_limit, bytes(*arguments.memory_limit));
    std::vector<std::string> types;
    for (auto const& t : problem.types) types.push_back(t.name);
    auto const options = options_of(arguments, types, attended);
    return with_schedule(arguments, [&](auto const& schedule) {
        if (asked.most_machines)
            return make_pipeline_plan(
                problem, plan_copies(problem, {.most_machines = *asked.most_machines, .plan = options}, schedule));
        return make_pipeline_plan(problem, plan_ditto(problem, options, schedule), numbered_by_type(problem), schedule);
    });
}

} // namespace heddle::cli
