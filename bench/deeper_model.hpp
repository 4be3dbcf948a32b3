// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Traced models with more layers than they were traced with.
#pragma once

#include <heddle/json/file.hpp>
#include <heddle/json/model.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace heddle::bench {

/// A model whose parameters are named `layers.N....` with its first `period` layers repeated before it, up to `layers`
/// in all. *Precondition:* every layer has an equal one `period` layers before it, and the model has more than
/// `period`.
inline json::model deeper_model(std::filesystem::path const& file, int period, int layers) {
    auto model = nlohmann::json::parse(json::read_text(file));
    auto& nodes = model.at("nodes");
    // A layer begins where its first parameter is read.
    auto const layer_of = [](nlohmann::json const& node) {
        auto const target = node.at("target").get<std::string>();
        return node.at("op") == "parameter" && target.starts_with("layers.") ? std::stoi(target.substr(7)) : -1;
    };
    std::vector<long> begins;
    for (std::size_t n = 0; n < nodes.size(); ++n)
        if (layer_of(nodes[n]) == static_cast<int>(begins.size())) begins.push_back(static_cast<long>(n));
    int const there = static_cast<int>(begins.size()), missing = (layers - there) / period;
    long const first = begins.front(), size = begins[static_cast<std::size_t>(period)] - first;
    // References to sources before the layers stay, all others move along.
    auto const moved = [&](nlohmann::json node, long by, int layer_shift) {
        auto const shift = [&](auto& self, nlohmann::json& value) -> void {
            if (value.is_object() && value.contains("node")) {
                long const id = value["node"];
                auto const op = nodes[static_cast<std::size_t>(id)].at("op").get<std::string>();
                bool const is_source = op == "placeholder" || op == "parameter" || op == "buffer";
                if (id >= first || !is_source) value["node"] = id + by;
            } else if (value.is_structured()) {
                for (auto& part : value) self(self, part);
            }
        };
        node["id"] = node["id"].get<long>() + by;
        if (by > 0)
            node["name"] = node["name"].get<std::string>() + "_of_" +
                           std::to_string(node["id"].get<long>()); // the names of copies are their own
        shift(shift, node["args"]);
        if (node.contains("kwargs")) shift(shift, node["kwargs"]);
        for (auto& id : node["inputs"]) {
            nlohmann::json wrapped = {{"node", id}};
            shift(shift, wrapped);
            id = wrapped["node"];
        }
        if (int const layer = layer_of(node); layer >= 0) {
            auto const target = node["target"].get<std::string>();
            node["target"] = "layers." + std::to_string(layer + layer_shift) + target.substr(target.find('.', 7));
        }
        return node;
    };
    nlohmann::json longer = nlohmann::json::array();
    for (long n = 0; n < first; ++n) longer.push_back(nodes[static_cast<std::size_t>(n)]);
    for (int copy = 0; copy < missing; ++copy)
        for (long n = first; n < first + size; ++n)
            longer.push_back(moved(nodes[static_cast<std::size_t>(n)], copy * size, copy * period));
    for (long n = first; n < static_cast<long>(nodes.size()); ++n)
        longer.push_back(moved(nodes[static_cast<std::size_t>(n)], missing * size, missing * period));
    model["nodes"] = std::move(longer);
    return json::parse_model(model.dump(), file.string());
}

} // namespace heddle::bench
