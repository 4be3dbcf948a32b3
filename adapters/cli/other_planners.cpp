// SPDX-License-Identifier: BSL-1.0
// Asks the planners that were not asked for.
#include "other_planners.hpp"
#include "program_plans.hpp"

#include <heddle/base/error.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/search/deadline.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <new>
#include <utility>

namespace heddle::cli {

namespace {

template <class Plan>
void take(other_plan& into, Plan const& found) {
    static_cast<search::outcome<>&>(into) = found;
    if (found.exists()) into.cost = found.cost();
    into.space = found.space;
}

} // namespace

std::vector<other_plan> ask_others(plan_arguments const& arguments, plan_input const& input, hap_options const& common,
                                   double time) {
    attended_run attended;
    search::deadline const until({.seconds = time, .stop = attended.stop()});
    std::vector<other_plan> others;
    // Planners that take least come first; each gets its part of the time left.
    auto const ask = [&](std::string const& planner, std::string const& leaves_out, std::size_t still_to_come,
                         auto const& plan) {
        double const left = *until.left() / static_cast<double>(1 + still_to_come);
        auto& other = others.emplace_back();
        other.planner = planner;
        other.leaves_out = leaves_out;
        if (other.which_limit = until.reached(); other.which_limit != search::limit_kind::none) {
            other.status = search::status::limit;
            return;
        }
        search::deadline const own;
        try {
            take(other, plan(left));
        } catch (input_error const& e) {
            other.is_refused = true;
            other.reason = e.what();
        } catch (std::bad_alloc const&) {
            other.status = search::status::limit;
            other.which_limit = search::limit_kind::memory;
        }
        other.seconds = own.elapsed();
    };
    auto const limited = [&](double left) {
        auto asked = arguments;
        asked.time_limit = left;
        asked.label_limit.reset(); // hap's
        return asked;
    };
    std::string const pins = common.pinned.empty() ? "" : "; it keeps no pins";
    ask("amp", "the gradients that stages send back, and that a stage's gradients are more than one collective" + pins,
        2, [&](double left) { return plan_by_amp(limited(left), input, attended); });
    ask("ditto",
        "what stages send each other, the optimiser's step, and gradients of parameters that several stages use" + pins,
        1, [&](double left) { return plan_by_ditto(limited(left), input, attended); });
    ask("hidup", "that computation and collectives beside each other slow each other down", 0, [&](double left) {
        auto options = common;
        options.training.overlaps_gradients = false;
        options.segments.clear();
        options.limits.seconds = left;
        options.limits.stop = attended.stop();
        options.progress = shown_by(attended, "hidup");
        auto asked = arguments.hidup;
        asked.compares = false;
        return plan_interleaved(input.model.program, input.cluster, options, asked, chosen_ratio_solver("clp"));
    });
    return others;
}

void print_others(std::ostream& out, std::vector<other_plan> const& others, plan const& beside) {
    if (others.empty()) return;
    using namespace heddle::detail;
    std::string text = "\nOther planners, for as long as this one took (seconds by their own prices)\n";
    text_columns table("lrll");
    table.add({"planner", "seconds", "", "status"});
    int const decimals = decimals_for(beside.cost());
    for (auto const& o : others) {
        auto const status = o.is_refused ? "refused" : status_text(o.status, o.which_limit, o.cost.has_value(), "");
        table.add({o.planner, o.cost ? fixed(*o.cost, beside.exists() ? decimals : decimals_for(*o.cost)) : "-",
                   o.cost ? times_text(*o.cost, beside.cost()) : "", status});
    }
    text += table.print(2, 2);
    for (auto const& o : others) {
        if (o.cost)
            add_paragraph(text, "  - ",
                          o.planner + " plans" + (o.space.empty() ? "" : " " + o.space) + "; its price leaves out " +
                              o.leaves_out);
        else if (!o.reason.empty()) add_paragraph(text, "  - ", o.planner + ": " + o.reason);
    }
    out << text;
}

std::string with_others(std::string const& summary, std::vector<other_plan> const& others) {
    if (others.empty()) return summary;
    using json_value = nlohmann::ordered_json;
    auto out = json_value::parse(summary);
    auto& list = out["other_planners"] = json_value::object();
    for (auto const& o : others) {
        auto& entry = list[o.planner] = json_value::object();
        entry["status"] = o.is_refused ? json_value(nullptr) : json_value(search::name(o.status));
        if (!o.is_refused && o.status == search::status::limit) entry["which_limit"] = search::name(o.which_limit);
        if (!o.reason.empty()) entry["reason"] = o.reason;
        entry["cost"] = o.cost ? json_value(*o.cost) : json_value(nullptr);
        entry["lower_bound"] = o.is_refused ? json_value(nullptr) : json_value(o.lower_bound);
        if (!o.space.empty()) entry["space"] = o.space;
        entry["leaves_out"] = o.leaves_out;
        entry["seconds"] = o.seconds;
    }
    return out.dump(-1, ' ', false, json_value::error_handler_t::replace);
}

} // namespace heddle::cli
