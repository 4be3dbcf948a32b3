// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Well-known strategies as restrictions of the theory.
#pragma once

#include <heddle/cost/atoms.hpp>
#include <heddle/search/numbering.hpp>
#include <heddle/theory/cut_space.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace heddle {

/// Everything tied to the batch: the outermost factor of each input whose extent is that of the
/// first input's, and whatever loops tie to it.
[[nodiscard]] inline std::set<cut_factor> batch_factors(indexed_program const& p) {
    std::set<cut_factor> batch;
    std::optional<extent> size;
    for (tensor_id t = 0; t < p.tensors.size(); ++t) {
        auto const& tensor = p.tensors[t];
        if (tensor.info.role != tensor_role::input || tensor.factors.empty() || tensor.factors[0].dimension != 0) continue;
        if (!size) size = tensor.factors[0].extent;
        if (tensor.factors[0].extent == *size) batch.insert({t, 0});
    }
    // Operators are in topological order, so one pass forward reaches everything but side branches; the second does.
    for (int pass = 0; pass < 2; ++pass)
        for (auto const& op : p.operators)
            for (auto const& loop : op.loops) {
                std::vector<cut_factor> tied;
                for (std::size_t k = 0; k < op.operands.size(); ++k)
                    if (loop.operands[k] != no_factor) tied.push_back({op.operands[k], loop.operands[k]});
                for (std::size_t k = 0; k < op.results.size(); ++k)
                    if (loop.results[k] != no_factor) tied.push_back({op.results[k], loop.results[k]});
                if (std::ranges::any_of(tied, [&](auto const& f) { return batch.contains(f); })) batch.insert(tied.begin(), tied.end());
            }
    return batch;
}

/// A mark for the filters that look at nothing of a tensor but which of its factors are among these, beside what its operators' kinds tell.
[[nodiscard]] inline auto marks_of(indexed_program const& p, std::set<cut_factor> const& factors) {
    search::numbering<std::vector<factor_number>, search::list_hash<factor_number>> subsets;
    std::vector<std::vector<factor_number>> of_tensor(p.tensors.size());
    for (auto const& f : factors) of_tensor[f.tensor].push_back(f.factor);
    std::vector<std::uint32_t> marks;
    for (auto& subset : of_tensor) marks.push_back(subsets.insert(std::move(subset)).first);
    return [marks = std::move(marks)](tensor_id t) { return std::uint64_t{marks[t]}; };
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
    auto const factors = batch_factors(p);
    auto const allows = [&p, storage, batch = factors](instruction const& i) {
        auto const is_batch = [&](tensor_id t, form f) { return f.is_shard() && batch.contains({t, f.factor()}); };
        if (i.what == instruction::kind::compute) {
            auto const& op = p.operators[i.op];
            auto const along_batch = [&](split_loop const& loop) {
                for (std::size_t k = 0; k < op.operands.size(); ++k)
                    if (loop.operands[k] != no_factor && batch.contains({op.operands[k], loop.operands[k]})) return true;
                for (std::size_t k = 0; k < op.results.size(); ++k)
                    if (loop.results[k] != no_factor && batch.contains({op.results[k], loop.results[k]})) return true;
                return false;
            };
            if (std::ranges::find(i.operands, form::mirrored()) != i.operands.end()) return false;
            if (i.loop >= 0) return along_batch(op.loops[static_cast<std::size_t>(i.loop)]);
            return std::ranges::none_of(op.loops, along_batch);
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
    return {allows, marks_of(p, factors)};
}

} // namespace heddle
