// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Well-known strategies as restrictions of the theory.
#pragma once

#include <heddle/theory/batch.hpp>
#include <heddle/theory/cut_space.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace heddle {

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
}

} // namespace heddle
