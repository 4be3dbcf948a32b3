// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the page of a plan carries and shows.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/cost/timeline.hpp>
#include <heddle/json/detail/event_labels.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/parameter_uses.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/words.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/search/result.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace heddle::html::detail {

/// Of a page that is to stay below a megabyte.
inline constexpr std::size_t most_events = 12'000;

/// What a page says first of a plan of one stage or of several; if there is no plan, why.
template <class Plan>
[[nodiscard]] nlohmann::ordered_json outcome_of(Plan const& p) {
    nlohmann::ordered_json result{{"title", heddle::json::detail::title_of(p.provenance)},
                                  {"origin", "planned by " + p.provenance.planner + ", heddle " + p.provenance.version},
                                  {"exists", p.exists()},
                                  {"status", std::string(name(p.status))},
                                  {"space", p.space},
                                  {"seconds", p.cost()},
                                  {"lowerBound", p.lower_bound},
                                  {"gap", p.gap()},
                                  {"warnings", p.warnings}};
    if (p.status == search::status::limit) result["limit"] = std::string(name(p.which_limit));
    if (!p.exists()) result["words"] = {p.reason.empty() ? "There is no plan." : "There is no plan: " + p.reason};
    return result;
}

/// Returns what a plan does as sentences.
[[nodiscard]] inline std::vector<std::string> sentences(std::vector<plan_word> const& words) {
    std::vector<std::string> result;
    for (auto const& w : words) result.push_back(w.label + (w.label.empty() ? "" : ": ") + w.text + ".");
    return result;
}

/// Says how full the fullest device is, and for which other plans there is too little memory.
[[nodiscard]] inline std::string memory_in_words(double part, std::vector<std::string> const& forbidden) {
    std::string names;
    for (auto const& name : forbidden) names += (names.empty() ? "; there is too little for " : ", ") + name;
    return "The fullest device uses " + heddle::detail::fixed(100 * part, 1) + " % of its memory" + names + ".";
}

/// The data of a plan's page. Refers to what it is given.
class page_data {
public:
    using json = nlohmann::ordered_json;

    page_data(plan const& p, indexed_program const& program, timeline const& events)
        : plan_(p), program_(program), timeline_(events) {
        for (std::size_t d = 0; d < p.devices.size(); ++d) {
            auto const alike = std::ranges::find_if(kinds_, [&](auto const& k) { return are_alike(k.front(), d); });
            if (alike == kinds_.end()) kinds_.push_back({d});
            else alike->push_back(d);
        }
    }

    [[nodiscard]] json object() const {
        auto result = outcome_of(plan_);
        if (plan_.space.empty()) result["space"] = "programs at these shares";
        if (plan_.global_lower_bound) result["globalLowerBound"] = *plan_.global_lower_bound;
        result["ofFamilies"] = false;
        result["best"] = nullptr;
        for (auto const& [strategy, s] : plan_.baselines)
            if (s && (result["best"].is_null() || *s < result["best"]["seconds"].get<double>()))
                result["best"] = {{"name", strategy}, {"seconds", *s}};
        json families = json::array();
        for (auto const& [strategy, s] : plan_.baselines) families.push_back({strategy, s ? json(*s) : json(), ""});
        for (auto const& [strategy, s] : plan_.other_baselines)
            families.push_back({strategy, s ? json(*s) : json(), "not allowed to this plan"});
        result["families"] = std::move(families);
        if (!plan_.exists()) return result;
        result["words"] = words(result["best"]);
        auto const& t = plan_.time;
        auto& terms = result["time"] = {{"compute", t.own_compute()}};
        if (t.inside() > 0) terms[inside()] = t.inside();
        terms["forward communication"] = t.forward_communication;
        terms["backward communication"] = t.backward_communication;
        terms["gradient communication"] = t.gradient_communication;
        terms["update"] = t.own_update();
        terms["gathers of updated parameters"] = t.parameter_communication;
        result["devices"] = devices();
        result["parameters"] = parameters();
        result["operators"] = operators();
        result["timeline"] = events();
        return result;
    }

