// SPDX-License-Identifier: BSL-1.0
// heddle plan --record and heddle calibrate: plans to be tried, and what their times say of the cluster.
#include "commands.hpp"
#include "output.hpp"
#include "plan_file.hpp"
#include "plan_input.hpp"
#include "plan_note.hpp"

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/cluster/detail/device_places.hpp>
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
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::cli {

namespace {

using heddle::detail::fixed, heddle::detail::decimals_for, heddle::detail::text_columns;

/// Refuses a plan that contradicts itself.
void require_valid(any_plan const& p, std::string const& file) {
    auto const checked = std::visit(
        []<class Plan>(Plan const& made) {
            if constexpr (std::is_same_v<Plan, pipeline_plan>) return verification{};
            else return verify_figures(made);
        },
        p);
    if (!checked) throw input_error(file, checked.problem);
}

/// Refuses a plan of other devices than the cluster has.
void require_devices(staged_plan const& p, std::string const& file, cluster const& c) {
    for (auto const& s : p.stages) {
        auto const part = cluster_of(c, s);
        auto const types = part.devices();
        for (std::size_t d = 0; d < types.size(); ++d)
            if (auto const& theirs = part.types[types[d]].name; theirs != s.plan.devices[d].type)
                throw input_error(file, "has a " + printable(s.plan.devices[d].type, 80) + " where the cluster has a " +
                                            printable(theirs, 80));
    }
}

/// Returns how many devices a plan is for.
std::size_t device_count_of(any_plan const& p) {
    if (auto const* stages = std::get_if<staged_plan>(&p)) return stages->device_count;
    std::size_t count = 0;
    if (auto const* whole = std::get_if<plan>(&p))
        for (auto const& d : whole->devices) count += static_cast<std::size_t>(d.group_size);
    return count;
}

/// What is read of the plans that were run.
std::vector<measured_plan> read_measured(std::vector<json::trial> const& trials, calibrate_arguments const& arguments,
                                         cluster const& c) {
    auto const folder = std::filesystem::path(arguments.measured).parent_path();
    auto const devices = heddle::detail::device_places(c).machine.size();
    std::vector<measured_plan> measured;
    for (auto const& t : trials) {
        auto const file = (folder / t.plan).string();
        auto made = read_any_plan(file);
        require_valid(made, file);
        if (auto const count = device_count_of(made); count > 0 && count != devices)
            throw input_error(file, "is for " + std::to_string(count) + " devices, expected one for the " +
                                        std::to_string(devices) + " of " + arguments.cluster);
        auto p = as_staged(std::move(made), file, c);
        require_devices(p, file, c);
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

std::filesystem::path list_of_trials(std::filesystem::path best) { return best.replace_extension(".trials.csv"); }

} // namespace

void require_room_for_trials(std::string const& out) {
    auto const first = file_of_trial(out, 1).filename().string();
    try {
        auto const read = json::parse_trials(json::to_text({json::trial{.plan = first}}));
        if (read.size() != 1 || read.front().plan != first) throw input_error(first, "cannot be in the list");
    } catch (input_error const&) {
        throw input_error("--out " + printable(out, 200),
                          "is a name that the list of plans to try cannot have, expected one in UTF-8 without commas, "
                          "line ends, or '#' or blanks at its ends");
    }
    auto const file = list_of_trials(out);
    if (!std::filesystem::exists(file)) return;
    if (std::ranges::any_of(json::parse_trials(json::read_text(file), file.string()),
                            [](json::trial const& t) { return t.measured.has_value(); }))
        throw input_error(file.string(), "has the times of plans that were run, expected another --out");
}

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
    auto const list_file = list_of_trials(arguments.out);
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
