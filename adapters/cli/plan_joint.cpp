// SPDX-License-Identifier: BSL-1.0
// heddle plan without a planner chooses among plans of one stage and of several.
#include "output.hpp"
#include "plan_input.hpp"
#include "program_plans.hpp"

#include <heddle/html/all.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/staged_plan.hpp>
#include <heddle/json/trace.hpp>
#include <heddle/pipeline/simulate_stages.hpp>
#include <heddle/plan/staged_table.hpp>

#include <iostream>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::cli {

int run_plan_joint(plan_arguments const& arguments) {
    for (auto const& file : {arguments.out, arguments.trace, arguments.html})
        if (!file.empty()) json::require_writable(file);
    auto const input = read_input(arguments);
    if (arguments.is_free && has_groups(input.cluster)) {
        auto others = arguments;
        others.planner = "hap";
        return run_plan(others);
    }
    joint_options options;
    options.stage.training = training_of(arguments);
    options.stage.synthesis.search.limits.labels = 10'000;
    options.sends_beside = arguments.sends_beside;
    options.compares = arguments.compare;
    options.limits.seconds = arguments.time_limit;
    chosen_ratio_solver const solver(arguments.hap.solver);
    auto plan = [&] {
        attended_run attended;
        attended.show("joint");
        options.limits.stop = attended.stop();
        options.progress = shown_by(attended, "joint");
        return plan_of_all(input.model.program, input.cluster, options, solver);
    }();
    add_origin(plan.provenance, input);
    for (auto& s : plan.stages) add_origin(s.plan.provenance, input);
    plan.warnings.insert(plan.warnings.begin(), input.model.warnings.begin(), input.model.warnings.end());
    std::vector<json::staged_file> files;
    if (plan.exists() && !arguments.out.empty()) {
        // One stage with the whole batch is a plan as any other.
        auto const text = plan.stages.size() == 1 && plan.micro_batches == 1
                              ? json::write_plan(plan.stages.front().plan, {.times = arguments.times})
                              : json::write_plan(plan, {.times = arguments.times});
        files.emplace_back(arguments.out, text);
    }
    if (plan.exists() && !arguments.trace.empty())
        files.emplace_back(arguments.trace, json::write_trace(plan, simulate(plan, input.cluster)));
    if (plan.exists() && !arguments.html.empty())
        files.emplace_back(arguments.html, html::plan_page(plan, input.model.program, input.cluster));
    if (arguments.json) std::cout << json::plan_summary(plan, {.times = arguments.times}) << '\n';
    else show(plan, arguments);
    deliver(std::move(files));
    return exit_status_of(plan.status, plan.exists());
}

} // namespace heddle::cli
