// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the devices of a tensor group exchange in a micro-batch.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/shard_layout.hpp>
#include <heddle/execute/detail/tensor_exchange.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/theory/batch_split.hpp>

#include <cstddef>
#include <utility>

namespace heddle::detail {

/// Returns a program in the places of a micro-batch: every value that is cut along the batch has only that many places;
/// sources are whole.
[[nodiscard]] indexed_program part_of_batch(indexed_program p, batch_split const& batch, extent places);

/// What a tensor group does with tensors of one size of micro-batch. *Lifetime:* is not moved, as its parts refer to
/// each other.
template <rank_tensor Tensor, communicator_of<typename Tensor::scalar_type> Communicator>
class group_tensors {
public:
    group_tensors(indexed_program p, plan const& what, Communicator& group)
        : program_(std::move(p)), layout(program_, what), exchange(program_, layout, group) {}
    group_tensors(group_tensors const&) = delete;

private:
    indexed_program program_;

public:
    shard_layout layout;
    tensor_exchange<Tensor, Communicator> exchange;
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
