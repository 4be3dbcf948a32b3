// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a micro-batch uses of tensors that are whole, and what it gives them.
#pragma once

#include <heddle/execute/detail/held.hpp>
#include <heddle/execute/detail/rank_program.hpp>
#include <heddle/execute/detail/shard_layout.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/theory/instruction.hpp>

#include <cstddef>
#include <utility>

namespace heddle::detail {

/// The operands of a micro-batch on one rank. `whole` is the program of the whole batch, `layout` that of its tensors.
class batch_part {
public:
    batch_part(indexed_program const& whole, rank_program const& what, shard_layout const& layout, std::size_t rank,
               std::pair<extent, extent> range)
        : whole_(whole), what_(what), layout_(layout), rank_(rank), range_(range) {}

    /// Returns this micro-batch's part of a source.
    template <rank_tensor Tensor>
    [[nodiscard]] held<Tensor> of_source(tensor_id t, Tensor const& source) const {
        tensor_form const f = what_.split.forms[t];
        return f.is_shard() ? held<Tensor>(take(source, factor_of(t, f), range_.first, range_.second))
                            : held<Tensor>::of(source);
    }

    /// Returns an operand as an operator uses it: the tensor, or a range of it, or this part's share of it.
    template <rank_tensor Tensor>
    [[nodiscard]] held<Tensor> operand(instruction::compute const& i, std::size_t k, held<Tensor> value) const {
        tensor_id const t = whole_.operators[i.op].operands[k];
        tensor_form const use = use_of(i, k);
        if (use == what_.split.forms[t]) return value;
        if (use.is_shard()) return take(*value, batch_factor(t, i.operands[k], use), range_.first, range_.second);
        if (use == tensor_form::partial()) value.own() *= share<Tensor>();
        return value;
    }
    /// Turns the cotangent of an operand into that of the tensor; it is the transpose of `operand`.
    template <rank_tensor Tensor>
    [[nodiscard]] Tensor of_tensor(instruction::compute const& i, std::size_t k, Tensor gradient) const {
        tensor_id const t = whole_.operators[i.op].operands[k];
        tensor_form const use = use_of(i, k);
        if (use == what_.split.forms[t]) return gradient;
        if (use.is_shard())
            return pad(gradient, layout_.held_shape(t, i.operands[k], rank_), batch_factor(t, i.operands[k], use),
                       range_.first, range_.second);
        gradient *= share<Tensor>();
        return gradient;
    }

    /// A whole loss is the same in every part of the batch, so each part adds its share.
    template <rank_tensor Tensor>
    [[nodiscard]] typename Tensor::scalar_type loss_share() const {
        return what_.split.forms[whole_.loss] == tensor_form::partial() ? 1 : share<Tensor>();
    }

private:
    template <rank_tensor Tensor>
    [[nodiscard]] typename Tensor::scalar_type share() const {
        return typename Tensor::scalar_type{1} / static_cast<typename Tensor::scalar_type>(what_.parts);
    }
    [[nodiscard]] tensor_form use_of(instruction::compute const& i, std::size_t k) const {
        return what_.split.computations[i.op].operands[k];
    }
    [[nodiscard]] factor const& factor_of(tensor_id t, tensor_form f) const {
        return whole_.tensors[t].factors[static_cast<std::size_t>(f.factor())];
    }
    /// Returns the batch's factor of a tensor, within what this rank holds of the tensor.
    [[nodiscard]] factor batch_factor(tensor_id t, tensor_form held_as, tensor_form use) const {
        auto const f = factor_of(t, use);
        return held_as.is_shard() ? within(f, factor_of(t, held_as), layout_.places(t, held_as)[rank_]) : f;
    }

    indexed_program const& whole_;
    rank_program const& what_;
    shard_layout const& layout_;
    std::size_t rank_;
    std::pair<extent, extent> range_;
};

} // namespace heddle::detail
