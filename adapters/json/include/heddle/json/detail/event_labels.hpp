// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the events of an iteration are called, of a plan's and of a plan of stages.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/cost/timeline.hpp>
#include <heddle/json/names.hpp>
#include <heddle/plan/buckets.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/plan/staged_run.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle::json::detail {

/// What an event is called and what is told of it, as a JSON object; both are equal on every device.
struct event_label {
    std::string name, category, arguments;
};

/// Labels the events of one plan. Refers to the plan.
class event_labels {
public:
    explicit event_labels(plan const& p) : plan_(p) {
        for (auto& bucket : gradient_buckets(p)) {
            auto const last = bucket.steps.back();
            if (bucket.steps.size() > 1) buckets_.emplace(last, std::move(bucket));
        }
    }

    /// Labels are made once per step, phase, kind of work and micro-batch; references stay.
    event_label const& of(timeline_event const& e) {
        auto& label = labels_[{e.step, e.when, e.transfer, e.micro_batch, e.is_inside}];
        if (label.category.empty()) label = make_label(e);
        return label;
    }

private:
    [[nodiscard]] event_label make_label(timeline_event const& e) const {
        using phase = timeline_event::phase;
        auto const& s = plan_.steps[e.step];
        auto const& i = s.acting();
        auto const* const compute = i.as<instruction::compute>();
        std::string const& subject = compute ? plan_.operators[compute->op] : plan_.tensors[i.change()->tensor].name;
        std::string name, category = "compute";
        nlohmann::ordered_json arguments{{"step", e.step}};
        if (plan_.provenance.training.interleaves() && !s.step.once && e.when != phase::update)
            arguments["micro_batch"] = e.micro_batch;
        if (e.transfer) {
            std::array const lists{&s.step.forward_transfers, &s.step.backward_transfers, &s.step.deferred_transfers,
                                   &s.step.update_transfers};
            auto const& t = lists.at(static_cast<std::size_t>(e.when))->at(*e.transfer);
            // The backward pass of a reshard brings the value again.
            bool const is_value = e.when == phase::forward || e.when == phase::update || i.is<instruction::reshard>();
            category = "communication";
            name = std::string(heddle::name(t.kind)) + (is_value ? " " : " gradient of ") + subject;
            auto const bucket = e.when == phase::gradient ? buckets_.find(e.step) : buckets_.end();
            if (bucket != buckets_.end()) name += " and " + std::to_string(bucket->second.steps.size() - 1) + " more";
            arguments["bytes"] = std::llround(bucket != buckets_.end() ? bucket->second.size.value : t.size.value);
        } else if (e.when == phase::update) {
            category = "update";
            name = compute ? subject + " gradients from factors" : "update " + subject;
        } else {
            name = compute ? subject : local_work(i) + " " + subject;
            if (e.when != phase::forward) name += " backward";
        }
        if (e.is_inside) {
            category = "communication";
            name = inside_steps(s.step, e.when) + " inside: " + name;
        }
        if (compute) {
            arguments["operands"] = forms(compute->operands.size(), [&](std::size_t k) { return s.operand(k); });
            arguments["results"] = forms(compute->results.size(), [&](std::size_t k) { return s.result(k); });
        } else {
            if (s.from() != s.to()) arguments["from"] = text_of(s.from());
            arguments["to"] = text_of(s.to());
        }
        return {std::move(name), std::move(category),
                arguments.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)};
    }

    /// The kinds of what is communicated inside, each once.
    static std::string inside_steps(step_work const& s, timeline_event::phase when) {
        std::string text;
        std::vector<inside_step> told;
        auto const add = [&](inside_list const& list) {
            for (auto const& t : list) {
                if (algorithm::find(told, t.kind) != told.end()) continue;
                told.push_back(t.kind);
                text += (text.empty() ? "" : ", ") + std::string(heddle::name(t.kind));
            }
        };
        if (when == timeline_event::phase::update) add(s.inside_update);
        if (when == timeline_event::phase::backward) add(s.inside_backward);
        if (when == timeline_event::phase::forward || (when == timeline_event::phase::backward && s.runs_again))
            add(s.inside_forward);
        return text;
    }
    static std::string local_work(instruction const& i) {
        auto const& [t, from, to] = *i.change();
        if (i.is<instruction::read>()) return to == tensor_form::partial() ? "mask" : "read";
        auto const how = find_conversion(from, to);
        bool const masks = how && how->forward.local == conversion_half::work::scale;
        return masks ? "mask" : to.is_shard() ? "slice" : "convert";
    }
    static std::string text_of(product_form const& f) { return f.size() == 1 ? to_string(f[0]) : to_string(f); }
    template <class Form>
    static std::string forms(std::size_t count, Form const& form) {
        std::string text;
        for (std::size_t k = 0; k < count; ++k) text += (k ? ", " : "") + text_of(form(k));
        return text;
    }

    plan const& plan_;
    /// The buckets of several gradients, by the step after which each is sent.
    std::map<std::size_t, gradient_bucket> buckets_;
    std::map<std::tuple<std::size_t, timeline_event::phase, std::optional<std::size_t>, int, bool>, event_label>
        labels_;
};

