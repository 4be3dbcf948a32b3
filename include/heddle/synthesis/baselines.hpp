// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Well-known strategies as restrictions of the theory.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/theory/factor_set.hpp>
#include <heddle/theory/instruction_filter.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Returns the factors of parameters that number experts: each index of a product that a parameter, another operand and
/// the result have.
[[nodiscard]] factor_set expert_factors(indexed_program const& p);

/// Tells whether a computation is split along a loop of some of these factors.
[[nodiscard]] bool is_along(indexed_program const& p, instruction::compute const& i, factor_set const& factors);

/// How a data-parallel program keeps its parameters. Each stage of ZeRO (Rajbhandari et al. 2020) cuts one more of
/// optimiser state, gradients and values.
enum class parameter_storage : std::uint8_t {
    replicated,
    sharded_state,     ///< ZeRO-1: the optimiser state
    sharded_gradients, ///< ZeRO-2: gradients are scattered as soon as they are there; the values gathered for the forward pass stay for the backward pass
    sharded            ///< ZeRO-3, fully sharded: values are gathered for each use
};

/// What data parallelism may do: inputs and values cut along the batch alone, parameters stored in one way. Every device
/// may make what has no cotangent, such as labels in another shape, for the whole batch. From ZeRO-2 on, what several
/// operators use is gathered once and kept, and its gradient waits.
[[nodiscard]] instruction_filter data_parallel(indexed_program const& p, parameter_storage storage);

/// Allows expert parallelism (Lepikhin et al. 2021, Rajbhandari et al. 2022): parameters of experts are cut by expert,
/// and everything else is data-parallel; activations change between the two by all-to-all.
[[nodiscard]] instruction_filter expert_parallel(indexed_program const& p, parameter_storage storage);

/// Allows tensor parallelism as in Megatron-LM (Shoeybi et al. 2019): products are split along heads, hidden units and
/// vocabulary, and nothing is split along what inputs have. Activations between them are equal on all devices, with an
/// all-reduce forward or backward at each side.
[[nodiscard]] instruction_filter tensor_parallel(indexed_program const& p);

/// A well-known strategy as a restriction of the theory.
struct baseline {
    /// The names at even and at compute-proportional ratios; if two entries have one name, the better counts.
    std::string at_even, at_proportional;
    instruction_filter allowed;
    /// If set, it is reported both with gradients reduced beside the backward pass and with gradients reduced after it.
    bool in_both_overlaps = false;
    /// What a program must have to count as this strategy.
    std::function<bool(instruction const&)> witness = [](instruction const&) { return true; };
};

