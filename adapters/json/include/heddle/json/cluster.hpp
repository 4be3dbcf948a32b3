// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Reads and writes cluster files.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>

#include <filesystem>
#include <string>
#include <string_view>

namespace heddle::json {

/// Reads a cluster from text; messages call it `name`.
/// *Throws* `input_error`.
[[nodiscard]] cluster parse_cluster(std::string_view text, std::string const& name = "cluster");

/// Reads and validates a cluster file.
/// *Throws* `file_error` if it cannot be read, and `input_error` that names the place if it is wrong.
[[nodiscard]] cluster read_cluster(std::filesystem::path const& path);

/// Returns the text of a cluster file; reading it back gives the same cluster.
/// *Precondition:* `validate(c)` passed. *Throws* `input_error` if machines are joined.
[[nodiscard]] std::string to_text(cluster const& c);

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/cluster/presets.hpp>
#include <heddle/json/detail/cluster_values.hpp>
#include <heddle/json/document.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>

namespace heddle::json {

namespace detail {

class cluster_reader {
public:
    explicit cluster_reader(document const& file) : file_(file), strict_(file.version() >= 1) {}

    cluster read() {
        element const root = file_.root();
        allow_only(root, {"format", "version", "name", "device_types", "machines", "links", "collectives",
                          "collectives_inside", "collectives_across", "meta"});
        if (auto const name = root.find("name")) result_.name = name->text();
        auto const types = root.at("device_types");
        if (types.size() == 0) types.expected("at least one device type");
        types.for_each([&](element const& e) { read_type(e); });
        auto const machines = root.at("machines");
        if (machines.size() == 0) machines.expected("at least one machine");
        machines.for_each([&](element const& e) { read_machine(e); });
        if (auto const links = root.find("links")) {
            allow_only(*links, {"intra", "inter"});
            if (auto const e = links->find("intra")) result_.intra = read_link(*e);
            if (auto const e = links->find("inter")) result_.inter = read_link(*e);
        }
        result_.measured = read_collectives(root, strict_);
        if (auto const inside = root.find("collectives_inside"))
            result_.measured_inside = read_measured_collectives(*inside, "devices", strict_);
        if (auto const across = root.find("collectives_across"))
            result_.measured_across = read_measured_collectives(*across, "machines", strict_);
        try {
            validate(result_);
        } catch (input_error const& e) { root.fail(e.what()); }
        return std::move(result_);
    }

private:
    void allow_only(element const& e, std::initializer_list<std::string_view> names) const {
        if (strict_) e.allow_only(names);
    }

    void read_type(element const& e) {
        allow_only(e, {"preset", "name", "memory", "bandwidth", "overhead", "rates"});
        auto const preset = e.find("preset");
        device_type type = preset ? read_preset(*preset) : device_type{};
        // Only presets may leave it out.
        auto const field = [&](char const* name) { return preset ? e.find(name) : std::optional(e.at(name)); };
        auto const name = field("name");
        if (name) type.name = name->name();
        if (algorithm::find(result_.types, type.name, &device_type::name) != result_.types.end())
            name.value_or(e).expected("a name that no other device type has");
        if (auto const memory = field("memory")) type.memory = bytes(memory->positive());
        if (auto const bandwidth = field("bandwidth")) type.bandwidth = bytes_per_second(bandwidth->rate());
        if (auto const overhead = e.find("overhead")) type.overhead = seconds(overhead->non_negative());
        if (auto const rates = field("rates")) {
            for (auto const& [element_name, table] : rates->fields()) {
                if (strict_ && element_name.starts_with("x-")) continue;
                auto const element = value_of(element_types, element_name);
                if (!element) table.fail("is no element type, expected one of " + listed(element_types));
                read_rates(table, type.rates[*element]);
            }
            if (type.rates.empty()) rates->expected("the rate of at least one element type");
        }
        result_.types.push_back(std::move(type));
    }

    static device_type read_preset(element const& e) {
        auto found = presets::find(e.text());
        if (!found) {
            std::string known;
            for (auto const& peaks : presets::all) known += (known.empty() ? "" : ", ") + std::string(peaks.name);
            e.expected("a preset: " + known);
        }
        return *std::move(found);
    }

