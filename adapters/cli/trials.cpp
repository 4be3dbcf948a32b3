// SPDX-License-Identifier: BSL-1.0
// heddle plan --record and heddle calibrate: plans to be tried, and what their times say of the cluster.
#include "trials.hpp"
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
#include <heddle/plan/calibrate_cluster.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/verify_staged.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::cli {

namespace {

using heddle::detail::fixed, heddle::detail::decimals_for, heddle::detail::text_columns;

std::vector<std::string_view> cells_of(std::string_view line) {
    std::vector<std::string_view> cells;
    for (std::size_t begin = 0; begin <= line.size();) {
        auto const end = std::min(line.find(',', begin), line.size());
        auto cell = line.substr(begin, end - begin);
        while (!cell.empty() && (cell.front() == ' ' || cell.front() == '\t')) cell.remove_prefix(1);
        while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\t' || cell.back() == '\r'))
            cell.remove_suffix(1);
        cells.push_back(cell);
        begin = end + 1;
    }
    return cells;
}

/// Reads a positive number; an empty cell has none.
std::optional<double> seconds_in(std::string_view cell, std::string const& place) {
    if (cell.empty()) return std::nullopt;
    double number = 0;
    auto const [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
    if (error != std::errc() || end != cell.data() + cell.size() || !(number > 0) || !std::isfinite(number))
        throw input_error(place, "'" + printable(cell, 40) + "', expected the seconds of an iteration");
    return number;
}

/// What is read of the plans that were run.
std::vector<measured_plan> read_measured(std::vector<trial> const& trials, calibrate_arguments const& arguments,
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
        measured.push_back({std::move(p), seconds(*t.seconds)});
    }
    return measured;
}

std::string in_per_cent(double ratio) { return fixed(100 * ratio, 1) + " %"; }

double mean_error(std::vector<double> const& predicted, std::vector<measured_plan> const& measured) {
    double sum = 0;
    for (std::size_t n = 0; n < measured.size(); ++n) sum += std::abs(predicted[n] / measured[n].time.value - 1);
    return sum / static_cast<double>(measured.size());
}

} // namespace

std::string to_text(std::vector<trial> const& trials) {
    std::string text = "plan,family,predicted,seconds\n";
    for (auto const& t : trials) {
        char number[32];
        auto const end = std::to_chars(number, number + sizeof number, t.predicted).ptr;
        text += t.plan + ',' + t.family + ',' + std::string(number, end) + ",\n";
    }
    return text;
}

std::vector<trial> parse_trials(std::string_view text, std::string const& name) {
    std::vector<trial> trials;
    std::optional<std::size_t> plan, time;
    std::size_t columns = 0;
    for (std::size_t begin = 0, number = 1; begin < text.size(); ++number) {
        auto const end = std::min(text.find('\n', begin), text.size());
        auto const cells = cells_of(text.substr(begin, end - begin));
        begin = end + 1;
        if (cells.size() == 1 && cells.front().empty()) continue;
        auto const place = name + ", line " + std::to_string(number);
        if (columns == 0) {
            columns = cells.size();
            for (std::size_t n = 0; n < columns; ++n) {
                if (cells[n] == "plan") plan = n;
                if (cells[n] == "seconds") time = n;
            }
            if (!plan || !time) throw input_error(place, "expected a header with the columns plan and seconds");
            continue;
        }
        if (cells.size() != columns)
            throw input_error(place, "has " + std::to_string(cells.size()) + " cells, expected " +
                                         std::to_string(columns) + " as in the header");
        if (cells[*plan].empty()) throw input_error(place, "names no plan");
        trials.push_back({.plan = std::string(cells[*plan]), .seconds = seconds_in(cells[*time], place)});
    }
    return trials;
}

std::filesystem::path file_of_trial(std::filesystem::path const& best, std::size_t number) {
    auto file = best;
    file.replace_filename(best.stem().string() + ".trial" + std::to_string(number) + best.extension().string());
    return file;
}

plan_note plans_to_try(std::vector<tried_plan> tried, plan_arguments const& arguments, plan_input const& input,
                       std::vector<json::staged_file>& files) {
    plan_note note{"Plans to try\n", "trials", nlohmann::ordered_json::array()};
    text_columns table("llr");
    table.add({"file", "family", "seconds"});
    std::vector<trial> list;
    for (auto& [family, plan] : tried) {
        auto const file = file_of_trial(arguments.out, list.size() + 1);
        double const cost = plan.cost();
        any_plan made = std::move(plan);
        add_origin(made, input);
        files.emplace_back(file, text_of(made, arguments));
        list.push_back({file.filename().string(), family, cost});
        note.value.push_back({{"plan", file.string()}, {"family", family}, {"cost", cost}});
        table.add({file.filename().string(), family, fixed(cost, decimals_for(cost))});
    }
    auto const list_file = std::filesystem::path(arguments.out).replace_extension(".trials.csv");
    files.emplace_back(list_file, to_text(list));
    note.section += table.print(2, 0);
    heddle::detail::add_paragraph(note.section, "",
                                  "Run them, note the seconds of an iteration in " + list_file.filename().string() +
                                      ", and give that to heddle calibrate.");
    return note;
}

int run_calibrate(calibrate_arguments const& arguments) {
    if (!arguments.out.empty()) json::require_writable(arguments.out);
    auto const c = json::read_cluster(arguments.cluster);
    auto trials = parse_trials(json::read_text(arguments.measured), arguments.measured);
    std::erase_if(trials, [](trial const& t) { return !t.seconds; });
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
