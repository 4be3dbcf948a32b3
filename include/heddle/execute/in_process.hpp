// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Ranks as threads of one process: data are really moved, and bytes are counted.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/rank_world.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle {

/// An operation that a rank has started. The last rank to start a collective carries it out for all, so a start waits
/// for nobody.
class in_process_request {
public:
    in_process_request() = default;
    in_process_request(in_process_request&&) = default;
    in_process_request& operator=(in_process_request&& other) noexcept {
        std::swap(world_, other.world_);
        std::swap(rank_, other.rank_);
        std::swap(operation_, other.operation_);
        std::swap(finish_, other.finish_);
        return *this;
    }
    ~in_process_request() {
        if (operation_) world_->leave(*operation_);
    }

    /// *Throws* `error` if the ranks have not started the same operation.
    void wait() {
        if (operation_) {
            world_->wait(*operation_, rank_);
            if (auto const count = std::move(finish_)) count();
            operation_.reset();
        } else if (auto const receive = std::exchange(finish_, nullptr)) receive();
    }

private:
    friend class in_process_communicator;

    detail::rank_world* world_ = nullptr;
    std::size_t rank_ = 0;
    std::shared_ptr<detail::rank_operation> operation_;
    /// Counts a collective that is done; waits for a message.
    std::function<void()> finish_;
};

/// One thread's end of a group of ranks; it models `asynchronous_communicator_of` for every arithmetic type.
///
/// Sums run over the ranks in ascending order, so results are reproducible and equal on all ranks.
/// *Throws* `error` from a wait if the ranks do not make the same collective, with sizes that fit, and if a rank waits
/// for another that has ended or waits elsewhere.
/// *Thread safety.* One thread per rank.
class in_process_communicator : public waits_at_once<in_process_communicator> {
public:
    using request = in_process_request;

    explicit in_process_communicator(detail::rank_world& world, std::size_t rank)
        : in_process_communicator(world, rank, world.board(detail::all_ranks(world.size()), 0), rank) {}

    [[nodiscard]] std::size_t rank() const { return rank_; }
    [[nodiscard]] std::size_t size() const { return board_->members.size(); }
    [[nodiscard]] heddle::traffic const& traffic() const { return *traffic_; }
    /// Counts bytes from now on as of elements of this size instead of the scalar's; 0 restores the scalar's.
    void charge_elements_as(std::size_t element_size) { charged_size_ = element_size; }

    /// Returns the communicator of some ranks of this one, among which this rank must be; their order gives their new
    /// ranks. Several groups of the same ranks are told apart by how many this rank has formed before.
    [[nodiscard]] in_process_communicator group(std::vector<std::size_t> members);

    template <class Scalar>
    [[nodiscard]] request start_all_reduce(std::span<Scalar> data, reduction how = reduction::sum) {
        return start<Scalar>(
            collective::all_reduce, uneven::padded,
            {.length = data.size(), .combines = how, .data = data.data(), .output = data.data()},
            [board = board_](operation& all) {
                require(all, *board, agree(all, &detail::posted_call::length), "tensors of different sizes");
                require(all, *board, agree(all, &detail::posted_call::combines), "different reductions");
                auto const length = all.posted[0].length;
                auto const combined = combination_of<Scalar>(all, length, all.posted[0].combines);
                for (auto const& call : all.posted) algorithm::copy(combined, output<Scalar>(call));
                all.carried = length;
            });
    }

    template <class Scalar>
    [[nodiscard]] request start_all_gather_v(std::span<Scalar const> mine, std::span<Scalar> whole, shard_counts counts,
                                             uneven how) {
        return start<Scalar>(collective::all_gather, how,
                             {.counts = {counts.begin(), counts.end()},
                              .data = mine.data(),
                              .output = whole.data(),
                              .fits = fits(mine.size(), whole.size(), counts)},
                             [board = board_](operation& all) {
                                 require_shards(all, *board);
                                 auto const& shards = all.posted[0].counts;
                                 for (auto const& call : all.posted) {
                                     auto* to = output<Scalar>(call);
                                     for (std::size_t r = 0; r < shards.size(); ++r)
                                         to = std::copy_n(input<Scalar>(all.posted[r]), shards[r], to);
                                 }
                                 all.carried = carried_count(shards, all.posted[0].how);
                             });
    }

