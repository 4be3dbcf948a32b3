// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the interpreter asks of a group of ranks, and the bytes that their collectives carry.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/cluster/cluster.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

namespace heddle {

/// Counts calls, messages and payload bytes by kind of collective.
///
/// The bytes of a call are those on which its cost is charged: the payload of its busiest rank, padding included, so
/// they are equal on every rank. For all-reduce and broadcast that is the tensor; for a padded gather or scatter, ranks
/// times the largest shard; for a grouped one, the sum of the shards; for an all-to-all, the largest shard before or
/// after.
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

/// *Throws* `error`, which begins with `what.text()`, unless a rank's shard and the whole are as `counts` say.
template <class Operation>
void require_shards(Operation const& what, shard_counts counts, std::size_t rank, std::size_t ranks, std::size_t mine,
                    std::size_t whole) {
    if (counts.size() != ranks || mine != counts[rank] || whole != total_count(counts))
        throw error(what.text() + ": shards that do not fit the ranks or the data");
}
/// *Throws* as above unless `sent` elements for all ranks, and as many `received`, are as the counts say.
template <class Operation>
void require_pieces(Operation const& what, shard_counts send_counts, shard_counts receive_counts, std::size_t ranks,
                    std::size_t sent, std::size_t received) {
    if (send_counts.size() != ranks || receive_counts.size() != ranks || sent != total_count(send_counts) ||
        received != total_count(receive_counts))
        throw error(what.text() + ": counts that do not fit the ranks or the data");
}

/// One rank's count of its collectives.
class counts_traffic {
public:
    [[nodiscard]] heddle::traffic const& traffic() const { return traffic_; }
    /// Counts bytes from now on as of elements of this size instead of the scalar's; 0 restores the scalar's.
    void charge_elements_as(std::size_t element_size) { charged_size_ = element_size; }

protected:
    template <class Scalar>
    void count(collective kind, uneven how, std::size_t ranks, std::size_t elements) {
        auto const size_of_one = static_cast<double>(charged_size_ ? charged_size_ : sizeof(Scalar));
        traffic_.add(kind, how, how == uneven::grouped ? ranks : 1, bytes(static_cast<double>(elements) * size_of_one));
    }
    /// Counts what another, such as a group, carries as this does.
    void charge_as(counts_traffic const& other) { charged_size_ = other.charged_size_; }

private:
    std::size_t charged_size_ = 0;
    heddle::traffic traffic_;
};

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
/// `send_counts[s]` of rank r equals `receive_counts[r]` of rank s. When a call has returned, this rank's output is
/// complete and its input may be changed, for all that this rank computes from then on. All ranks get bitwise equal
/// sums. Counts may be zero. `padded` and `grouped` differ in cost, not in what they compute. The adjoint of
/// `all_gather_v` is `reduce_scatter_v`; `all_reduce` is its own adjoint; that of `all_to_all_v` is `all_to_all_v` with
/// the counts swapped.
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

/// Returns the communicator of some ranks, if all ranks call it with groups that divide them. One that divides itself
/// by `c.split(color, key)`, for ranks of one color in the order of their keys, is asked once for all groups.
template <class Communicator>
[[nodiscard]] auto divided(Communicator& c, std::vector<std::size_t> const& members) {
    if constexpr (requires { c.split(0, 0); }) {
        auto const place = algorithm::find(members, c.rank()) - members.begin();
        return c.split(static_cast<int>(members.front()), static_cast<int>(place)).value();
    } else {
        return c.group(members);
    }
}

/// What ranks exchange. Collectives of one lane follow each other; those of different lanes need not, so that none that
/// others compute beside holds up one that is waited for.
enum class lane : std::uint8_t {
    values,
    /// Parameters that are gathered, and gradients.
    parameters,
    /// What kernels wait for, such as statistics of rows.
    kernels
};

/// Has the operations that `work` starts on a communicator go through a lane, if it has several: then it has members
/// `open(lane)`, which all ranks call, and `through(lane, work)`.
template <class Communicator, class Work>
decltype(auto) through(Communicator& c, lane which, Work&& work) {
    if constexpr (requires { c.through(which, work); }) return c.through(which, work);
    else return work();
}
template <class Communicator>
void open_lane(Communicator& c, lane which) {
    if constexpr (requires { c.open(which); }) c.open(which);
}

/// What a started operation leaves to be waited for.
///
/// `r.wait()` returns when what the operation gives is there; on streams, when what the computation enqueues from now
/// on comes after it, without a wait of the host. Nothing is left to be waited for after that, nor in a default
/// `Request{}`: then it does nothing.
template <class Request>
concept communication_request =
    std::movable<Request> && std::default_initializable<Request> && requires(Request& r) { r.wait(); };

/// A communicator whose operations are started and waited for apart from each other.
///
/// *Valid expressions*, beside those of `communicator_of`: each operation with `start_` before its name returns a
/// `Communicator::request`; messages too, if there are any. `c.all_reduce(data)` is `c.start_all_reduce(data).wait()`,
/// and so on.
///
/// *Axioms.* All ranks start the same operations in the same order; each waits in the order that it likes. A start
/// waits for nobody. It is ordered after what this rank's computation has enqueued before. From the start until the
/// wait, output spans are neither read nor written, and input spans are not written; they stay alive. Counts may go
/// after the start. A message is received by the receive that was started in its turn.
///
/// A request that goes without having been waited for gives its operation up: other ranks may wait in vain, so that
/// happens only where an exception is about to end all of them.
template <class Communicator, class Scalar>
concept asynchronous_communicator_of =
    communicator_of<Communicator, Scalar> && communication_request<typename Communicator::request> &&
    requires(Communicator& c, std::span<Scalar> data, std::span<Scalar const> mine, shard_counts counts, uneven kind,
             std::size_t root, reduction how) {
        { c.start_all_reduce(data, how) } -> std::same_as<typename Communicator::request>;
        { c.start_all_gather_v(mine, data, counts, kind) } -> std::same_as<typename Communicator::request>;
        { c.start_reduce_scatter_v(mine, data, counts, kind) } -> std::same_as<typename Communicator::request>;
        { c.start_all_to_all_v(mine, counts, data, counts) } -> std::same_as<typename Communicator::request>;
        { c.start_broadcast(data, root) } -> std::same_as<typename Communicator::request>;
    };

/// The request of an operation that has ended.
struct completed {
    void wait() {}
};

/// The request of what any communicator starts.
template <class Scalar, class Communicator>
struct request_of : std::type_identity<completed> {};
template <class Scalar, asynchronous_communicator_of<Scalar> Communicator>
struct request_of<Scalar, Communicator> : std::type_identity<typename Communicator::request> {};

/// Starts operations of any communicator. One that cannot do two things at a time has ended them when they are started.
template <class Scalar, communicator_of<Scalar> Communicator>
struct starter {
    static constexpr bool is_asynchronous = asynchronous_communicator_of<Communicator, Scalar>;
    using request = typename request_of<Scalar, Communicator>::type;

