// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a planner returns: a distributed program, integral shares, their cost, and how that is known. It is
/// plain data that stands on its own.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/version.hpp>
#include <heddle/cluster/mesh.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/cost/step.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/search/result.hpp>
#include <heddle/theory/instruction.hpp>
#include <heddle/theory/mesh_instruction.hpp>
#include <heddle/theory/product_form.hpp>

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
    tensor_shape shape;
    element_type type = element_type::float32;
    tensor_role role = tensor_role::value;
    bool trainable = false;
    std::vector<heddle::factor> factors;
    /// The factor that device groups cut among their devices, or `no_factor`.
    factor_number inside = no_factor;
    /// The region in which the value is made again, if it is not kept for the backward pass.
    region_number region = no_region;
    /// See `tensor_info::whole_of`.
    std::string whole_of{};
    [[nodiscard]] bytes size() const { return tensor_info{name, shape, type, role, trainable}.size(); }
};

/// One device, or several equal ones: a group, or the devices of a mesh that share this place on its outermost axis.
/// Then memory is that of each.
struct plan_device {
    std::string type;
    bytes memory_limit;
    int group_size = 1;
    /// Returns the type; of several with their number, for example "8 x V100".
    [[nodiscard]] std::string name() const { return group_size > 1 ? std::to_string(group_size) + " x " + type : type; }
};

/// One instruction with the work it stands for, so that a plan can be priced again without its model.
struct plan_step {
    /// That of the outermost axis, which is the only one unless the plan is on a mesh.
    heddle::instruction instruction;
    step_work step;
    /// What it keeps for the backward pass that was not kept before.
    std::vector<kept_tensor> saved;
    /// Those of the axes inside the outermost.
    std::vector<heddle::instruction> inside{};

    /// Returns the instructions of all axes.
    [[nodiscard]] mesh_instruction on_mesh() const;
    [[nodiscard]] heddle::instruction const& on_axis(axis_number a) const {
        return a == 0 ? instruction : inside[a - 1];
    }
    [[nodiscard]] std::size_t axis_count() const { return 1 + inside.size(); }
    /// Returns the instruction of the axis that changes a tensor's form; of a read and of a computation, the outermost.
    [[nodiscard]] heddle::instruction const& acting() const;
    /// *Precondition:* it is a computation.
    [[nodiscard]] heddle::instruction::compute const& computation(axis_number a = 0) const {
        return *on_axis(a).as<heddle::instruction::compute>();
    }
    /// Of a computation: the form of an operand and of a result.
    [[nodiscard]] product_form operand(std::size_t k) const;
    [[nodiscard]] product_form result(std::size_t k) const;
    /// Of anything else: the tensor's form before and after.
    [[nodiscard]] product_form from() const;
    [[nodiscard]] product_form to() const;
};

/// Tells whether a computation sends rows to devices that the data choose: how much that is, is known when it runs.
[[nodiscard]] inline bool sends_rows(plan_step const& s) {
    return s.instruction.is<instruction::compute>() &&
           algorithm::any_of(s.step.forward_transfers, [](auto const& t) { return t.kind == collective::all_to_all; });
}

/// The predicted seconds of one iteration by term; the terms add up to the total. What device groups communicate
/// inside, other than for collectives across groups, is part of computation and update.
struct time_terms {
    double compute = 0;
    double forward_communication = 0;
    double backward_communication = 0;
    /// The part of the gradients' collectives that the backward pass does not hide.
    double gradient_communication = 0;
    double update = 0;
    /// The collectives after the update that bring whole copies of parameters up to date.
    double parameter_communication = 0;
    /// The parts of computation and of update that device groups communicate inside.
    double compute_inside = 0, update_inside = 0;
    [[nodiscard]] double inside() const { return compute_inside + update_inside; }
    /// What devices do by themselves.
    [[nodiscard]] double own_compute() const { return compute - compute_inside; }
    [[nodiscard]] double own_update() const { return update - update_inside; }
    [[nodiscard]] double total() const {
        return compute + forward_communication + backward_communication + gradient_communication + update +
               parameter_communication;
    }
};

/// The predicted bytes on one device, by term.
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

/// A pair of program and ratios that the planner priced on its way.
struct trajectory_point {
    std::string origin;
    ratio_table ratios;
    /// The cost at integral shares; absent if it does not fit.
    std::optional<double> cost;
};

struct provenance {
    std::string planner;
    std::string model, model_digest;
    std::string cluster, cluster_digest;
    std::string version = library_version;
    training_options training;
    /// The batch, and the type of floating-point tensors, if they are other than in the model's file.
    std::optional<std::int64_t> batch{};
    std::optional<element_type> type{};
};

/// The seconds per iteration by the name of a strategy; absent if memory forbids the strategy.
using strategy_costs = std::map<std::string, std::optional<double>>;

