// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Writes plans of several stages and reads them back without loss.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/json/plan.hpp>
#include <heddle/json/write_options.hpp>
#include <heddle/plan/staged_plan.hpp>

#include <string>
#include <string_view>

namespace heddle::json {

/// A plan as the text of a plan file. That of a plan of several stages is of version 2 at least.
/// *Throws* `input_error` if a number is not finite.
[[nodiscard]] std::string write_plan(staged_plan const& p, write_options const& options = {});

/// A plan's outcome, without its stages, as one JSON object on one line. *Throws* `input_error` if a number is not
/// finite.
[[nodiscard]] std::string plan_summary(staged_plan const& p, write_options const& options = {});

/// Tells whether the text of a plan file is of a plan of several stages. *Throws* `input_error` if it is no JSON.
[[nodiscard]] bool has_stages(std::string_view text, std::string const& name = "plan");

/// Reads a plan of several stages from text; `name` stands in messages. *Throws* `input_error`.
[[nodiscard]] staged_plan parse_staged_plan(std::string_view text, std::string const& name = "plan");

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/json/detail/plan_reader.hpp>
#include <heddle/json/detail/plan_writer.hpp>
#include <heddle/json/detail/provenance.hpp>
#include <heddle/json/document.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

namespace heddle::json {

namespace detail {

/// The terms of a family's best plan by their names in files: seconds, then bytes.
inline constexpr std::array<std::pair<char const*, seconds staged_terms::*>, 8> term_names{
    {{"compute", &staged_terms::compute},
     {"outer", &staged_terms::outer},
     {"inner", &staged_terms::inner},
     {"sends", &staged_terms::sends},
     {"gradients", &staged_terms::gradients},
     {"update", &staged_terms::update},
     {"parameters", &staged_terms::parameters},
     {"idle", &staged_terms::idle}}};

inline constexpr std::array<std::pair<char const*, bytes staged_terms::*>, 2> fullest_names{
    {{"memory_bytes", &staged_terms::used}, {"memory_limit_bytes", &staged_terms::limit}}};

class staged_plan_writer {
public:
    using value = nlohmann::ordered_json;

    staged_plan_writer(staged_plan const& p, write_options const& options) : plan_(p), options_(options) {}

    /// What the command line prints.
    [[nodiscard]] value summary() const {
        value out = value::object();
        out["status"] = name_of(statuses, plan_.status);
        if (plan_.status == search::status::limit) out["which_limit"] = search::name(plan_.which_limit);
        if (!plan_.reason.empty()) out["reason"] = plan_.reason;
        out["cost"] = plan_.exists() ? number(plan_.cost()) : value();
        out["lower_bound"] = number(plan_.lower_bound);
        out["space"] = plan_.space;
        if (options_.times) out["seconds"] = number(plan_.seconds);
        out["warnings"] = plan_.warnings;
        auto& families = out["families"] = value::object();
        for (auto const& [name, f] : plan_.families) {
            auto& entry = families[name] = {{"cost", f.cost ? number(*f.cost) : value()}};
            if (options_.times) entry["seconds"] = number(f.seconds);
            if (!f.reason.empty()) entry["reason"] = f.reason;
            if (!f.terms) continue;
            for (auto const& [term, of] : term_names) entry["terms"][term] = number(((*f.terms).*of).value);
            for (auto const& [size, of] : fullest_names) entry["terms"][size] = number(((*f.terms).*of).value);
        }
        out["provenance"] = provenance_to_json(plan_.provenance);
        out["provenance"]["optimizer_bytes_per_element"] =
            number(plan_.provenance.training.optimizer_bytes_per_element);
        out["time"] = {{"pipeline", number(plan_.time.pipeline.value)},
                       {"shared", number(plan_.time.shared.value)},
                       {"gradients", number(plan_.time.gradients.value)},
                       {"update", number(plan_.time.update.value)},
                       {"parameters", number(plan_.time.parameters.value)}};
        out["device_count"] = plan_.device_count;
        out["micro_batches"] = plan_.micro_batches;
        out["sends"] = plan_.sends_beside ? "beside" : "blocking";
        return out;
    }

    [[nodiscard]] std::string text() const {
        int version = plan_.rounds() > 1 ? 4 : 2;
        for (auto const& s : plan_.stages) version = std::max(version, plan_writer::version_of(s.plan));
        std::string out = "{\n\"format\": \"heddle.plan\",\n\"version\": " + std::to_string(version);
        value const all = summary();
        for (auto const& [key, field] : all.items()) out += ",\n\"" + key + "\": " + plan_writer::dump(field);
        out += ",\n\"pipeline\": [";
        char const* separator = "\n";
        for (auto const& s : plan_.stages) {
            value const fields{
                {"first", s.first}, {"end", s.end}, {"devices", s.devices}, {"boundary", number(s.boundary.value)}};
            auto text = plan_writer::dump(fields);
            text.pop_back();
            auto stage = plan_writer(s.plan, {.times = options_.times}).text();
            stage.pop_back();
            out += separator + text + ", \"plan\": " + stage + "}";
            separator = ",\n";
        }
        return out + "\n]\n}\n";
    }

private:
    static value number(double v) {
        if (!std::isfinite(v)) throw input_error("plan", "has a number that is not finite, which no file can hold");
        return v;
    }

