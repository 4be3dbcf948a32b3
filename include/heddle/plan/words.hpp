// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a plan does, in the words of frameworks: data, tensor, expert and pipeline parallelism, FSDP, ZeRO.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/plan/parameter_uses.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/staged_plan.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// One thing that a plan does, for example `FSDP` and `34 parameters, 0.295 GB: in shards, gathered where they are
/// used`.
struct plan_word {
    std::string label, text;
};

/// Returns what a plan does: who takes how much, and how parameters are held, by kind.
[[nodiscard]] std::vector<plan_word> words_of(plan const& p);

/// Returns what a plan does: its stages and micro-batches, and what each stage does. That of one stage is said as a
/// plan.
[[nodiscard]] std::vector<plan_word> words_of(staged_plan const& p);

/// Returns what a pipeline plan does: its stages, micro-batches and copies, and what each stage has.
[[nodiscard]] std::vector<plan_word> words_of(pipeline_plan const& p);

/// Returns the usual name of how a plan holds a parameter, by axis, outermost first, such as `data | tensor parallel`.
[[nodiscard]] std::string way_of(parameter_use const& use);

namespace detail {

/// Returns the names of the ways in which the devices of a plan hold its parameters, those of most bytes first.
[[nodiscard]] std::string ways_text(plan const& p);

/// Returns for example `8 stages in 2 rounds`.
[[nodiscard]] std::string stages_in_words(staged_plan const& p);

/// Appends a section of a report.
void add_words(std::string& text, std::vector<plan_word> const& words);

/// Appends what the words and numbers of every report mean, and of this one.
void add_legend(std::string& text, std::string const& of_this);

} // namespace detail

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/plan/detail/report_text.hpp>

