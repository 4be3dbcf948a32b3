// SPDX-License-Identifier: BSL-1.0
// heddle plan --record and heddle calibrate: plans to be tried, and what their times say of the cluster.
#include "commands.hpp"
#include "output.hpp"
#include "plan_file.hpp"
#include "plan_input.hpp"
#include "plan_note.hpp"

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/json/cluster.hpp>
#include <heddle/json/document.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/trials.hpp>
#include <heddle/plan/calibrate_cluster.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/verify_staged.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace heddle::cli {

namespace {

using heddle::detail::fixed, heddle::detail::decimals_for, heddle::detail::text_columns;

/// What is read of the plans that were run.
std::vector<measured_plan> read_measured(std::vector<json::trial> const& trials, calibrate_arguments const& arguments,
                                         cluster const& c) {
    auto const folder = std::filesystem::path(arguments.measured).parent_path();
    std::vector<measured_plan> measured;
    for (auto const& t : trials) {
        auto const file = (folder / t.plan).string();
        auto p = as_staged(read_any_plan(file), file, c);
        if (auto const checked = verify_figures(p); !checked) throw input_error(file, checked.problem);
        if (p.device_count != c.devices().size())
            throw input_error(file, "is for " + std::to_string(p.device_count) + " devices, expected one for the " +
                                        std::to_string(c.devices().size()) + " of " + arguments.cluster);
        measured.push_back({std::move(p), *t.measured});
    }
    return measured;
}

std::string in_per_cent(double ratio) { return fixed(100 * ratio, 1) + " %"; }

double mean_error(std::vector<double> const& predicted, std::vector<measured_plan> const& measured) {
    double sum = 0;
    for (std::size_t n = 0; n < measured.size(); ++n) sum += std::abs(predicted[n] / measured[n].time.value - 1);
    return sum / static_cast<double>(measured.size());
}

/// Returns the file of one of the plans to be tried, counted from 1, beside that of the best.
std::filesystem::path file_of_trial(std::filesystem::path const& best, std::size_t number) {
    auto file = best;
    file.replace_filename(best.stem().string() + ".trial" + std::to_string(number) + best.extension().string());
    return file;
}

} // namespace

plan_note plans_to_try(std::vector<tried_plan> tried, plan_arguments const& arguments, plan_input const& input,
                       std::vector<json::staged_file>& files) {
    plan_note note{"Plans to try\n", "trials", nlohmann::ordered_json::array()};
    text_columns table("llr");
    table.add({"file", "family", "seconds"});
    std::vector<json::trial> list;
    for (auto& [family, plan] : tried) {
        auto const file = file_of_trial(arguments.out, list.size() + 1);
        double const cost = plan.cost();
        any_plan made = std::move(plan);
        add_origin(made, input);
        files.emplace_back(file, text_of(made, arguments));
        list.push_back({file.filename().string(), family, seconds(cost)});
        note.value.push_back({{"plan", file.string()}, {"family", family}, {"cost", cost}});
        table.add({file.filename().string(), family, fixed(cost, decimals_for(cost))});
    }
    auto const list_file = std::filesystem::path(arguments.out).replace_extension(".trials.csv");
    files.emplace_back(list_file, json::to_text(list));
    note.section += table.print(2, 0);
    heddle::detail::add_paragraph(note.section, "",
                                  "Run them, note the seconds of an iteration in " + list_file.filename().string() +
                                      ", and give that to heddle calibrate.");
    return note;
}

int run_calibrate(calibrate_arguments const& arguments) {
    if (!arguments.out.empty()) json::require_writable(arguments.out);
    auto const c = json::read_cluster(arguments.cluster);
    auto trials = json::parse_trials(json::read_text(arguments.measured), arguments.measured);
    std::erase_if(trials, [](json::trial const& t) { return !t.measured; });
    if (trials.empty())
        throw input_error(arguments.measured, "has no plan that was run, expected the seconds of an iteration of one");
    auto const measured = read_measured(trials, arguments, c);
    auto const found = calibrate(c, measured);
    std::vector<std::string> warnings;
    std::vector<double> before, after;
    for (std::size_t n = 0; n < measured.size(); ++n) {
        before.push_back(evaluate(measured[n].plan, c).time.total().value);
        after.push_back(found.predicted[n].value);
    }
    for (auto const& [name, f] : found.factors)
        if (!f.is_determined()) warnings.push_back(name + ": the plans that were run hardly tell it");

    std::vector<json::staged_file> files;
    if (!arguments.out.empty()) files.emplace_back(arguments.out, json::to_text(found.cluster));
    if (arguments.json) {
        nlohmann::ordered_json out{{"error_before", mean_error(before, measured)},
                                   {"error_after", mean_error(after, measured)}};
        for (auto const& [name, f] : found.factors)
            out["factors"][name] = {
                {"value", f.value}, {"low", f.low()}, {"high", f.high()}, {"is_determined", f.is_determined()}};
        for (std::size_t n = 0; n < measured.size(); ++n)
            out["trials"].push_back({{"plan", trials[n].plan},
                                     {"measured", measured[n].time.value},
                                     {"predicted_before", before[n]},
                                     {"predicted", after[n]}});
        out["warnings"] = warnings;
        std::cout << out.dump() << '\n';
    } else {
        text_columns of_factors("lrrr"), of_trials("lrrr");
        of_factors.add({"times what the cluster says", "", "at least", "at most"});
        for (auto const& [name, f] : found.factors)
            of_factors.add({name, fixed(f.value, 3), fixed(f.low(), 3), fixed(f.high(), 3)});
        of_trials.add({"seconds", "measured", "by the cluster", "by the new one"});
        for (std::size_t n = 0; n < measured.size(); ++n) {
            int const decimals = decimals_for(measured[n].time.value);
            of_trials.add({trials[n].plan, fixed(measured[n].time.value, decimals), fixed(before[n], decimals),
                           fixed(after[n], decimals)});
        }
        of_trials.add(
            {"mean error", "", in_per_cent(mean_error(before, measured)), in_per_cent(mean_error(after, measured))});
        print_report(of_factors.print(0, 0) + '\n' + of_trials.print(0, 0));
        for (auto const& w : warnings) std::cerr << "warning: " << printable(w, 1000) << '\n';
    }
    deliver(std::move(files));
    return done;
}

} // namespace heddle::cli