    template <class Scalar>
    [[nodiscard]] request start_reduce_scatter_v(std::span<Scalar const> whole, std::span<Scalar> mine,
                                                 shard_counts counts, uneven how) {
        return start<Scalar>(collective::reduce_scatter, how,
                             {.counts = {counts.begin(), counts.end()},
                              .data = whole.data(),
                              .output = mine.data(),
                              .fits = fits(mine.size(), whole.size(), counts)},
                             [board = board_](operation& all) {
                                 require_shards(all, *board);
                                 auto const& shards = all.posted[0].counts;
                                 auto const sum = combination_of<Scalar>(all, total_count(shards), reduction::sum);
                                 auto from = sum.begin();
                                 for (std::size_t r = 0; r < shards.size(); ++r) {
                                     std::copy_n(from, shards[r], output<Scalar>(all.posted[r]));
                                     from += static_cast<std::ptrdiff_t>(shards[r]);
                                 }
                                 all.carried = carried_count(shards, all.posted[0].how);
                             });
    }

    template <class Scalar>
    [[nodiscard]] request start_all_to_all_v(std::span<Scalar const> send, shard_counts send_counts,
                                             std::span<Scalar> receive, shard_counts receive_counts) {
        return start<Scalar>(
            collective::all_to_all, uneven::padded,
            {.counts = {send_counts.begin(), send_counts.end()},
             .received = {receive_counts.begin(), receive_counts.end()},
             .data = send.data(),
             .output = receive.data(),
             .fits = send.size() == total_count(send_counts) && receive.size() == total_count(receive_counts)},
            [board = board_](operation& all) {
                std::size_t const size = all.posted.size();
                for (auto const& call : all.posted) {
                    require(all, *board, call.counts.size() == size && call.received.size() == size,
                            "another number of counts than ranks");
                    all.carried = std::max({all.carried, total_count(call.counts), total_count(call.received)});
                }
                bool matched = all_fit(all);
                for (std::size_t r = 0; r < size; ++r)
                    for (std::size_t s = 0; s < size; ++s)
                        matched &= all.posted[r].counts[s] == all.posted[s].received[r];
                require(all, *board, matched, "counts that do not fit each other or the data");
                for (std::size_t s = 0; s < size; ++s) {
                    auto* to = output<Scalar>(all.posted[s]);
                    for (auto const& from : all.posted)
                        to = std::copy_n(input<Scalar>(from) + total_count(shard_counts(from.counts).first(s)),
                                         from.counts[s], to);
                }
            });
    }

    template <class Scalar>
    [[nodiscard]] request start_broadcast(std::span<Scalar> data, std::size_t root) {
        return start<Scalar>(collective::broadcast, uneven::padded,
                             {.length = data.size(), .root = root, .data = data.data(), .output = data.data()},
                             [board = board_](operation& all) {
                                 auto const source = all.posted[0].root;
                                 require(all, *board,
                                         agree(all, &detail::posted_call::length) &&
                                             agree(all, &detail::posted_call::root) && source < all.posted.size(),
                                         "different tensors or roots");
                                 all.carried = all.posted[0].length;
                                 for (std::size_t r = 0; r < all.posted.size(); ++r)
                                     if (r != source)
                                         std::copy_n(input<Scalar>(all.posted[source]), all.carried,
                                                     output<Scalar>(all.posted[r]));
                             });
    }