    /// Returns a row for each kind of devices that are alike.
    [[nodiscard]] json devices() const {
        json rows = json::array();
        for (auto const& kind : kinds_) {
            auto const fullest = *std::ranges::max_element(
                kind, {}, [&](std::size_t d) { return d < plan_.memory.size() ? plan_.memory[d].total() : 0; });
            auto const& m = plan_.memory.at(fullest);
            json ratios = json::array();
            for (auto const& row : plan_.ratios) ratios.push_back(row[kind.front()]);
            rows.push_back({{"numbers", heddle::detail::ranges_text(kind, ", ")},
                            {"name", plan_.devices[kind.front()].name()},
                            {"ratios", std::move(ratios)},
                            {"limit", plan_.devices[kind.front()].memory_limit.value},
                            {"memory",
                             {{"parameters", m.parameters},
                              {"gradients", m.gradients},
                              {"optimizer", m.optimizer},
                              {"inputs", m.inputs},
                              {"activations", m.activations},
                              {"communication", m.communication}}}});
        }
        return rows;
    }
    /// Returns a row for each parameter that is read.
    [[nodiscard]] json parameters() const {
        json rows = json::array();
        for (auto const& r : parameter_rows()) rows.push_back({r.name, r.shape, r.stored, r.used, r.pattern, r.size});
        return rows;
    }
    /// Returns a row for each operator, and for each conversion that takes time.
    [[nodiscard]] json operators() const {
        auto const seconds = seconds_of_steps();
        json rows = json::array();
        for (std::size_t n = 0; n < plan_.steps.size(); ++n) {
            auto const& s = plan_.steps[n];
            auto const& t = seconds[n];
            json row;
            if (auto const* const compute = s.instruction.as<instruction::compute>()) {
                auto const& op = program_.operators[compute->op];
                row = {name_of(op, program_), cut_of(s, op),
                       forms_of(op.operands, [&](std::size_t k) { return s.operand(k); }),
                       forms_of(op.results, [&](std::size_t k) { return s.result(k); })};
            } else {
                if (t.forward + t.backward + t.communication == 0) continue;
                tensor_id const of = s.acting().change()->tensor;
                row = {(s.instruction.is<instruction::read>() ? "read and update " : "convert ") +
                           plan_.tensors[of].name,
                       "", word(s.from(), of), word(s.to(), of)};
            }
            for (double const x : {t.forward, t.backward, t.communication}) row.push_back(x);
            rows.push_back(std::move(row));
        }
        return rows;
    }
    [[nodiscard]] char const* inside() const {
        return plan_.is_on_mesh() ? "communication along inner axes" : "communication inside groups";
    }
    /// Says where the time goes, and how full memory is.
    [[nodiscard]] std::vector<std::string> reasons(std::vector<std::string> const& forbidden) const {
        std::pair<char const*, double> longest{"computation", plan_.time.own_compute()};
        for (auto const& term :
             {std::pair{"communication of the forward pass", plan_.time.forward_communication},
              std::pair{"communication of the backward pass", plan_.time.backward_communication},
              std::pair{"communication of gradients", plan_.time.gradient_communication},
              std::pair{inside(), plan_.time.inside()}, std::pair{"the update", plan_.time.own_update()},
              std::pair{"gathers of updated parameters", plan_.time.parameter_communication}})
            if (term.second > longest.second) longest = term;
        std::vector<std::string> result;
        result.push_back(std::string("Most time goes to ") + longest.first + ": " +
                         heddle::detail::fixed(100 * longest.second / plan_.cost(), 1) + " %.");
        double fullest = 0;
        for (std::size_t d = 0; d < plan_.memory.size(); ++d)
            fullest = std::max(fullest, plan_.memory[d].total() / plan_.devices[d].memory_limit.value);
        result.push_back(memory_in_words(fullest, forbidden));
        return result;
    }
    /// The devices of each kind, in the order of the first.
    [[nodiscard]] std::vector<std::vector<std::size_t>> const& kinds() const { return kinds_; }

private:
    struct parameter_row {
        std::string name, shape, stored, used, pattern;
        double size;
    };

