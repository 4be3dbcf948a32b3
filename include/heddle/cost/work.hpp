// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What one instruction makes the devices do, as plain data: work, transfers and memory as functions of the
/// shares that devices have of what is split.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/inside.hpp>
#include <heddle/theory/instruction.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// Names the (tensor, factor) pair whose shares a split quantity has; `none` if the quantity is whole.
struct share_ref {
    static constexpr tensor_id none = ~tensor_id{0};
    tensor_id tensor = none;
    factor_number factor = no_factor;
    /// Into how many parts the axes inside cut what a slice of the outermost axis has. No device gets a part of an
    /// atom: the share is so many times that of the slice's device with most, and may exceed one.
    extent inside = 1;
    [[nodiscard]] bool is_split() const { return tensor != none; }
    friend bool operator==(share_ref, share_ref) = default;
};

/// Returns how many atoms the largest has of so many parts that are as even as can be.
[[nodiscard]] constexpr extent most_atoms(extent atoms, extent parts) { return (atoms + parts - 1) / parts; }

/// The samples that device groups cut among their devices, none of whom gets a part of one.
struct samples_inside {
    /// How many the whole program has. If it is zero, nothing is known of them, and they are cut evenly.
    extent count = 0;
    /// Groups have shares of them, as of all that is split; otherwise each group has all.
    bool are_shared = false;
    /// Returns the largest part that one of some devices has of all samples or, with a share, of a group's.
    [[nodiscard]] double largest_part(int devices, double share = 1) const;
    samples_inside& operator|=(samples_inside const& other);
    friend bool operator==(samples_inside, samples_inside) = default;
};

/// Bytes that are held or moved: whole + split * s.
struct holding {
    bytes whole, split;
    /// The part of `whole` and of `split` that a device group cuts among its devices.
    bytes whole_inside{}, split_inside{};
    samples_inside samples{};
    holding& operator+=(holding const& h);
    [[nodiscard]] friend holding operator*(double n, holding const& h) {
        return {h.whole * n, h.split * n, h.whole_inside * n, h.split_inside * n, h.samples};
    }
    friend bool operator==(holding const&, holding const&) = default;
};

/// Local work of one direction. A device with share s does flops * s (or flops, if nothing is split) and moves whole +
/// split * s bytes. A device group divides the operations among its devices, if it can, and moves each of the bytes
/// inside once.
struct local_work {
    flops operations;
    bytes whole, split;
    bool launches = false;
    bool is_divided = false;
    /// The part of `whole` and of `split` that a device group cuts among its devices.
    bytes whole_inside{}, split_inside{};
    /// The bytes moved by small kernels beside it, which run one after another, and the number of these kernels. They
    /// copy and add, so memory alone limits them.
    holding beside{};
    int kernels_beside = 0;
    samples_inside samples{};
    friend bool operator==(local_work const&, local_work const&) = default;
};

/// A collective on a tensor of `size` bytes, which `from` cuts before and `to` cuts after, if they cut.
struct transfer {
    heddle::collective kind = collective::all_reduce;
    bytes size;
    share_ref from, to;
    /// How uneven shards are moved. If it is undecided, it is the way that is faster at the shares at which the
    /// transfer is priced.
    std::optional<uneven> how{};
    /// How a device group brings what `from` cuts to its first device, and what `to` cuts away from it.
    inside_step before = inside_step::none, after = inside_step::none;
    /// The transfer goes from a factor to the same factor, cut at other points; nothing moves if the points are the
    /// same.
    bool redistributes = false;
    /// How many collectives of this kind every machine takes part in at once, one for each line of devices across. They
    /// share its network cards.
    int lines = 1;
    friend bool operator==(transfer const&, transfer const&) = default;
};

using transfer_list = std::vector<transfer>;

/// Communication inside every device group, of a tensor of whole + split * s bytes.
struct inside_transfer {
    inside_step kind = inside_step::none;
    bytes whole, split;
    /// How many devices communicate, in as many lines as they make; if it is zero, all devices of a group do.
    int members = 0;
    /// How many lines neighbouring devices make, which communicate at once.
    int lines = 1;
    friend bool operator==(inside_transfer const&, inside_transfer const&) = default;
};

using inside_list = std::vector<inside_transfer>;

