// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a program's layers cost on a tensor group: Megatron's forms under the cost model.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/theory/cut_space.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace heddle {

/// The cost of one layer on that device of a tensor group which has most work, for the program's whole batch.
struct layer_cost {
    /// Forward and backward include the collectives of the group; `update` is the optimiser's step.
    seconds forward, backward, update;
    /// `kept` is parameters, gradients, optimiser state and buffers; `gradients` is a part of it.
    bytes kept, gradients;
    /// `saved` is the inputs that the layer reads and what its operators save for the backward pass; `buffer` is the
    /// most that one of its instructions needs for a moment.
    bytes saved, buffer;
    /// The gradients of parameters that other layers use too.
    std::map<tensor_id, bytes> shared;
};

/// Returns a cluster of one machine with this many devices of one type of `c`, with links as in the machines of `c` and
/// without memory limits.
[[nodiscard]] cluster tensor_group_of(cluster const& c, std::size_t type, std::size_t devices);

/// Prices the layers of one program under tensor parallelism on groups of devices.
///
/// The program on a group is the fastest of the theory under `tensor_parallel` (synthesis/baselines.hpp) at even
/// shares: products are split along heads, hidden units and vocabulary, and activations between them are whole. Every
/// layer that uses a parameter keeps it, and every layer that saves a value keeps that, as layers may be on different
/// stages.
/// *Lifetime:* keeps a copy of the program's view.
class layer_pricer {
public:
    /// *Precondition:* the layers are those of `p`, or of the same program with another batch.
    layer_pricer(indexed_program p, program_layers layers, training_options const& training);
    layer_pricer(layer_pricer const&) = delete;

    /// Returns the cost of each layer. *Precondition:* the group is of one machine, as that of `tensor_group_of` is.
    /// *Throws* `input_error` if the device type has no rate for the program's element type.
    /// *Complexity.* Linear in the operators for a bounded number of values in use at a time.
    [[nodiscard]] std::vector<layer_cost> price(cluster const& group) const;
    /// Returns the program that is priced. *Precondition, Throws, Complexity.* As for `price`.
    [[nodiscard]] std::vector<plan_step> program_on(cluster const& group) const {
        return fastest(even_shares(program_, group));
    }

private:
    /// What a group charges for its even shares.
    struct even_shares {
        even_shares(indexed_program const& p, cluster const& group)
            : model(group, std::vector{device_class{group.machines.front().type, group.machines.front().devices}},
                    main_type(p)),
              shares(p, group.machines.front().devices) {}

        cost_model model;
        most_even_shares shares;
    };
    [[nodiscard]] std::vector<plan_step> fastest(even_shares const& at) const;
    [[nodiscard]] std::vector<layer_cost> add_up(std::vector<plan_step> const& steps, cost_model const& model,
                                                 most_even_shares const& shares) const;
    [[nodiscard]] std::set<std::size_t> layers_that_use(tensor_id t) const;

    indexed_program program_;
    program_layers layers_;
    cut_space space_;
    cut_graph graph_;
    std::vector<step_work> steps_;
};

/// Returns the seconds of each operator on one device of a type, forward and backward. *Throws* what
/// `layer_pricer::price` does.
[[nodiscard]] std::vector<seconds> operator_times(indexed_program const& p, cluster const& c, std::size_t type);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/synthesis/baselines.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/synthesis/synthesise.hpp>

