// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the planners of `heddle plan` have in common: they read a model and a cluster, and end with a plan.
#pragma once

#include "attended_run.hpp"
#include "commands.hpp"

#include <heddle/json/cluster.hpp>
#include <heddle/json/model.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/plan/as_planned.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/synthesis/planning_progress.hpp>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle::cli {

struct plan_input {
    json::model model;
    heddle::cluster cluster;
    /// Everything about the plan's origin except for the planner's part.
    provenance from;
};

/// A model file: an exported program, a traced graph or a TorchScript module, as its content says. The inputs are a
/// module's, each as `NAME=4x128:int64`.
json::model read_model(std::string const& path, std::vector<std::string> const& inputs);

/// Reads a model of which there is a plan, and adds a warning if it has changed since.
json::model read_planned_model(std::string const& path, std::vector<std::string> const& inputs, provenance const& from);

/// As above, as it was planned.
template <class Plan>
json::model read_planned_model(std::string const& path, std::vector<std::string> const& inputs, Plan const& p) {
    auto model = read_planned_model(path, inputs, p.provenance);
    model.program = as_planned(std::move(model.program), p);
    return model;
}

/// Tells whether the text of a file is a pipeline plan. *Throws* `input_error` if it is no plan at all.
bool is_pipeline_plan(std::string const& path, std::string const& text);

/// Reads a cluster for a plan; adds a warning if the file is not the one that was planned for. `changes` are those of
/// `with_changes`.
cluster read_planned_cluster(std::string const& path, provenance const& from, std::vector<std::string>& warnings,
                             std::vector<std::string> const& changes = {});

/// Returns the cluster whose devices a plan counts: a mesh's places on its outermost axis, or machines, if each is
/// planned as one device.
template <class Plan>
cluster counted_by(Plan const& p, cluster c, bool groups_machines) {
    if constexpr (std::is_same_v<Plan, plan>)
        if (p.is_on_mesh()) return machines_of(c, p.mesh());
    return groups_machines ? with_grouped_machines(std::move(c)) : std::move(c);
}

/// Reads the model with the batch and element type, and the cluster with the memory, that the arguments ask for.
plan_input read_input(plan_arguments const& arguments);

/// The optimizer that the arguments ask for.
training_options training_of(plan_arguments const& arguments);

/// Adds where a plan of the input comes from.
void add_origin(provenance& from, plan_input const& input);

/// Returns layers of a model by `repeats`, by `names`, by a number of them, or by prefixes of parameters' names with
/// commas.
program_layers layers_of(plan_arguments const& arguments, program const& model, cluster const& c);

/// Returns the parts of a text between commas.
std::vector<std::string> split_at_commas(std::string const& text);

/// Shows what a planner tells after the planner's name. *Lifetime:* that of the run.
progress_function shown_by(attended_run& attended, std::string const& planner);

} // namespace heddle::cli