    /// Sends a copy and returns.
    template <class Scalar>
    void send(std::span<Scalar const> data, std::size_t to) {
        auto const raw = std::as_bytes(data);
        world_->post(world_rank_, board_->members.at(to), {raw.begin(), raw.end()});
    }
    template <class Scalar>
    [[nodiscard]] request start_send(std::span<Scalar const> data, std::size_t to) {
        send(data, to);
        return {};
    }
    /// The wait *throws* `error` if the message is not of this size.
    template <class Scalar>
    [[nodiscard]] request start_receive(std::span<Scalar> data, std::size_t from) {
        request result;
        auto const sender = board_->members.at(from);
        result.finish_ = [world = world_, rank = world_rank_, sender, data = std::as_writable_bytes(data),
                          number = world_->next_message(sender, world_rank_)] {
            auto const message = world->take(sender, rank, number);
            if (message.size() != data.size())
                throw error("rank " + std::to_string(rank) + " receives " + std::to_string(message.size()) +
                            " bytes from rank " + std::to_string(sender) + ", expected " + std::to_string(data.size()));
            algorithm::copy(message, data.begin());
        };
        return result;
    }

private:
    in_process_communicator(detail::rank_world& world, std::size_t rank, std::shared_ptr<detail::rank_board> board,
                            std::size_t world_rank)
        : world_(&world), board_(std::move(board)), rank_(rank), world_rank_(world_rank) {}

    using operation = detail::rank_operation;

    /// Posts what this rank does. The last rank to come carries it out by `work`; what it requires in vain, no rank
    /// gets.
    template <class Scalar, class Work>
    [[nodiscard]] request start(collective kind, uneven how, detail::posted_call call, Work&& work) {
        call.kind = kind;
        call.how = how;
        call.element_size = sizeof(Scalar);
        request result;
        auto [all, is_last] = world_->start(*board_, rank_, std::move(call));
        result.world_ = world_;
        result.rank_ = world_rank_;
        result.operation_ = all;
        result.finish_ = [traffic = traffic_, done = all.get(), how, kind, ranks = size(),
                          bytes_each = charged_size_ ? charged_size_ : sizeof(Scalar)] {
            traffic->add(kind, how, how == uneven::grouped ? ranks : 1,
                         bytes(static_cast<double>(done->carried) * static_cast<double>(bytes_each)));
        };
        if (is_last) carry_out(*all, work);
        return result;
    }
    void carry_out(operation& all, std::function<void(operation&)> const& work);

    template <class Member>
    [[nodiscard]] static bool agree(operation const& all, Member detail::posted_call::* member) {
        return algorithm::all_of(all.posted, [&](auto const& c) { return c.*member == all.posted.front().*member; });
    }
    [[nodiscard]] bool fits(std::size_t mine, std::size_t whole, shard_counts counts) const {
        return counts.size() == size() && mine == counts[rank_] && whole == total_count(counts);
    }
    [[nodiscard]] static bool all_fit(operation const& all) {
        return algorithm::all_of(all.posted, [](auto const& c) { return c.fits; });
    }
    static void require_shards(operation const& all, detail::rank_board const& board);
    static void require(operation const& all, detail::rank_board const& board, bool holds, std::string const& problem);

    template <class Scalar>
    [[nodiscard]] static Scalar const* input(detail::posted_call const& call) {
        return static_cast<Scalar const*>(call.data);
    }
    template <class Scalar>
    [[nodiscard]] static Scalar* output(detail::posted_call const& call) {
        return static_cast<Scalar*>(call.output);
    }
    template <class Scalar>
    [[nodiscard]] static std::vector<Scalar> combination_of(operation const& all, std::size_t length, reduction how) {
        auto const* const first = input<Scalar>(all.posted[0]);
        std::vector<Scalar> result(first, first + length);
        for (std::size_t r = 1; r < all.posted.size(); ++r)
            for (std::size_t n = 0; n < length; ++n) {
                Scalar const next = input<Scalar>(all.posted[r])[n];
                result[n] = how == reduction::sum ? result[n] + next : std::max(result[n], next);
            }
        return result;
    }