/// A plan. Status and bound refer to its integral shares: `optimal` means that no program of the theory, as `cut_space`
/// has it, is faster at these shares. A factor that the plan does not cut has the ratios, apportioned, as its shares.
struct plan : search::outcome<> {
    heddle::provenance provenance;
    std::vector<plan_device> devices;
    std::vector<plan_tensor> tensors;
    std::vector<std::string> operators;
    std::vector<plan_step> steps;
    /// The steps that begin a stage, though they may have no collective, ascending; used if micro-batches take turns.
    std::vector<std::size_t> stages;
    /// The segment of each operator; if empty, the program is one segment.
    std::vector<segment_number> segments;
    ratio_table ratios;
    std::vector<atom_class> cuts;
    /// The sizes of a mesh's axes inside the outermost, whose places are the devices; and how these axes divide what
    /// they cut. Both are empty on one axis.
    std::vector<std::size_t> inner_sizes;
    std::vector<ratio_table> inner_ratios;

    time_terms time;
    std::vector<memory_terms> memory;
    /// What status and lower bound refer to, in words that follow "optimal among"; empty if nobody said.
    std::string space;
    /// No program costs less at any ratios. It is at most `lower_bound`; absent if no such bound is known.
    std::optional<double> global_lower_bound;
    /// Well-known strategies under the same model and options. The plan costs no more than these unless it keeps pins
    /// that they do not keep.
    strategy_costs baselines;
    /// Well-known strategies under other options than the plan's, which their names state. The plan was not allowed
    /// what they use, so it may cost more.
    strategy_costs other_baselines;
    std::vector<trajectory_point> trajectory;
    search::statistics statistics;
    std::vector<std::string> warnings;

    [[nodiscard]] heddle::mesh mesh() const;
    [[nodiscard]] bool is_on_mesh() const { return !inner_sizes.empty(); }
    /// Tells whether devices are groups, which have the batch divided among them beside what the steps say.
    [[nodiscard]] bool has_groups() const {
        return !is_on_mesh() && algorithm::any_of(devices, [](plan_device const& d) { return d.group_size > 1; });
    }
    [[nodiscard]] bool exists() const { return !steps.empty(); }
    [[nodiscard]] double cost() const { return time.total(); }
    /// Returns the relative distance between cost and bound.
    [[nodiscard]] double gap() const { return cost() > 0 ? 1 - lower_bound / cost() : 0; }
};

/// Returns a plan without steps that describes the program: its tensors, operators and segments.
[[nodiscard]] plan blank_plan(indexed_program const& program);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE mesh_instruction plan_step::on_mesh() const {
    mesh_instruction all(instruction);
    all.axes.insert(all.axes.end(), inside.begin(), inside.end());
    return all;
}

HEDDLE_INLINE heddle::instruction const& plan_step::acting() const {
    if (!is_keep(instruction)) return instruction;
    auto const found = algorithm::find_if(inside, [](auto const& i) { return !is_keep(i); });
    return found == inside.end() ? instruction : *found;
}

HEDDLE_INLINE product_form plan_step::operand(std::size_t k) const {
    product_form f(instruction.as<heddle::instruction::compute>()->operands[k]);
    for (auto const& i : inside) f.push_back(i.as<heddle::instruction::compute>()->operands[k]);
    return f;
}

HEDDLE_INLINE product_form plan_step::result(std::size_t k) const {
    product_form f(instruction.as<heddle::instruction::compute>()->results[k]);
    for (auto const& i : inside) f.push_back(i.as<heddle::instruction::compute>()->results[k]);
    return f;
}

HEDDLE_INLINE product_form plan_step::from() const {
    product_form f(instruction.change()->from);
    for (auto const& i : inside) f.push_back(i.change()->from);
    return f;
}

HEDDLE_INLINE product_form plan_step::to() const {
    product_form f(instruction.change()->to);
    for (auto const& i : inside) f.push_back(i.change()->to);
    return f;
}

HEDDLE_INLINE heddle::mesh plan::mesh() const {
    std::vector<std::size_t> sizes{devices.size()};
    sizes.insert(sizes.end(), inner_sizes.begin(), inner_sizes.end());
    return heddle::mesh(std::move(sizes));
}

HEDDLE_INLINE plan blank_plan(indexed_program const& program) {
    plan p;
    for (auto const& t : program.tensors)
        p.tensors.push_back({t.info.name, t.info.shape, t.info.type, t.info.role, t.info.trainable, t.factors, t.inside,
                             t.region, t.info.whole_of});
    for (auto const& o : program.operators) p.operators.push_back(o.name);
    if (segment_count(program) > 1)
        for (auto const& o : program.operators) p.segments.push_back(o.segment);
    return p;
}

} // namespace heddle

#endif
