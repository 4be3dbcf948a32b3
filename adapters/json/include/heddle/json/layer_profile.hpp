// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Reads and writes layer profiles: layers, machines and a batch for which a strategy is sought.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/strategy_problem.hpp>

#include <filesystem>
#include <string>
#include <string_view>

namespace heddle::json {

/// Reads a layer profile from text; `name` stands in messages. *Throws* `input_error`.
[[nodiscard]] strategy_problem parse_layer_profile(std::string_view text, std::string const& name = "layer profile");

/// Reads and validates a layer profile.
/// *Throws* `file_error` if it cannot be read, `input_error` naming the place if it is wrong.
[[nodiscard]] strategy_problem read_layer_profile(std::filesystem::path const& path);

/// The text of a layer profile; reading it back gives the same problem. *Precondition:* `validate(p)` passed.
[[nodiscard]] std::string to_text(strategy_problem const& p);

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/json/document.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace heddle::json {

namespace detail {

class layer_profile_reader {
public:
    explicit layer_profile_reader(document const& file) : file_(file), strict_(file.version() >= 1) {}

    strategy_problem read() {
        element const root = file_.root();
        allow_only(root, {"format", "version", "name", "global_batch", "layers", "shared", "device_types", "machines",
                          "bandwidths", "sends_block", "meta"});
        if (auto const name = root.find("name")) result_.name = name->text();
        result_.global_batch = root.at("global_batch").integer(1, std::int64_t{1} << 40);
        root.at("layers").for_each([&](element const& e) { read_layer(e); });
        if (auto const shared = root.find("shared")) shared->for_each([&](element const& e) { read_shared(e); });
        root.at("device_types").for_each([&](element const& e) { read_type(e); });
        root.at("machines").for_each([&](element const& e) { read_machine(e); });
        if (auto const block = root.find("sends_block")) result_.sends_block = block->boolean();
        if (auto const rows = root.find("bandwidths"))
            rows->for_each([&](element const& row) {
                auto& out = result_.bandwidths.emplace_back();
                row.for_each([&](element const& e) { out.emplace_back(e.non_negative()); });
            });
        try {
            validate(result_);
        } catch (input_error const& e) { root.fail(e.what()); }
        return std::move(result_);
    }

private:
    void allow_only(element const& e, std::initializer_list<std::string_view> names) const {
        if (strict_) e.allow_only(names);
    }

    /// Reads bytes; a plain number is all whole or all split.
    [[nodiscard]] group_bytes read_bytes(element const& parent, std::string_view field,
                                         bytes group_bytes::* number) const {
        group_bytes out;
        auto const e = parent.find(field);
        if (!e) return out;
        if (!e->value().is_object()) {
            out.*number = bytes(e->non_negative());
            return out;
        }
        allow_only(*e, {"whole", "split"});
        if (auto const whole = e->find("whole")) out.whole = bytes(whole->non_negative());
        if (auto const split = e->find("split")) out.split = bytes(split->non_negative());
        return out;
    }

    void read_layer(element const& e) {
        allow_only(e, {"name", "gradients", "kept", "saved", "input", "buffer"});
        auto& layer = result_.layers.emplace_back();
        if (auto const name = e.find("name")) layer.name = name->text();
        layer.gradients = read_bytes(e, "gradients", &group_bytes::split);
        layer.kept = read_bytes(e, "kept", &group_bytes::split);
        layer.saved = read_bytes(e, "saved", &group_bytes::whole);
        layer.input = read_bytes(e, "input", &group_bytes::whole);
        if (auto const buffer = e.find("buffer")) layer.buffer = bytes(buffer->non_negative());
    }

    void read_shared(element const& e) {
        allow_only(e, {"layers", "gradients"});
        auto& parameter = result_.shared.emplace_back();
        e.at("layers").for_each([&](element const& l) {
            parameter.layers.push_back(
                static_cast<std::size_t>(l.integer(0, static_cast<std::int64_t>(result_.layers.size()) - 1)));
        });
        parameter.gradients = read_bytes(e, "gradients", &group_bytes::split);
    }

    void read_type(element const& e) {
        allow_only(e, {"name", "memory", "launch", "profiles"});
        profiled_type type;
        auto const name = e.at("name");
        type.name = name.name();
        if (algorithm::find(result_.types, type.name, &profiled_type::name) != result_.types.end())
            name.expected("a name that no other device type has");
        type.memory = bytes(e.at("memory").positive());
        if (auto const launch = e.find("launch")) type.launch = seconds(launch->non_negative());
        e.at("profiles").for_each([&](element const& row) {
            allow_only(row, {"degree", "scale", "layers", "fixed", "update", "launches", "forward", "sizes"});
            auto const degree = row.at("degree");
            auto const [profile, is_new] =
                type.profiles.try_emplace(static_cast<std::size_t>(degree.integer(1, 65536)));
            if (!is_new) degree.expected("a degree that no other profile of this type has");
            auto& read = profile->second;
            if (auto const scale = row.find("scale")) read.scale = scale->positive();
            if (auto const forward = row.find("forward")) read.forward = forward->non_negative();
            read.layers = read_times(row.at("layers"));
            if (auto const update = row.find("update")) read.update = read_times(*update);
            if (auto const fixed = row.find("fixed")) read.fixed = read_times(*fixed);
            if (auto const launches = row.find("launches"))
                launches->for_each([&](element const& one) {
                    allow_only(one, {"forward", "backward"});
                    read.launches.push_back(
                        {seconds(one.at("forward").non_negative()), seconds(one.at("backward").non_negative())});
                });
            if (auto const sizes = row.find("sizes"))
                sizes->for_each([&](element const& one) {
                    allow_only(one, {"micro_batch", "layers"});
                    auto const size = one.at("micro_batch");
                    auto const [times, is_new_size] = read.sizes.try_emplace(size.integer(1, std::int64_t{1} << 40));
                    if (!is_new_size) size.expected("a size that no other entry has");
                    times->second = read_times(one.at("layers"));
                });
        });
        result_.types.push_back(std::move(type));
    }

    [[nodiscard]] static std::vector<seconds> read_times(element const& e) {
        std::vector<seconds> times;
        e.for_each([&](element const& time) { times.emplace_back(time.non_negative()); });
        return times;
    }

    void read_machine(element const& e) {
        allow_only(e, {"type", "devices", "count", "inside", "outside"});
        profiled_machine machine;
        auto const type = e.at("type");
        auto const found = algorithm::find(result_.types, type.text(), &profiled_type::name);
        if (found == result_.types.end()) type.expected("the name of a device type");
        machine.type = static_cast<std::size_t>(found - result_.types.begin());
        if (auto const devices = e.find("devices"))
            machine.devices = static_cast<std::size_t>(devices->integer(1, 65536));
        if (auto const link = e.find("inside")) machine.inside = read_link(*link);
        if (auto const link = e.find("outside")) machine.outside = read_link(*link);
        auto const count = e.find("count");
        auto const machines = static_cast<std::size_t>(count ? count->integer(1, 65536) : 1);
        if ((devices_ += machines * machine.devices) > 65536) e.fail("makes more than 65536 devices");
        result_.machines.insert(result_.machines.end(), machines, machine);
    }

    [[nodiscard]] network_link read_link(element const& e) const {
        allow_only(e, {"bandwidth", "latency"});
        auto const latency = e.find("latency");
        return {bytes_per_second(e.at("bandwidth").rate()), seconds(latency ? latency->non_negative() : 0)};
    }

    document const& file_;
    bool strict_;
    strategy_problem result_;
    std::size_t devices_ = 0;
};

} // namespace detail

HEDDLE_INLINE strategy_problem parse_layer_profile(std::string_view text, std::string const& name) {
    return detail::guarded(
        name, [&] { return detail::layer_profile_reader(document(name, text, "layer_profile", 1)).read(); });
}

HEDDLE_INLINE strategy_problem read_layer_profile(std::filesystem::path const& path) {
    return parse_layer_profile(detail::guarded(path.string(), [&] { return read_text(path); }), path.string());
}

HEDDLE_INLINE std::string to_text(strategy_problem const& p) {
    using object = nlohmann::ordered_json;
    object root{{"format", "heddle.layer_profile"}, {"version", 1}, {"name", p.name}, {"global_batch", p.global_batch}};
    auto const put = [](group_bytes const& b) { return object{{"whole", b.whole.value}, {"split", b.split.value}}; };
    for (auto const& l : p.layers)
        root["layers"].push_back({{"name", l.name},
                                  {"gradients", put(l.gradients)},
                                  {"kept", put(l.kept)},
                                  {"saved", put(l.saved)},
                                  {"input", put(l.input)},
                                  {"buffer", l.buffer.value}});
    for (auto const& s : p.shared) root["shared"].push_back({{"layers", s.layers}, {"gradients", put(s.gradients)}});
    for (auto const& t : p.types) {
        object type{
            {"name", t.name}, {"memory", t.memory.value}, {"launch", t.launch.value}, {"profiles", object::array()}};
        for (auto const& [degree, profile] : t.profiles) {
            auto const put_times = [](std::vector<seconds> const& times) {
                object out = object::array();
                for (auto const time : times) out.push_back(time.value);
                return out;
            };
            auto& row = type["profiles"].emplace_back(
                object{{"degree", degree}, {"scale", profile.scale}, {"layers", put_times(profile.layers)}});
            if (!profile.fixed.empty()) row["fixed"] = put_times(profile.fixed);
            if (!profile.update.empty()) row["update"] = put_times(profile.update);
            for (auto const& l : profile.launches)
                row["launches"].push_back({{"forward", l.forward.value}, {"backward", l.backward.value}});
            if (profile.forward != degree_profile{}.forward) row["forward"] = profile.forward;
            for (auto const& [size, layers] : profile.sizes)
                row["sizes"].push_back({{"micro_batch", size}, {"layers", put_times(layers)}});
        }
        root["device_types"].push_back(std::move(type));
    }
    if (p.sends_block) root["sends_block"] = true;
    auto const put_link = [](object& machine, char const* field, network_link const& link) {
        if (link.bandwidth.value > 0)
            machine[field] = {{"bandwidth", link.bandwidth.value}, {"latency", link.latency.value}};
    };
    for (auto const& m : p.machines) {
        object machine{{"type", p.types[m.type].name}, {"devices", m.devices}};
        put_link(machine, "inside", m.inside);
        put_link(machine, "outside", m.outside);
        root["machines"].push_back(std::move(machine));
    }
    for (auto const& row : p.bandwidths) {
        object numbers = object::array();
        for (auto const b : row) numbers.push_back(b.value);
        root["bandwidths"].push_back(std::move(numbers));
    }
    return root.dump(2) + "\n";
}

} // namespace heddle::json

#endif
