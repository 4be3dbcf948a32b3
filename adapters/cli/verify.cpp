// SPDX-License-Identifier: BSL-1.0
// heddle verify checks whether a plan computes what its model does, and whether what it says of itself is so: first by
// its properties and figures, then by running both.
#include "commands.hpp"
#include "plan_input.hpp"
#include "verify_run.hpp"

#include <heddle/base/printable.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <iostream>
#include <optional>

namespace heddle::cli {

namespace {

void add_collectives(nlohmann::ordered_json& out, proof const& shown) {
    for (std::size_t k = 0; k < collective_count; ++k) {
        auto const& charged = shown.charged[k];
        out["collectives"][name(static_cast<collective>(k))] = {{"executed_bytes", shown.executed[k].value},
                                                                {"charged_bytes", charged.total().value},
                                                                {"forward_bytes", charged.forward.value},
                                                                {"backward_bytes", charged.backward.value},
                                                                {"gradient_bytes", charged.gradient.value}};
        if (shown.has_groups)
            out["collectives_inside_groups"][name(static_cast<collective>(k))] = {
                {"executed_bytes", shown.executed_inside[k].value}, {"charged_bytes", shown.charged_inside[k].value}};
    }
}

void print_collectives(proof const& shown, bool is_on_mesh) {
    std::printf("  %-14s %16s %16s\n", "collective", "bytes executed", "bytes charged");
    auto const row = [](std::size_t k, double executed, double charged) {
        if (executed > 0 || charged > 0)
            std::printf("  %-14s %16.0f %16.0f\n", name(static_cast<collective>(k)), executed, charged);
    };
    for (std::size_t k = 0; k < collective_count; ++k) row(k, shown.executed[k].value, shown.charged[k].total().value);
    if (shown.has_groups) std::printf(is_on_mesh ? "along inner axes\n" : "inside all device groups\n");
    for (std::size_t k = 0; k < collective_count; ++k)
        row(k, shown.executed_inside[k].value, shown.charged_inside[k].value);
}

} // namespace

int run_verify(verify_arguments const& arguments) {
    auto const text = json::read_text(arguments.plan);
    if (is_pipeline_plan(arguments.plan, text)) return run_verify_pipeline(arguments);
    if (json::has_stages(text, arguments.plan)) return run_verify_stages(arguments, text);
    auto const p = json::parse_plan(text, arguments.plan);
    auto const model = read_planned_model(arguments.model, arguments.inputs, p);
    auto warnings = model.warnings;
    auto const on = read_cluster_of(arguments, p, warnings);

    auto const checked = verify(model.program, p);
    auto const figures = checked ? on ? verify_figures(p, *on) : verify_figures(p) : checked;
    std::string problem = figures.problem;
    std::optional<executed_plan<planned_program>> ran;
    if (figures && arguments.run) {
        check_ranks(arguments, ranks_of(p));
        ran = execute(
            arguments, planned_program{model.program, p},
            [](planned_program const& x) { return size_of_execution(index_for(x.program, x.plan), x.plan); },
            [&](shrink_options const& options) { return shrink(model.program, p, options); });
        problem = ran->shown.problem;
        add_warnings(warnings, *ran);
    }

    if (arguments.json) {
        auto out = verdict(problem);
        out["steps"] = p.steps.size();
        out["priced"] = checked && on;
        out["claims"] = claims_of(p, on.has_value());
        add_extent(out, ran);
        if (ran) out["planned_shares"] = has_planned_shares(*ran);
        if (ran) add_differences(out, ran->shown), add_collectives(out, ran->shown);
        out["warnings"] = warnings;
        std::cout << out.dump() << '\n';
    } else {
        for (auto const& w : warnings) std::cerr << "warning: " << printable(w, 1000) << '\n';
        if (figures)
            std::cout << "valid: " << p.steps.size() << " steps, every property re-derived from the index rules of "
                      << printable(model.name) << std::endl;
        if (figures)
            print_extent(on ? "priced again: every second and byte is as planned"
                            : "memory, counts, ratios and status agree with the steps",
                         claims_of(p, on.has_value()));
        if (ran) print_pieces(*ran);
        if (ran && ran->at_once && ran->is_shrunk)
            std::cout << "run with smaller dimensions, the shares "
                      << words_for_shares(ran->at_once->has_planned_counts) << std::endl;
        if (ran) print_differences(ran->shown), print_collectives(ran->shown, p.is_on_mesh());
    }
    return conclude(arguments, problem);
}

} // namespace heddle::cli
