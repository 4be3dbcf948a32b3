// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A plan of stages as a fixed-width report for people.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/plan/table.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle {

/// Prints a plan as a report of at most 80 columns. Of a plan of one stage, the stage is printed too, in details that
/// of a plan of its own.
void print(std::ostream& out, staged_plan const& p, table_options const& options = {});

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/words.hpp>

namespace heddle::detail {

/// Says what a stage's devices are made of.
HEDDLE_INLINE std::string form_of(plan const& p) {
    return p.is_on_mesh() ? to_string(p.mesh()) + " mesh" : count(p.devices.size(), "group");
}

HEDDLE_INLINE void add_stages(std::string& text, staged_plan const& p) {
    auto const milliseconds = [](double seconds) { return fixed(seconds * 1e3, 3); };
    text += "\nStages (milliseconds of one micro-batch; memory in GB)\n";
    text_columns table("rrlrrrrr");
    table.add({"stage", "operators", "devices", "compute", "communic.", "entered in", "used", "limit"});
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        auto const& [first, end, devices, plan, boundary] = p.stages[s];
        auto const& t = plan.time;
        double used = 0, limit = 0; // of the device that is fullest
        for (std::size_t d = 0; d < plan.devices.size(); ++d) {
            double held = 0;
            for (auto other = s % p.places(); other < p.stages.size(); other += p.places())
                held += p.stages[other].plan.memory[d].total();
            if (limit == 0 || held / plan.devices[d].memory_limit.value > used / limit)
                used = held, limit = plan.devices[d].memory_limit.value;
        }
        std::string types;
        for (auto const& d : plan.devices)
            if (types.find(d.type) == std::string::npos) types += (types.empty() ? "" : ", ") + d.type;
        table.add({std::to_string(s), std::to_string(first) + "-" + std::to_string(end - 1),
                   ranges_text(devices) + ": " + types +
                       (plan.is_on_mesh() || plan.has_groups() ? ", " + form_of(plan) : "") +
                       (plan.provenance.training.recomputes != recomputation::none ? ", recomputes" : "") +
                       (plan.provenance.training.interleaves() ? ", in turn" : ""),
                   milliseconds(t.compute), milliseconds(t.forward_communication + t.backward_communication),
                   s > 0 ? milliseconds(boundary.value) : "", fixed(used / 1e9, 3), fixed(limit / 1e9, 3)});
    }
    text += table.print(2, 2);
}

HEDDLE_INLINE void add_families(std::string& text, staged_plan const& p, table_options const& options) {
    if (p.families.empty()) return;
    int const decimals = decimals_for(p.cost());
    text += "\nThe best of each family, by one price\n";
    text_columns table(options.times ? "lrlr" : "lrl");
    std::vector<std::string> head{"family", "seconds", ""};
    if (options.times) head.push_back("found in");
    table.add(std::move(head));
    std::vector<std::tuple<double, std::string, family_result const*>> by_cost;
    for (auto const& [name, f] : p.families)
        by_cost.emplace_back(f.cost.value_or(std::numeric_limits<double>::infinity()), name, &f);
    algorithm::sort(by_cost);
    for (auto const& [cost, name, f] : by_cost) {
        std::vector<std::string> row{name, f->cost ? fixed(*f->cost, decimals) : "-",
                                     f->cost ? times_text(*f->cost, p.cost()) : f->reason};
        if (options.times) row.push_back(f->seconds > 0 ? fixed(f->seconds, 3) + " s" : "");
        table.add(std::move(row));
    }
    text += table.print(2, 2);
}

