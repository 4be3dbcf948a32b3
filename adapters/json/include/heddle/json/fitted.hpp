// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Reads and writes fitted models of collectives and rates.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/fitted.hpp>

#include <filesystem>
#include <string>
#include <string_view>

namespace heddle::json {

using heddle::fitted_models;

/// Reads fitted models from text; `name` stands in messages.
/// *Throws* `input_error`.
[[nodiscard]] fitted_models parse_fitted(std::string_view text, std::string const& name = "fitted models");

/// Reads a file of fitted models.
/// *Throws* `file_error` if it cannot be read, `input_error` naming the place if it is wrong.
[[nodiscard]] fitted_models read_fitted(std::filesystem::path const& path);

/// The text of a file of fitted models, without what was measured inside machines or along lines of them; reading it back
/// gives the same numbers.
[[nodiscard]] std::string to_text(fitted_models const& models);

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/json/detail/cluster_values.hpp>
#include <heddle/json/document.hpp>

#include <nlohmann/json.hpp>

#include <map>

namespace heddle::json {

namespace detail {

HEDDLE_INLINE fitted_models::device_speeds read_device_speeds(element const& device) {
    fitted_models::device_speeds result;
    for (auto const& [type_name, table] : device.fields()) {
        auto const type = value_of(element_types, type_name);
        if (!type) table.fail("is no element type, expected one of " + listed(element_types));
        auto& speeds = result[*type];
        for (auto const& [class_name, speed] : table.fields()) {
            if (class_name == "operators") {
                for_each_operator(speed, false, [&](operator_pass const& of, element const& e) {
                    speeds.by_operator.emplace(of, read_class_speed(e, false));
                });
                continue;
            }
            auto const category = value_of(operator_classes, class_name);
            if (!category) speed.fail("is no operator class, expected operators or one of " + listed(operator_classes));
            speeds.by_class.emplace(*category, read_class_speed(speed, false));
        }
    }
    return result;
}

HEDDLE_INLINE fitted_models read_fitted(document const& file) {
    fitted_models result;
    result.ranks = static_cast<int>(file.root().at("ranks").integer(1, 65536));
    result.collectives = read_collectives(file.root(), false);
    if (auto const link = file.root().find("link"))
        result.link = {bytes_per_second(link->at("bandwidth").rate()), seconds(link->at("latency").non_negative())};
    if (auto const rates = file.root().find("rates"))
        for (auto const& [device, table] : rates->fields()) result.speeds.emplace(device, read_device_speeds(table));
    return result;
}

} // namespace detail

HEDDLE_INLINE fitted_models parse_fitted(std::string_view text, std::string const& name) {
    return detail::guarded(name, [&] { return detail::read_fitted(document(name, text, "fitted", 1)); });
}

HEDDLE_INLINE fitted_models read_fitted(std::filesystem::path const& path) {
    return parse_fitted(detail::guarded(path.string(), [&] { return read_text(path); }), path.string());
}

HEDDLE_INLINE std::string to_text(fitted_models const& models) {
    nlohmann::ordered_json root{{"format", "heddle.fitted"}, {"version", 1}, {"ranks", models.ranks}};
    root["collectives"] = detail::to_json(models.collectives);
    if (models.link)
        root["link"] = {{"bandwidth", models.link->bandwidth.value}, {"latency", models.link->latency.value}};
    auto& rates = root["rates"] = nlohmann::ordered_json::object();
    for (auto const& [device, types] : models.speeds)
        for (auto const& [type, speeds_of_type] : types)
            detail::write_speeds(speeds_of_type, rates[device][std::string(name_of(element_types, type))]);
    return root.dump(2) + "\n";
}

} // namespace heddle::json

#endif