/// The costs of one instruction in both directions.
struct step_work {
    operator_class category = operator_class::other;
    /// The kind of operator, if it is a computation of a program that tells kinds: it may have speeds of its own.
    std::string kind{};
    element_type type = element_type::float32;
    share_ref share;
    local_work forward, backward;
    transfer_list forward_transfers, backward_transfers;
    /// The collectives of parameter gradients, or of their factors. They run after the backward pass and close no
    /// stage.
    transfer_list deferred_transfers;
    /// The collectives that bring whole copies up to date after the update.
    transfer_list update_transfers;
    /// The work on what the deferred transfers bring. It is done in full on every device; in a group, on the first.
    local_work deferred;
    /// The communication inside device groups: beside the forward work, beside the backward work, and after all
    /// deferred transfers.
    inside_list inside_forward, inside_backward, inside_update;
    /// The bytes that the optimiser moves.
    holding update;
    /// What is stored: a parameter with gradient and optimiser state, or another source.
    holding stored;
    /// What is saved for the backward pass beside whole operands and results.
    holding saved;
    /// The region with which it runs again in the backward pass; what it saves, the region has at that time alone. The
    /// last region is made again only if several micro-batches are in flight.
    region_number region = no_region;
    bool runs_again = false;
    /// How much of what it saves a search counts; see `count_regions`.
    double counted = 1;
    /// The copy of an unsharded parameter, or its gradient, which exists while its operator runs; see
    /// `momentary_memory`.
    bytes transient;
    /// The step belongs to a parameter: it is done once for all micro-batches and needs no activation.
    bool once = false;
    /// Of micro-batches that take turns: kernels wait for the step's transfers, which are statistics of rows or rows
    /// that the data send somewhere, so nothing is computed and nothing else is sent meanwhile.
    bool waits = false;
    /// Returns the work of one pass.
    [[nodiscard]] local_work const& work(bool is_backward) const { return is_backward ? backward : forward; }
    /// Tells whether the deferred collectives carry gradients, not their factors.
    [[nodiscard]] bool reduces_gradients() const { return !deferred.launches; }
    friend bool operator==(step_work const&, step_work const&) = default;
};

/// Tells whether devices inside an axis communicate for a step, other than for a collective across the axis.
[[nodiscard]] inline bool communicates_inside(step_work const& s) {
    return !s.inside_forward.empty() || !s.inside_backward.empty() || !s.inside_update.empty();
}

/// Returns a step as if they need not.
[[nodiscard]] inline step_work without_inside(step_work s) {
    s.inside_forward.clear(), s.inside_backward.clear(), s.inside_update.clear();
    return s;
}

/// Returns what groups cut of a tensor in some form, if they cut it.
template <class Tensor>
[[nodiscard]] std::optional<samples_inside> samples_of(Tensor const& tensor, tensor_form f) {
    if (tensor.inside == no_factor) return std::nullopt;
    return samples_inside{tensor.factors[static_cast<std::size_t>(tensor.inside)].extent,
                          f.is_shard() && f.factor() == tensor.inside};
}

/// Returns what a device holds in some form of a tensor of `size` bytes: all of it, or a part along the form's factor.
[[nodiscard]] holding held_bytes(bytes size, tensor_form f, std::optional<samples_inside> const& cut_inside);
[[nodiscard]] inline holding held_bytes(indexed_tensor const& tensor, tensor_form f) {
    return held_bytes(tensor.info.size(), f, samples_of(tensor, f));
}
/// Returns how often a search counts a tensor of one micro-batch as saved: for all micro-batches. A parameter is saved
/// once, and what is made again is saved for one micro-batch and region.
[[nodiscard]] inline double times_saved(indexed_program const& p, tensor_id t, int micro_batches) {
    auto const& tensor = p.tensors[t];
    if (tensor.is_parameter()) return 1;
    return tensor.region != no_region ? p.counted_of(tensor.region) : micro_batches;
}
[[nodiscard]] inline holding saved_bytes(indexed_program const& p, tensor_id t, tensor_form f, int micro_batches) {
    auto const& tensor = p.tensors[t];
    return held_bytes(tensor.info.size() * times_saved(p, t, micro_batches), f, samples_of(tensor, f));
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE double samples_inside::largest_part(int devices, double share) const {
    if (count == 0) return 1.0 / devices;
    double const whole = std::max(1.0, std::round(static_cast<double>(count) * share));
    return std::ceil(whole / devices) / whole;
}

HEDDLE_INLINE samples_inside& samples_inside::operator|=(samples_inside const& other) {
    count = std::max(count, other.count);
    are_shared |= other.are_shared;
    return *this;
}

HEDDLE_INLINE holding& holding::operator+=(holding const& h) {
    whole += h.whole, split += h.split;
    whole_inside += h.whole_inside, split_inside += h.split_inside;
    samples |= h.samples;
    return *this;
}

HEDDLE_INLINE holding held_bytes(bytes size, tensor_form f, std::optional<samples_inside> const& cut_inside) {
    bool const is_cut = cut_inside && size > bytes(0);
    bytes const inside = is_cut ? size : bytes(0);
    auto const samples = is_cut ? *cut_inside : samples_inside{};
    return f.is_shard() ? holding{bytes(0), size, bytes(0), inside, samples}
                        : holding{size, bytes(0), inside, bytes(0), samples};
}

} // namespace heddle

#endif