    /// Reads into a table that is empty, or a preset's; then what is named is replaced.
    void read_rates(element const& e, rate_table& table) const {
        if (!e.value().is_object()) {
            table = flops_per_second(e.rate());
            return;
        }
        bool const is_new = table.fallback == flops_per_second{};
        if (auto const fallback = is_new ? std::optional(e.at("default")) : e.find("default"))
            table.fallback = flops_per_second(fallback->rate());
        for (auto const& [name, rate] : e.fields()) {
            if (name == "default" || (strict_ && name.starts_with("x-"))) continue;
            if (name == "operators") {
                for_each_operator(rate, strict_, [&](operator_pass const& of, element const& speed) {
                    table.by_operator[of] = read_class_speed(speed, strict_, {});
                });
                continue;
            }
            auto const category = value_of(operator_classes, name);
            if (!category)
                rate.fail("is no operator class, expected default, operators or one of " + listed(operator_classes));
            table.by_class[*category] = read_class_speed(rate, strict_, table.of(*category));
        }
    }

    void read_machine(element const& e) {
        allow_only(e, {"type", "devices", "count", "grouped", "network_cards"});
        machine_group group;
        auto const type = e.at("type");
        auto const found = algorithm::find(result_.types, type.text(), &device_type::name);
        if (found == result_.types.end()) type.expected("the name of a device type");
        group.type = static_cast<std::size_t>(found - result_.types.begin());
        if (auto const devices = e.find("devices")) group.devices = static_cast<int>(devices->integer(1, 65536));
        if (auto const count = e.find("count")) group.count = static_cast<int>(count->integer(1, 65536));
        if (auto const grouped = e.find("grouped")) group.is_group = grouped->boolean();
        if (auto const cards = e.find("network_cards"))
            group.network_cards = static_cast<int>(cards->integer(1, 65536));
        total_ += std::int64_t{group.devices} * group.count;
        if (total_ > 65536) e.fail("makes more than 65536 devices");
        result_.machines.push_back(group);
    }

    [[nodiscard]] network_link read_link(element const& e) const {
        allow_only(e, {"bandwidth", "latency"});
        return {bytes_per_second(e.at("bandwidth").rate()), seconds(e.at("latency").non_negative())};
    }

    document const& file_;
    bool strict_;
    cluster result_;
    std::int64_t total_ = 0;
};

} // namespace detail

HEDDLE_INLINE cluster parse_cluster(std::string_view text, std::string const& name) {
    return detail::guarded(name, [&] { return detail::cluster_reader(document(name, text, "cluster", 1)).read(); });
}

HEDDLE_INLINE cluster read_cluster(std::filesystem::path const& path) {
    return parse_cluster(detail::guarded(path.string(), [&] { return read_text(path); }), path.string());
}

HEDDLE_INLINE std::string to_text(cluster const& c) {
    nlohmann::ordered_json root{{"format", "heddle.cluster"}, {"version", 1}, {"name", c.name}};
    for (auto const& type : c.types) root["device_types"].push_back(detail::to_json(type));
    for (auto const& m : c.machines) {
        if (m.joined > 1) throw input_error("machines", "are joined to groups, which a cluster file cannot say");
        auto& machine = root["machines"].emplace_back(
            nlohmann::ordered_json{{"type", c.types[m.type].name}, {"devices", m.devices}, {"count", m.count}});
        if (m.is_group) machine["grouped"] = true;
        if (m.network_cards != 1) machine["network_cards"] = m.network_cards;
    }
    auto const put_link = [&](char const* place, std::optional<network_link> const& l) {
        if (l) root["links"][place] = {{"bandwidth", l->bandwidth.value}, {"latency", l->latency.value}};
    };
    put_link("intra", c.intra);
    put_link("inter", c.inter);
    if (!c.measured.empty()) root["collectives"] = detail::to_json(c.measured);
    if (!c.measured_inside.models.empty()) root["collectives_inside"] = detail::to_json(c.measured_inside, "devices");
    if (!c.measured_across.models.empty()) root["collectives_across"] = detail::to_json(c.measured_across, "machines");
    return root.dump(2) + "\n";
}

} // namespace heddle::json

#endif
