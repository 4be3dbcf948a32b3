// SPDX-License-Identifier: BSL-1.0
// heddle diff: in what two plans differ, and what that costs.
#include "commands.hpp"
#include "output.hpp"
#include "plan_file.hpp"

#include <heddle/base/printable.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/parameter_uses.hpp>
#include <heddle/plan/words.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::cli {

namespace {

using heddle::detail::text_columns;

/// What is compared: by name, seconds of terms, words, bytes on the fullest device of each type, ways of parameters.
struct compared {
    std::string title;
    double cost = 0;
    std::map<std::string, double> terms, memory;
    std::map<std::string, std::string> words, parameters;
};

void add_parameters(compared& c, plan const& p) {
    for (auto const& use : parameter_uses(p)) c.parameters.try_emplace(p.tensors[use.tensor].name, way_of(use));
}

void add_memory(compared& c, plan const& p) {
    for (std::size_t d = 0; d < std::min(p.devices.size(), p.memory.size()); ++d) {
        auto& most = c.memory[p.devices[d].type];
        most = std::max(most, p.memory[d].total());
    }
}

void add_words(compared& c, std::vector<plan_word> const& words) {
    for (auto const& w : words) c.words[w.label] = w.text;
}

std::string title_of(provenance const& from) { return from.model + " on " + from.cluster + ", by " + from.planner; }

compared compared_of(plan const& p) {
    auto const& t = p.time;
    compared c{title_of(p.provenance),
               p.cost(),
               {{"compute", t.compute},
                {"communication", t.forward_communication + t.backward_communication},
                {"gradients", t.gradient_communication},
                {"update", t.update}},
               {},
               {},
               {}};
    add_words(c, words_of(p));
    add_parameters(c, p);
    add_memory(c, p);
    return c;
}

compared compared_of(staged_plan const& p) {
    auto const& t = p.time;
    compared c{
        title_of(p.provenance),
        p.cost(),
        {{"pipeline", t.pipeline.value}, {"gradients", (t.shared + t.gradients).value}, {"update", t.update.value}},
        {},
        {},
        {}};
    add_words(c, words_of(p));
    for (auto const& s : p.stages) {
        add_parameters(c, s.plan);
        add_memory(c, s.plan);
    }
    return c;
}

compared compared_of(pipeline_plan const& p) {
    auto const& t = p.time;
    compared c{title_of(p.provenance),
               p.cost(),
               {{"pipeline", t.pipeline.value}, {"gradients", t.synchronisation.value}, {"update", t.update.value}},
               {},
               {},
               {}};
    c.words["pipeline"] = heddle::detail::count(p.stages.size(), "stage") + ", " + std::to_string(p.copies()) +
                          (p.copies() == 1 ? " copy, " : " copies, ") + std::to_string(p.micro_batches) +
                          (p.micro_batches == 1 ? " micro-batch" : " micro-batches");
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        auto const& stage = p.stages[s];
        std::string text = p.layers[stage.first].name + " to " + p.layers[stage.end - 1].name + " on";
        for (auto const& group : stage.devices) text += ' ' + heddle::detail::ranges_text(group);
        c.words["stage " + std::to_string(s)] = text;
    }
    for (auto const& d : p.devices) {
        auto& most = c.memory[d.type];
        most = std::max(most, d.memory.value);
    }
    return c;
}

/// Visits the names of either map, in order, with what each map has or null.
template <class Value, class Visit>
void for_each_name(std::map<std::string, Value> const& one, std::map<std::string, Value> const& other, Visit&& visit) {
    std::set<std::string> names;
    for (auto const* map : {&one, &other})
        for (auto const& [name, value] : *map) names.insert(name);
    for (auto const& name : names) {
        auto const in = [&](auto const& map) {
            auto const found = map.find(name);
            return found == map.end() ? nullptr : &found->second;
        };
        visit(name, in(one), in(other));
    }
}

