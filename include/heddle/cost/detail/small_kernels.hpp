// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The small kernels beside those of operators and collectives, which copy and add.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/work.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace heddle::detail {

void add_beside(local_work& k, holding const& moved);

/// Adds the copies around a collective. Collectives move contiguous parts, so one that cuts or joins a tensor along an
/// inner factor copies the tensor before or after: what is whole on that side or, between two cuts, each device's
/// shard. A parameter's shards are stored as they are sent.
void pack(indexed_tensor const& tensor, tensor_form from, tensor_form to, std::optional<collective> moves,
          local_work& k);

[[nodiscard]] inline bool contains(std::vector<std::uint8_t> const& positions, std::size_t k) {
    return algorithm::find(positions, k) != positions.end();
}

/// What the axes inside the outermost one of a mesh leave to each device of a computation: the part of its operations,
/// of the rows that statistics are of, and of what its operands and results are. On one axis it is all of them.
struct inner_parts {
    double operations = 1, rows = 1;
    std::vector<double> operands, results;
    explicit inner_parts(indexed_operator const& op) : operands(op.operands.size(), 1), results(op.results.size(), 1) {}
};

/// Returns what an operator touches of an operand or a result, as the tensor is cut there.
[[nodiscard]] inline holding touched(indexed_program const& p, indexed_operator const& op, tensor_id t, tensor_form f,
                                     double part) {
    auto const& tensor = p.tensors[t];
    return part * held_bytes(tensor.info.size(), f, op.inside_loop >= 0 ? samples_of(tensor, f) : std::nullopt);
}
[[nodiscard]] inline holding touched_operand(indexed_program const& p, instruction::compute const& i,
                                             inner_parts const& inner, std::size_t k) {
    auto const& op = p.operators[i.op];
    return touched(p, op, op.operands[k], i.operands[k], inner.operands[k]);
}
[[nodiscard]] inline holding touched_result(indexed_program const& p, instruction::compute const& i,
                                            inner_parts const& inner, std::size_t k) {
    auto const& op = p.operators[i.op];
    return touched(p, op, op.results[k], i.results[k], inner.results[k]);
}

/// Adds the small kernels of an attention, or of experts. It is made of products and of kernels between them, each of
/// which reads as much as it writes, namely what the operator saves inside. Their adjoints read that and a cotangent,
/// and write a cotangent.
void beside_products(step_work& s);

/// Adds the kernels of operands that are broadcast when added. Beside a product, adding one takes a kernel that reads
/// and writes the result. The gradient is a sum over the result's cotangent, in a kernel that reads the cotangent and,
/// for the weight of a norm, what its operator has saved.
void add_biases(indexed_program const& p, instruction::compute const& i, inner_parts const& inner, step_work& s);

/// Adds the sums of cotangents. The backward pass adds the cotangents of a tensor's uses one by one; each time two are
/// read and one is written.
void sum_cotangents(indexed_tensor const& tensor, holding const& held, int times, local_work& backward);

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE void add_beside(local_work& k, holding const& moved) {
    k.beside += moved;
    ++k.kernels_beside;
}

HEDDLE_INLINE void pack(indexed_tensor const& tensor, tensor_form from, tensor_form to, std::optional<collective> moves,
                        local_work& k) {
    if (!moves || tensor.is_parameter()) return;
    for (tensor_form const cut : {from, to}) {
        if (!cut.is_shard() || tensor.is_contiguous[static_cast<std::size_t>(cut.factor())]) continue;
        add_beside(k, 2 * held_bytes(tensor, from.is_shard() && to.is_shard() ? cut : tensor_form::replicated()));
    }
}

HEDDLE_INLINE void beside_products(step_work& s) {
    if (s.saved == holding{}) return;
    // Query, key, value, probabilities, what dropout leaves of them, context; or rows by expert, activation, gate,
    // weighted rows, rows by token, sums.
    constexpr int kernels = 6;
    s.forward.beside += 2 * s.saved, s.forward.kernels_beside += kernels;
    s.backward.beside += 3 * s.saved, s.backward.kernels_beside += kernels;
}

HEDDLE_INLINE void add_biases(indexed_program const& p, instruction::compute const& i, inner_parts const& inner,
                              step_work& s) {
    auto const& op = p.operators[i.op];
    if (op.work.is_view || op.work.category == operator_class::attention) return;
    auto const elements = [&](tensor_id t) { return p.tensors[t].info.elements(); };
    bool const has_product = algorithm::any_of(op.terms, [](auto const& term) { return term.size() > 1; });
    bool reduces = false;
    for (auto const& term : op.terms) {
        if (term.size() != 1) continue;
        tensor_id const t = op.operands[term[0]];
        if (elements(t) >= elements(op.results[0]) || contains(op.work.sparse_operands, term[0])) continue;
        if (has_product) add_beside(s.forward, 2 * touched_result(p, i, inner, 0));
        reduces |= p.tensors[t].has_cotangent;
    }
    if (!reduces) return;
    holding read = touched_result(p, i, inner, 0);
    if (!has_product)
        for (auto k : op.work.saved_operands) read += touched_operand(p, i, inner, k);
    add_beside(s.backward, read);
}

HEDDLE_INLINE void sum_cotangents(indexed_tensor const& tensor, holding const& held, int times, local_work& backward) {
    if (!tensor.has_cotangent) return;
    for (std::uint32_t use = 1; use < tensor.uses; ++use)
        for (int n = 0; n < times; ++n) add_beside(backward, 3 * held);
}

} // namespace heddle::detail

#endif
