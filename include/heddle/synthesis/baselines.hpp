// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Well-known strategies as restrictions of the theory.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/factor_set.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Factors of parameters that number experts: each index of a product that a parameter, another operand and the result
/// have.
[[nodiscard]] factor_set expert_factors(indexed_program const& p);

/// Whether a computation is split along a loop of some factors.
[[nodiscard]] bool is_along(indexed_program const& p, instruction const& i, factor_set const& factors);

/// How a data-parallel program keeps its parameters; ZeRO (Rajbhandari et al. 2020) cuts one more of optimiser state,
/// gradients and values at each stage.
enum class parameter_storage : std::uint8_t {
    replicated,
    sharded_state,     ///< ZeRO-1: the optimiser state
    sharded_gradients, ///< ZeRO-2: gradients are scattered as soon as they are there; the values gathered for the forward pass stay for the backward pass
    sharded            ///< ZeRO-3, fully sharded: values are gathered for each use
};

/// What data parallelism may do: inputs and values cut along the batch alone, parameters stored in one way. From ZeRO-2
/// on, what several operators use is gathered once and kept, and its gradient waits.
[[nodiscard]] instruction_filter data_parallel(indexed_program const& p, parameter_storage storage);

/// Expert parallelism (Lepikhin et al. 2021, Rajbhandari et al. 2022): parameters of experts cut by expert, everything
/// else data-parallel; activations change between the two by all-to-all.
[[nodiscard]] instruction_filter expert_parallel(indexed_program const& p, parameter_storage storage);

/// Tensor parallelism as Megatron-LM has it (Shoeybi et al. 2019): products split along heads, hidden units and
/// vocabulary; nothing split along what inputs have; activations between them equal on all devices, with an all-reduce
/// forward or backward at each side.
[[nodiscard]] instruction_filter tensor_parallel(indexed_program const& p);

/// A well-known strategy as a restriction of the theory.
struct baseline {
    /// What it is called at even and at compute-proportional ratios; of one name the better counts.
    std::string at_even, at_proportional;
    instruction_filter allowed;
    /// It is reported both with gradients reduced beside the backward pass and with gradients reduced after it.
    bool in_both_overlaps = false;
    /// What a program must have to count as this strategy.
    std::function<bool(instruction const&)> witness = [](instruction const&) { return true; };
};

/// The strategies that fit a program. They keep a reference to it.
[[nodiscard]] std::vector<baseline> baselines_of(indexed_program const& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

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
    return experts;
}

HEDDLE_INLINE bool is_along(indexed_program const& p, instruction const& i, factor_set const& factors) {
    auto const& op = p.operators[i.op];
    return i.loop >= 0 && is_of(op, op.loops[static_cast<std::size_t>(i.loop)], factors);
}

HEDDLE_INLINE instruction_filter data_parallel(indexed_program const& p, parameter_storage storage) {
    using enum parameter_storage;
    auto const batch = batch_factors(p);
    auto const allows = [&p, storage, batch](instruction const& i) {
        auto const is_batch = [&](tensor_id t, form f) { return f.is_shard() && batch.contains({t, f.factor()}); };
        if (i.what == instruction::kind::compute) {
            if (algorithm::find(i.operands, form::mirrored()) != i.operands.end()) return false;
            if (i.loop >= 0) return is_along(p, i, batch);
            auto const& op = p.operators[i.op];
            return algorithm::none_of(op.loops, [&](split_loop const& loop) { return is_of(op, loop, batch); });
        }
        auto const& tensor = p.tensors[i.tensor];
        if (!tensor.is_parameter()) {
            if (i.what == instruction::kind::read) return i.to == form::replicated() || is_batch(i.tensor, i.to);
            return i.from == form::replicated() && (is_batch(i.tensor, i.to) || i.tensor == p.loss);
        }
        bool const is_cut = storage != replicated && !tensor.factors.empty();
        bool const unshards = is_cut && storage != sharded_state && is_used_once(p, i.tensor);
        switch (i.what) {
        case instruction::kind::read: {
            bool const whole_between = storage == sharded_state && tensor.has_cotangent;
            return is_cut ? i.from.is_shard() && (i.to == form::replicated()) == whole_between
                          : i.from == form::replicated() && i.to == i.from;
        }
        case instruction::kind::convert: return is_cut && !unshards && i.from.is_shard() && i.to == form::replicated();
        case instruction::kind::unshard:
            return unshards && i.to == form::replicated() &&
                   i.is_resharded == (storage == sharded && is_read_again(p, i.tensor));
        case instruction::kind::reshard:
        case instruction::kind::compute: break;
        }
        return true;
    };
    return {allows, [batch](tensor_id t) { return factor_set::mark({&batch}, t); }};
}

HEDDLE_INLINE instruction_filter expert_parallel(indexed_program const& p, parameter_storage storage) {
    auto const batch = batch_factors(p), experts = expert_factors(p), tied = tied_factors(p, experts);
    auto const allows = [&p, dense = data_parallel(p, storage), batch, experts, tied](instruction const& i) {
        if (i.what == instruction::kind::compute) return is_along(p, i, tied) || dense(i);
        auto const is_of = [&](form f, factor_set const& factors) {
            return f.is_shard() && factors.contains({i.tensor, f.factor()});
        };
        if (!p.tensors[i.tensor].is_parameter()) {
            bool const exchanges =
                (is_of(i.from, batch) && is_of(i.to, tied)) || (is_of(i.from, tied) && is_of(i.to, batch));
            return (i.what == instruction::kind::convert && exchanges) || dense(i);
        }
        return experts.first_of(i.tensor) != no_factor
                   ? i.what == instruction::kind::read && i.from == i.to && is_of(i.to, experts)
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
        if (i.what == instruction::kind::compute) {
            if (i.loop >= 0) return !is_along(p, i, data) && !gathers_factors(i);
            auto const& results = p.operators[i.op].results;
            for (std::size_t k = 0; k < results.size(); ++k)
                if (i.results[k] != canonical(form::mirrored(), p.tensors[results[k]])) return false;
            return true;
        }
        auto const& tensor = p.tensors[i.tensor];
        if (i.what == instruction::kind::read)
            return i.from == i.to && (tensor.is_parameter() ? i.to != form::replicated() || !tensor.has_cotangent
                                                            : i.to == form::replicated());
        if (i.what != instruction::kind::convert) return false;
        return i.tensor == p.loss || (i.from == form::partial() && i.to == form::mirrored()) ||
               (i.from == form::mirrored() && i.to == form::replicated());
    };
    return {allows, [data](tensor_id t) { return factor_set::mark({&data}, t); }};
}

HEDDLE_INLINE std::vector<baseline> baselines_of(indexed_program const& p) {
    using enum parameter_storage;
    auto const splits = [](instruction const& i) { return i.what == instruction::kind::compute && i.loop >= 0; };
    std::vector<baseline> all{{"DP-EV", "DP-CP", data_parallel(p, replicated), true},
                              {"ZeRO-1", "ZeRO-1", data_parallel(p, sharded_state)},
                              {"ZeRO-2", "ZeRO-2", data_parallel(p, sharded_gradients)},
                              {"fully sharded", "fully sharded", data_parallel(p, sharded)},
                              {"tensor parallel", "tensor parallel", tensor_parallel(p), false, splits}};
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