namespace heddle {

HEDDLE_INLINE cluster tensor_group_of(cluster const& c, std::size_t type, std::size_t devices) {
    cluster group;
    group.name = c.name;
    group.types = {c.types[type]};
    group.types.front().memory = bytes(1e30);
    group.machines = {{.type = 0, .devices = static_cast<int>(devices)}};
    group.intra = c.intra;
    group.measured_inside = c.measured_inside;
    group.measured = measured_on(group, c);
    return group;
}

HEDDLE_INLINE layer_pricer::layer_pricer(indexed_program p, program_layers layers, training_options const& training)
    : program_(std::move(p)), layers_(std::move(layers)), space_(program_, operator_kinds(program_)) {
    space_.restrict_to(tensor_parallel(program_));
    graph_ = search::explore(space_);
    for (auto const& i : space_.instructions()) steps_.push_back(make_step(program_, i, training));
}

HEDDLE_INLINE std::vector<layer_cost> layer_pricer::price(cluster const& group) const {
    even_shares const at(program_, group);
    return add_up(fastest(at), at.model, at.shares);
}

HEDDLE_INLINE std::vector<plan_step> layer_pricer::fastest(even_shares const& at) const {
    auto const path = improve_bounds<serial>({space_, graph_, steps_, at.model, at.shares}, 1)
                          .path; // of one class the first relaxation is exact
    return steps_of(path.value(), space_, steps_);
}

HEDDLE_INLINE std::vector<layer_cost> layer_pricer::add_up(std::vector<plan_step> const& steps, cost_model const& model,
                                                           most_even_shares const& shares) const {
    std::vector<layer_cost> costs(layers_.size());
    std::vector<std::set<std::pair<tensor_id, tensor_form>>> held(layers_.size());
    auto const share_of = [&](share_ref ref) { return ref.is_split() ? shares(ref)[0] : 1; };
    auto const part_of = [&](tensor_id t, tensor_form f) {
        return program_.tensors[t].info.size() * (f.is_shard() ? share_of({t, f.factor()}) : 1);
    };
    operator_id next = 0; // instructions stand before their operator
    for (auto const& s : steps) {
        auto const& i = s.instruction;
        std::size_t const layer = std::min(layers_.layer_of(next), layers_.size() - 1);
        auto const price = model.price(s.step, shares);
        costs[layer].forward += seconds(price.forward[0] + price.forward_transfer);
        costs[layer].backward += seconds(price.backward[0] + price.backward_transfer);
        momentary_memory momentary;
        momentary.add(i.type(), price);
        costs[layer].buffer = std::max(costs[layer].buffer, bytes(momentary.most()));
        if (auto const* read = i.as<instruction::read>()) {
            auto const& tensor = program_.tensors[read->tensor];
            bool const is_input = tensor.info.role == tensor_role::input;
            bytes const stored(cost_model::at(s.step.stored, share_of(s.step.share)));
            auto const users = layers_that_use(read->tensor);
            for (auto l : users) {
                if (is_input) held[l].insert({read->tensor, read->to});
                else costs[l].kept += stored, costs[l].update += seconds(price.update[0]);
                if (!tensor.has_cotangent) continue;
                auto const gradient = part_of(read->tensor, read->to);
                costs[l].gradients += gradient;
                if (users.size() > 1) costs[l].shared[read->tensor] += gradient;
            }
        }
        auto const* const compute = i.as<instruction::compute>();
        if (!compute) continue;
        costs[layer].saved += bytes(cost_model::at(s.step.saved, share_of(s.step.share)));
        for_each_saved(program_, *compute, [&](tensor_id t, tensor_form f) {
            if (program_.tensors[t].info.role == tensor_role::value) held[layer].insert({t, f});
        });
        next = compute->op + 1;
    }
    for (std::size_t l = 0; l < layers_.size(); ++l)
        for (auto const& [t, f] : held[l]) costs[l].saved += part_of(t, f);
    return costs;
}

HEDDLE_INLINE std::set<std::size_t> layer_pricer::layers_that_use(tensor_id t) const {
    std::set<std::size_t> users;
    for (auto o : program_.tensors[t].consumers) users.insert(layers_.layer_of(o));
    return users;
}

HEDDLE_INLINE std::vector<seconds> operator_times(indexed_program const& p, cluster const& c, std::size_t type) {
    std::vector<operator_id> each(p.operators.size() + 1);
    std::iota(each.begin(), each.end(), operator_id{0});
    std::vector<seconds> times;
    for (auto const& cost : layer_pricer(p, layers_at(p, std::move(each)), {}).price(tensor_group_of(c, type, 1)))
        times.push_back(cost.forward + cost.backward);
    return times;
}

} // namespace heddle

#endif