/// Returns the strategies that fit a program. They keep a reference to it.
[[nodiscard]] std::vector<baseline> baselines_of(indexed_program const& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/cut_space.hpp>

namespace heddle {

HEDDLE_INLINE factor_set expert_factors(indexed_program const& p) {
    factor_set experts(p);
    for (auto const& op : p.operators) {
        if (op.work.category != operator_class::matmul) continue;
        for (auto const& loop : op.loops) {
            std::vector<cut_factor> of_parameters;
            bool of_values = false;
            for (std::size_t k = 0; k < op.operands.size(); ++k) {
                if (loop.operands[k] == no_factor) continue;
                if (p.tensors[op.operands[k]].is_parameter())
                    of_parameters.push_back({op.operands[k], loop.operands[k]});
                else of_values = true;
            }
            if (of_values && !loop.is_reduction) experts.insert(of_parameters);
        }
    }
    factor_set places(p); // to which tokens are sent; what has them may be a view of the parameter
    bool any = false;
    for (auto const& op : p.operators)
        for (auto const& loop : op.loops)
            if (loop.exchanges()) {
                for_each_factor_of(op, loop, [&](cut_factor f) { places.insert(f); });
                any = true;
            }
    if (!any) return experts;
    places = tied_factors(p, std::move(places));
    for (tensor_id t = 0; t < p.tensors.size(); ++t)
        if (auto const f = places.first_of(t); f != no_factor && p.tensors[t].is_parameter()) experts.insert({t, f});
    return experts;
}

HEDDLE_INLINE bool is_along(indexed_program const& p, instruction::compute const& i, factor_set const& factors) {
    auto const& op = p.operators[i.op];
    return i.loop >= 0 && is_of(op, op.loops[static_cast<std::size_t>(i.loop)], factors);
}

HEDDLE_INLINE instruction_filter data_parallel(indexed_program const& p, parameter_storage storage) {
    using enum parameter_storage;
    auto const batch = batch_factors(p);
    auto const allows = [&p, storage, batch](instruction const& i) {
        auto const is_batch = [&](tensor_id t, tensor_form f) {
            return f.is_shard() && batch.contains({t, f.factor()});
        };
        if (auto const* compute = i.as<instruction::compute>()) {
            if (algorithm::find(compute->operands, tensor_form::mirrored()) != compute->operands.end()) return false;
            if (compute->loop >= 0) return is_along(p, *compute, batch);
            auto const& op = p.operators[compute->op];
            auto const has_cotangent = [&](tensor_id t) { return p.tensors[t].has_cotangent; };
            return algorithm::none_of(op.results, has_cotangent) ||
                   algorithm::none_of(op.loops, [&](split_loop const& loop) { return is_of(op, loop, batch); });
        }
        auto const& [t, from, to] = *i.change();
        auto const& tensor = p.tensors[t];
        if (!tensor.is_parameter()) {
            if (i.is<instruction::read>()) return to == tensor_form::replicated() || is_batch(t, to);
            return from == tensor_form::replicated() && (is_batch(t, to) || t == p.loss);
        }
        bool const is_cut = storage != replicated && !tensor.factors.empty();
        bool const unshards = is_cut && storage != sharded_state && is_used_once(p, t);
        if (i.is<instruction::read>()) {
            bool const whole_between = storage == sharded_state && tensor.has_cotangent;
            return is_cut ? from.is_shard() && (to == tensor_form::replicated()) == whole_between
                          : from == tensor_form::replicated() && to == from;
        }
        if (i.is<instruction::convert>())
            return is_cut && !unshards && from.is_shard() && to == tensor_form::replicated();
        if (auto const* unshard = i.as<instruction::unshard>())
            return unshards && to == tensor_form::replicated() &&
                   unshard->is_resharded == (storage == sharded && is_read_again(p, t));
        return true;
    };
    return {allows, [batch](tensor_id t) { return factor_set::mark({&batch}, t); }};
}

HEDDLE_INLINE instruction_filter expert_parallel(indexed_program const& p, parameter_storage storage) {
    auto const batch = batch_factors(p), experts = expert_factors(p), tied = tied_factors(p, experts);
    auto const allows = [&p, dense = data_parallel(p, storage), batch, experts, tied](instruction const& i) {
        if (auto const* compute = i.as<instruction::compute>()) return is_along(p, *compute, tied) || dense(i);
        auto const [t, from, to] = *i.change();
        auto const is_of = [owner = t](tensor_form f, factor_set const& factors) {
            return f.is_shard() && factors.contains({owner, f.factor()});
        };
        if (!p.tensors[t].is_parameter()) {
            bool const exchanges = (is_of(from, batch) && is_of(to, tied)) || (is_of(from, tied) && is_of(to, batch));
            return (i.is<instruction::convert>() && exchanges) || dense(i);
        }
        return experts.first_of(t) != no_factor ? i.is<instruction::read>() && from == to && is_of(to, experts)
                                                : dense(i);
    };
    return {allows, [batch, experts, tied](tensor_id t) { return factor_set::mark({&batch, &experts, &tied}, t); }};
}

HEDDLE_INLINE instruction_filter tensor_parallel(indexed_program const& p) {
    factor_set inputs(p);
    for (tensor_id t = 0; t < p.tensors.size(); ++t)
        if (p.tensors[t].info.role == tensor_role::input)
            for (std::size_t f = 0; f < p.tensors[t].factors.size(); ++f)
                inputs.insert({t, static_cast<factor_number>(f)});
    auto const data = tied_factors(p, std::move(inputs));
    auto const allows = [&p, data](instruction const& i) {
        if (auto const* compute = i.as<instruction::compute>()) {
            if (compute->loop >= 0) return !is_along(p, *compute, data) && !gathers_factors(*compute);
            auto const& results = p.operators[compute->op].results;
            for (std::size_t k = 0; k < results.size(); ++k)
                if (compute->results[k] != canonical(tensor_form::mirrored(), p.tensors[results[k]])) return false;
            return true;
        }
        auto const& [t, from, to] = *i.change();
        auto const& tensor = p.tensors[t];
        if (i.is<instruction::read>())
            return from == to && (tensor.is_read_once() ? to != tensor_form::replicated() || !tensor.has_cotangent
                                                        : to == tensor_form::replicated());
        if (!i.is<instruction::convert>()) return false;
        return t == p.loss || (from == tensor_form::partial() && to == tensor_form::mirrored()) ||
               (from == tensor_form::mirrored() && to == tensor_form::replicated());
    };
    return {allows, [data](tensor_id t) { return factor_set::mark({&data}, t); }};
}

HEDDLE_INLINE std::vector<baseline> baselines_of(indexed_program const& p) {
    using enum parameter_storage;
    std::vector<baseline> all{{"DP-EV", "DP-CP", data_parallel(p, replicated), true},
                              {"ZeRO-1", "ZeRO-1", data_parallel(p, sharded_state)},
                              {"ZeRO-2", "ZeRO-2", data_parallel(p, sharded_gradients)},
                              {"fully sharded", "fully sharded", data_parallel(p, sharded)},
                              {"tensor parallel", "tensor parallel", tensor_parallel(p), false, is_split}};
    auto const experts = expert_factors(p);
    bool has_experts = false;
    for (tensor_id t = 0; t < p.tensors.size(); ++t) has_experts = has_experts || experts.first_of(t) != no_factor;
    if (has_experts) {
        all.push_back({"expert parallel", "expert parallel", expert_parallel(p, replicated)});
        all.push_back({"expert parallel + ZeRO", "expert parallel + ZeRO", expert_parallel(p, sharded_gradients)});
    }
    return all;
}

} // namespace heddle

#endif