HEDDLE_INLINE void add_terms(std::string& text, staged_plan const& p) {
    if (algorithm::none_of(p.families, [](auto const& f) { return f.second.terms.has_value(); })) return;
    text += "\nWhere the time of each goes (milliseconds of the slowest stage)\n";
    std::vector<std::pair<char const*, seconds staged_terms::*>> terms{
        {"work", &staged_terms::compute},      {"outer", &staged_terms::outer},      {"inner", &staged_terms::inner},
        {"sends", &staged_terms::sends},       {"reduce", &staged_terms::gradients}, {"update", &staged_terms::update},
        {"gather", &staged_terms::parameters}, {"idle", &staged_terms::idle}};
    std::erase_if(terms, [&](auto const& term) { // what no family has
        return algorithm::none_of(
            p.families, [&](auto const& f) { return f.second.terms && (*f.second.terms).*term.second != seconds(0); });
    });
    int const spared = terms.size() < 8 ? 2 : 3; // all columns fit on a line of 80 characters with one decimal less
    int const decimals = std::max(0, decimals_for(p.cost() * 1e3) - spared);
    std::string const alignment = "lr" + std::string(terms.size(), 'r') + "r";
    text_columns table(alignment);
    std::vector<std::string> head{"family", "total"};
    for (auto const& [name, of] : terms) head.emplace_back(name);
    head.emplace_back("full");
    table.add(std::move(head));
    for (auto const& [name, f] : p.families) {
        if (!f.terms) continue;
        auto const& t = *f.terms;
        std::vector<std::string> row{name, fixed(t.total().value * 1e3, decimals)};
        for (auto const& [term, of] : terms) row.push_back(fixed((t.*of).value * 1e3, decimals));
        row.push_back(fixed(100 * (t.used / t.limit), 0) + " %"); // of the fullest device
        table.add(std::move(row));
    }
    text += table.print(2, 0);
}

HEDDLE_INLINE void add_header(std::string& text, staged_plan const& p) {
    auto const field = [&](std::string label, std::string const& value) {
        label.resize(23, ' ');
        if (!value.empty()) add_paragraph(text, label, value);
    };
    auto const& from = p.provenance;
    field("model", from.model);
    field("cluster", from.cluster + ", " + count(p.device_count, "device"));
    field("planner", from.planner + " (heddle " + from.version + ")");
    field("status", status_text(p.status, p.which_limit, p.exists(), p.space));
    field("reason", p.reason);
    if (!p.exists()) return;
    int const decimals = decimals_for(p.cost());
    if (!p.is_plain())
        field("pipeline",
              stages_in_words(p) + ", " +
                  (p.micro_batches == 1 ? "1 micro-batch" : std::to_string(p.micro_batches) + " micro-batches") +
                  (p.sends_beside ? ", sends beside computation" : ", sends that block"));
    field("seconds per iteration", fixed(p.cost(), decimals));
    if (p.time.shared.value > 0) field("  of it shared", fixed(p.time.shared.value, decimals));
    if (p.time.gradients.value > 0) field("  of it gradients", fixed(p.time.gradients.value, decimals));
    field("  of it optimiser", fixed(p.time.update.value, decimals));
    if (p.time.parameters.value > 0) field("  of it gathers", fixed(p.time.parameters.value, decimals));
    field("lower bound", p.lower_bound > 0 ? fixed(p.lower_bound, decimals) : "none");
    if (p.lower_bound > 0) field("gap", fixed(100 * p.gap(), 2) + " %" + among(p.space));
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE void print(std::ostream& out, staged_plan const& p, table_options const& options) {
    std::string text;
    detail::add_header(text, p);
    detail::add_words(text, words_of(p));
    if (p.stages.size() > 1) detail::add_stages(text, p);
    detail::add_families(text, p, options);
    detail::add_terms(text, p);
    if (!p.warnings.empty()) text += "\nWarnings\n";
    for (auto const& w : p.warnings) detail::add_paragraph(text, "  - ", w);
    if (options.times) text += "\nSearch\n  " + detail::fixed(p.seconds, 3) + " seconds\n";
    if (p.stages.size() == 1) {
        detail::plan_report stage(p.stages.front().plan, options);
        text += options.details ? "\nThe stage\n\n" + stage.text() : stage.text_of_stage();
    } else if (p.exists())
        detail::add_legend(text,
                           std::string("entered in: what a micro-batch takes to come from the stage before, and its "
                                       "cotangents to go back") +
                               (p.rounds() > 1 ? "; used: by all stages of the devices" : ""));
    out << text;
}

} // namespace heddle

#endif
