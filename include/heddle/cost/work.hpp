// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What one instruction makes the devices do, as plain data: work, transfers and memory, by the shares that
/// devices have of what is split.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/inside.hpp>
#include <heddle/theory/instruction.hpp>

#include <optional>
#include <vector>

namespace heddle {

/// A split quantity's share on each device is that of a (tensor, factor) pair; `none` where whole.
struct share_ref {
    static constexpr tensor_id none = ~tensor_id{0};
    tensor_id tensor = none;
    factor_number factor = no_factor;
    [[nodiscard]] bool is_split() const { return tensor != none; }
    friend bool operator==(share_ref, share_ref) = default;
};

/// Bytes that are held or moved: whole + split * s.
struct holding {
    bytes whole, split;
    /// Of both, what a device group cuts among its devices.
    bytes whole_inside{}, split_inside{};
    holding& operator+=(holding const& h);
    [[nodiscard]] friend holding operator*(double n, holding const& h) {
        return {h.whole * n, h.split * n, h.whole_inside * n, h.split_inside * n};
    }
    friend bool operator==(holding const&, holding const&) = default;
};

/// Local work of one direction. On a device with share s: flops * s (or flops, if nothing is split), and whole + split
/// * s bytes moved. A device group divides the operations among its devices, if it can, and moves each of the bytes
/// inside once.
struct kernel {
    flops operations;
    bytes whole, split;
    bool launches = false;
    bool is_divided = false;
    /// Of whole and split, what a device group cuts among its devices.
    bytes whole_inside{}, split_inside{};
    /// Moved by small kernels beside it, one after another, and how many these are: they copy and add, so memory alone
    /// limits them.
    holding beside{};
    int kernels_beside = 0;
    friend bool operator==(kernel const&, kernel const&) = default;
};

/// A collective on a tensor of `size` bytes, cut by `from` before and by `to` after, where cut.
struct transfer {
    heddle::collective kind = collective::all_reduce;
    bytes size;
    share_ref from, to;
    /// How uneven shards are moved; undecided: the way that is faster at the shares it is priced at.
    std::optional<uneven> how{};
    /// How a device group brings what `from` cuts to its first device, and what `to` cuts from it.
    inside_step before = inside_step::none, after = inside_step::none;
    /// From a factor to the same factor, cut at other points; nothing moves where the points are the same.
    bool redistributes = false;
    friend bool operator==(transfer const&, transfer const&) = default;
};

using transfer_list = std::vector<transfer>;

/// Communication inside every device group, of a tensor of whole + split * s bytes.
struct inside_transfer {
    inside_step kind = inside_step::none;
    bytes whole, split;
    friend bool operator==(inside_transfer const&, inside_transfer const&) = default;
};

using inside_list = std::vector<inside_transfer>;

/// One instruction's costs in both directions.
struct step {
    operator_class category = operator_class::other;
    element_type type = element_type::float32;
    share_ref share;
    kernel forward, backward;
    transfer_list forward_transfers, backward_transfers;
    /// Collectives of parameter gradients, or of their factors: run after the backward pass and close no stage.
    transfer_list deferred_transfers;
    /// Collectives that bring whole copies up to date after the update.
    transfer_list update_transfers;
    /// Work on what they bring, in full on every device, of a group on its first.
    kernel deferred;
    /// Inside device groups, beside the forward and the backward work and after all deferred transfers.
    inside_list inside_forward, inside_backward, inside_update;
    /// Bytes the optimiser moves.
    holding update;
    /// A parameter with gradient and optimiser state, or another source.
    holding stored;
    /// Saved for the backward beside whole operands and results.
    holding saved;
    /// Of an unsharded parameter: its copy, or its gradient, while its operator runs; see `momentary_memory`.
    bytes transient;
    /// Of a parameter: done once for all micro-batches, and in need of no activation.
    bool once = false;
    /// Whether the deferred collectives are of gradients, not of their factors.
    [[nodiscard]] bool reduces_gradients() const { return !deferred.launches; }
    friend bool operator==(step const&, step const&) = default;
};

/// `size` bytes of a tensor on a device in some form: whole, or split along the form's factor.
[[nodiscard]] holding held_bytes(bytes size, form f, bool is_cut_inside);
[[nodiscard]] inline holding held_bytes(indexed_tensor const& tensor, form f) {
    return held_bytes(tensor.info.size(), f, tensor.inside != no_factor);
}
/// Of what one of some micro-batches saves, that of all; a parameter is saved once.
[[nodiscard]] inline holding saved_bytes(indexed_tensor const& tensor, form f, int micro_batches) {
    return held_bytes(tensor.info.size() * (tensor.is_parameter() ? 1.0 : micro_batches), f,
                      tensor.inside != no_factor);
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE holding& holding::operator+=(holding const& h) {
    whole += h.whole, split += h.split;
    whole_inside += h.whole_inside, split_inside += h.split_inside;
    return *this;
}

HEDDLE_INLINE holding held_bytes(bytes size, form f, bool is_cut_inside) {
    bytes const inside = is_cut_inside ? size : bytes(0);
    return f.is_shard() ? holding{bytes(0), size, bytes(0), inside} : holding{size, bytes(0), inside, bytes(0)};
}

} // namespace heddle

#endif
