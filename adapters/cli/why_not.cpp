// SPDX-License-Identifier: BSL-1.0
// heddle plan --why-not: what --pin and --forbid cost.
#include "plan_difference.hpp"
#include "plan_note.hpp"

#include <heddle/plan/detail/report_text.hpp>

#include <string>

namespace heddle::cli {

plan_note cost_of_form_rules(plan_arguments const& arguments, plan_input const& input, any_plan const& p,
                             attended_run& attended) {
    auto without = arguments;
    without.hap.pins.clear(), without.hap.forbidden.clear();
    auto const free = make_plan(without, input, input.cluster, attended);
    plan_note note{"What --pin and --forbid cost\n", "why_not", nlohmann::ordered_json::object()};
    if (!exists(free)) {
        auto const& reason = reason_of(free);
        heddle::detail::add_paragraph(note.section, "  ", "Without them there is no plan either: " + reason);
        note.value["reason"] = reason;
        return note;
    }
    auto const best = compared(free);
    if (!exists(p)) {
        heddle::detail::add_paragraph(note.section, "  ",
                                      "Without them a plan takes " + heddle::detail::fixed(best.cost, 4) +
                                          " s; with them there is none: " + reason_of(p));
        note.value["cost"] = {best.cost, nullptr};
        return note;
    }
    auto const asked = compared(p);
    note.section += '\n' + difference_report(best, asked, "without", "with");
    note.value = difference(best, asked);
    return note;
}

} // namespace heddle::cli