    staged_plan const& plan_;
    write_options const& options_;
};

class staged_plan_reader {
public:
    explicit staged_plan_reader(document const& file) : root_(file.root()) {}

    staged_plan read() {
        plan_.status = root_.at("status").choice(statuses);
        if (plan_.status == search::status::limit) plan_.which_limit = root_.at("which_limit").choice(limits);
        if (auto const reason = root_.find("reason")) plan_.reason = reason->text();
        plan_.lower_bound = root_.at("lower_bound").non_negative();
        if (auto const space = root_.find("space")) plan_.space = space->text();
        if (auto const seconds = root_.find("seconds")) plan_.seconds = seconds->non_negative();
        root_.at("warnings").for_each([&](element const& e) { plan_.warnings.push_back(e.text()); });
        plan_.provenance = provenance_from_json(root_.at("provenance"));
        element const time = root_.at("time");
        auto const term = [&](char const* name) { return heddle::seconds(time.at(name).non_negative()); };
        plan_.time = {term("pipeline"), term("shared"), term("gradients"), term("update"), gathers_in(time)};
        if (auto const families = root_.find("families"))
            for (auto const& [name, e] : families->fields()) {
                auto& f = plan_.families[name];
                if (auto const cost = e.at("cost"); !cost.value().is_null()) f.cost = cost.non_negative();
                if (auto const seconds = e.find("seconds")) f.seconds = seconds->non_negative();
                if (auto const reason = e.find("reason")) f.reason = reason->text();
                auto const terms = e.find("terms");
                if (!terms) continue;
                f.terms.emplace();
                for (auto const& [what, of] : term_names)
                    (*f.terms).*of = of == &staged_terms::parameters ? gathers_in(*terms)
                                                                     : heddle::seconds(terms->at(what).non_negative());
                for (auto const& [size, of] : fullest_names) (*f.terms).*of = bytes(terms->at(size).non_negative());
            }
        plan_.device_count = static_cast<std::size_t>(root_.at("device_count").integer(1, 65536));
        plan_.micro_batches = static_cast<int>(root_.at("micro_batches").integer(1, std::int64_t{1} << 30));
        if (auto const sends = root_.at("sends"); sends.text() == "beside") plan_.sends_beside = true;
        else if (sends.text() != "blocking") sends.expected("'blocking' or 'beside'");
        std::int64_t next = 0;
        root_.at("pipeline").for_each([&](element const& e) { next = read_stage(e, next); });
        check_devices(plan_);
        auto const cost = root_.at("cost");
        if (cost.value().is_null() == plan_.exists()) cost.expected("a number exactly where there are stages");
        if (plan_.exists() && std::abs(cost.non_negative() - plan_.cost()) > 1e-9 * plan_.cost())
            cost.expected("the sum of the terms of time");
        return std::move(plan_);
    }

private:
    /// Older files have what gathers updated parameters in the update.
    static heddle::seconds gathers_in(element const& terms) {
        auto const found = terms.find("parameters");
        return heddle::seconds(found ? found->non_negative() : 0);
    }

    std::int64_t read_stage(element const& e, std::int64_t next) {
        planned_stage stage;
        auto const operators = std::int64_t{1} << 31;
        stage.first = static_cast<operator_id>(e.at("first").integer(next, next));
        stage.end = static_cast<operator_id>(e.at("end").integer(next + 1, operators));
        std::int64_t least = 0;
        auto const most = static_cast<std::int64_t>(plan_.device_count) - 1;
        e.at("devices").for_each([&](element const& d) {
            stage.devices.push_back(static_cast<std::size_t>(d.integer(least, most)));
            least = static_cast<std::int64_t>(stage.devices.back()) + 1;
        });
        stage.boundary = heddle::seconds(e.at("boundary").non_negative());
        auto const plan = e.at("plan");
        stage.plan = plan_reader(plan).read();
        if (!stage.plan.exists()) plan.expected("a plan with steps");
        plan_.stages.push_back(std::move(stage));
        return plan_.stages.back().end;
    }

    element root_;
    staged_plan plan_;
};

} // namespace detail

HEDDLE_INLINE std::string write_plan(staged_plan const& p, write_options const& options) {
    return detail::staged_plan_writer(p, options).text();
}

HEDDLE_INLINE std::string plan_summary(staged_plan const& p, write_options const& options) {
    return detail::plan_writer::dump(detail::staged_plan_writer(p, options).summary());
}

HEDDLE_INLINE bool has_stages(std::string_view text, std::string const& name) {
    return detail::guarded(name, [&] { return document(name, text, "plan", 5).root().find("pipeline").has_value(); });
}

HEDDLE_INLINE staged_plan parse_staged_plan(std::string_view text, std::string const& name) {
    return detail::guarded(name, [&] { return detail::staged_plan_reader(document(name, text, "plan", 5)).read(); });
}

} // namespace heddle::json

#endif
