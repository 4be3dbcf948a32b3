// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a planner returns: a distributed program, integral shares, what it costs and how that
/// is known. Plain data that stands on its own.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/version.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/cost/step.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/search/result.hpp>
#include <heddle/theory/instruction.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

struct plan_tensor {
    std::string name;
    heddle::shape shape;
    element_type type = element_type::float32;
    tensor_role role = tensor_role::value;
    bool trainable = false;
    std::vector<heddle::factor> factors;
    /// The factor that device groups cut among their devices, or `no_factor`.
    factor_number inside = no_factor;
    [[nodiscard]] bytes size() const { return tensor_info{name, shape, type, role, trainable}.size(); }
};

/// One device, or a group of equal ones: memory is that of each.
struct plan_device {
    std::string type;
    bytes memory_limit;
    int group_size = 1;
    /// The type, of a group with its size: "8 x V100".
    [[nodiscard]] std::string name() const { return group_size > 1 ? std::to_string(group_size) + " x " + type : type; }
};

/// One instruction with the work it stands for, so that a plan can be re-costed without its model.
struct plan_step {
    heddle::instruction instruction;
    heddle::step step;
    /// What it keeps for the backward pass that was not kept before.
    std::vector<std::pair<tensor_id, form>> saved;
};

/// Predicted seconds of one iteration, by term; they add up to the total. What device groups communicate inside beside
/// collectives is work of theirs: computation, or update.
struct time_terms {
    double compute = 0;
    double forward_communication = 0;
    double backward_communication = 0;
    /// What of the gradients' collectives the backward pass does not hide.
    double gradient_communication = 0;
    /// With the collectives that bring whole copies up to date.
    double update = 0;
    [[nodiscard]] double total() const {
        return compute + forward_communication + backward_communication + gradient_communication + update;
    }
};

/// Predicted bytes on one device, by term.
struct memory_terms {
    double parameters = 0;
    double gradients = 0;
    double optimizer = 0;
    double inputs = 0;
    double activations = 0;
    double communication = 0;
    [[nodiscard]] double total() const {
        return parameters + gradients + optimizer + inputs + activations + communication;
    }
};

/// One pair of program and ratios that the planner priced on the way.
struct trajectory_point {
    std::string origin;
    ratio_table ratios;
    /// Re-evaluated on integral shares; none if it does not fit.
    std::optional<double> cost;
};

struct provenance {
    std::string planner;
    std::string model, model_digest;
    std::string cluster, cluster_digest;
    std::string version = library_version;
    training_options training;
    /// The model's batch, and the type of its floating-point tensors, where the plan is of another one than the model's
    /// file has.
    std::optional<std::int64_t> batch{};
    std::optional<element_type> type{};
};

/// Seconds per iteration by the name of a strategy; none where memory forbids it.
using strategy_costs = std::map<std::string, std::optional<double>>;

/// A plan. Status and bound are of this plan at its integral shares: `optimal` means that no program of the theory, as
/// `cut_space` has it, is faster at these shares (of a factor the plan does not cut: at the ratios, apportioned).
struct plan : search::outcome<> {
    heddle::provenance provenance;
    std::vector<plan_device> devices;
    std::vector<plan_tensor> tensors;
    std::vector<std::string> operators;
    std::vector<plan_step> steps;
    /// Where micro-batches take turns: steps that begin a stage, though they may have no collective, ascending.
    std::vector<std::size_t> stages;
    /// Of each operator; none: the program is one segment.
    std::vector<segment_number> segments;
    ratio_table ratios;
    std::vector<atom_class> cuts;

    time_terms time;
    std::vector<memory_terms> memory;
    /// What status and lower bound are of, in words that follow "optimal among"; empty where nobody said.
    std::string space;
    /// No program costs less at any ratios; none where that is not known. At most `lower_bound`.
    std::optional<double> global_lower_bound;
    /// Well-known strategies under the same model and options: the plan is no dearer, unless it keeps pins that they do
    /// not.
    strategy_costs baselines;
    /// The same under other options than the plan's, by names that say which: what the plan was not allowed, so that it
    /// may be dearer.
    strategy_costs other_baselines;
    std::vector<trajectory_point> trajectory;
    search::statistics statistics;
    std::vector<std::string> warnings;

    [[nodiscard]] bool has_groups() const {
        return algorithm::any_of(devices, [](plan_device const& d) { return d.group_size > 1; });
    }
    [[nodiscard]] bool exists() const { return !steps.empty(); }
    [[nodiscard]] double cost() const { return time.total(); }
    /// Relative distance between cost and bound.
    [[nodiscard]] double gap() const { return cost() > 0 ? 1 - lower_bound / cost() : 0; }
};

/// A plan without steps that describes the program: tensors, operators, segments.
[[nodiscard]] plan blank_plan(indexed_program const& program);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE plan blank_plan(indexed_program const& program) {
    plan p;
    for (auto const& t : program.tensors)
        p.tensors.push_back(
            {t.info.name, t.info.shape, t.info.type, t.info.role, t.info.trainable, t.factors, t.inside});
    for (auto const& o : program.operators) p.operators.push_back(o.name);
    if (segment_count(program) > 1)
        for (auto const& o : program.operators) p.segments.push_back(o.segment);
    return p;
}

} // namespace heddle

#endif
