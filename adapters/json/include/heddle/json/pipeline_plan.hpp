// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Writes pipeline plans and reads them back without loss.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/json/write_options.hpp>
#include <heddle/plan/pipeline_plan.hpp>

#include <filesystem>
#include <string>
#include <string_view>

namespace heddle::json {

/// A pipeline plan as the text of a file; reading it gives every number that was written back exactly.
/// *Throws* `input_error` if a number is not finite.
[[nodiscard]] std::string write_pipeline_plan(pipeline_plan const& p, write_options const& options = {});

/// A pipeline plan's outcome, without layers and stages, as one JSON object on one line.
[[nodiscard]] std::string plan_summary(pipeline_plan const& p, write_options const& options = {});

/// Reads a pipeline plan from text; `name` stands in messages. *Throws* `input_error`.
[[nodiscard]] pipeline_plan parse_pipeline_plan(std::string_view text, std::string const& name = "pipeline plan");

/// Reads a pipeline plan. *Throws* `file_error` if it cannot be read, `input_error` naming the place if it is wrong.
[[nodiscard]] pipeline_plan read_pipeline_plan(std::filesystem::path const& path);

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/json/detail/plan_reader.hpp>
#include <heddle/json/detail/plan_writer.hpp>
#include <heddle/json/document.hpp>
#include <heddle/json/plan.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

namespace heddle::json {

namespace detail {

class pipeline_plan_writer {
public:
    using value = nlohmann::ordered_json;

    explicit pipeline_plan_writer(pipeline_plan const& p, write_options const& options = {})
        : plan_(p), options_(options) {}

    /// What the command line prints.
    [[nodiscard]] value summary() const {
        value out = value::object();
        out["status"] = name_of(statuses, plan_.status);
        if (plan_.status == search::status::limit) out["which_limit"] = search::name(plan_.which_limit);
        if (plan_.status == search::status::infeasible || !plan_.reason.empty()) out["reason"] = plan_.reason;
        out["cost"] = plan_.exists() ? number(plan_.cost()) : value();
        out["lower_bound"] = number(plan_.lower_bound);
        if (!plan_.space.empty()) out["space"] = plan_.space;
        out["statistics"] = value::object();
        for (auto const& [name, count] : plan_.statistics) out["statistics"][name] = count;
        if (options_.times) out["seconds"] = number(plan_.seconds);
        out["warnings"] = plan_.warnings;
        out["baselines"] = value::object();
        for (auto const& [name, cost] : plan_.baselines) out["baselines"][name] = cost ? number(*cost) : value();
        out["memory_bytes"] = value::array();
        out["memory_limit_bytes"] = value::array();
        for (auto const& d : plan_.devices) {
            out["memory_bytes"].push_back(number(d.memory.value));
            out["memory_limit_bytes"].push_back(std::isfinite(d.memory_limit.value) ? number(d.memory_limit.value)
                                                                                    : value());
        }
        out["provenance"] = provenance_to_json(plan_.provenance);
        out["provenance"]["optimizer_bytes_per_element"] =
            number(plan_.provenance.training.optimizer_bytes_per_element);
        out["time"] = {{"pipeline", number(plan_.time.pipeline.value)},
                       {"synchronisation", number(plan_.time.synchronisation.value)}};
        if (plan_.time.update.value > 0) out["time"]["update"] = number(plan_.time.update.value);
        out["bubble"] = number(plan_.bubble);
        if (plan_.schedule != "1f1b") out["schedule"] = plan_.schedule;
        if (plan_.more_slots != 0) out["more_slots"] = plan_.more_slots;
        out["micro_batches"] = plan_.micro_batches;
        if (plan_.micro_batch_size > 0) out["micro_batch_size"] = plan_.micro_batch_size;
        if (plan_.global_batch > 0) out["global_batch"] = plan_.global_batch;
        return out;
    }

