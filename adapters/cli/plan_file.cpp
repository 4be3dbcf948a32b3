// SPDX-License-Identifier: BSL-1.0
// Plan files, by their content.
#include "plan_file.hpp"
#include "plan_input.hpp"

#include <heddle/base/error.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/pipeline_plan.hpp>
#include <heddle/json/plan.hpp>
#include <heddle/json/staged_plan.hpp>

#include <string>
#include <utility>
#include <variant>

namespace heddle::cli {

bool exists(any_plan const& p) {
    return std::visit([](auto const& of) { return of.exists(); }, p);
}
double cost_of(any_plan const& p) {
    return std::visit([](auto const& of) { return of.cost(); }, p);
}
std::string const& reason_of(any_plan const& p) {
    return std::visit([](auto const& of) -> std::string const& { return of.reason; }, p);
}
provenance& origin_of(any_plan& p) {
    return std::visit([](auto& of) -> provenance& { return of.provenance; }, p);
}

any_plan read_any_plan(std::string const& path) { return parse_any_plan(json::read_text(path), path); }

staged_plan as_staged(any_plan made, std::string const& path, cluster const& c) {
    if (auto* whole = std::get_if<plan>(&made)) return staged(std::move(*whole), c);
    if (auto* stages = std::get_if<staged_plan>(&made)) return std::move(*stages);
    throw input_error(path, "is a strategy of layers; expected a plan by joint");
}

any_plan parse_any_plan(std::string const& text, std::string const& name) {
    if (is_pipeline_plan(name, text)) return json::parse_pipeline_plan(text, name);
    if (json::has_stages(text, name)) return json::parse_staged_plan(text, name);
    return json::parse_plan(text, name);
}

} // namespace heddle::cli
