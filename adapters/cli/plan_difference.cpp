// SPDX-License-Identifier: BSL-1.0
// Plans of any kind beside each other.
#include "plan_difference.hpp"

#include <heddle/base/printable.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/parameter_uses.hpp>
#include <heddle/plan/words.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::cli {

namespace {

using heddle::detail::text_columns;

void add_parameters(compared_plan& c, plan const& p) {
    for (auto const& use : parameter_uses(p)) {
        auto const& t = p.tensors[use.tensor];
        if (c.parameters.try_emplace(t.name, way_of(use)).second) c.parameter_bytes[t.name] = t.size().value;
    }
}

/// Adds what devices hold together of several stages, or of one.
void add_memory(compared_plan& c, std::vector<plan const*> const& stages) {
    auto const& devices = stages.front()->devices;
    for (std::size_t d = 0; d < devices.size(); ++d) {
        double held = 0;
        for (auto const* p : stages)
            if (d < p->memory.size()) held += p->memory[d].total();
        auto& most = c.memory[devices[d].type];
        most = std::max(most, held);
    }
}

void add_words(compared_plan& c, std::vector<plan_word> const& words) {
    for (auto const& w : words) c.words[w.label.empty() ? "stages not shown" : w.label] = w.text;
}

/// Returns what is said of a plan of any kind.
template <class Plan>
compared_plan begun(Plan const& p) {
    auto const& from = p.provenance;
    compared_plan c;
    c.title = from.model + " on " + from.cluster + ", by " + from.planner;
    c.cost = p.cost();
    return c;
}

/// Returns what a plan does other than to cut tensors over devices.
std::string arrangement_of(plan const& p) {
    std::string text;
    auto const add = [&](std::string const& words) { text += (text.empty() ? "" : ", ") + words; };
    if (p.is_on_mesh()) add("mesh of " + to_string(p.mesh()));
    if (p.has_groups()) add("groups");
    if (int const parts = p.provenance.training.micro_batches; parts > 1) add(std::to_string(parts) + " in turn");
    return text;
}

compared_plan compared_of(plan const& p) {
    auto const& t = p.time;
    auto c = begun(p);
    c.terms = {
        {"compute", t.own_compute()},         {"communication", t.forward_communication + t.backward_communication},
        {"communication inside", t.inside()}, {"gradients", t.gradient_communication},
        {"update", t.own_update()},           {"gathers of updated parameters", t.parameter_communication}};
    c.arrangement = arrangement_of(p);
    c.in_short = c.arrangement + (c.arrangement.empty() ? "" : ": ") +
                 (p.devices.size() == 1 && !p.is_on_mesh() ? "alone" : heddle::detail::ways_text(p));
    add_words(c, words_of(p));
    add_parameters(c, p);
    add_memory(c, {&p});
    return c;
}

compared_plan compared_of(staged_plan const& p) {
    if (p.is_plain() && p.stages.front().devices.size() == p.device_count) return compared_of(p.stages.front().plan);
    auto const& t = p.time;
    auto c = begun(p);
    c.terms = {{"pipeline", t.pipeline.value},
               {"gradients", (t.shared + t.gradients).value},
               {"update", t.update.value},
               {"gathers of updated parameters", t.parameters.value}};
    c.in_short = heddle::detail::stages_in_words(p) + ", " + std::to_string(p.micro_batches) +
                 (p.micro_batches == 1 ? " micro-batch" : " micro-batches");
    c.arrangement = c.in_short;
    for (std::size_t n = 0; n < p.stages.size(); ++n) {
        auto const& s = p.stages[n];
        auto const inside = arrangement_of(s.plan);
        c.arrangement += "; stage " + std::to_string(n) + " up to operator " + std::to_string(s.end) + " on " +
                         heddle::detail::ranges_text(s.devices) + (inside.empty() ? "" : ", " + inside);
        add_parameters(c, s.plan);
        if (n >= p.places()) continue;
        std::vector<plan const*> together;
        for (auto of_round = n; of_round < p.stages.size(); of_round += p.places())
            together.push_back(&p.stages[of_round].plan);
        add_memory(c, together);
    }
    if (p.stages.size() == 1)
        c.in_short = compared_of(p.stages.front().plan).in_short + " on " +
                     heddle::detail::ranges_text(p.stages.front().devices) +
                     (p.micro_batches > 1 ? ", " + std::to_string(p.micro_batches) + " micro-batches" : "");
    add_words(c, words_of(p));
    return c;
}

compared_plan compared_of(pipeline_plan const& p) {
    auto const& t = p.time;
    auto c = begun(p);
    c.terms = {{"pipeline", t.pipeline.value}, {"gradients", t.synchronisation.value}, {"update", t.update.value}};
    c.in_short = heddle::detail::count(p.stages.size(), "stage") + ", " + std::to_string(p.copies()) +
                 (p.copies() == 1 ? " copy, " : " copies, ") + std::to_string(p.micro_batches) +
                 (p.micro_batches == 1 ? " micro-batch" : " micro-batches");
    c.words["pipeline"] = c.arrangement = c.in_short;
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        auto const& stage = p.stages[s];
        std::string text = p.layers[stage.first].name + " to " + p.layers[stage.end - 1].name + " on";
        for (auto const& group : stage.devices) text += ' ' + heddle::detail::ranges_text(group);
        c.arrangement += "; stage " + std::to_string(s) + " " + text;
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
std::map<std::pair<std::string, std::string>, std::vector<std::string>> moved_parameters(compared_plan const& one,
                                                                                         compared_plan const& other) {
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> moved;
    for_each_name(one.parameters, other.parameters, [&](auto const& name, auto const* a, auto const* b) {
        std::string const from = a ? *a : "-", to = b ? *b : "-";
        if (from != to) moved[{from, to}].push_back(name);
    });
    return moved;
}

std::set<std::string> parts_of(std::string_view text, std::string_view separator) {
    std::set<std::string> parts;
    for (auto const part : std::views::split(text, separator)) parts.emplace(part.begin(), part.end());
    return parts;
}

/// For example `3 parameters, such as layers.0.weight: FSDP -> tensor parallel`.
std::string in_words(std::pair<std::string, std::string> const& ways, std::vector<std::string> const& names) {
    return heddle::detail::count(names.size(), "parameter") + ", such as " + printable(names.front(), 60) + ": " +
           ways.first + " -> " + ways.second;
}

std::string times_of(double one, double other) {
    return one > 0 ? heddle::detail::fixed(100 * (other / one - 1), 2) + " %" : "";
}

} // namespace

compared_plan compared(any_plan const& p) {
    return std::visit([](auto const& of) { return compared_of(of); }, p);
}

bool is_same_strategy(compared_plan const& one, compared_plan const& other) {
    if (one.arrangement != other.arrangement) return false;
    double all = 0, moved = 0;
    for (auto const& [name, size] : one.parameter_bytes) {
        auto const found = other.parameters.find(name);
        all += size;
        if (found == other.parameters.end() || found->second != one.parameters.at(name)) moved += size;
    }
    return moved <= 0.05 * all;
}

std::string strategy_instead(compared_plan const& first, compared_plan const& other) {
    if (parts_of(other.in_short, ", ") != parts_of(first.in_short, ", ")) return other.in_short;
    std::vector<std::string> changes;
    std::ranges::set_difference(parts_of(other.arrangement, "; "), parts_of(first.arrangement, "; "),
                                std::back_inserter(changes));
    std::vector<std::pair<double, std::string>> held; // otherwise, most bytes first
    for (auto const& [ways, names] : moved_parameters(first, other)) {
        double bytes = 0;
        for (auto const& name : names)
            if (auto const found = first.parameter_bytes.find(name); found != first.parameter_bytes.end())
                bytes += found->second;
        held.emplace_back(-bytes, in_words(ways, names));
    }
    std::ranges::sort(held);
    for (auto& [bytes, words] : held) changes.push_back(std::move(words));
    constexpr std::size_t most = 3;
    std::string text = "as now, but ";
    for (std::size_t n = 0; n < std::min(changes.size(), most); ++n) text += (n > 0 ? "; " : "") + changes[n];
    return text + (changes.size() > most ? "; and more" : "");
}

std::string difference_report(compared_plan const& first, compared_plan const& second, std::string const& one,
                              std::string const& other) {
    using heddle::detail::add_paragraph, heddle::detail::fixed;
    int const decimals = heddle::detail::decimals_for(first.cost);
    std::string text;
    std::string words_of_one = "    " + one + "  ", words_of_other = "    " + other + "  ";
    auto const width = std::max(words_of_one.size(), words_of_other.size());
    words_of_one.resize(width, ' '), words_of_other.resize(width, ' ');
    text += "Seconds per iteration\n";
    text_columns seconds("lrrr");
    seconds.add({"", one, other, "difference"});
    for_each_name(first.terms, second.terms, [&](auto const& name, auto const* a, auto const* b) {
        if ((!a || *a == 0) && (!b || *b == 0)) return;
        seconds.add(
            {name, a ? fixed(*a, decimals) : "-", b ? fixed(*b, decimals) : "-", a && b ? times_of(*a, *b) : ""});
    });
    seconds.add(
        {"total", fixed(first.cost, decimals), fixed(second.cost, decimals), times_of(first.cost, second.cost)});
    text += seconds.print(2, 0) + "\nMemory of the fullest device (GB)\n";
    text_columns memory("lrrr");
    memory.add({"", one, other, "difference"});
    for_each_name(first.memory, second.memory, [&](auto const& name, auto const* a, auto const* b) {
        memory.add({name, a ? fixed(*a / 1e9, 3) : "-", b ? fixed(*b / 1e9, 3) : "-", a && b ? times_of(*a, *b) : ""});
    });
    text += memory.print(2, 0);
    std::string does;
    for_each_name(first.words, second.words, [&](auto const& name, auto const* a, auto const* b) {
        if (a && b && *a == *b) return;
        does += "  " + name + '\n';
        add_paragraph(does, words_of_one, a ? *a : "-");
        add_paragraph(does, words_of_other, b ? *b : "-");
    });
    text += "\nWhat they do\n" + (does.empty() ? "  the same\n" : does);
    auto const moved = moved_parameters(first, second);
    if (!moved.empty()) text += "\nParameters held otherwise\n";
    for (auto const& [ways, names] : moved) add_paragraph(text, "  ", in_words(ways, names));
    return text;
}

nlohmann::ordered_json difference(compared_plan const& first, compared_plan const& second) {
    using json = nlohmann::ordered_json;
    json out{{"cost", {first.cost, second.cost}},
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
    add("time", first.terms, second.terms);
    add("memory_bytes", first.memory, second.memory);
    add("words", first.words, second.words);
    for (auto const& [ways, names] : moved_parameters(first, second))
        out["parameters"].push_back({{"one", ways.first}, {"other", ways.second}, {"names", names}});
    return out;
}

} // namespace heddle::cli
