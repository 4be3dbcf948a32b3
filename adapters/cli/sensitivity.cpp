// SPDX-License-Identifier: BSL-1.0
// heddle plan --sensitivity and --sweep: what is planned on clusters that are a little, or much, different.
#include "plan_difference.hpp"
#include "plan_note.hpp"

#include <heddle/json/document.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/batch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle::cli {

namespace {

using heddle::detail::fixed, heddle::detail::add_paragraph, heddle::detail::text_columns;

/// A number of a cluster that may change, by a factor.
struct cluster_number {
    std::string name;
    double value = 0;
    char const* unit = "";
    std::function<void(cluster&, double)> scale;
};

std::vector<cluster_number> numbers_of(cluster const& c) {
    std::vector<cluster_number> numbers;
    // Collectives that were measured do not follow from links.
    if (c.inter && c.measured.empty() && c.measured_across.models.empty())
        numbers.push_back({"inter.bandwidth", c.inter->bandwidth.value, "B/s",
                           [](cluster& on, double by) { on.inter->bandwidth = on.inter->bandwidth * by; }});
    if (c.intra && c.measured.empty() && c.measured_inside.models.empty())
        numbers.push_back({"intra.bandwidth", c.intra->bandwidth.value, "B/s",
                           [](cluster& on, double by) { on.intra->bandwidth = on.intra->bandwidth * by; }});
    std::set<std::size_t> types;
    for (auto const& m : c.machines) types.insert(m.type);
    for (auto const t : types) {
        auto const& type = c.types[t];
        if (!type.rates.empty())
            numbers.push_back({type.name + ".rates", type.rates.begin()->second.fallback.value, "FLOP/s",
                               [t](cluster& on, double by) {
                                   for (auto& [element, rates] : on.types[t].rates) {
                                       rates.fallback = rates.fallback * by;
                                       for_each_speed(rates, [by](class_speed& speed) {
                                           if (speed.rate) *speed.rate *= by;
                                       });
                                   }
                               }});
        numbers.push_back({type.name + ".bandwidth", type.bandwidth.value, "B/s",
                           [t](cluster& on, double by) { on.types[t].bandwidth = on.types[t].bandwidth * by; }});
        numbers.push_back({type.name + ".memory", type.memory.value, "B",
                           [t](cluster& on, double by) { on.types[t].memory = on.types[t].memory * by; }});
    }
    return numbers;
}

std::string with_unit(double value, std::string const& unit) {
    constexpr std::pair<double, char const*> prefixes[]{
        {1e15, " P"}, {1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}};
    for (auto const& [size, prefix] : prefixes)
        if (value >= size) return fixed(value / size, 2) + prefix + unit;
    return fixed(value, 2) + ' ' + unit;
}

std::string per_second(double samples) { return fixed(samples, samples < 1000 ? 1 : 0); }

/// How far a number may go one way: the factors at which the strategy is the same and is another one.
struct threshold {
    double same = 1;
    std::optional<double> changed{};
    std::string then{};
};

constexpr double most_factor = 8, tolerance = 1.1;

} // namespace

