// SPDX-License-Identifier: BSL-1.0
// heddle plan without a planner chooses among plans of one stage and of several.
#include "output.hpp"
#include "plan_input.hpp"
#include "program_plans.hpp"

#include <heddle/execute/spare_plans.hpp>
#include <heddle/html/all.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/staged_plan.hpp>
#include <heddle/json/trace.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/staged_run.hpp>
#include <heddle/plan/staged_table.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::cli {

namespace {

/// Returns the text of a plan's file. One stage with the whole batch on all devices is a plan as any other.
std::string text_of(staged_plan const& plan, plan_arguments const& arguments) {
    bool const is_on_all = plan.stages.front().devices.size() == plan.device_count;
    return plan.is_plain() && is_on_all ? json::write_plan(plan.stages.front().plan, {.times = arguments.times})
                                        : json::write_plan(plan, {.times = arguments.times});
}

/// What has to move after a loss, whichever machines of a group are lost: the most of it.
moved_state most_moved(spare_plans const& spares, std::vector<int> const& lost, cluster const& c) {
    constexpr int most_sets = 10'000;
    moved_state most;
    int sets = 0;
    std::vector<std::size_t> machines;
    auto const choose = [&](auto const& self, std::size_t group, std::size_t first, std::size_t next,
                            int left) -> void {
        if (left > 0) {
            for (auto m = next; m < first + static_cast<std::size_t>(c.machines[group].count); ++m) {
                machines.push_back(m);
                self(self, group, first, m + 1, left - 1);
                machines.pop_back();
            }
        } else if (group + 1 < lost.size()) {
            first += static_cast<std::size_t>(c.machines[group].count);
            self(self, group + 1, first, first, lost[group + 1]);
        } else if (sets++ < most_sets) {
            auto const state = spares.find(machines).state;
            most.stored = state.stored;
            most.lost = std::max(most.lost, state.lost);
            if (sets == 1 || state.kept < most.kept) most.kept = state.kept;
        }
    };
    choose(choose, 0, 0, 0, lost.front());
    return most;
}

struct lost_machines {
    std::string in_words, in_file_name;
};
lost_machines name_of(std::vector<int> const& lost, cluster const& c) {
    lost_machines result;
    for (std::size_t g = 0; g < lost.size(); ++g) {
        result.in_file_name += "-" + std::to_string(lost[g]);
        if (lost[g] == 0) continue;
        auto const& m = c.machines[g];
        result.in_words += (result.in_words.empty() ? "" : ", ") + std::to_string(lost[g]) + " of " +
                           std::to_string(m.devices) + " x " + c.types[m.type].name;
    }
    return result;
}

/// Prints what there is for each loss, or adds it to a summary.
void show_spares(spare_plans const& spares, cluster const& c, nlohmann::ordered_json* summary) {
    detail::text_columns table("lrrrrr");
    table.add({"machines lost", "seconds", "stages", "stored", "moves", "from a checkpoint"});
    for (auto const& [lost, plan] : spares.entries()) {
        if (&plan == &spares.entries().front().plan) continue;
        auto const words = name_of(lost, c).in_words;
        auto const state = plan.exists() ? most_moved(spares, lost, c) : moved_state{};
        if (summary) {
            nlohmann::ordered_json one{{"lost", lost}};
            if (plan.exists())
                one.update({{"seconds", plan.cost()},
                            {"stored", state.stored.value},
                            {"received", state.received().value},
                            {"from_checkpoint", state.lost.value}});
            else one["reason"] = plan.reason;
            (*summary)["spares"].push_back(std::move(one));
            continue;
        }
        auto const gigabytes = [&](bytes b) { return plan.exists() ? detail::fixed(b.value / 1e9, 3) : std::string(); };
        table.add({words, plan.exists() ? detail::fixed(plan.cost(), detail::decimals_for(plan.cost())) : "-",
                   plan.exists() ? std::to_string(plan.stages.size()) : detail::clip(plan.reason, 30),
                   gigabytes(state.stored), gigabytes(state.received()), gigabytes(state.lost)});
    }
    if (summary) return;
    print_report("\nPlans for the loss of machines (GB of state, at most)\n" + table.print(2, 0));
}

} // namespace

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
    if (plan.exists() && !arguments.out.empty()) files.emplace_back(arguments.out, text_of(plan, arguments));
    if (plan.exists() && !arguments.trace.empty())
        files.emplace_back(arguments.trace, json::write_trace(plan, simulate(plan, input.cluster)));
    if (plan.exists() && !arguments.html.empty())
        files.emplace_back(arguments.html, html::plan_page(plan, input.model.program, input.cluster));
    std::optional<spare_plans> spares;
    if (plan.exists() && arguments.spare > 0) {
        attended_run attended;
        options.limits.stop = attended.stop();
        options.progress = shown_by(attended, "spare plans");
        spares.emplace(input.model.program, input.cluster, plan, arguments.spare, [&](cluster const& left) {
            auto found = plan_of_all(input.model.program, left, options, solver);
            add_origin(found.provenance, input);
            for (auto& s : found.stages) add_origin(s.plan.provenance, input);
            return found;
        });
        std::filesystem::path const out(arguments.out);
        for (auto const& [lost, spare] : spares->entries()) {
            if (arguments.out.empty() || !spare.exists() || &spare == &spares->entries().front().plan) continue;
            auto beside = out;
            beside.replace_filename(out.stem().string() + ".lost" + name_of(lost, input.cluster).in_file_name +
                                    out.extension().string());
            files.emplace_back(beside, text_of(spare, arguments));
        }
    }
    if (arguments.json) {
        auto summary = json::plan_summary(plan, {.times = arguments.times});
        if (spares) {
            auto object = nlohmann::ordered_json::parse(summary);
            show_spares(*spares, input.cluster, &object);
            summary = object.dump();
        }
        std::cout << summary << '\n';
    } else {
        show(plan, arguments);
        if (spares) show_spares(*spares, input.cluster, nullptr);
    }
    deliver(std::move(files));
    return exit_status_of(plan.status, plan.exists());
}

} // namespace heddle::cli
