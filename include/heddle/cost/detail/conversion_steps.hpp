// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What devices do to convert a tensor from one form to another.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cost/work.hpp>

#include <optional>

namespace heddle::detail {

/// Returns the kernel that one direction of a conversion takes of each device.
local_work local_kernel(conversion_half::work work, bytes size, std::optional<samples_inside> const& cut_inside);

inline inside_transfer inside_of(inside_step kind, bytes size, tensor_form f) {
    return f.is_shard() ? inside_transfer{kind, bytes(0), size} : inside_transfer{kind, size, bytes(0)};
}

step_work step_of(indexed_program const& p, instruction::convert const& i);
step_work step_of(indexed_program const& p, instruction::unshard const& i);
step_work step_of(indexed_program const& p, instruction::reshard const& i);

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

#include <heddle/cost/detail/small_kernels.hpp>

#include <utility>

namespace heddle::detail {

HEDDLE_INLINE local_work local_kernel(conversion_half::work work, bytes size,
                                      std::optional<samples_inside> const& cut_inside) {
    using enum conversion_half::work;
    local_work result;
    switch (work) {
    case none: break;
    case slice: result = {flops(0), bytes(0), 2 * size, true}; break;
    case pad: result = {flops(0), size, size, true}; break;
    case scale: result = {flops(0), 2 * size, bytes(0), true}; break;
    }
    if (cut_inside && result.launches) {
        result.whole_inside = result.whole;
        result.split_inside = result.split;
        result.samples = *cut_inside;
    }
    return result;
}

HEDDLE_INLINE step_work step_of(indexed_program const& p, instruction::convert const& i) {
    auto const [t, from, to] = i;
    auto const& tensor = p.tensors[t];
    step_work s;
    s.type = tensor.info.type;
    s.category = operator_class::elementwise;
    auto const how = find_conversion(from, to);
    if (!how) return s;
    bytes const size = tensor.info.size();
    share_ref const before = from.is_shard() ? share_ref{t, from.factor()} : share_ref{};
    share_ref const after = to.is_shard() ? share_ref{t, to.factor()} : share_ref{};
    s.share = after.is_split() ? after : before;
    auto const factor_of = [&](tensor_form f) -> auto& { return tensor.factors[static_cast<std::size_t>(f.factor())]; };
    bool const redistributes = from.is_shard() && to.is_shard() && is_same_place(factor_of(from), factor_of(to));
    auto const samples = samples_of(tensor, after.is_split() ? to : from);
    bool const is_cut_inside = samples.has_value();
    inside_step const to_first = is_cut_inside ? inside_step::gather : inside_step::none;
    inside_step const from_first = is_cut_inside ? inside_step::scatter : inside_step::broadcast;
    // Each device of a group has another part of the batch.
    bool const moves_batch =
        is_cut_inside && (before.is_split() != after.is_split()) && s.share.factor == tensor.inside;
    auto const work_of = [&](conversion_half const& half, tensor_form f, tensor_form g) {
        auto work = local_kernel(half.local, size, samples);
        pack(tensor, f, g, redistributes ? std::nullopt : half.collective, work);
        if (samples && work.kernels_beside > 0) work.beside.samples = *samples;
        return work;
    };
    auto const move_batch = [&](conversion_half const& half, tensor_form f, tensor_form g, inside_list& list) {
        if (moves_batch && !half.collective)
            list = {inside_of(inside_step::gather, size, f), inside_of(inside_step::scatter, size, g)};
    };
    s.forward = work_of(how->forward, from, to);
    if (how->forward.collective)
        s.forward_transfers.push_back(
            {*how->forward.collective, size, before, after, {}, to_first, from_first, redistributes});
    move_batch(how->forward, from, to, s.inside_forward);
    if (!tensor.has_cotangent) return s;
    s.backward = work_of(how->backward, to, from);
    move_batch(how->backward, to, from, s.inside_backward);
    if (how->backward.collective) {
        bool const is_gradient = tensor.is_parameter();
        transfer const back{*how->backward.collective,
                            size,
                            after,
                            before,
                            {},
                            to_first,
                            is_gradient ? inside_step::none : from_first,
                            redistributes};
        (tensor.is_parameter() ? s.deferred_transfers : s.backward_transfers).push_back(back);
        // What is not yet reduced waits for the end of the backward pass.
        if (tensor.is_parameter()) s.saved = held_bytes(tensor, to);
    }
    return s;
}

HEDDLE_INLINE step_work step_of(indexed_program const& p, instruction::unshard const& i) {
    step_work s = step_of(p, instruction::convert(i.tensor, i.from, i.to));
    s.backward_transfers = std::exchange(s.deferred_transfers, {});
    s.saved = {};
    s.transient = p.tensors[i.tensor].info.size();
    return s;
}

HEDDLE_INLINE step_work step_of(indexed_program const& p, instruction::reshard const& i) {
    auto const& tensor = p.tensors[i.tensor];
    step_work s;
    s.type = tensor.info.type;
    s.share = {i.tensor, i.to.factor()};
    s.backward_transfers.push_back(
        {collective::all_gather, tensor.info.size(), s.share, {}, {}, inside_step::none, inside_step::broadcast});
    return s;
}

} // namespace heddle::detail

#endif
