// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Where a plan of any kind comes from, as JSON.
#pragma once

#include <heddle/json/detail/plan_names.hpp>
#include <heddle/json/document.hpp>
#include <heddle/json/names.hpp>
#include <heddle/plan/plan.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

namespace heddle::json::detail {

/// All but how it was trained, master weights apart; plans of either kind add that.
[[nodiscard]] inline nlohmann::ordered_json provenance_to_json(provenance const& from) {
    nlohmann::ordered_json out{{"planner", from.planner},
                               {"model", from.model},
                               {"model_digest", from.model_digest},
                               {"cluster", from.cluster},
                               {"cluster_digest", from.cluster_digest},
                               {"heddle", from.version}};
    if (from.batch) out["batch"] = *from.batch;
    if (from.type) out["dtype"] = name_of(element_types, *from.type);
    if (!from.training.keeps_master_weights) out["master_weights"] = false;
    return out;
}

/// Reads everything, with the optimiser, except for what says how plans of one kind are scheduled.
[[nodiscard]] inline provenance provenance_from_json(element const& e) {
    auto const text = [&](char const* field) {
        auto const found = e.find(field);
        return found ? found->text() : std::string();
    };
    provenance out{text("planner"),
                   text("model"),
                   text("model_digest"),
                   text("cluster"),
                   text("cluster_digest"),
                   text("heddle"),
                   {}};
    out.training.optimizer_bytes_per_element = e.at("optimizer_bytes_per_element").non_negative();
    if (auto const masters = e.find("master_weights")) out.training.keeps_master_weights = masters->boolean();
    if (auto const batch = e.find("batch")) out.batch = batch->integer(1, std::int64_t{1} << 40);
    if (auto const type = e.find("dtype")) out.type = type->choice(element_types);
    return out;
}

} // namespace heddle::json::detail