    [[nodiscard]] static request all_reduce(Communicator& c, std::span<Scalar> data, reduction how = reduction::sum) {
        if constexpr (is_asynchronous) return c.start_all_reduce(data, how);
        else return c.all_reduce(data, how), request{};
    }
    [[nodiscard]] static request all_gather_v(Communicator& c, std::span<Scalar const> mine, std::span<Scalar> whole,
                                              shard_counts counts, uneven kind) {
        if constexpr (is_asynchronous) return c.start_all_gather_v(mine, whole, counts, kind);
        else return c.all_gather_v(mine, whole, counts, kind), request{};
    }
    [[nodiscard]] static request reduce_scatter_v(Communicator& c, std::span<Scalar const> whole,
                                                  std::span<Scalar> mine, shard_counts counts, uneven kind) {
        if constexpr (is_asynchronous) return c.start_reduce_scatter_v(whole, mine, counts, kind);
        else return c.reduce_scatter_v(whole, mine, counts, kind), request{};
    }
    [[nodiscard]] static request all_to_all_v(Communicator& c, std::span<Scalar const> send, shard_counts send_counts,
                                              std::span<Scalar> receive, shard_counts receive_counts) {
        if constexpr (is_asynchronous) return c.start_all_to_all_v(send, send_counts, receive, receive_counts);
        else return c.all_to_all_v(send, send_counts, receive, receive_counts), request{};
    }
    [[nodiscard]] static request broadcast(Communicator& c, std::span<Scalar> data, std::size_t root) {
        if constexpr (is_asynchronous) return c.start_broadcast(data, root);
        else return c.broadcast(data, root), request{};
    }
    [[nodiscard]] static request send(Communicator& c, std::span<Scalar const> mine, std::size_t to) {
        if constexpr (is_asynchronous) return c.start_send(mine, to);
        else return c.send(mine, to), request{};
    }
    [[nodiscard]] static request receive(Communicator& c, std::span<Scalar> data, std::size_t from) {
        if constexpr (is_asynchronous) return c.start_receive(data, from);
        else return c.receive(data, from), request{};
    }
};

/// Gives a communicator that has the starts the calls that start and wait.
template <class Communicator>
class waits_at_once {
public:
    template <class Scalar>
    void all_reduce(std::span<Scalar> data, reduction how = reduction::sum) {
        self().start_all_reduce(data, how).wait();
    }
    template <class Scalar>
    void all_gather_v(std::span<Scalar const> mine, std::span<Scalar> whole, shard_counts counts, uneven kind) {
        self().start_all_gather_v(mine, whole, counts, kind).wait();
    }
    template <class Scalar>
    void reduce_scatter_v(std::span<Scalar const> whole, std::span<Scalar> mine, shard_counts counts, uneven kind) {
        self().start_reduce_scatter_v(whole, mine, counts, kind).wait();
    }
    template <class Scalar>
    void all_to_all_v(std::span<Scalar const> send, shard_counts send_counts, std::span<Scalar> receive,
                      shard_counts receive_counts) {
        self().start_all_to_all_v(send, send_counts, receive, receive_counts).wait();
    }
    template <class Scalar>
    void broadcast(std::span<Scalar> data, std::size_t root) {
        self().start_broadcast(data, root).wait();
    }
    template <class Scalar>
    void receive(std::span<Scalar> data, std::size_t from) {
        self().start_receive(data, from).wait();
    }

private:
    [[nodiscard]] Communicator& self() { return static_cast<Communicator&>(*this); }
};

/// One device's end of a device group (HAP's virtual devices). Its rank and size are those of the group among all
/// groups. Only the group's first device takes part in collectives across groups.
///
/// `Inner` joins the devices of a group, `Across` the first devices of all groups; only a first device has one.
template <class Scalar, communicator_of<Scalar> Inner, communicator_of<Scalar> Across>
class grouped_communicator : public waits_at_once<grouped_communicator<Scalar, Inner, Across>> {
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

