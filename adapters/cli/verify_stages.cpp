// SPDX-License-Identifier: BSL-1.0
// heddle verify of a plan of several stages checks whether every operator is somewhere once, and each stage's program.
#include "commands.hpp"
#include "plan_input.hpp"
#include "verify_run.hpp"

#include <heddle/base/printable.hpp>
#include <heddle/json/staged_plan.hpp>
#include <heddle/plan/verify_staged.hpp>

#include <nlohmann/json.hpp>

#include <iostream>
#include <string>

namespace heddle::cli {

int run_verify_stages(verify_arguments const& arguments, std::string const& text) {
    auto const p = json::parse_staged_plan(text, arguments.plan);
    auto const model = read_planned_model(arguments.model, arguments.inputs, p.provenance);
    auto warnings = model.warnings;
    auto const on = read_cluster_of(arguments, p.provenance, warnings);
    auto const checked = verify(model.program, p);
    auto const figures = checked && on ? verify_figures(p, *on) : checked;
    if (arguments.run) warnings.push_back("plans of several stages are not run yet; their programs are checked");
    if (arguments.json) {
        auto out = verdict(figures.problem);
        out["stages"] = p.stages.size();
        out["micro_batches"] = p.micro_batches;
        out["priced"] = checked && on;
        out["warnings"] = warnings;
        std::cout << out.dump() << '\n';
    } else {
        for (auto const& w : warnings) std::cerr << "warning: " << printable(w, 1000) << '\n';
        if (figures)
            std::cout << "valid: " << p.stages.size() << " stages, " << p.micro_batches
                      << " micro-batches; every operator of " << printable(model.name)
                      << " once, every property re-derived\n"
                      << (on ? "priced again: every second is as planned\n" : "");
    }
    return conclude(arguments, figures.problem);
}

} // namespace heddle::cli