namespace heddle::detail {

struct named_way {
    char const *name, *meaning;
};

HEDDLE_INLINE named_way way_of(parameter_holding storage, bool is_of_experts) {
    switch (storage) {
    case parameter_holding::replicated:
    case parameter_holding::masked: return {"data parallel", "whole on each device, gradients summed"};
    case parameter_holding::mirrored: return {"alike", "whole on each device, which has the whole gradient itself"};
    case parameter_holding::replicated_state_shards:
    case parameter_holding::mirrored_state_shards: return {"ZeRO", "whole in an iteration, optimiser state in shards"};
    case parameter_holding::sharded:
        return is_of_experts ? named_way{"expert parallel", "experts spread over the devices, rows sent to them"}
                             : named_way{"tensor parallel", "in shards, and so is what is computed from them"};
    case parameter_holding::gathered:
    case parameter_holding::gathered_once:
    case parameter_holding::gathered_twice: return {"FSDP", "in shards, gathered where they are used"};
    }
    return {"", ""};
}

/// Tells whether ratios are one but for rounding.
HEDDLE_INLINE bool is_same_ratio(double a, double b) { return std::abs(a - b) <= 1e-9; }

/// Returns devices that are one type and take one share in all segments, in the order of the first.
HEDDLE_INLINE std::vector<std::vector<std::size_t>> alike_places(plan const& p) {
    std::vector<std::vector<std::size_t>> kinds;
    for (std::size_t d = 0; d < p.devices.size(); ++d) {
        auto const alike = [&](auto const& kind) {
            std::size_t const first = kind.front();
            return p.devices[first].name() == p.devices[d].name() &&
                   algorithm::all_of(p.ratios, [&](auto const& row) { return is_same_ratio(row[first], row[d]); });
        };
        if (auto const found = algorithm::find_if(kinds, alike); found != kinds.end()) found->push_back(d);
        else kinds.push_back({d});
    }
    return kinds;
}

/// Returns who takes how much of what is cut, or nothing if there is one device.
HEDDLE_INLINE std::string shares_text(plan const& p) {
    if (p.devices.size() < 2 || p.ratios.empty()) return {};
    if (algorithm::any_of(p.ratios, [&](auto const& row) { return row.size() != p.devices.size(); })) return {};
    if (algorithm::none_of(p.steps, [](plan_step const& s) {
            return s.instruction.is<instruction::compute>() && s.computation().loop >= 0;
        }))
        return std::string("none: every ") +
               (p.is_on_mesh()   ? "place"
                : p.has_groups() ? "device group"
                                 : "device") +
               " computes the same";
    auto const kinds = alike_places(p);
    auto const percent = [](double ratio) { return fixed(100 * ratio, 2); };
    if (algorithm::all_of(p.ratios, [](auto const& row) {
            return algorithm::all_of(row, [&](double r) { return is_same_ratio(r, row[0]); });
        }))
        return "even: each of " + count(p.devices.size(), p.is_on_mesh() ? "place" : "device") + " takes " +
               percent(p.ratios[0][0]) + " %";
    std::string text;
    for (auto const& kind : kinds) {
        auto const [least, most] =
            std::ranges::minmax(p.ratios, {}, [d = kind.front()](auto const& row) { return row[d]; });
        double const from = least[kind.front()], to = most[kind.front()];
        text +=
            (text.empty() ? "uneven: " : "; ") + std::to_string(kind.size()) + " x " + p.devices[kind.front()].name();
        if (to == 0) text += kind.size() == 1 ? " is left out" : " are left out";
        else
            text += (kind.size() == 1 ? " takes " : " take ") + percent(from) +
                    (is_same_ratio(from, to) ? "" : " to " + percent(to)) + (kind.size() == 1 ? " %" : " % each");
    }
    return text;
}

/// Tells of each axis whether samples are cut along their sequence: the second dimension of what has three, or of
/// inputs, where no parameter is cut with it.
HEDDLE_INLINE std::vector<bool> axes_of_sequence(plan const& p) {
    std::set<std::pair<tensor_id, factor_number>> sequence;
    for (auto const& c : p.cuts) {
        auto const role = [&](auto const& m) { return p.tensors[m.tensor].role; };
        if (algorithm::any_of(c.members, [&](auto const& m) { return role(m) == tensor_role::parameter; })) continue;
        for (auto const& m : c.members) {
            auto const& t = p.tensors[m.tensor];
            bool const is_second = t.factors[static_cast<std::size_t>(m.factor)].dimension == 1;
            if (is_second && (t.shape.size() == 3 || role(m) == tensor_role::input))
                sequence.insert({m.tensor, m.factor});
        }
    }
    std::vector<bool> axes(1 + p.inner_sizes.size());
    for (auto const& s : p.steps)
        for (axis_number a = 0; a < s.axis_count(); ++a)
            if (auto const change = s.on_axis(a).change())
                for (auto const form : {change->from, change->to})
                    if (form.is_shard() && sequence.contains({change->tensor, form.factor()})) axes[a] = true;
    return axes;
}

/// Says where samples are cut along their sequence: context parallelism, or what tensor parallelism does between
/// layers.
HEDDLE_INLINE void add_sequence_words(std::vector<plan_word>& words, plan const& p) {
    auto const axes = axes_of_sequence(p);
    auto const uses = parameter_uses(p);
    for (std::size_t a = 0; a < axes.size(); ++a) {
        if (!axes[a]) continue;
        bool const is_between = algorithm::any_of(
            uses, [&](auto const& use) { return use.storage[a] == parameter_holding::sharded && !use.is_of_experts; });
        words.push_back({is_between ? "sequence parallel" : "context parallel",
                         std::string(is_between ? "samples are cut along their sequence where no parameters are"
                                                : "samples are cut along their sequence") +
                             (p.is_on_mesh() ? ", on axis " + std::to_string(a) : "")});
    }
}

HEDDLE_INLINE std::string ways_text(plan const& p) {
    std::map<std::string, double> sizes;
    for (auto const& use : parameter_uses(p)) sizes[heddle::way_of(use)] += p.tensors[use.tensor].size().value;
    std::vector<std::pair<double, std::string>> ways;
    for (auto const& [name, size] : sizes) ways.emplace_back(-size, name);
    std::ranges::sort(ways);
    std::string text;
    for (auto const& way : ways) text += (text.empty() ? "" : ", ") + way.second;
    return text;
}

/// For example `6 x P100 (2-7)`, of the types of devices in a row and their numbers.
HEDDLE_INLINE std::string devices_text(std::vector<std::string> const& types, std::vector<std::size_t> const& numbers) {
    std::string text;
    for (std::size_t first = 0; first < types.size();) {
        std::size_t end = first + 1;
        while (end < types.size() && types[end] == types[first]) ++end;
        text += (first > 0 ? ", " : "") + std::to_string(end - first) + " x " + types[first];
        first = end;
    }
    return text + " (" + ranges_text(numbers) + ")";
}

/// Returns what a plan recomputes for the backward pass; it is empty if nothing.
[[nodiscard]] HEDDLE_INLINE std::string recomputed(plan const& p) {
    auto const how = p.provenance.training.recomputes;
    if (how == recomputation::none) return {};
    std::set<region_number> regions;
    for (auto const& t : p.tensors)
        if (p.provenance.training.runs_again(t.region)) regions.insert(t.region);
    if (regions.empty()) return {};
    return (how == recomputation::full ? "activations, in " : "activations that are cheap to make, in ") +
           count(regions.size(), "region");
}

HEDDLE_INLINE plan_word word_of_stage(planned_stage const& s, std::string const& label) {
    std::vector<std::string> types;
    for (auto const& d : s.plan.devices) types.insert(types.end(), static_cast<std::size_t>(d.group_size), d.type);
    std::string text = devices_text(types, s.devices);
    if (s.devices.size() > 1) text += ": " + ways_text(s.plan);
    if (s.plan.is_on_mesh()) text += " on a mesh of " + to_string(s.plan.mesh());
    if (auto const shares = shares_text(s.plan); shares.starts_with("uneven")) text += "; " + shares;
    if (auto const again = recomputed(s.plan); !again.empty()) text += "; recomputes " + again;
    if (s.turns() > 1) text += "; " + std::to_string(s.turns()) + " parts of a micro-batch take turns";
    return {label, text};
}

/// Adds what each stage has, of the first ones if there are many.
template <class Word>
void add_stage_words(std::vector<plan_word>& words, std::size_t stages, Word const& word) {
    constexpr std::size_t most = 12;
    for (std::size_t s = 0; s < std::min(stages, most); ++s) words.push_back(word(s));
    if (stages > most) words.push_back({"", "and " + count(stages - most, "more stage")});
}

HEDDLE_INLINE void add_words(std::string& text, std::vector<plan_word> const& words) {
    if (words.empty()) return;
    text += "\nWhat to do\n";
    std::size_t width = 0;
    for (auto const& w : words) width = std::max(width, w.label.size());
    for (auto const& w : words) {
        std::string label = "  " + w.label;
        label.resize(width + 4, ' ');
        add_paragraph(text, label, w.text);
    }
}

HEDDLE_INLINE void add_legend(std::string& text, std::string const& of_this) {
    text += '\n';
    add_paragraph(text, "", "Seconds are predicted; 1 GB is 1e9 bytes" + (of_this.empty() ? "" : "; " + of_this) + ".");
}

/// Says which layers a stage has, and how its devices share them.
HEDDLE_INLINE plan_word word_of_stage(pipeline_plan const& p, std::size_t number) {
    auto const& s = p.stages[number];
    std::vector<std::size_t> numbers;
    for (auto const& group : s.devices) numbers.insert(numbers.end(), group.begin(), group.end());
    std::ranges::sort(numbers);
    std::vector<std::string> types;
    for (auto const d : numbers) types.push_back(p.devices[d].type);
    auto const shared = p.groups.find(s.degree());
    return {"stage " + std::to_string(number), devices_text(types, numbers) + ", layer" +
                                                   (s.end - s.first > 1 ? "s " : " ") + range_text(s.first, s.end) +
                                                   (s.degree() < 2             ? ""
                                                    : shared == p.groups.end() ? ": tensor parallel"
                                                                               : ": " + ways_text(shared->second))};
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::string way_of(parameter_use const& use) {
    std::string text;
    for (auto const storage : use.storage)
        text += (text.empty() ? "" : " | ") + std::string(detail::way_of(storage, use.is_of_experts).name);
    return text;
}

HEDDLE_INLINE std::vector<plan_word> words_of(plan const& p) {
    std::vector<plan_word> words;
    if (p.is_on_mesh()) words.push_back({"mesh", to_string(p.mesh()) + ", ways by axis, the outermost first"});
    if (auto shares = detail::shares_text(p); !shares.empty()) words.push_back({"shares", std::move(shares)});
    if (p.has_groups()) words.push_back({"groups", "inside a machine its part of the batch is divided evenly"});
    struct sums {
        std::string meaning;
        std::size_t parameters = 0;
        double size = 0;
    };
    std::map<std::string, sums> ways;
    for (auto const& use : parameter_uses(p)) {
        auto& of = ways[way_of(use)];
        ++of.parameters;
        of.size += p.tensors[use.tensor].size().value;
        if (use.storage.size() == 1) of.meaning = detail::way_of(use.storage[0], use.is_of_experts).meaning;
    }
    if (p.devices.size() > 1 || p.is_on_mesh())
        for (auto const& [name, of] : ways)
            words.push_back({name, detail::count(of.parameters, "parameter") + ", " + detail::fixed(of.size / 1e9, 3) +
                                       " GB" + (of.meaning.empty() ? "" : ": " + of.meaning)});
    detail::add_sequence_words(words, p);
    if (auto again = detail::recomputed(p); !again.empty()) words.push_back({"recomputed", std::move(again)});
    if (int const parts = p.provenance.training.micro_batches; parts > 1)
        words.push_back({"in turn", std::to_string(parts) + " micro-batches: one communicates while another computes"});
    return words;
}

HEDDLE_INLINE std::string detail::stages_in_words(staged_plan const& p) {
    auto const stages = count(p.stages.size(), "stage");
    return p.rounds() > 1 ? stages + " in " + std::to_string(p.rounds()) + " rounds" : stages;
}

HEDDLE_INLINE std::vector<plan_word> words_of(staged_plan const& p) {
    if (!p.exists()) return {};
    auto const micro_batches = detail::count(static_cast<std::size_t>(p.micro_batches), "micro-batch", "es");
    std::vector<plan_word> words;
    if (p.stages.size() > 1)
        words.push_back({"pipeline", detail::stages_in_words(p) + ", " + micro_batches +
                                         ", one forward, one backward; stages " +
                                         (p.sends_beside ? "compute" : "wait") + " while they send"});
    else if (p.micro_batches > 1) words.push_back({"accumulation", micro_batches + " before each update"});
    std::size_t const used = p.ranks().size();
    if (used < p.device_count)
        words.push_back(
            {"left out", std::to_string(p.device_count - used) + " of " + detail::count(p.device_count, "device")});
    if (p.stages.size() == 1) {
        if (used < p.device_count) words.push_back({"devices", detail::ranges_text(p.stages.front().devices)});
        auto of_stage = words_of(p.stages.front().plan);
        words.insert(words.end(), of_stage.begin(), of_stage.end());
        return words;
    }
    detail::add_stage_words(words, p.stages.size(), [&](std::size_t s) {
        return detail::word_of_stage(p.stages[s], "stage " + std::to_string(s));
    });
    return words;
}

HEDDLE_INLINE std::vector<plan_word> words_of(pipeline_plan const& p) {
    if (!p.exists()) return {};
    std::vector<plan_word> words;
    words.push_back({"pipeline", detail::count(p.stages.size(), "stage") + ", " +
                                     detail::count(static_cast<std::size_t>(p.micro_batches), "micro-batch", "es") +
                                     ", one forward, one backward"});
    if (p.copies() > 1)
        words.push_back(
            {"data parallel",
             std::to_string(p.copies()) + " copies of the pipeline, each with a part of the batch, gradients summed"});
    std::vector<bool> is_used(p.devices.size());
    for (auto const& s : p.stages)
        for (auto const& group : s.devices)
            for (auto const d : group) is_used[d] = true;
    if (auto const unused = static_cast<std::size_t>(algorithm::count(is_used, false)))
        words.push_back({"left out", std::to_string(unused) + " of " + detail::count(p.devices.size(), "device")});
    detail::add_stage_words(words, p.stages.size(), [&](std::size_t s) { return detail::word_of_stage(p, s); });
    return words;
}

} // namespace heddle

#endif
