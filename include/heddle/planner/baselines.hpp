// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Well-known strategies as restrictions of the theory.
#pragma once

#include <heddle/cost/atoms.hpp>
#include <heddle/theory/cut_space.hpp>

#include <algorithm>
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

/// How a baseline stores its parameters.
enum class parameter_storage : bool { replicated, sharded };

/// Which moves data parallelism may make: inputs and values cut along the batch alone, parameters
/// replicated, or sharded and gathered for use (and kept gathered until the backward pass).
[[nodiscard]] inline std::vector<bool> data_parallel_moves(cut_space const& space, std::set<cut_factor> const& batch, parameter_storage storage) {
    auto const& p = space.program();
    auto const is_batch = [&](tensor_id t, form f) { return f.is_shard() && batch.contains({t, f.factor()}); };
    auto const allowed = [&](instruction const& i) {
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
        if (tensor.is_parameter()) {
            bool const whole = storage == parameter_storage::replicated || tensor.factors.empty();
            if (i.what == instruction::kind::read) return whole ? i.to == form::replicated() : i.to.is_shard();
            return !whole && i.from.is_shard() && i.to == form::replicated();
        }
        if (i.what == instruction::kind::read) return i.to == form::replicated() || is_batch(i.tensor, i.to);
        return i.from == form::replicated() && (is_batch(i.tensor, i.to) || i.tensor == p.loss);
    };
    std::vector<bool> good;
    for (auto const& i : space.instructions()) good.push_back(allowed(i));
    std::vector<bool> moves;
    for (auto const& move : space.moves())
        moves.push_back(std::ranges::all_of(move.instructions, [&](auto i) { return static_cast<bool>(good[i]); }));
    return moves;
}

} // namespace heddle