    // ---- devices

    [[nodiscard]] bool are_alike(std::size_t a, std::size_t b) const {
        return plan_.devices[a].name() == plan_.devices[b].name() &&
               plan_.devices[a].memory_limit == plan_.devices[b].memory_limit &&
               algorithm::all_of(plan_.ratios, [&](auto const& row) { return row[a] == row[b]; });
    }

    // ---- forms, in the words of DTensor

    [[nodiscard]] std::string word(tensor_form f, tensor_id t) const {
        if (f == tensor_form::partial()) return "Partial";
        if (!f.is_shard()) return "Replicate";
        auto const& tensor = plan_.tensors[t];
        auto const& cut = tensor.factors[static_cast<std::size_t>(f.factor())];
        bool const is_plain = cut.widths.empty() && cut.extent * cut.stride == tensor.shape[cut.dimension];
        return "Shard(" + std::to_string(cut.dimension) +
               (is_plain             ? ""
                : cut.widths.empty() ? ", strided"
                                     : ", in pieces") +
               ")";
    }
    [[nodiscard]] std::string word(product_form const& f, tensor_id t) const {
        if (f.size() == 1) return word(f[0], t);
        std::string text;
        for (tensor_form of_axis : f) text += (text.empty() ? "[" : ", ") + word(of_axis, t);
        return text + "]";
    }
    /// Equal forms that follow each other are written once.
    template <class Form>
    [[nodiscard]] std::string forms_of(std::vector<tensor_id> const& tensors, Form const& form) const {
        std::string text;
        for (std::size_t first = 0; first < tensors.size();) {
            std::string const one = word(form(first), tensors[first]);
            std::size_t end = first + 1;
            while (end < tensors.size() && word(form(end), tensors[end]) == one) ++end;
            text += (first ? ", " : "") + one + (end > first + 1 ? " x" + std::to_string(end - first) : "");
            first = end;
        }
        return text;
    }

    // ---- parameters

    [[nodiscard]] std::vector<parameter_row> parameter_rows() const {
        std::vector<parameter_row> rows;
        for (auto const& use : parameter_uses(plan_)) {
            auto const& tensor = plan_.tensors[use.tensor];
            std::string shape;
            for (extent e : tensor.shape) shape += (shape.empty() ? "" : " x ") + std::to_string(e);
            rows.push_back({tensor.name, shape, word(use.stored, use.tensor), word(use.used, use.tensor), way_of(use),
                            tensor.size().value});
        }
        return rows;
    }

    // ---- what was decided

    [[nodiscard]] std::vector<std::string> words(json const& best) const {
        auto result = sentences(words_of(plan_));
        std::vector<std::string> forbidden;
        for (auto const& [strategy, s] : plan_.baselines)
            if (!s) forbidden.push_back(strategy);
        for (auto& text : reasons(forbidden)) result.push_back(std::move(text));
        if (!best.is_null())
            result.push_back("The best well-known strategy is " + best["name"].get<std::string>() + ", which takes " +
                             heddle::detail::fixed(best["seconds"].get<double>() / plan_.cost(), 2) +
                             " times as long.");
        return result;
    }

    // ---- operators