    [[nodiscard]] std::string text() const {
        std::string out = "{\n  \"format\": \"heddle.pipeline_plan\",\n  \"version\": 1";
        value const fields = summary();
        for (auto const& [key, field] : fields.items())
            if (key != "memory_bytes" && key != "memory_limit_bytes") out += ",\n  \"" + key + "\": " + dump(field);
        add_lines(out, "layers", plan_.layers, [](pipeline_layer const& l) {
            value row{{"name", l.name}};
            if (l.operators > 0) row["operators"] = l.operators;
            return row;
        });
        add_lines(out, "devices", plan_.devices, [](placed_device const& d) {
            value row{{"type", d.type}, {"machine", d.machine}, {"memory", number(d.memory.value)}};
            if (std::isfinite(d.memory_limit.value)) row["memory_limit"] = number(d.memory_limit.value);
            return row;
        });
        add_lines(out, "stages", plan_.stages, [](pipeline_stage const& s) {
            return value{{"first", s.first},
                         {"end", s.end},
                         {"devices", s.devices},
                         {"time", number(s.time.value)},
                         {"boundary", number(s.boundary.value)}};
        });
        if (!plan_.groups.empty()) out += ",\n  \"groups\": {";
        for (auto const& [devices, group] : plan_.groups) {
            auto text = plan_writer(group, options_).text();
            text.pop_back(); // its last line's end
            out += (devices == plan_.groups.begin()->first ? "\"" : ", \"") + std::to_string(devices) + "\": " + text;
        }
        return out + (plan_.groups.empty() ? "\n}\n" : "}\n}\n");
    }

    static std::string dump(value const& v) { return v.dump(-1, ' ', false, value::error_handler_t::replace); }

private:
    static value number(double v) {
        if (!std::isfinite(v))
            throw input_error("pipeline plan", "has a number that is not finite, which no file can hold");
        return v;
    }
    /// One item per line.
    template <class Items, class Write>
    static void add_lines(std::string& out, std::string_view key, Items const& items, Write&& write) {
        out += ",\n  \"" + std::string(key) + "\": [";
        for (std::size_t i = 0; i < items.size(); ++i) out += (i ? ",\n    " : "\n    ") + dump(write(items[i]));
        out += items.empty() ? "]" : "\n  ]";
    }

    pipeline_plan const& plan_;
    write_options options_;
};

class pipeline_plan_reader {
public:
    explicit pipeline_plan_reader(document const& file) : root_(file.root()), strict_(file.version() >= 1) {}

    pipeline_plan read() {
        allow_only(root_, {"format",       "version",  "meta",        "status",        "which_limit",
                           "reason",       "cost",     "lower_bound", "space",         "statistics",
                           "seconds",      "warnings", "baselines",   "provenance",    "time",
                           "bubble",       "schedule", "more_slots",  "micro_batches", "micro_batch_size",
                           "global_batch", "layers",   "devices",     "stages",        "groups"});
        read_outcome();
        read_provenance();
        root_.at("layers").for_each([&](element const& e) {
            allow_only(e, {"name", "operators"});
            plan_.layers.push_back({e.at("name").text(), count(e, "operators", 1)});
        });
        root_.at("devices").for_each([&](element const& e) {
            allow_only(e, {"type", "machine", "memory", "memory_limit"});
            auto const limit = e.find("memory_limit");
            plan_.devices.push_back({e.at("type").text(), static_cast<std::size_t>(e.at("machine").integer(0, 65535)),
                                     bytes(e.at("memory").non_negative()),
                                     bytes(limit ? limit->positive() : std::numeric_limits<double>::infinity())});
        });
        root_.at("stages").for_each([&](element const& e) { read_stage(e); });
        if (auto const groups = root_.find("groups"))
            for (auto const& [name, group] : groups->fields()) read_group(name, group);
        check();
        return std::move(plan_);
    }

private:
    static constexpr std::int64_t most = std::int64_t{1} << 53;

    void allow_only(element const& e, std::initializer_list<std::string_view> names) const {
        if (strict_) e.allow_only(names);
    }
    [[nodiscard]] static std::size_t count(element const& parent, char const* field, std::int64_t least) {
        auto const found = parent.find(field);
        return static_cast<std::size_t>(found ? found->integer(least, most) : 0);
    }

    void read_outcome() {
        plan_.status = root_.at("status").choice(statuses);
        auto const limit = root_.find("which_limit");
        if (plan_.status == search::status::limit) plan_.which_limit = root_.at("which_limit").choice(limits);
        else if (limit) limit->fail("is there, but the status is not 'limit'");
        if (auto const reason = root_.find("reason")) plan_.reason = reason->text();
        plan_.lower_bound = root_.at("lower_bound").non_negative();
        if (auto const space = root_.find("space")) plan_.space = space->text();
        if (auto const took = root_.find("seconds")) plan_.seconds = took->non_negative();
        for (auto const& [name, number] : root_.at("statistics").fields())
            plan_.statistics[name] = static_cast<std::size_t>(number.integer(0, most));
        root_.at("warnings").for_each([&](element const& e) { plan_.warnings.push_back(e.text()); });
        for (auto const& [name, cost] : root_.at("baselines").fields())
            plan_.baselines[name] = cost.value().is_null() ? std::nullopt : std::optional(cost.non_negative());
        element const time = root_.at("time");
        allow_only(time, {"pipeline", "synchronisation", "update"});
        auto const update = time.find("update");
        plan_.time = {seconds(time.at("pipeline").non_negative()), seconds(time.at("synchronisation").non_negative()),
                      seconds(update ? update->non_negative() : 0)};
        plan_.bubble = root_.at("bubble").number();
        if (auto const schedule = root_.find("schedule")) plan_.schedule = schedule->text();
        if (auto const slots = root_.find("more_slots")) plan_.more_slots = slots->integer(-65536, 65536);
        plan_.micro_batches = root_.at("micro_batches").integer(1, most);
        plan_.micro_batch_size = static_cast<std::int64_t>(count(root_, "micro_batch_size", 1));
        plan_.global_batch = static_cast<std::int64_t>(count(root_, "global_batch", 1));
    }

