// SPDX-License-Identifier: BSL-1.0
// heddle plan reads model and cluster, has them planned, and writes report, plan, trace and page.
#include "make_plan.hpp"
#include "output.hpp"
#include "plan_cache.hpp"
#include "plan_note.hpp"

#include <heddle/html/all.hpp>
#include <heddle/json/digest.hpp>
#include <heddle/json/pipeline_plan.hpp>
#include <heddle/json/plan.hpp>
#include <heddle/json/staged_plan.hpp>
#include <heddle/json/trace.hpp>
#include <heddle/plan/pipeline_table.hpp>
#include <heddle/plan/simulate.hpp>
#include <heddle/plan/staged_run.hpp>
#include <heddle/plan/staged_table.hpp>
#include <heddle/plan/table.hpp>

#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::cli {

namespace {

std::string trace_of(plan const& p, cluster const& c) { return json::write_trace(p, timeline_of(p, c)); }
std::string trace_of(staged_plan const& p, cluster const& c) {
    if (p.is_plain()) return trace_of(p.stages.front().plan, cluster_of(c, p.stages.front()));
    return json::write_trace(p, simulate(p, c));
}

nlohmann::ordered_json fields_of(std::vector<plan_note> const& notes) {
    auto fields = nlohmann::ordered_json::object();
    for (auto const& n : notes) fields[n.field] = n.value;
    return fields;
}

std::string page_of(plan const& p, std::vector<plan_note> const& notes, program const& model, cluster const& c) {
    return html::plan_page(p, index_program(model), p.exists() ? timeline_of(p, c) : timeline(), fields_of(notes));
}
std::string page_of(staged_plan const& p, std::vector<plan_note> const& notes, program const& model, cluster const& c) {
    return html::plan_page(p, model, c, fields_of(notes));
}

/// Stages the files that the arguments ask for; if there is no plan, the page alone, which says why.
void write_files(any_plan const& made, std::vector<plan_note> const& notes, plan_arguments const& arguments,
                 plan_input const& input, std::vector<json::staged_file>& files) {
    bool const is_made = exists(made);
    if (is_made && !arguments.out.empty()) files.emplace_back(arguments.out, text_of(made, arguments));
    auto const write = [&]<class Plan>(Plan const& p) {
        if constexpr (!std::is_same_v<Plan, pipeline_plan>) { // of which there are no others
            auto const c = is_made ? counted_by(p, input.cluster, arguments.hap.group_machines) : input.cluster;
            if (is_made && !arguments.trace.empty()) files.emplace_back(arguments.trace, trace_of(p, c));
            if (!arguments.html.empty()) files.emplace_back(arguments.html, page_of(p, notes, input.model.program, c));
        }
    };
    std::visit(write, made);
}

/// Prints a plan, and what was found out beside it, as the arguments ask.
template <class Plan>
void show(Plan const& p, std::vector<plan_note> const& notes, plan_arguments const& arguments) {
    if (arguments.json) {
        auto summary = json::plan_summary(p, {.times = arguments.times});
        if (!notes.empty()) {
            auto all = nlohmann::ordered_json::parse(summary);
            all.update(fields_of(notes));
            summary = all.dump();
        }
        std::cout << summary << '\n';
        return;
    }
    std::ostringstream text;
    print(text, p, {.times = arguments.times, .details = arguments.details});
    if constexpr (!std::is_same_v<Plan, pipeline_plan>) // of which that is all
        if (p.exists() && !arguments.details)
            text << "With --details operators and memory by kind too; with --html FILE as a page.\n";
    for (auto const& n : notes) text << '\n' << n.section;
    print_report(text.str());
}

int exit_status_of(search::status status, bool exists) {
    switch (status) {
    case search::status::infeasible: return infeasible;
    case search::status::limit: return exists ? done : nothing_found;
    case search::status::optimal:
    case search::status::feasible: break;
    }
    return done;
}

/// Shows a plan and puts its files in their places; returns the exit status.
int conclude(any_plan const& made, std::vector<plan_note> const& notes, plan_arguments const& arguments,
             std::vector<json::staged_file> files) {
    std::visit([&](auto const& p) { show(p, notes, arguments); }, made);
    deliver(std::move(files));
    return std::visit([](auto const& p) { return exit_status_of(p.status, p.exists()); }, made);
}

/// Plans, or reads what was planned before.
any_plan planned(plan_arguments const& arguments, plan_input const& input, attended_run& attended,
                 joint_requests const& requests) {
    if (arguments.cache.empty()) return make_plan(arguments, input, input.cluster, attended, requests);
    plan_cache const cache(arguments.cache, arguments, input);
    if (auto found = cache.find()) return std::move(*found);
    auto made = make_plan(arguments, input, input.cluster, attended, requests);
    cache.keep(made);
    return made;
}

int run_plan_of_profile(plan_arguments const& arguments) {
    any_plan const made = [&] {
        attended_run attended;
        auto p = arguments.planner == "amp" ? plan_profile_by_amp(arguments, attended)
                                            : plan_profile_by_ditto(arguments, attended);
        p.provenance.model_digest = json::digest(json::read_text(arguments.profile));
        return p;
    }();
    std::vector<json::staged_file> files; // what cannot be written is told before anything is printed
    if (exists(made) && !arguments.out.empty()) files.emplace_back(arguments.out, text_of(made, arguments));
    return conclude(made, {}, arguments, std::move(files));
}

} // namespace

