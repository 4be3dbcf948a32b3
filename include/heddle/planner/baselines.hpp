// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Well-known strategies as restrictions of the theory.
#pragma once

#include <heddle/cost/atoms.hpp>
#include <heddle/theory/cut_space.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// The factors a loop is in.
[[nodiscard]] inline std::vector<cut_factor> factors_of(indexed_operator const& op, split_loop const& loop) {
    std::vector<cut_factor> factors;
    for (std::size_t k = 0; k < op.operands.size(); ++k)
        if (loop.operands[k] != no_factor) factors.push_back({op.operands[k], loop.operands[k]});
    for (std::size_t k = 0; k < op.results.size(); ++k)
        if (loop.results[k] != no_factor) factors.push_back({op.results[k], loop.results[k]});
    return factors;
}

/// These factors and all that loops tie to them.
[[nodiscard]] inline std::set<cut_factor> tied_factors(indexed_program const& p, std::set<cut_factor> factors) {
    // Operators are in topological order, so one pass forward reaches everything but side branches; the second does.
    for (int pass = 0; pass < 2; ++pass)
        for (auto const& op : p.operators)
            for (auto const& loop : op.loops) {
                auto const tied = factors_of(op, loop);
                if (std::ranges::any_of(tied, [&](auto const& f) { return factors.contains(f); })) factors.insert(tied.begin(), tied.end());
            }
    return factors;
}

/// Everything tied to the batch: the outermost factor of each input whose extent is that of the first input's.
[[nodiscard]] inline std::set<cut_factor> batch_factors(indexed_program const& p) {
    std::set<cut_factor> batch;
    std::optional<extent> size;
    for (tensor_id t = 0; t < p.tensors.size(); ++t) {
        auto const& tensor = p.tensors[t];
        if (tensor.info.role != tensor_role::input || tensor.factors.empty() || tensor.factors[0].dimension != 0) continue;
        if (!size) size = tensor.factors[0].extent;
        for (std::size_t f = 0; f < tensor.factors.size(); ++f)
            if (tensor.factors[0].extent == *size && is_same_place(tensor.factors[f], tensor.factors[0])) batch.insert({t, static_cast<factor_number>(f)});
    }
    return tied_factors(p, std::move(batch));
}

/// Factors of parameters that number experts: each index of a product that a parameter, another operand and the result have.
[[nodiscard]] inline std::set<cut_factor> expert_factors(indexed_program const& p) {
    std::set<cut_factor> experts;
    for (auto const& op : p.operators) {
        if (op.work.category != operator_class::matmul) continue;
        for (auto const& loop : op.loops) {
            std::vector<cut_factor> of_parameters;
            bool of_values = false;
            for (std::size_t k = 0; k < op.operands.size(); ++k) {
                if (loop.operands[k] == no_factor) continue;
                if (p.tensors[op.operands[k]].is_parameter()) of_parameters.push_back({op.operands[k], loop.operands[k]});
                else of_values = true;
            }
            if (of_values && !loop.is_reduction) experts.insert(of_parameters.begin(), of_parameters.end());
        }
    }
    return experts;
}

/// Whether a computation is split along a loop of some factors.
[[nodiscard]] inline bool is_along(indexed_program const& p, instruction const& i, std::set<cut_factor> const& factors) {
    if (i.loop < 0) return false;
    auto const& op = p.operators[i.op];
    return std::ranges::any_of(factors_of(op, op.loops[static_cast<std::size_t>(i.loop)]), [&](auto const& f) { return factors.contains(f); });
}

/// How a data-parallel program keeps its parameters; ZeRO (Rajbhandari et al. 2020) cuts one more of optimiser state, gradients
/// and values at each stage.
enum class parameter_storage : std::uint8_t {
    replicated,
    sharded_state,     ///< ZeRO-1: the optimiser state
    sharded_gradients, ///< ZeRO-2: gradients are scattered as soon as they are there; the values gathered for the forward pass stay for the backward pass
    sharded            ///< ZeRO-3, fully sharded: values are gathered for each use
};

/// What data parallelism may do: inputs and values cut along the batch alone, parameters stored in one way. From ZeRO-2 on, what
/// several operators use is gathered once and kept, and its gradient waits.
[[nodiscard]] inline instruction_filter data_parallel(indexed_program const& p, parameter_storage storage) {
    using enum parameter_storage;
    return [&p, storage, batch = batch_factors(p)](instruction const& i) {
        auto const is_batch = [&](tensor_id t, form f) { return f.is_shard() && batch.contains({t, f.factor()}); };
        if (i.what == instruction::kind::compute) {
            if (std::ranges::find(i.operands, form::mirrored()) != i.operands.end()) return false;
            if (i.loop >= 0) return is_along(p, i, batch);
            auto const& op = p.operators[i.op];
            return std::ranges::none_of(op.loops, [&](split_loop const& loop) {
                return std::ranges::any_of(factors_of(op, loop), [&](auto const& f) { return batch.contains(f); });
            });
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
            return is_cut ? i.from.is_shard() && (i.to == form::replicated()) == whole_between : i.from == form::replicated() && i.to == i.from;
        }
        case instruction::kind::convert: return is_cut && !unshards && i.from.is_shard() && i.to == form::replicated();
        case instruction::kind::unshard: return unshards && i.to == form::replicated() && i.is_resharded == (storage == sharded && is_read_again(p, i.tensor));
        case instruction::kind::reshard:
        case instruction::kind::compute: break;
        }
        return true;
    };
}

