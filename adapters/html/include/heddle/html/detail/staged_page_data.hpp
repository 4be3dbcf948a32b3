// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the page of a plan of stages carries and shows.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/html/detail/page_data.hpp>
#include <heddle/json/detail/event_labels.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/simulate.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/plan/staged_run.hpp>
#include <heddle/plan/staged_terms.hpp>
#include <heddle/plan/words.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>
#include <heddle/program/program_part.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace heddle::html::detail {

/// The data of the page of a plan of stages. Refers to what it is given.
class staged_page_data {
public:
    using json = nlohmann::ordered_json;

    staged_page_data(staged_plan const& p, program const& program, cluster const& c)
        : plan_(p), program_(program), cluster_(c) {}

    [[nodiscard]] json object() const {
        auto result = outcome_of(plan_);
        add_families(result);
        if (!plan_.exists()) {
            for (auto const& [family, f] : plan_.families) result["words"].push_back(family + ": " + f.reason + ".");
            return result;
        }
        if (plan_.is_plain()) {
            add_plain(result);
            return result;
        }
        result["words"] = words(result["best"]);
        result["time"] = {{"pipeline", plan_.time.pipeline.value},
                          {"gradients of what stages share", plan_.time.shared.value},
                          {"gradients", plan_.time.gradients.value},
                          {"update", plan_.time.update.value},
                          {"gathers of updated parameters", plan_.time.parameters.value}};
        auto const events = simulate(plan_, cluster_);
        add_stages(result, events);
        result["timeline"] = lanes(events);
        return result;
    }

private:
    /// Adds all that the page of a plan of one stage shows, but for what is said of the plan as a whole.
    void add_plain(json& result) const {
        auto const& s = plan_.stages.front();
        auto const indexed = index_program(program_);
        auto const events = timeline_of(s.plan, cluster_of(cluster_, s));
        page_data const data(s.plan, indexed, events);
        auto shown = data.object();
        for (auto const* of_stage : {"limit", "globalLowerBound"}) shown.erase(of_stage);
        shown["words"] = sentences(words_of(plan_));
        for (auto& text : data.reasons(forbidden())) shown["words"].push_back(std::move(text));
        shown["words"].push_back(best_in_words(result["best"]));
        shown["devices"] = devices_of(s, data);
        for (auto& lane : left_out()) shown["timeline"]["lanes"].push_back(std::move(lane));
        shown.update(result);
        result = std::move(shown);
    }

    /// Returns the families that would need more memory than there is.
    [[nodiscard]] std::vector<std::string> forbidden() const {
        std::vector<std::string> result;
        for (auto const& [family, f] : plan_.families)
            if (!f.cost && f.reason.find("memory") != std::string::npos) result.push_back(family);
        return result;
    }

    [[nodiscard]] static std::string percent(double part) { return heddle::detail::fixed(100 * part, 1) + " %"; }

    /// Says what of another family is next.
    [[nodiscard]] std::string best_in_words(json const& best) const {
        if (best.is_null()) return "There is no plan of another family.";
        return "The best of another family is " + best["name"].get<std::string>() + ", which takes " +
               heddle::detail::fixed(best["seconds"].get<double>() / plan_.cost(), 2) + " times as long.";
    }

    /// Says what the plan does, where its time goes, and how full memory is.
    [[nodiscard]] std::vector<std::string> words(json const& best) const {
        auto result = sentences(words_of(plan_));
        auto const terms = terms_of(plan_, cluster_);
        std::pair<char const*, double> longest{"computation", terms.compute.value};
        for (auto const& term : {std::pair{"collectives of stages", (terms.outer + terms.inner).value},
                                 std::pair{"what passes between stages", terms.sends.value},
                                 std::pair{"communication of gradients", terms.gradients.value},
                                 std::pair{"the update", terms.update.value},
                                 std::pair{"gathers of updated parameters", terms.parameters.value},
                                 std::pair{"waiting, while the pipeline fills and drains", terms.idle.value}})
            if (term.second > longest.second) longest = term;
        result.push_back(std::string("In the slowest stage most time goes to ") + longest.first + ": " +
                         percent(longest.second / terms.total().value) + ".");
        result.push_back(memory_in_words(terms.used / terms.limit, forbidden()));
        result.push_back(best_in_words(best));
        return result;
    }

    void add_families(json& result) const {
        result["ofFamilies"] = true;
        result["families"] = json::array();
        result["best"] = nullptr;
        for (auto const& [family, f] : plan_.families) {
            result["families"].push_back({family, f.cost ? json(*f.cost) : json(), f.cost ? "" : f.reason});
            bool const is_another = f.cost && *f.cost > plan_.cost();
            if (is_another && (result["best"].is_null() || *f.cost < result["best"]["seconds"].get<double>()))
                result["best"] = {{"name", family}, {"seconds", *f.cost}};
        }
    }

