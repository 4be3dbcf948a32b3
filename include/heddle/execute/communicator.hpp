// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the interpreter asks of a group of ranks, and the bytes that their collectives carry.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/cluster/cluster.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace heddle {

/// Counts calls, messages and payload bytes by kind of collective.
///
/// The bytes of a call are those on which its cost is charged: the payload of its busiest rank, padding included, so
/// they are equal on every rank. For all-reduce and broadcast that is the tensor; for a padded gather or scatter, ranks
/// times the largest shard; for a grouped one, the sum of the shards; for an all-to-all, the largest shard before or
/// after.
/// grouped: the sum of the shards. All-to-all: the largest shard, before or after.
struct traffic {
    struct entry {
        std::uint64_t calls = 0;
        /// The number of launches: one for a call, and one per rank for a grouped one.
        std::uint64_t messages = 0;
        bytes payload{};
        friend bool operator==(entry const&, entry const&) = default;
    };

    /// Collectives other than gather and scatter count as `padded`.
    [[nodiscard]] entry const& of(collective kind, uneven how = uneven::padded) const {
        return entries_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(how)];
    }
    void add(collective kind, uneven how, std::uint64_t messages, bytes payload);
    friend bool operator==(traffic const&, traffic const&) = default;

private:
    std::array<std::array<entry, 2>, collective_count> entries_{};
};

/// What an all-reduce makes of the ranks' numbers.
enum class reduction : std::uint8_t { sum, maximum };

/// The element counts of the ranks' shards, by rank.
using shard_counts = std::span<std::size_t const>;

[[nodiscard]] inline std::size_t total_count(shard_counts counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}
[[nodiscard]] inline std::size_t largest_count(shard_counts counts) {
    return counts.empty() ? 0 : algorithm::max(counts);
}

/// Returns the number of elements that a gather or scatter of these shards carries.
[[nodiscard]] inline std::size_t carried_count(shard_counts counts, uneven kind) {
    return kind == uneven::padded ? counts.size() * largest_count(counts) : total_count(counts);
}

/// One rank's end of a group of ranks.
///
/// *Notation.* `c` is a communicator of n ranks, `data` and `whole` are spans of scalars, `mine` is a span of const
/// scalars, and `counts` is n element counts.
///
/// *Valid expressions.*
/// - `c.rank()` and `c.size()` are the rank, 0 .. n-1, and n.
/// - `c.all_reduce(data)` replaces every rank's `data` by the sum of all; with `reduction::maximum` as a second
/// argument,
///   by the largest.
/// - `c.all_gather_v(mine, whole, counts, kind)` fills every rank's `whole` with the ranks' `mine`, by rank.
/// - `c.reduce_scatter_v(whole, mine, counts, kind)` fills rank r's `mine` with the r-th piece of the sum of all
/// `whole`.
/// - `c.all_to_all_v(send, send_counts, receive, receive_counts)` makes the s-th piece of rank r's `send` the r-th
/// piece
///   of rank s's `receive`.
/// - `c.broadcast(data, root)` replaces every rank's `data` by the root's.
///
/// *Axioms.* All ranks make the same calls in the same order, with equal `counts`, `kind`, `root` and reduction;
/// `send_counts[s]` of rank r equals `receive_counts[r]` of rank s. A call returns once this rank's output is complete
/// and its input may be changed. All ranks get bitwise equal sums. Counts may be zero. `padded` and `grouped` differ in
/// cost, not in what they compute. The adjoint of `all_gather_v` is `reduce_scatter_v`; `all_reduce` is its own
/// adjoint; that of `all_to_all_v` is `all_to_all_v` with the counts swapped.
///
/// *Complexity.* The bytes that `traffic` states, times what links and algorithm make of them.
template <class Communicator, class Scalar>
concept communicator_of = requires(Communicator& c, std::span<Scalar> data, std::span<Scalar const> mine,
                                   shard_counts counts, uneven kind, std::size_t root, reduction how) {
    { c.rank() } -> std::convertible_to<std::size_t>;
    { c.size() } -> std::convertible_to<std::size_t>;
    c.all_reduce(data);
    c.all_reduce(data, how);
    c.all_gather_v(mine, data, counts, kind);
    c.reduce_scatter_v(mine, data, counts, kind);
    c.all_to_all_v(mine, counts, data, counts);
    c.broadcast(data, root);
};