plan_note sensitivity_of(plan_arguments const& arguments, plan_input const& input, any_plan const& made,
                         attended_run& attended) {
    auto const chosen = compared(made);
    std::size_t plans = 0;
    // Returns what the strategy is at another number, if it is another one.
    auto const other_at = [&](cluster_number const& n, double factor) -> std::optional<std::string> {
        auto changed = input.cluster;
        n.scale(changed, factor);
        ++plans;
        auto const found = make_plan(arguments, input, changed, attended);
        if (!exists(found)) return "no plan fits";
        auto const other = compared(found);
        if (is_same_strategy(chosen, other)) return std::nullopt;
        return strategy_instead(chosen, other);
    };
    auto const search = [&](cluster_number const& n, double step) {
        threshold t;
        for (double factor = step; std::max(factor, 1 / factor) <= most_factor && !attended.stop().stop_requested();
             factor *= step) {
            if (auto other = other_at(n, factor)) {
                t.changed = factor, t.then = std::move(*other);
                break;
            }
            t.same = factor;
        }
        while (t.changed && std::max(*t.changed / t.same, t.same / *t.changed) > tolerance &&
               !attended.stop().stop_requested()) {
            double const middle = std::sqrt(*t.changed * t.same);
            if (auto other = other_at(n, middle)) t.changed = middle, t.then = std::move(*other);
            else t.same = middle;
        }
        return t;
    };
    plan_note note{"How far the cluster may change before the strategy does\n", "sensitivity",
                   nlohmann::ordered_json::object()};
    auto& rows = note.value["numbers"] = nlohmann::ordered_json::array();
    text_columns table("lrrr");
    table.add({"", "now", "down to", "up to"});
    std::string otherwise;
    for (auto const& n : numbers_of(input.cluster)) {
        auto const down = search(n, 0.5), up = search(n, 2);
        auto const text = [&](threshold const& t) {
            return with_unit(t.same * n.value, n.unit) + (t.changed ? "" : " +");
        };
        table.add({n.name, with_unit(n.value, n.unit), text(down), text(up)});
        nlohmann::ordered_json row{{"name", n.name}, {"now", n.value}, {"unit", n.unit}};
        for (auto const& [side, t] : {std::pair("down", &down), std::pair("up", &up)}) {
            row[side] = {
                {"same", t->same * n.value},
                {"changed", t->changed ? nlohmann::ordered_json(*t->changed * n.value) : nlohmann::ordered_json()}};
            if (!t->changed) continue;
            row[side]["then"] = t->then;
            add_paragraph(otherwise, "  - ",
                          n.name + " of " + with_unit(*t->changed * n.value, n.unit) + ": " + t->then);
        }
        rows.push_back(std::move(row));
    }
    note.value["plans"] = plans;
    note.value["tolerance"] = tolerance - 1;
    note.section += table.print(2, 0);
    add_paragraph(note.section, "  ",
                  "Each number alone, the others as they are, up to a factor of 8 (+: no further tried), within 10 %; "
                  "by planning " +
                      std::to_string(plans) +
                      " times. One strategy: the same stages, devices and micro-batches, and 95 % of the parameters' "
                      "bytes held alike.");
    if (!otherwise.empty()) note.section += "\nThe strategy then\n" + otherwise;
    return note;
}

plan_note sweep_over_devices(plan_arguments const& arguments, plan_input const& input, any_plan const& made,
                             attended_run& attended) {
    auto const& c = input.cluster;
    int machines = 0;
    for (auto const& m : c.machines) machines += m.count;
    std::set<int> counts; // ones, twos, fours and so on of each group, and all of it
    int before = 0;
    for (auto const& m : c.machines) {
        for (int n = 1; n < m.count; n *= 2) counts.insert(before + n);
        counts.insert(before += m.count);
    }
    auto const batch = static_cast<double>(batch_size_of(index_program(input.model.program)));
    plan_note note{"Seconds over devices, machine by machine as the file has them\n", "sweep",
                   nlohmann::ordered_json::array()};
    text_columns table("rlrrrl");
    table.add({"devices", "types", "seconds", "samples/s", "each", "strategy"});
    for (int const count : counts) {
        auto part = c;
        part.machines.clear(), part.measured.clear();
        int left = count, devices = 0;
        std::string types;
        for (auto m : c.machines) {
            m.count = std::min(m.count, left), left -= m.count;
            if (m.count == 0) break;
            devices += m.count * m.devices;
            types += (types.empty() ? "" : ", ") + std::to_string(m.count * m.devices) + " x " + c.types[m.type].name;
            part.machines.push_back(m);
        }
        auto const found = count == machines ? made : make_plan(arguments, input, part, attended);
        nlohmann::ordered_json row{{"devices", devices}, {"types", types}};
        if (exists(found)) {
            auto const of = compared(found);
            row.update({{"cost", of.cost}, {"samples_per_second", batch / of.cost}, {"strategy", of.in_short}});
            table.add({std::to_string(devices), types, fixed(of.cost, heddle::detail::decimals_for(of.cost)),
                       per_second(batch / of.cost), per_second(batch / of.cost / devices), of.in_short});
        } else {
            auto const& reason = reason_of(found);
            row["reason"] = reason;
            table.add({std::to_string(devices), types, "-", "-", "-", reason});
        }
        note.value.push_back(std::move(row));
    }
    note.section += table.print(2, 5);
    return note;
}

} // namespace heddle::cli