    using request = typename starter<Scalar, Across>::request;

    // What is sent may be of another type than `Scalar`, if `Across` has one type of requests.
    template <class Number>
    [[nodiscard]] request start_all_reduce(std::span<Number> data, reduction how = reduction::sum) {
        return starter<Number, Across>::all_reduce(*across_, data, how);
    }
    template <class Number>
    [[nodiscard]] request start_all_gather_v(std::span<Number const> mine, std::span<Number> whole, shard_counts counts,
                                             uneven kind) {
        return starter<Number, Across>::all_gather_v(*across_, mine, whole, counts, kind);
    }
    template <class Number>
    [[nodiscard]] request start_reduce_scatter_v(std::span<Number const> whole, std::span<Number> mine,
                                                 shard_counts counts, uneven kind) {
        return starter<Number, Across>::reduce_scatter_v(*across_, whole, mine, counts, kind);
    }
    template <class Number>
    [[nodiscard]] request start_all_to_all_v(std::span<Number const> send, shard_counts send_counts,
                                             std::span<Number> receive, shard_counts receive_counts) {
        return starter<Number, Across>::all_to_all_v(*across_, send, send_counts, receive, receive_counts);
    }
    template <class Number>
    [[nodiscard]] request start_broadcast(std::span<Number> data, std::size_t root) {
        return starter<Number, Across>::broadcast(*across_, data, root);
    }

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
