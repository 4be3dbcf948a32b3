// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Collectives, rates and device types as JSON values.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/json/document.hpp>
#include <heddle/json/names.hpp>

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace heddle::json::detail {

/// Reads a model of a collective: a line, or `{"pieces": [...]}`. With `strict`, unknown fields are errors.
inline collective_model read_collective_model(element const& e, bool strict) {
    auto const read_line = [&](element const& line) {
        if (strict) line.allow_only({"latency", "seconds_per_byte"});
        return collective_model::piece{seconds(line.at("latency").non_negative()),
                                       seconds_per_byte(line.at("seconds_per_byte").non_negative())};
    };
    auto const pieces = e.find("pieces");
    if (!pieces) return {{read_line(e)}};
    if (strict) e.allow_only({"pieces"});
    if (pieces->size() == 0) pieces->expected("at least one piece");
    collective_model result;
    pieces->for_each([&](element const& line) { result.pieces.push_back(read_line(line)); });
    return result;
}

inline std::map<collective, collective_model> read_collectives(element const& root, bool strict) {
    std::map<collective, collective_model> result;
    auto const models = root.find("collectives");
    if (!models) return result;
    for (auto const& [name, e] : models->fields()) {
        if (strict && name.starts_with("x-")) continue;
        auto const kind = value_of(collectives, name);
        if (!kind) e.fail("is no collective, expected one of " + listed(collectives));
        result.emplace(*kind, read_collective_model(e, strict));
    }
    return result;
}

/// `count` is the name of the number of devices, or of machines with one each.
inline measured_collectives read_measured_collectives(element const& e, char const* count, bool strict) {
    if (strict) e.allow_only({count, "collectives"});
    measured_collectives result{static_cast<int>(e.at(count).integer(2, 65536)), read_collectives(e, strict)};
    if (result.models.empty()) e.expected("collectives");
    return result;
}

inline saturation read_saturation(element const& e, bool strict) {
    if (strict) e.allow_only({"scale", "least"});
    saturation result{flops(e.at("scale").positive())};
    if (auto const least = e.find("least")) {
        result.least = least->non_negative();
        if (result.least >= 1) least->expected("a part less than 1");
    }
    return result;
}

/// Reads kernels, which are put in order.
inline std::vector<measured_kernel> read_measured(element const& e, bool strict) {
    std::vector<measured_kernel> result;
    e.for_each([&](element const& kernel) {
        if (strict) kernel.allow_only({"flops", "bytes", "factor"});
        result.push_back({flops(kernel.at("flops").non_negative()), bytes(kernel.at("bytes").non_negative()),
                          kernel.at("factor").positive()});
    });
    algorithm::sort(result, {}, [](measured_kernel const& m) { return std::pair(m.work, m.size); });
    return result;
}

/// Reads what an operator class reaches: a rate, or an object, whose absent fields keep the values of `result`. With
/// `strict`, unknown fields are errors.
inline class_speed read_class_speed(element const& e, bool strict, class_speed result = {}) {
    if (!e.value().is_object()) return {flops_per_second(e.rate()), {}, {}, {}, {}};
    if (strict) e.allow_only({"rate", "bandwidth", "overhead", "efficiency", "measured"});
    if (auto const rate = e.find("rate")) result.rate = flops_per_second(rate->rate());
    if (auto const bandwidth = e.find("bandwidth")) result.bandwidth = bytes_per_second(bandwidth->rate());
    if (auto const overhead = e.find("overhead")) result.overhead = seconds(overhead->non_negative());
    if (auto const efficiency = e.find("efficiency")) result.efficiency = read_saturation(*efficiency, strict);
    if (auto const measured = e.find("measured")) result.measured = read_measured(*measured, strict);
    return result;
}

inline nlohmann::ordered_json to_json(class_speed const& speed) {
    if (speed.rate && !speed.bandwidth && !speed.overhead && !speed.efficiency && speed.measured.empty())
        return speed.rate->value;
    auto result = nlohmann::ordered_json::object();
    if (speed.rate) result["rate"] = speed.rate->value;
    if (speed.bandwidth) result["bandwidth"] = speed.bandwidth->value;
    if (speed.overhead) result["overhead"] = speed.overhead->value;
    if (speed.efficiency) {
        auto& efficiency = result["efficiency"] = {{"scale", speed.efficiency->scale.value}};
        if (speed.efficiency->least > 0) efficiency["least"] = speed.efficiency->least;
    }
    for (auto const& m : speed.measured)
        result["measured"].push_back({{"flops", m.work.value}, {"bytes", m.size.value}, {"factor", m.factor}});
    return result;
}

/// Calls `read(kind and pass, element)` for what a table of rates says of kinds of operators.
template <class Read>
void for_each_operator(element const& operators, bool strict, Read&& read) {
    for (auto const& [kind, passes] : operators.fields()) {
        if (strict) passes.allow_only({"forward", "backward"});
        for (auto const& of : {operator_pass{kind, false}, operator_pass{kind, true}})
            if (auto const speed = passes.find(of.pass())) read(of, *speed);
    }
}

/// What a table of rates says of operator classes and, as "operators", of kinds of operators.
inline void write_speeds(operator_speeds const& speeds, nlohmann::ordered_json& into) {
    for (auto const& [category, speed] : speeds.by_class)
        into[std::string(name_of(operator_classes, category))] = to_json(speed);
    for (auto const& [name, speed] : speeds.by_operator) into["operators"][name.kind][name.pass()] = to_json(speed);
}

inline nlohmann::ordered_json to_json(collective_model const& model) {
    auto const line = [](collective_model::piece const& p) {
        return nlohmann::ordered_json{{"latency", p.latency.value}, {"seconds_per_byte", p.slope.value}};
    };
    if (model.pieces.size() == 1) return line(model.pieces.front());
    auto pieces = nlohmann::ordered_json::array();
    for (auto const& p : model.pieces) pieces.push_back(line(p));
    return {{"pieces", std::move(pieces)}};
}

inline nlohmann::ordered_json to_json(std::map<collective, collective_model> const& models) {
    auto result = nlohmann::ordered_json::object();
    for (auto const& [kind, model] : models) result[heddle::name(kind)] = to_json(model);
    return result;
}

inline nlohmann::ordered_json to_json(measured_collectives const& line, char const* count) {
    return {{count, line.devices}, {"collectives", to_json(line.models)}};
}

inline nlohmann::ordered_json to_json(device_type const& type) {
    nlohmann::ordered_json result{{"name", type.name},
                                  {"memory", type.memory.value},
                                  {"bandwidth", type.bandwidth.value},
                                  {"overhead", type.overhead.value}};
    for (auto const& [element, table] : type.rates) {
        auto& rates = result["rates"][std::string(name_of(element_types, element))];
        rates["default"] = table.fallback.value;
        write_speeds(table, rates);
    }
    return result;
}

} // namespace heddle::json::detail