    /// Seconds of a step on the device on which it takes longest.
    struct step_seconds {
        double forward = 0, backward = 0, communication = 0;
    };
    [[nodiscard]] std::vector<step_seconds> seconds_of_steps() const {
        std::vector<step_seconds> result(plan_.steps.size());
        std::vector<std::map<std::size_t, step_seconds>> by_device(plan_.steps.size());
        for (auto const& e : timeline_.events) {
            auto& s = by_device[e.step][e.device];
            (e.transfer                                 ? s.communication
             : e.when == timeline_event::phase::forward ? s.forward
                                                        : s.backward) += e.duration;
        }
        for (std::size_t n = 0; n < result.size(); ++n)
            for (auto const& [d, s] : by_device[n]) {
                result[n].forward = std::max(result[n].forward, s.forward);
                result[n].backward = std::max(result[n].backward, s.backward);
                result[n].communication = std::max(result[n].communication, s.communication);
            }
        return result;
    }
    /// Returns the dimension that is cut, and its extent: of a result, or of the operand that the text says.
    [[nodiscard]] std::string cut_of(plan_step const& s, indexed_operator const& op) const {
        if (!s.step.share.is_split()) return "";
        auto const& cut = plan_.tensors[s.step.share.tensor].factors[static_cast<std::size_t>(s.step.share.factor)];
        auto const operand = algorithm::find(op.operands, s.step.share.tensor);
        return std::to_string(cut.dimension) + " (" + std::to_string(cut.extent) + ")" +
               (operand == op.operands.end() ? "" : " of operand " + std::to_string(operand - op.operands.begin() + 1));
    }
    /// Returns an operator's name, with the module that has its parameters where the name does not begin with it.
    [[nodiscard]] static std::string name_of(indexed_operator const& op, indexed_program const& program) {
        for (tensor_id const t : op.operands) {
            auto const& of = program.tensors[t];
            auto const module = of.is_parameter() ? of.info.name.substr(0, of.info.name.rfind('.')) : "";
            if (!module.empty() && module != of.info.name && !op.name.starts_with(module))
                return op.name + " (" + module + ")";
        }
        return op.name;
    }

    // ---- events

    [[nodiscard]] json events() const {
        bool const interleaves = plan_.provenance.training.interleaves();
        bool const is_beside = interleaves || plan_.provenance.training.overlaps_gradients;
        json lanes = json::array(), labels = json::array();
        std::map<std::pair<std::string, std::string>, std::size_t> known;
        heddle::json::detail::event_labels names(plan_);
        std::size_t const each = timeline_.events.size() / std::max<std::size_t>(plan_.devices.size(), 1);
        std::size_t const most = std::clamp<std::size_t>(most_events / std::max<std::size_t>(each, 1), 2, 16);
        for (std::size_t k = 0; k < std::min(kinds_.size(), most); ++k) {
            std::size_t const device = kinds_[k].front();
            json own = json::array(), channel = json::array();
            for (auto const& e : timeline_.events) {
                if (e.device != device) continue;
                auto const& label = names.of(e);
                using phase = timeline_event::phase;
                char const* const category = e.communicates()           ? "communication"
                                             : e.when == phase::update  ? "update"
                                             : e.when == phase::forward ? "forward"
                                                                        : "backward";
                auto const [place, is_new] = known.try_emplace({label.name, category}, labels.size());
                if (is_new) labels.push_back({label.name, category});
                bool const on_channel = is_beside && (interleaves ? e.transfer.has_value() : e.when == phase::gradient);
                (on_channel ? channel : own)
                    .push_back({place->second, std::llround(e.start * 1e9), std::llround(e.duration * 1e9)});
            }
            std::string const who = std::to_string(device) + " " + plan_.devices[device].name();
            lanes.push_back({{"name", who}, {"events", std::move(own)}});
            if (!channel.empty()) lanes.push_back({{"name", who + ", network"}, {"events", std::move(channel)}});
        }
        return {{"total", std::llround(timeline_.total * 1e9)}, {"labels", labels}, {"lanes", lanes}};
    }

    plan const& plan_;
    indexed_program const& program_;
    timeline const& timeline_;
    std::vector<std::vector<std::size_t>> kinds_;
};

} // namespace heddle::html::detail
