// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Reads and writes fitted models of collectives and rates.
#pragma once

#include <heddle/json/cluster.hpp>
#include <heddle/json/document.hpp>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace heddle::json {

struct fitted_models {
    /// The number of ranks the collectives were measured on.
    int ranks = 1;
    std::map<collective, collective_model> collectives;
    /// By device type, element type and operator class.
    std::map<std::string, std::map<element_type, std::map<operator_class, flops_per_second>>> rates;
};

namespace detail {

inline std::map<element_type, std::map<operator_class, flops_per_second>> read_device_rates(element const& device) {
    std::map<element_type, std::map<operator_class, flops_per_second>> result;
    for (auto const& [type_name, table] : device.fields()) {
        auto const type = value_of(element_types, type_name);
        if (!type) table.fail("is no element type, expected one of " + listed(element_types));
        auto& rates = result[*type];
        for (auto const& [class_name, rate] : table.fields()) {
            auto const category = value_of(operator_classes, class_name);
            if (!category) rate.fail("is no operator class, expected one of " + listed(operator_classes));
            rates.emplace(*category, flops_per_second(rate.positive()));
        }
    }
    return result;
}

inline fitted_models read_fitted(document const& file) {
    fitted_models result;
    result.ranks = static_cast<int>(file.root().at("ranks").integer(1, 65536));
    result.collectives = read_collectives(file.root(), false);
    if (auto const rates = file.root().find("rates"))
        for (auto const& [device, table] : rates->fields()) result.rates.emplace(device, read_device_rates(table));
    return result;
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

} // namespace detail

/// Reads fitted models from text; `name` stands in messages.
/// *Throws* `input_error`.
[[nodiscard]] inline fitted_models parse_fitted(std::string_view text, std::string const& name = "fitted models") {
    return detail::guarded(name, [&] { return detail::read_fitted(document(name, text, "fitted", 1)); });
}

/// Reads a file of fitted models.
/// *Throws* `file_error` if it cannot be read, `input_error` naming the place if it is wrong.
[[nodiscard]] inline fitted_models read_fitted(std::filesystem::path const& path) {
    return parse_fitted(detail::guarded(path.string(), [&] { return read_text(path); }), path.string());
}

/// The text of a file of fitted models; reading it back gives the same numbers.
[[nodiscard]] inline std::string to_text(fitted_models const& models) {
    nlohmann::ordered_json root{{"format", "heddle.fitted"}, {"version", 1}, {"ranks", models.ranks}};
    auto& measured = root["collectives"] = nlohmann::ordered_json::object();
    for (auto const& [kind, model] : models.collectives) measured[name(kind)] = detail::to_json(model);
    auto& rates = root["rates"] = nlohmann::ordered_json::object();
    for (auto const& [device, types] : models.rates) {
        auto& table = rates[device] = nlohmann::ordered_json::object();
        for (auto const& [type, classes] : types)
            for (auto const& [category, rate] : classes)
                table[std::string(name_of(element_types, type))][std::string(name_of(operator_classes, category))] = rate.value;
    }
    return root.dump(2) + "\n";
}

} // namespace heddle::json
