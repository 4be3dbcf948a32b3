// SPDX-License-Identifier: BSL-1.0
// heddle verify of a plan of several stages checks whether every operator is somewhere once, and each stage's program,
// and runs all stages.
#include "commands.hpp"
#include "plan_input.hpp"
#include "verify_run.hpp"

#include <heddle/base/printable.hpp>
#include <heddle/json/staged_plan.hpp>
#include <heddle/plan/verify_staged.hpp>

#include <nlohmann/json.hpp>

#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace heddle::cli {

namespace {

/// What was checked of a plan is not said anew of each stage.
std::vector<std::string> short_claims(staged_plan const& p, bool has_cluster) {
    auto claims = claims_of(p, has_cluster);
    if (std::erase_if(claims, [](auto const& c) { return c.starts_with("pipeline.plan."); }) > 0)
        claims.emplace_back("and those of its stages' plans");
    return claims;
}

std::string shape_of(staged_plan const& p) {
    return heddle::detail::stages_in_words(p) + ", " + std::to_string(p.micro_batches) + " micro-batches";
}

} // namespace

int run_verify_stages(verify_arguments const& arguments, std::string const& text) {
    auto const p = json::parse_staged_plan(text, arguments.plan);
    auto const model = read_planned_model(arguments.model, arguments.inputs, p);
    auto warnings = model.warnings;
    auto const on = read_cluster_of(arguments, p, warnings);

    auto const checked = verify(model.program, p);
    auto const figures = checked ? on ? verify_figures(p, *on) : verify_figures(p) : checked;
    std::string problem = figures.problem;
    std::optional<executed_plan<staged_program>> ran;
    if (figures && arguments.run) {
        check_ranks(arguments, p.ranks().size());
        ran = execute(
            arguments, staged_program{model.program, p},
            [](staged_program const& x) { return size_of_execution(x.program, x.plan); },
            [&](shrink_options const& options) { return shrink(model.program, p, options); });
        problem = ran->shown.problem;
        add_warnings(warnings, *ran);
    }

    if (arguments.json) {
        auto out = verdict(problem);
        out["stages"] = p.stages.size();
        out["priced"] = checked && on;
        out["claims"] = claims_of(p, on.has_value());
        add_extent(out, ran);
        if (ran) {
            out["planned_shares"] = has_planned_shares(*ran);
            if (ran->at_once) out["micro_batches"] = ran->at_once->plan.micro_batches;
            add_differences(out, ran->shown);
        }
        out["warnings"] = warnings;
        std::cout << out.dump() << '\n';
    } else {
        for (auto const& w : warnings) std::cerr << "warning: " << printable(w, 1000) << '\n';
        if (figures)
            std::cout << "valid: " << shape_of(p) << "; every operator of " << printable(model.name)
                      << " once, every property re-derived" << std::endl;
        if (figures)
            print_extent(on ? "priced again: every second and byte is as planned"
                            : "memory, counts, ratios and status agree with the steps",
                         short_claims(p, on.has_value()));
        if (ran) print_pieces(*ran);
        if (ran && ran->at_once && ran->is_shrunk)
            std::cout << "run with smaller dimensions: " << shape_of(ran->at_once->plan) << ", the shares "
                      << words_for_shares(ran->at_once->has_planned_counts) << std::endl;
        if (ran) print_differences(ran->shown);
    }
    return conclude(arguments, problem);
}

} // namespace heddle::cli
