// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief How ranks turn a plan's tensors from one form into another, with the devices of their groups.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/inside_exchange.hpp>
#include <heddle/execute/detail/shard_layout.hpp>
#include <heddle/execute/detail/tensor_exchange.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/theory/batch_split.hpp>
#include <heddle/theory/form.hpp>

#include <utility>

namespace heddle::detail {

/// Returns a program in the places of a micro-batch: every value that is cut along the batch has only that many places;
/// sources are whole.
[[nodiscard]] indexed_program part_of_batch(indexed_program p, batch_split const& batch, extent places);

/// One rank's tensors of a program, of one size of micro-batch. All collectives of tensors go through `across`, the
/// ranks of the plan, and `inside`, the devices of this rank's group.
///
/// A device of a group has its part of the group's tensors if they are cut inside, and a copy otherwise. The same holds
/// for cotangents, except that only the first device has a parameter's gradient until the end.
/// *Lifetime:* keeps references, and is not moved, as its parts refer to each other.
template <rank_tensor Tensor, communicator_of<typename Tensor::scalar_type> Communicator>
class rank_tensors {
    using inner = typename devices_inside<Communicator>::type;

public:
    using exchange = tensor_exchange<Tensor, Communicator>;
    using tensor = held<Tensor>;
    using arriving_tensor = typename exchange::result;

    rank_tensors(indexed_program const& p, plan const& what, Communicator& ranks)
        : indexed(p), communicator(ranks), layout(p, what), across(p, layout, ranks),
          inside(p, layout, ranks.rank(), devices_of(ranks)) {}
    rank_tensors(rank_tensors const&) = delete;

    indexed_program const& indexed;
    Communicator& communicator;
    shard_layout layout;
    exchange across;
    inside_exchange<Tensor, inner> inside;

    [[nodiscard]] std::size_t rank() const { return communicator.rank(); }
    [[nodiscard]] bool is_parameter(tensor_id t) const { return indexed.tensors[t].is_parameter(); }
    /// Tells whether this device has a tensor's cotangent.
    [[nodiscard]] bool has_cotangent(tensor_id t) const {
        return indexed.tensors[t].has_cotangent && (inside.is_first() || !is_parameter(t));
    }
    [[nodiscard]] bool is_split_inside(operator_id o) const {
        return inside.is_group() && indexed.operators[o].inside_loop >= 0;
    }
    /// Returns zeros in the shape of what this device holds.
    [[nodiscard]] tensor zeros(tensor_id t, tensor_form f) const { return Tensor(inside.held_shape(t, f)); }

    [[nodiscard]] arriving_tensor converted(tensor_id t, tensor_form from, tensor_form to, tensor value, uneven how) {
        auto const turn = [&](tensor x) { return across.convert(t, from, to, std::move(x), how); };
        if (!inside.is_group()) return turn(std::move(value));
        return turned(t, from, to, std::move(value), find_conversion(from, to)->forward.collective.has_value(), turn);
    }
    /// A parameter's gradient stays on the first device.
    [[nodiscard]] arriving_tensor transposed(tensor_id t, tensor_form from, tensor_form to, tensor cotangent,
                                             uneven how) {
        auto const turn = [&](tensor x) { return across.transpose(t, from, to, std::move(x), how); };
        if (!inside.is_group() || is_parameter(t)) return turn(std::move(cotangent));
        return turned(t, to, from, std::move(cotangent), find_conversion(from, to)->backward.collective.has_value(),
                      turn);
    }
    /// Brings the group's tensor together for an operator that is not split inside.
    [[nodiscard]] tensor whole_inside(operator_id o, tensor_id t, tensor_form f, tensor mine) {
        if (!mine || !inside.is_cut(t) || is_split_inside(o)) return mine;
        across.count_as(t);
        return inside.all_gathered(t, f, *mine);
    }
    /// Brings all ranks' tensor together on the first device.
    [[nodiscard]] arriving_tensor whole_across(tensor_id t, tensor_form f, tensor const& mine, uneven how) {
        across.count_as(t);
        tensor const of_group = inside.is_cut(t) ? tensor(inside.gathered(t, f, *mine)) : mine;
        return f.is_shard() && inside.is_first() ? across.gathered(t, f, of_group, how) : arriving_tensor(of_group);
    }
    /// Returns this device's part of what an operator has made, or its sum over the devices if they have summands.
    [[nodiscard]] Tensor made(operator_id o, tensor_id t, tensor_form f, Tensor value) {
        if (!inside.is_group()) return value;
        if (!is_split_inside(o)) return inside.part(t, f, std::move(value));
        if (inside.is_cut(t)) return value;
        across.count_as(t);
        return inside.all_reduced(std::move(value));
    }
    /// As above, of the cotangent that an operator gives an operand; the sum of a parameter's is on the first device.
    [[nodiscard]] Tensor given(operator_id o, tensor_id t, tensor_form f, Tensor cotangent) {
        if (!inside.is_group() || !is_split_inside(o) || inside.is_cut(t) || !is_parameter(t))
            return made(o, t, f, std::move(cotangent));
        across.count_as(t);
        return inside.reduced(std::move(cotangent));
    }
    /// Returns the sum of the ranks' tensors, of which the devices of a group have the same; it has no form.
    [[nodiscard]] Tensor total(Tensor mine) {
        if (inside.is_first()) communicator.all_reduce(mine.flat());
        return inside.broadcast(std::move(mine));
    }

private:
    static inner* devices_of(Communicator& c) {
        if constexpr (requires { c.inside(); }) return &c.inside();
        else return nullptr;
    }

    /// Applies `turn` to the group's tensor: to this device's part if that is possible; otherwise to all of it on the
    /// first device, which gives each device its part of the result.
    template <class Turn>
    [[nodiscard]] arriving_tensor turned(tensor_id t, tensor_form from, tensor_form to, tensor mine, bool is_collective,
                                         Turn&& turn) {
        if (!is_collective) {
            auto const cuts_batch = [&](tensor_form f) {
                return f.is_shard() && f.factor() == indexed.tensors[t].inside;
            };
            if (!inside.is_cut(t)) return turn(std::move(mine));
            if (cuts_batch(from) == cuts_batch(to))
                return tensor(inside.part(t, to, *turn(inside.padded(t, from, *mine)).get()));
        }
        across.count_as(t);
        auto const whole = inside.gathered(t, from, *mine);
        auto const result = inside.is_first() ? turn(whole).get() : tensor(Tensor(layout.held_shape(t, to, rank())));
        return tensor(inside.is_cut(t) ? inside.scattered(t, to, *result) : inside.broadcast(*result));
    }
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE indexed_program part_of_batch(indexed_program p, batch_split const& batch, extent places) {
    for (tensor_id t = 0; t < p.tensors.size(); ++t) {
        if (!batch.forms[t].is_shard()) continue;
        auto const number = static_cast<std::size_t>(batch.forms[t].factor());
        auto const cut = p.tensors[t].factors[number];
        p.tensors[t].info.shape = part_shape(p.tensors[t].info.shape, cut, places);
        for (auto& f : p.tensors[t].factors) f = within(f, cut, places);
        p.tensors[t].factors[number].extent = places;
    }
    return p;
}

} // namespace heddle::detail

#endif
