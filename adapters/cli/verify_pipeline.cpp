// SPDX-License-Identifier: BSL-1.0
// heddle verify of a pipeline plan checks whether every layer is somewhere once, costs what the plan says, and the
// stages compute what the model does.
#include "commands.hpp"
#include "plan_input.hpp"
#include "verify_run.hpp"

#include <heddle/base/printable.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/pipeline_plan.hpp>
#include <heddle/synthesis/price_pipeline.hpp>

#include <nlohmann/json.hpp>

#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace heddle::cli {

namespace {

std::string shape_of(pipeline_plan const& p) {
    return std::to_string(p.stages.size()) + " stages, " + std::to_string(p.copies()) + " copies, " +
           std::to_string(p.micro_batches) + " micro-batches";
}

} // namespace

int run_verify_pipeline(verify_arguments const& arguments) {
    auto const p = json::read_pipeline_plan(arguments.plan);
    auto const model = read_planned_model(arguments.model, arguments.inputs, p);
    auto warnings = model.warnings;
    auto const on = read_cluster_of(arguments, p, warnings);

    auto const checked = verify(model.program, p);
    auto const figures =
        checked ? on ? verify_figures(model.program, p, *on) : verify_figures(model.program, p) : checked;
    std::string problem = figures.problem;
    std::optional<executed_plan<pipelined_program>> ran;
    if (problem.empty() && arguments.run) {
        check_ranks(arguments, p.devices.size());
        ran = execute(
            arguments, pipelined_program{model.program, p},
            [](pipelined_program const& x) { return size_of_execution(index_program(x.program), x.plan); },
            [&](shrink_options const&) { return shrink(model.program, p); });
        problem = ran->shown.problem;
        add_warnings(warnings, *ran);
    }

    if (arguments.json) {
        auto out = verdict(problem);
        out["stages"] = p.stages.size();
        out["copies"] = p.copies();
        out["priced"] = checked && on;
        out["claims"] = claims_of(p, on.has_value());
        add_extent(out, ran);
        if (ran && ran->at_once) out["micro_batches"] = ran->at_once->plan.micro_batches;
        if (ran) add_differences(out, ran->shown);
        out["warnings"] = warnings;
        std::cout << out.dump() << '\n';
    } else {
        for (auto const& w : warnings) std::cerr << "warning: " << printable(w, 1000) << '\n';
        if (figures)
            std::cout << "valid: " << shape_of(p) << "; every layer of " << printable(model.name)
                      << " once, memory within its limits" << std::endl;
        if (figures)
            print_extent(on ? "priced again: every second and byte is as planned"
                            : "times, memory and status agree with each other",
                         claims_of(p, on.has_value()));
        if (ran) print_pieces(*ran);
        if (ran && ran->at_once && ran->is_shrunk)
            std::cout << "run with smaller dimensions: " << shape_of(ran->at_once->plan) << std::endl;
        if (ran) print_differences(ran->shown);
    }
    return conclude(arguments, problem);
}

} // namespace heddle::cli