/// What a plan is called: its model and its cluster.
[[nodiscard]] inline std::string title_of(provenance const& from) {
    return (from.model.empty() ? "plan" : from.model) + (from.cluster.empty() ? "" : " on " + from.cluster);
}

/// What a stage is called: its number, those of later rounds on its devices if `has_rounds`, and its devices.
[[nodiscard]] inline std::string title_of(staged_plan const& p, std::size_t s, bool has_rounds = false) {
    std::vector<std::pair<std::string, int>> types; // and how many devices are of each
    for (auto const& d : p.stages[s].plan.devices) {
        auto const known = algorithm::find(types, d.type, &std::pair<std::string, int>::first);
        if (known == types.end()) types.emplace_back(d.type, d.group_size);
        else known->second += d.group_size;
    }
    std::string title = (has_rounds && p.rounds() > 1 ? "stages " : "stage ") + std::to_string(s);
    for (auto later = s + p.places(); has_rounds && later < p.stages.size(); later += p.places())
        title += ", " + std::to_string(later);
    title += ":";
    for (std::size_t n = 0; n < types.size(); ++n)
        title += (n > 0 ? ", " : " ") + std::to_string(types[n].second) + " x " + types[n].first;
    return title;
}

/// What the line is called on which its devices send.
[[nodiscard]] inline std::string sends_of(staged_plan const& p, std::size_t s) {
    auto const title = title_of(p, s, true);
    return title.substr(0, title.find(':')) + (p.rounds() > 1 ? " send" : " sends");
}

/// What an event is called; in rounds with the number of its stage.
[[nodiscard]] inline std::string label_of(staged_plan const& p, staged_event const& e) {
    using kind = staged_event::kind;
    std::string const of_batch =
        " " + std::to_string(e.micro_batch) + (p.rounds() > 1 ? " of stage " + std::to_string(e.stage) : "");
    bool const sends = e.what == kind::send;
    switch (e.what) {
    case kind::forward: return "forward" + of_batch;
    case kind::backward: return "backward" + of_batch;
    case kind::send:
    case kind::receive:
        return (sends ? "send " : "receive ") + std::string(e.is_values ? "values" : "cotangents") + of_batch;
    case kind::gradients: return "reduce gradients";
    case kind::shared_gradients: return "add up gradients of what stages share";
    case kind::update: break;
    }
    return "update";
}

[[nodiscard]] inline char const* category_of(staged_event const& e) {
    using kind = staged_event::kind;
    return e.what == kind::forward || e.what == kind::backward ? "compute"
           : e.what == kind::update                            ? "update"
                                                               : "communication";
}

} // namespace heddle::json::detail