/// Expert parallelism (Lepikhin et al. 2021, Rajbhandari et al. 2022): parameters of experts cut by expert, everything else
/// data-parallel; activations change between the two by all-to-all.
[[nodiscard]] inline instruction_filter expert_parallel(indexed_program const& p, parameter_storage storage) {
    auto experts = expert_factors(p);
    auto tied = tied_factors(p, experts);
    return [&p, dense = data_parallel(p, storage), batch = batch_factors(p), experts = std::move(experts), tied = std::move(tied)](instruction const& i) {
        if (i.what == instruction::kind::compute) return is_along(p, i, tied) || dense(i);
        auto const is_of = [&](form f, std::set<cut_factor> const& factors) { return f.is_shard() && factors.contains({i.tensor, f.factor()}); };
        auto const& tensor = p.tensors[i.tensor];
        if (!tensor.is_parameter()) {
            bool const exchanges = (is_of(i.from, batch) && is_of(i.to, tied)) || (is_of(i.from, tied) && is_of(i.to, batch));
            return (i.what == instruction::kind::convert && exchanges) || dense(i);
        }
        auto const first = experts.lower_bound({i.tensor, 0});
        bool const is_expert = first != experts.end() && first->tensor == i.tensor;
        return is_expert ? i.what == instruction::kind::read && i.from == i.to && is_of(i.to, experts) : dense(i);
    };
}

/// Tensor parallelism as Megatron-LM has it (Shoeybi et al. 2019): products split along heads, hidden units and vocabulary; nothing
/// split along what inputs have; activations between them equal on all devices, with an all-reduce forward or backward at each side.
[[nodiscard]] inline instruction_filter tensor_parallel(indexed_program const& p) {
    std::set<cut_factor> data;
    for (tensor_id t = 0; t < p.tensors.size(); ++t)
        if (p.tensors[t].info.role == tensor_role::input)
            for (std::size_t f = 0; f < p.tensors[t].factors.size(); ++f) data.insert({t, static_cast<factor_number>(f)});
    return [&p, data = tied_factors(p, std::move(data))](instruction const& i) {
        if (i.what == instruction::kind::compute) {
            if (i.loop >= 0) return !is_along(p, i, data) && !gathers_factors(i);
            auto const& results = p.operators[i.op].results;
            for (std::size_t k = 0; k < results.size(); ++k)
                if (i.results[k] != canonical(form::mirrored(), p.tensors[results[k]])) return false;
            return true;
        }
        auto const& tensor = p.tensors[i.tensor];
        if (i.what == instruction::kind::read) return i.from == i.to && (tensor.is_parameter() ? i.to != form::replicated() || !tensor.has_cotangent : i.to == form::replicated());
        if (i.what != instruction::kind::convert) return false;
        return i.tensor == p.loss || (i.from == form::partial() && i.to == form::mirrored()) || (i.from == form::mirrored() && i.to == form::replicated());
    };
}

/// A well-known strategy as a restriction of the theory.
struct baseline {
    std::string name;
    instruction_filter allowed;
    /// Ratios it is tried at.
    bool at_even = true, at_proportional = true;
    /// It is reported with gradients reduced after the backward pass too.
    bool also_without_overlap = false;
    /// What a program must have to count as this strategy.
    instruction_filter witness = [](instruction const&) { return true; };
};

/// The strategies that fit a program. They keep a reference to it.
[[nodiscard]] inline std::vector<baseline> baselines_of(indexed_program const& p) {
    using enum parameter_storage;
    std::vector<baseline> all{{"DP-EV", data_parallel(p, replicated), true, false, true},
                              {"DP-CP", data_parallel(p, replicated), false, true, true},
                              {"ZeRO-1", data_parallel(p, sharded_state)},
                              {"ZeRO-2", data_parallel(p, sharded_gradients)},
                              {"fully sharded", data_parallel(p, sharded)},
                              {"tensor parallel", tensor_parallel(p), true, true, false, [](instruction const& i) { return i.what == instruction::kind::compute && i.loop >= 0; }}};
    if (!expert_factors(p).empty()) {
        all.push_back({"expert parallel", expert_parallel(p, replicated)});
        all.push_back({"expert parallel + ZeRO", expert_parallel(p, sharded_gradients)});
    }
    return all;
}

} // namespace heddle