/// A communicator whose ranks also send each other messages and form smaller groups.
///
/// *Valid expressions*, beside those of `communicator_of`:
/// - `c.send(mine, to)` returns once `mine` may be changed, whether or not it was received.
/// - `c.receive(data, from)` fills `data` with the next message that rank `from` has sent to this one.
/// - `c.group(members)` is a communicator of these ranks, one of which is this rank; all of them call it.
///
/// *Axioms.* Messages from one rank to another are received in the order in which they were sent.
template <class Communicator, class Scalar>
concept point_to_point_of = communicator_of<Communicator, Scalar> &&
                            requires(Communicator& c, std::span<Scalar> data, std::span<Scalar const> mine,
                                     std::size_t rank, std::vector<std::size_t> members) {
                                c.send(mine, rank);
                                c.receive(data, rank);
                                { c.group(members) } -> communicator_of<Scalar>;
                            };

/// One device's end of a device group (HAP's virtual devices). Its rank and size are those of the group among all
/// groups. Only the group's first device takes part in collectives across groups.
///
/// `Inner` joins the devices of a group, `Across` the first devices of all groups; only a first device has one.
template <class Scalar, communicator_of<Scalar> Inner, communicator_of<Scalar> Across>
class grouped_communicator {
public:
    /// *Preconditions.* `across` is not null exactly on rank 0 of `inside`; `group < groups` are the group's rank in
    /// `across` and the size of `across`.
    grouped_communicator(Inner& inside, Across* across, std::size_t group, std::size_t groups)
        : inside_(&inside), across_(across), group_(group), groups_(groups) {}

    [[nodiscard]] std::size_t rank() const { return group_; }
    [[nodiscard]] std::size_t size() const { return groups_; }
    /// Returns the communicator of the devices of this group.
    [[nodiscard]] Inner& inside() const { return *inside_; }
    /// Returns the communicator of the first devices of all groups; null on other devices.
    [[nodiscard]] Across* across() const { return across_; }

    void charge_elements_as(std::size_t element_size) {
        if constexpr (requires { inside_->charge_elements_as(element_size); })
            inside_->charge_elements_as(element_size);
        if constexpr (requires { across_->charge_elements_as(element_size); })
            if (across_) across_->charge_elements_as(element_size);
    }

    void all_reduce(std::span<Scalar> data, reduction how = reduction::sum) { across_->all_reduce(data, how); }
    void all_gather_v(std::span<Scalar const> mine, std::span<Scalar> whole, shard_counts counts, uneven kind) {
        across_->all_gather_v(mine, whole, counts, kind);
    }
    void reduce_scatter_v(std::span<Scalar const> whole, std::span<Scalar> mine, shard_counts counts, uneven kind) {
        across_->reduce_scatter_v(whole, mine, counts, kind);
    }
    void all_to_all_v(std::span<Scalar const> send, shard_counts send_counts, std::span<Scalar> receive,
                      shard_counts receive_counts) {
        across_->all_to_all_v(send, send_counts, receive, receive_counts);
    }
    void broadcast(std::span<Scalar> data, std::size_t root) { across_->broadcast(data, root); }

private:
    Inner* inside_;
    Across* across_;
    std::size_t group_, groups_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE void traffic::add(collective kind, uneven how, std::uint64_t messages, bytes payload) {
    auto& e = entries_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(how)];
    ++e.calls;
    e.messages += messages;
    e.payload += payload;
}

} // namespace heddle

#endif