    /// Adds the stages, and for each of them its devices, parameters and operators.
    void add_stages(json& result, staged_timeline const& events) const {
        for (auto const* list : {"stages", "devices", "parameters", "operators"}) result[list] = json::array();
        auto const indexed = index_program(program_);
        for (std::size_t n = 0; n < plan_.stages.size(); ++n) {
            auto const& s = plan_.stages[n];
            bool const is_all = s.first == 0 && s.end == program_.operator_count();
            auto const part = is_all ? indexed : index_program(part_of(program_, indexed, s.first, s.end).program);
            auto const iteration = timeline_of(s.plan, cluster_of(cluster_, s));
            page_data const data(s.plan, part, iteration);
            double forward = 0, backward = 0;
            for (auto const& e : events.events) {
                if (e.stage != n || e.micro_batch != 0) continue;
                if (e.what == staged_event::kind::forward) forward = e.duration;
                if (e.what == staged_event::kind::backward) backward = e.duration;
            }
            result["stages"].push_back({heddle::json::detail::title_of(plan_, n), program_.name(s.first),
                                        program_.name(s.end - 1), s.end - s.first, forward, backward,
                                        s.boundary.value});
            for (auto& row : devices_of(s, data)) {
                if (plan_.rounds() > 1) // they have other rows
                    row["numbers"] = row["numbers"].get<std::string>() + ", stage " + std::to_string(n);
                result["devices"].push_back(std::move(row));
            }
            for (auto const& [list, rows] :
                 {std::pair{"parameters", data.parameters()}, std::pair{"operators", data.operators()}})
                for (auto row : rows) {
                    row.push_back(n);
                    result[list].push_back(std::move(row));
                }
        }
    }
    /// Returns a row for each kind of a stage's devices, by their numbers in the cluster.
    [[nodiscard]] static json devices_of(planned_stage const& s, page_data const& data) {
        auto const numbers = numbers_of(s);
        auto devices = data.devices();
        for (std::size_t k = 0; k < devices.size(); ++k) {
            std::vector<std::size_t> members;
            for (std::size_t const d : data.kinds()[k])
                members.insert(members.end(), numbers[d].begin(), numbers[d].end());
            devices[k]["numbers"] = heddle::detail::ranges_text(members, ", ");
        }
        return devices;
    }
    /// Returns the cluster's devices that each device of a stage's plan stands for.
    [[nodiscard]] static std::vector<std::vector<std::size_t>> numbers_of(planned_stage const& s) {
        std::vector<std::vector<std::size_t>> result;
        auto next = s.devices.begin();
        for (auto const& d : s.plan.devices) {
            result.emplace_back(next, next + d.group_size);
            next += d.group_size;
        }
        return result;
    }

    /// Returns a lane, on which nothing happens, for the devices of each type that no stage has.
    [[nodiscard]] json left_out() const {
        auto const types = cluster_.devices();
        std::vector<bool> is_used(types.size());
        for (auto const& s : plan_.stages)
            for (auto const d : s.devices) is_used[d] = true;
        std::map<std::string, std::size_t> unused;
        for (std::size_t d = 0; d < types.size(); ++d)
            if (!is_used[d]) ++unused[cluster_.types[types[d]].name];
        json result = json::array();
        for (auto const& [type, number] : unused)
            result.push_back(
                {{"name", "left out: " + std::to_string(number) + " x " + type}, {"events", json::array()}});
        return result;
    }

    [[nodiscard]] json lanes(staged_timeline const& t) const {
        json labels = json::array(), own = json::array(), sent = json::array(), result = json::array();
        std::size_t const places = plan_.places();
        for (std::size_t s = 0; s < places; ++s) {
            own.push_back({{"name", heddle::json::detail::title_of(plan_, s, true)}, {"events", json::array()}});
            sent.push_back({{"name", heddle::json::detail::sends_of(plan_, s)}, {"events", json::array()}});
        }
        std::map<std::pair<std::string, std::string>, std::size_t> known;
        std::size_t const shown = std::min(t.events.size(), most_events);
        double end = shown < t.events.size() ? 0 : t.total;
        for (std::size_t n = 0; n < shown; ++n) {
            auto const& e = t.events[n];
            using kind = staged_event::kind;
            std::string const category = e.what == kind::forward    ? "forward"
                                         : e.what == kind::backward ? "backward"
                                         : e.what == kind::update   ? "update"
                                                                    : "communication";
            auto const [place, is_new] =
                known.try_emplace({heddle::json::detail::label_of(plan_, e), category}, labels.size());
            if (is_new) labels.push_back({place->first.first, category});
            auto& lane = (plan_.sends_beside && e.what == kind::send ? sent : own)[e.stage % places];
            lane["events"].push_back({place->second, std::llround(e.start * 1e9), std::llround(e.duration * 1e9)});
            end = std::max(end, e.start + e.duration);
        }
        for (std::size_t s = 0; s < places; ++s) {
            result.push_back(std::move(own[s]));
            if (!sent[s]["events"].empty()) result.push_back(std::move(sent[s]));
        }
        for (auto& lane : left_out()) result.push_back(std::move(lane));
        json timeline{{"total", std::llround(end * 1e9)}, {"labels", labels}, {"lanes", result}};
        if (shown < t.events.size())
            timeline["note"] =
                "The first " + std::to_string(shown) + " of " + std::to_string(t.events.size()) + " events.";
        return timeline;
    }

    staged_plan const& plan_;
    program const& program_;
    cluster const& cluster_;
};

} // namespace heddle::html::detail
