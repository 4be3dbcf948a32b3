// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Well-known strategies as restrictions of the theory.
#pragma once

#include <heddle/cost/atoms.hpp>
#include <heddle/theory/cut_space.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// Some of the factors of a program.
class factor_set {
public:
    explicit factor_set(indexed_program const& p) {
        first_.push_back(0);
        for (auto const& t : p.tensors) first_.push_back(first_.back() + t.factors.size());
        holds_.resize(first_.back());
    }
    void insert(cut_factor f) { holds_[first_[f.tensor] + static_cast<std::size_t>(f.factor)] = true; }
    [[nodiscard]] bool contains(cut_factor f) const { return holds_[first_[f.tensor] + static_cast<std::size_t>(f.factor)]; }
    /// Numbers that differ between tensors of which other factors are in the set.
    [[nodiscard]] std::uint64_t mark(tensor_id t) const {
        if (first_[t + 1] - first_[t] > 62) return (std::uint64_t{1} << 63) | t;
        std::uint64_t bits = 0;
        for (auto f = first_[t]; f < first_[t + 1]; ++f) bits = bits << 1 | holds_[f];
        return bits;
    }

private:
    std::vector<std::size_t> first_;
    std::vector<bool> holds_;
};

/// Everything tied to the batch: the outermost factor of each input whose extent is that of the
/// first input's, and whatever loops tie to it.
[[nodiscard]] inline factor_set batch_factors(indexed_program const& p) {
    factor_set batch(p);
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
                if (std::ranges::any_of(tied, [&](auto const& f) { return batch.contains(f); }))
                    for (auto const& f : tied) batch.insert(f);
            }
    return batch;
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
    auto const batch = batch_factors(p);
    auto const allows = [&p, storage, batch](instruction const& i) {
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
    return {allows, [batch](tensor_id t) { return batch.mark(t); }};
}

} // namespace heddle