    void read_provenance() {
        element const from = root_.at("provenance");
        allow_only(from, {"planner", "model", "model_digest", "cluster", "cluster_digest", "heddle", "batch", "dtype",
                          "optimizer_bytes_per_element", "master_weights"});
        plan_.provenance = provenance_from_json(from);
    }

    void read_stage(element const& e) {
        allow_only(e, {"first", "end", "devices", "time", "boundary"});
        auto& stage = plan_.stages.emplace_back(pipeline_stage{count(e, "first", 0),
                                                               count(e, "end", 0),
                                                               {},
                                                               seconds(e.at("time").non_negative()),
                                                               seconds(e.at("boundary").non_negative())});
        e.at("devices").for_each([&](element const& group) {
            auto const numbers = group.numbers_below(plan_.devices.size());
            stage.devices.emplace_back(numbers.begin(), numbers.end());
        });
    }

    void read_group(std::string const& name, element const& e) {
        std::size_t devices = 0;
        auto const [end, problem] = std::from_chars(name.data(), name.data() + name.size(), devices);
        if (problem != std::errc() || end != name.data() + name.size() || devices < 2)
            e.fail("is called '" + printable(name) + "', expected a number of devices, two at least");
        if (strict_ && e.at("format").text() != "heddle.plan") e.at("format").expected("heddle.plan");
        if (strict_) (void)e.at("version").integer(1, 1);
        auto& group = plan_.groups[devices] = plan_reader(e).read();
        if (group.devices.size() != devices || group.has_groups() || group.is_on_mesh())
            e.at("devices").expected(std::to_string(devices) + ", as many as the group has");
    }

    void check() const {
        element const cost = root_.at("cost"), status = root_.at("status");
        if (!plan_.exists()) {
            if (!cost.value().is_null()) cost.expected("null, since there are no stages");
            if (plan_.status == search::status::optimal || plan_.status == search::status::feasible)
                status.fail("promises a plan, but there are no stages");
            return;
        }
        if (plan_.status == search::status::infeasible)
            status.fail("promises that there is no plan, but there are stages");
        if (std::abs(cost.non_negative() - plan_.cost()) > 1e-9 * plan_.cost())
            cost.expected("the sum of time, " + nlohmann::json(plan_.cost()).dump());
        if (plan_.lower_bound > plan_.cost() * (1 + 1e-6)) root_.at("lower_bound").expected("at most the cost");
        try {
            validate(plan_);
        } catch (input_error const& e) { root_.fail(e.what()); }
        bool const some = plan_.operator_count() > 0;
        if (some && algorithm::any_of(plan_.layers, [](auto const& l) { return l.operators == 0; }))
            root_.at("layers").fail("some have a number of operators and some have none");
    }

    element root_;
    bool strict_;
    pipeline_plan plan_;
};

} // namespace detail

HEDDLE_INLINE std::string write_pipeline_plan(pipeline_plan const& p, write_options const& options) {
    return detail::pipeline_plan_writer(p, options).text();
}

HEDDLE_INLINE std::string plan_summary(pipeline_plan const& p, write_options const& options) {
    return detail::pipeline_plan_writer::dump(detail::pipeline_plan_writer(p, options).summary());
}

HEDDLE_INLINE pipeline_plan parse_pipeline_plan(std::string_view text, std::string const& name) {
    return detail::guarded(
        name, [&] { return detail::pipeline_plan_reader(document(name, text, "pipeline_plan", 1)).read(); });
}

HEDDLE_INLINE pipeline_plan read_pipeline_plan(std::filesystem::path const& path) {
    return parse_pipeline_plan(detail::guarded(path.string(), [&] { return read_text(path); }), path.string());
}

} // namespace heddle::json

#endif
