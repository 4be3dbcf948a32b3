// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a micro-batch uses of tensors that are whole, and what it gives them.
#pragma once

#include <heddle/execute/detail/held.hpp>
#include <heddle/execute/detail/mesh_layout.hpp>
#include <heddle/execute/detail/rank_program.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/theory/product_form.hpp>

#include <cstddef>
#include <utility>

namespace heddle::detail {

/// The operands of a micro-batch on one device. `whole` is the program of the whole batch, `layout` that of its
/// tensors.
class batch_part {
public:
    batch_part(indexed_program const& whole, rank_program const& what, mesh_layout const& layout,
               std::pair<extent, extent> range)
        : whole_(whole), what_(what), layout_(layout), range_(range) {}

    /// Returns this micro-batch's part of a source.
    template <rank_tensor Tensor>
    [[nodiscard]] held<Tensor> of_source(tensor_id t, Tensor const& source) const {
        tensor_form const f = what_.split.forms[t];
        return f.is_shard() ? held<Tensor>(take(source, factor_of(t, f), range_.first, range_.second))
                            : held<Tensor>::of(source);
    }

    /// Returns an operand as an operator uses it: the tensor, or a range of it, or this part's share of it.
    template <rank_tensor Tensor>
    [[nodiscard]] held<Tensor> operand(operator_id o, std::size_t k, product_form const& f, held<Tensor> value) const {
        tensor_id const t = whole_.operators[o].operands[k];
        tensor_form const use = use_of(o, k);
        if (use == what_.split.forms[t]) return value;
        if (use.is_shard())
            return take(*value, layout_.held_factor(t, f, factor_of(t, use)), range_.first, range_.second);
        if (use == tensor_form::partial()) value.own() *= share<Tensor>();
        return value;
    }
    /// Turns the cotangent of an operand into that of the tensor; it is the transpose of `operand`.
    template <rank_tensor Tensor>
    [[nodiscard]] Tensor of_tensor(operator_id o, std::size_t k, product_form const& f, Tensor gradient) const {
        tensor_id const t = whole_.operators[o].operands[k];
        tensor_form const use = use_of(o, k);
        if (use == what_.split.forms[t]) return gradient;
        if (use.is_shard())
            return pad(gradient, layout_.held_shape(t, f), layout_.held_factor(t, f, factor_of(t, use)), range_.first,
                       range_.second);
        gradient *= share<Tensor>();
        return gradient;
    }

    /// A whole loss is the same in every part of the batch, so each part adds its share.
    template <rank_tensor Tensor>
    [[nodiscard]] host_number<Tensor> loss_share() const {
        return what_.split.forms[whole_.loss] == tensor_form::partial() ? 1 : share<Tensor>();
    }

private:
    template <rank_tensor Tensor>
    [[nodiscard]] host_number<Tensor> share() const {
        return host_number<Tensor>{1} / static_cast<host_number<Tensor>>(what_.parts);
    }
    [[nodiscard]] tensor_form use_of(operator_id o, std::size_t k) const {
        return what_.split.computations[o].operands[k];
    }
    [[nodiscard]] factor const& factor_of(tensor_id t, tensor_form f) const {
        return whole_.tensors[t].factors[static_cast<std::size_t>(f.factor())];
    }

    indexed_program const& whole_;
    rank_program const& what_;
    mesh_layout const& layout_;
    std::pair<extent, extent> range_;
};

} // namespace heddle::detail
