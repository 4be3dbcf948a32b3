// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The instructions of a distributed program.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/theory/form.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace heddle {

using form_list = std::vector<form>;

/// One instruction, run by all devices together.
struct instruction {
    enum class kind : std::uint8_t {
        read, ///< bring `tensor`, a source, in form `to`; `from` is that or, where only a parameter's optimiser state is cut, a shard
        convert, ///< `tensor` from form `from` to form `to`
        compute, ///< operator `op` on operands in `operands`, giving results in `results`
        unshard, ///< convert a parameter from a shard to whole copies for its one operator; the gradient is reduced as soon as it is there
        reshard ///< right after that operator: drop the copies in form `from`, which the backward pass gathers again from `to`
    };
    kind what = kind::compute;
    std::uint32_t tensor = 0;
    form from, to;
    operator_id op = 0;
    form_list operands, results;
    /// The loop a computation is split along, or -1: all devices do all of it.
    std::int16_t loop = -1;
    /// Of `unshard`: whether a reshard follows, so that nothing stays for the backward pass.
    bool is_resharded = false;

    friend bool operator==(instruction const& a, instruction const& b) = default;

    static instruction read(tensor_id t, form to) { return {kind::read, t, to, to, 0, {}, {}, -1}; }
    /// Whole copies of a parameter whose optimiser state is in shards.
    static instruction read(tensor_id t, form state, form to) { return {kind::read, t, state, to, 0, {}, {}, -1}; }
    static instruction convert(tensor_id t, form from, form to) { return {kind::convert, t, from, to, 0, {}, {}, -1}; }
    static instruction unshard(tensor_id t, form from, form to, bool is_resharded) {
        return {kind::unshard, t, from, to, 0, {}, {}, -1, is_resharded};
    }
    static instruction reshard(tensor_id t, form from, form to) { return {kind::reshard, t, from, to, 0, {}, {}, -1}; }
};

/// Whether a computation is split and has mirrored parameters: their whole gradients come from the gathered operands
/// and cotangents that have the loop, their *sufficient factors* (HAP section 2.5.2).
[[nodiscard]] inline bool gathers_factors(instruction const& i) {
    return i.loop >= 0 && algorithm::find(i.operands, form::mirrored()) != i.operands.end();
}

/// The (tensor, form) pairs an instruction keeps for the backward pass. A pair kept by several
/// instructions is kept once; a parameter in the form it is stored in is no extra memory, nor is one that is resharded.
template <class Visit>
void for_each_saved(indexed_program const& p, instruction const& i, Visit&& visit) {
    if (i.what != instruction::kind::compute) return;
    auto const& op = p.operators[i.op];
    for (auto k : op.work.saved_operands) visit(op.operands[k], i.operands[k]);
    for (auto k : op.work.saved_results) visit(op.results[k], i.results[k]);
}

} // namespace heddle
