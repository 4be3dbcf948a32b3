// SPDX-License-Identifier: BSL-1.0
// What the planners have in common.
#include "plan_input.hpp"
#include "cluster_changes.hpp"

#include <heddle/base/error.hpp>
#include <heddle/json/digest.hpp>
#include <heddle/json/document.hpp>
#include <heddle/json/file.hpp>
#include <heddle/plan/as_planned.hpp>
#include <heddle/synthesis/layer_costs.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace heddle::cli {

json::model read_planned_model(std::string const& path, std::vector<std::string> const& inputs,
                               provenance const& from) {
    auto model = read_model(path, inputs);
    if (from.model_digest != model.digest) model.warnings.push_back("the model has changed since the plan was made");
    return model;
}

bool is_pipeline_plan(std::string const& path, std::string const& text) {
    auto const format = json::format_of(path, text);
    if (!format.empty() && format != "heddle.plan" && format != "heddle.pipeline_plan")
        throw input_error(path, "format: is \"" + format + "\", expected heddle.plan or heddle.pipeline_plan");
    return format == "heddle.pipeline_plan";
}

cluster read_planned_cluster(std::string const& path, provenance const& from, std::vector<std::string>& warnings,
                             std::vector<std::string> const& changes) {
    auto const text = json::read_text(path);
    if (from.cluster_digest != json::digest(text))
        warnings.push_back("this is not the cluster the plan was made for, or it has changed since");
    return json::parse_cluster(with_changes(text, path, changes), path);
}

plan_input read_input(plan_arguments const& arguments) {
    plan_input input{read_model(arguments.model, arguments.inputs), {}, {}};
    auto& from = input.from;
    from.model = input.model.name;
    from.model_digest = input.model.digest;
    from.batch = arguments.batch;
    if (!arguments.element_type.empty()) from.type = json::value_of(json::element_types, arguments.element_type);
    input.model.program = as_planned(std::move(input.model.program), from);
    auto const text = json::read_text(arguments.cluster);
    input.cluster = json::parse_cluster(text, arguments.cluster);
    from.cluster_digest = json::digest(text);
    if (arguments.memory_limit)
        for (auto& type : input.cluster.types) type.memory = std::min(type.memory, bytes(*arguments.memory_limit));
    return input;
}

std::vector<std::string> split_at_commas(std::string const& text) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
        end = text.find(',', begin);
        parts.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
    }
    return parts;
}

program_layers layers_of(plan_arguments const& arguments, program const& model, cluster const& on) {
    auto const p = index_program(model);
    auto const& text = arguments.layers;
    if (text == "repeats") return repeated_layers(p);
    if (text == "names") return layers_by_name(p);
    bool const is_number = !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
    if (!is_number) return layers_by_name(p, split_at_commas(text));
    validate(on);
    return balanced_layers(p, operator_times(p, on, on.machines.front().type),
                           text.size() > 9 ? 1'000'000'000 : std::stoul(text));
}

training_options training_of(plan_arguments const& arguments) {
    return {.optimizer_bytes_per_element = arguments.optimizer_bytes, .keeps_master_weights = arguments.master_weights};
}

void add_origin(provenance& from, plan_input const& input) {
    from.model = input.from.model;
    from.model_digest = input.from.model_digest;
    from.cluster_digest = input.from.cluster_digest;
    from.batch = input.from.batch;
    from.type = input.from.type;
}

progress_function shown_by(attended_run& attended, std::string const& planner) {
    return [&attended, planner](planning_progress const& now) {
        attended.show(planner + ", " + now.phase, now.cost, now.lower_bound);
    };
}

} // namespace heddle::cli