/// Parameters by the way in the one plan and in the other, where these are not the same.
std::map<std::pair<std::string, std::string>, std::vector<std::string>> moved_parameters(compared const& one,
                                                                                         compared const& other) {
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> moved;
    for_each_name(one.parameters, other.parameters, [&](auto const& name, auto const* a, auto const* b) {
        std::string const from = a ? *a : "-", to = b ? *b : "-";
        if (from != to) moved[{from, to}].push_back(name);
    });
    return moved;
}

std::string times_of(double one, double other) {
    return one > 0 ? heddle::detail::fixed(100 * (other / one - 1), 2) + " %" : "";
}

std::string report(compared const& one, compared const& other) {
    using heddle::detail::add_paragraph, heddle::detail::fixed;
    int const decimals = heddle::detail::decimals_for(one.cost);
    std::string text;
    add_paragraph(text, "one    ", one.title);
    add_paragraph(text, "other  ", other.title);
    text += "\nSeconds per iteration\n";
    text_columns seconds("lrrr");
    seconds.add({"", "one", "other", "difference"});
    for_each_name(one.terms, other.terms, [&](auto const& name, auto const* a, auto const* b) {
        seconds.add(
            {name, a ? fixed(*a, decimals) : "-", b ? fixed(*b, decimals) : "-", a && b ? times_of(*a, *b) : ""});
    });
    seconds.add({"total", fixed(one.cost, decimals), fixed(other.cost, decimals), times_of(one.cost, other.cost)});
    text += seconds.print(2, 0) + "\nMemory of the fullest device (GB)\n";
    text_columns memory("lrrr");
    memory.add({"", "one", "other", "difference"});
    for_each_name(one.memory, other.memory, [&](auto const& name, auto const* a, auto const* b) {
        memory.add({name, a ? fixed(*a / 1e9, 3) : "-", b ? fixed(*b / 1e9, 3) : "-", a && b ? times_of(*a, *b) : ""});
    });
    text += memory.print(2, 0);
    std::string does;
    for_each_name(one.words, other.words, [&](auto const& name, auto const* a, auto const* b) {
        if (a && b && *a == *b) return;
        does += "  " + name + '\n';
        add_paragraph(does, "    one    ", a ? *a : "-");
        add_paragraph(does, "    other  ", b ? *b : "-");
    });
    text += "\nWhat they do\n" + (does.empty() ? "  the same\n" : does);
    auto const moved = moved_parameters(one, other);
    if (!moved.empty()) text += "\nParameters held otherwise\n";
    for (auto const& [ways, names] : moved)
        add_paragraph(text, "  ",
                      heddle::detail::count(names.size(), "parameter") + ", such as " + printable(names.front(), 60) +
                          ": " + ways.first + " -> " + ways.second);
    return text;
}

nlohmann::ordered_json difference(compared const& one, compared const& other) {
    using json = nlohmann::ordered_json;
    json out{{"cost", {one.cost, other.cost}},
             {"time", json::object()},
             {"memory_bytes", json::object()},
             {"words", json::object()},
             {"parameters", json::array()}};
    auto const add = [&](char const* field, auto const& a, auto const& b) {
        for_each_name(a, b, [&](auto const& name, auto const* x, auto const* y) {
            if (x && y && *x == *y) return;
            out[field][printable(name, name.size())] = {x ? json(*x) : json(), y ? json(*y) : json()};
        });
    };
    add("time", one.terms, other.terms);
    add("memory_bytes", one.memory, other.memory);
    add("words", one.words, other.words);
    for (auto const& [ways, names] : moved_parameters(one, other))
        out["parameters"].push_back({{"one", ways.first}, {"other", ways.second}, {"names", names}});
    return out;
}

} // namespace

int run_diff(diff_arguments const& arguments) {
    auto const read = [](std::string const& path) {
        return std::visit([](auto const& p) { return compared_of(p); }, read_any_plan(path));
    };
    auto const one = read(arguments.one), other = read(arguments.other);
    if (arguments.json) std::cout << difference(one, other).dump() << '\n';
    else print_report(report(one, other));
    return done;
}

} // namespace heddle::cli