std::string text_of(any_plan const& made, plan_arguments const& arguments) {
    json::write_options const options{.times = arguments.times};
    if (auto const* p = std::get_if<plan>(&made)) return json::write_plan(*p, options);
    if (auto const* p = std::get_if<pipeline_plan>(&made)) return json::write_pipeline_plan(*p, options);
    auto const& staged = std::get<staged_plan>(made);
    // One stage with the whole batch on all devices is a plan as any other.
    bool const is_on_all = staged.stages.front().devices.size() == staged.device_count;
    if (!staged.is_plain() || !is_on_all) return json::write_plan(staged, options);
    auto only = staged.stages.front().plan;
    for (auto const& [name, family] : staged.families)
        if (family.cost != staged.cost()) only.baselines[name] = family.cost;
    return json::write_plan(only, options);
}

int run_plan(plan_arguments const& given) {
    for (auto const& file : {given.out, given.trace, given.html})
        if (!file.empty()) json::require_writable(file);
    if (!given.profile.empty()) return run_plan_of_profile(given);
    auto const input = read_input(given);
    auto arguments = given;
    if (given.is_free && given.planner == "joint" && has_groups(input.cluster)) arguments.planner = "hap";
    if (given.record && given.planner == "joint") {
        if (arguments.planner != "joint") throw input_error("--record", "is not for clusters with device groups");
        require_room_for_trials(given.out);
    }
    std::optional<plan_before> before;
    std::vector<tried_plan> tried;
    joint_requests requests{.tried = &tried};
    if (!arguments.from.empty()) {
        before.emplace(arguments, input);
        requests.moving = [&](staged_plan const& p) { return seconds(before->move_to(p).time / arguments.iterations); };
    }
    std::vector<json::staged_file> files;
    std::vector<plan_note> notes;
    std::optional<attended_run> attended(std::in_place);
    auto made = planned(arguments, input, *attended, requests);
    if (arguments.hap.why_not) notes.push_back(cost_of_form_rules(arguments, input, made, *attended));
    if (exists(made)) {
        if (before) notes.push_back(going_on(*before, arguments, input, made, *attended));
        if (arguments.sensitivity) notes.push_back(sensitivity_of(arguments, input, made, *attended));
        if (arguments.sweep) notes.push_back(sweep_over_devices(arguments, input, made, *attended));
        if (!tried.empty()) notes.push_back(plans_to_try(std::move(tried), arguments, input, files));
        if (arguments.spare > 0) notes.push_back(plan_for_losses(arguments, input, made, *attended, files));
    }
    write_files(made, notes, arguments, input, files);
    attended.reset();
    return conclude(made, notes, arguments, std::move(files));
}

} // namespace heddle::cli