    detail::rank_world* world_;
    std::shared_ptr<detail::rank_board> board_;
    std::size_t rank_, world_rank_;
    std::size_t charged_size_ = 0;
    std::shared_ptr<heddle::traffic> traffic_ = std::make_shared<heddle::traffic>();
    std::map<std::vector<std::size_t>, std::size_t> groups_;
};

static_assert(asynchronous_communicator_of<in_process_communicator, float> &&
              point_to_point_of<in_process_communicator, double>);

/// Runs `work(communicator)` on `ranks` threads and waits for all of them.
///
/// *Throws* the first exception that left `work` on any rank or kept a thread from starting, once all ranks have
/// stopped. A rank that waits for another stops at once; one that computes stops at its next collective.
template <class Work>
    requires std::invocable<Work&, in_process_communicator&>
void run_ranks(std::size_t ranks, Work&& work) {
    detail::rank_world world(ranks);
    {
        std::vector<std::jthread> threads;
        auto const run = [&world, &work](std::size_t r) {
            try {
                in_process_communicator communicator(world, r);
                work(communicator);
            } catch (detail::rank_stopped const&) {
            } catch (...) { world.fail(std::current_exception()); }
            world.end(r);
        };
        try {
            for (std::size_t r = 0; r < ranks; ++r) threads.emplace_back(run, r);
        } catch (...) { // those that wait for a rank that never comes stop
            world.fail(std::current_exception());
        }
    }
    if (auto const failure = world.failure()) std::rethrow_exception(failure);
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE in_process_communicator in_process_communicator::group(std::vector<std::size_t> members) {
    auto sorted = members;
    algorithm::sort(sorted);
    if (std::ranges::adjacent_find(sorted) != sorted.end() || (!sorted.empty() && sorted.back() >= size()))
        throw error("rank " + std::to_string(rank_) +
                    " forms a group in which a rank is twice, or that the communicator has not");
    auto const mine = algorithm::find(members, rank_);
    if (mine == members.end()) throw error("rank " + std::to_string(rank_) + " forms a group that it is not in");
    auto const position = static_cast<std::size_t>(mine - members.begin());
    for (auto& m : members) m = board_->members[m];
    auto const number = ++groups_[members];
    return {*world_, position, world_->board(members, number), world_rank_};
}

HEDDLE_INLINE void in_process_communicator::carry_out(operation& all, std::function<void(operation&)> const& work) {
    try {
        require(all, *board_,
                agree(all, &detail::posted_call::kind) && agree(all, &detail::posted_call::how) &&
                    agree(all, &detail::posted_call::element_size),
                "different collectives or element types");
        work(all);
    } catch (...) {
        all.failure = std::current_exception();
        world_->fail(all.failure); // should one rank catch it and go on
    }
    world_->finish(all);
}

HEDDLE_INLINE void in_process_communicator::require_shards(operation const& all, detail::rank_board const& board) {
    require(all, board, agree(all, &detail::posted_call::counts), "different shards");
    require(all, board, all_fit(all), "data that do not fit the shards");
}

HEDDLE_INLINE void in_process_communicator::require(operation const& all, detail::rank_board const& board, bool holds,
                                                    std::string const& problem) {
    if (holds) return;
    std::string text = "ranks meet with " + problem + ":";
    for (std::size_t r = 0; r < all.posted.size(); ++r) {
        auto const& call = all.posted[r];
        bool const shards = call.kind == collective::all_gather || call.kind == collective::reduce_scatter;
        text += (r ? ", rank " : " rank ") + std::to_string(board.members[r]) + " in " + name(call.kind) +
                (!shards                      ? ""
                 : call.how == uneven::padded ? " (padded)"
                                              : " (grouped)") +
                " of " + std::to_string(call.length + total_count(call.counts)) + " elements";
    }
    throw error(text);
}

} // namespace heddle

#endif
