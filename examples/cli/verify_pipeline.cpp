// SPDX-License-Identifier: BSL-1.0
// heddle verify, of a pipeline plan: is every layer somewhere once, does it cost what it says, and compute what its model does?
#include "commands.hpp"
#include "plan_input.hpp"
#include "verify_run.hpp"

#include <heddle/base/printable.hpp>
#include <heddle/execute/prove_pipeline.hpp>
#include <heddle/execute/shrink_pipeline.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/pipeline_plan.hpp>
#include <heddle/planner/price_pipeline.hpp>

#include <nlohmann/json.hpp>

#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace heddle::cli {

namespace {

std::string shape_of(pipeline_plan const& p) {
    return std::to_string(p.stages.size()) + " stages, " + std::to_string(p.copies()) + " copies, " + std::to_string(p.micro_batches) + " micro-batches";
}

} // namespace

int run_verify_pipeline(verify_arguments const& arguments) {
    auto const p = json::read_pipeline_plan(arguments.plan);
    auto const model = read_planned_model(arguments.model, p.provenance);
    auto warnings = model.warnings;

    auto const checked = verify(model.program, p);
    std::string problem = checked.problem;
    bool const is_priced = checked && !arguments.cluster.empty();
    if (is_priced) problem = difference(p, priced(model.program, p, read_planned_cluster(arguments.cluster, p.provenance, warnings)));
    std::optional<pipelined_program> ran;
    std::optional<proof> shown;
    if (problem.empty() && arguments.run) {
        ran = arguments.shrink ? shrink(model.program, p) : pipelined_program{model.program, p};
        check_size(arguments, size_of_execution(index_program(ran->program), ran->plan));
        check_ranks(arguments, p.devices.size());
        shown = cli::run(arguments, *ran);
        problem = shown->problem;
    }

    if (arguments.json) {
        auto out = verdict(problem);
        out["stages"] = p.stages.size();
        out["copies"] = p.copies();
        out["priced"] = is_priced;
        out["executed"] = shown.has_value();
        out["shrunk"] = arguments.shrink;
        if (ran) out["micro_batches"] = ran->plan.micro_batches;
        if (shown) add_differences(out, *shown);
        out["warnings"] = warnings;
        std::cout << out.dump() << '\n';
    } else {
        for (auto const& w : warnings) std::cerr << "warning: " << printable(w, 1000) << '\n';
        if (checked) std::cout << "valid: " << shape_of(p) << "; every layer of " << printable(model.name) << " once, memory within its limits" << std::endl;
        if (is_priced && (problem.empty() || shown)) std::cout << "priced again: times and memory are as planned" << std::endl;
        if (ran && arguments.shrink) std::cout << "run with smaller dimensions: " << shape_of(ran->plan) << std::endl;
        if (shown) print_differences(*shown);
    }
    return conclude(arguments, problem);
}

} // namespace heddle::cli
