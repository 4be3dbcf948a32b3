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
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle {

/// One thread's end of a group of ranks; it models `communicator_of` for every arithmetic type.
///
/// Sums run over the ranks in ascending order, so results are reproducible and equal on all ranks.
/// *Throws* `error` from a collective if the ranks do not make the same one, with sizes that fit, and if a rank waits
/// for another that has ended or waits elsewhere.
/// *Thread safety.* One thread per rank.
class in_process_communicator {
public:
    explicit in_process_communicator(detail::rank_world& world, std::size_t rank)
        : in_process_communicator(world, rank, world.board(detail::all_ranks(world.size()), 0), rank) {}

    [[nodiscard]] std::size_t rank() const { return rank_; }
    [[nodiscard]] std::size_t size() const { return board_->posted.size(); }
    [[nodiscard]] heddle::traffic const& traffic() const { return traffic_; }
    /// Counts bytes from now on as of elements of this size instead of the scalar's; 0 restores the scalar's.
    void charge_elements_as(std::size_t element_size) { charged_size_ = element_size; }

    /// Returns the communicator of some ranks of this one, among which this rank must be; their order gives their new
    /// ranks. Several groups of the same ranks are told apart by how many this rank has formed before.
    [[nodiscard]] in_process_communicator group(std::vector<std::size_t> members);

    template <class Scalar>
    void all_reduce(std::span<Scalar> data, reduction how = reduction::sum) {
        meet(collective::all_reduce, uneven::padded, sizeof(Scalar),
             {.length = data.size(), .combines = how, .data = data.data()});
        require(agree(&detail::posted_call::length), "tensors of different sizes");
        require(agree(&detail::posted_call::combines), "different reductions");
        std::vector<Scalar> combined;
        {
            detail::reading const all(*world_, *board_);
            combined = combination_of<Scalar>(0, data.size(), how);
        }
        algorithm::copy(combined, data.begin());
        count<Scalar>(collective::all_reduce, uneven::padded, data.size());
    }

    template <class Scalar>
    void all_gather_v(std::span<Scalar const> mine, std::span<Scalar> whole, shard_counts counts, uneven how) {
        meet(collective::all_gather, how, sizeof(Scalar),
             {.counts = {counts.begin(), counts.end()},
              .data = mine.data(),
              .fits = fits(mine.size(), whole.size(), counts)});
        require_shards();
        detail::reading const all(*world_, *board_);
        auto to = whole.begin();
        for (std::size_t r = 0; r < size(); ++r) to = std::copy_n(posted<Scalar>(r), counts[r], to);
        count<Scalar>(collective::all_gather, how, carried_count(counts, how));
    }

    template <class Scalar>
    void reduce_scatter_v(std::span<Scalar const> whole, std::span<Scalar> mine, shard_counts counts, uneven how) {
        meet(collective::reduce_scatter, how, sizeof(Scalar),
             {.counts = {counts.begin(), counts.end()},
              .data = whole.data(),
              .fits = fits(mine.size(), whole.size(), counts)});
        require_shards();
        detail::reading const all(*world_, *board_);
        auto const begin = total_count(counts.first(rank_));
        algorithm::copy(combination_of<Scalar>(begin, begin + mine.size(), reduction::sum), mine.begin());
        count<Scalar>(collective::reduce_scatter, how, carried_count(counts, how));
    }

    template <class Scalar>
    void all_to_all_v(std::span<Scalar const> send, shard_counts send_counts, std::span<Scalar> receive,
                      shard_counts receive_counts) {
        meet(collective::all_to_all, uneven::padded, sizeof(Scalar),
             {.counts = {send_counts.begin(), send_counts.end()},
              .received = {receive_counts.begin(), receive_counts.end()},
              .data = send.data(),
              .fits = send.size() == total_count(send_counts) && receive.size() == total_count(receive_counts)});
        std::size_t largest = 0;
        auto const& all = board_->posted;
        for (auto const& call : all) {
            require(call.counts.size() == size() && call.received.size() == size(),
                    "another number of counts than ranks");
            largest = std::max({largest, total_count(call.counts), total_count(call.received)});
        }
        bool matched = all_fit();
        for (std::size_t r = 0; r < size(); ++r)
            for (std::size_t s = 0; s < size(); ++s) matched &= all[r].counts[s] == all[s].received[r];
        require(matched, "counts that do not fit each other or the data");
        detail::reading const peers(*world_, *board_);
        auto to = receive.begin();
        for (std::size_t r = 0; r < size(); ++r)
            to = std::copy_n(posted<Scalar>(r) + total_count(shard_counts(all[r].counts).first(rank_)),
                             receive_counts[r], to);
        count<Scalar>(collective::all_to_all, uneven::padded, largest);
    }

    template <class Scalar>
    void broadcast(std::span<Scalar> data, std::size_t root) {
        meet(collective::broadcast, uneven::padded, sizeof(Scalar),
             {.length = data.size(), .root = root, .data = data.data()});
        require(agree(&detail::posted_call::length) && agree(&detail::posted_call::root) && root < size(),
                "different tensors or roots");
        detail::reading const all(*world_, *board_);
        if (rank_ != root) std::copy_n(posted<Scalar>(root), data.size(), data.begin());
        count<Scalar>(collective::broadcast, uneven::padded, data.size());
    }

    /// Sends a copy and returns.
    template <class Scalar>
    void send(std::span<Scalar const> data, std::size_t to) {
        auto const raw = std::as_bytes(data);
        world_->post(world_rank_, board_->members.at(to), {raw.begin(), raw.end()});
    }
    /// Waits for the next message that a rank has sent to this one. *Throws* `error` if it is not of this size.
    template <class Scalar>
    void receive(std::span<Scalar> data, std::size_t from) {
        auto const message = world_->take(board_->members.at(from), world_rank_);
        if (message.size() != data.size_bytes())
            throw error("rank " + std::to_string(world_rank_) + " receives " + std::to_string(message.size()) +
                        " bytes from rank " + std::to_string(board_->members[from]) + ", expected " +
                        std::to_string(data.size_bytes()));
        algorithm::copy(message, std::as_writable_bytes(data).begin());
    }

private:
    in_process_communicator(detail::rank_world& world, std::size_t rank, std::shared_ptr<detail::rank_board> board,
                            std::size_t world_rank)
        : world_(&world), board_(std::move(board)), rank_(rank), world_rank_(world_rank) {}

    /// Posts what this rank does and waits for the others. From then until they part, all ranks decide by the same
    /// posts: what one of them requires in vain, all do.
    void meet(collective kind, uneven how, std::size_t element_size, detail::posted_call call);
    template <class Member>
    [[nodiscard]] bool agree(Member detail::posted_call::* member) const {
        return algorithm::all_of(board_->posted,
                                 [&](auto const& c) { return c.*member == board_->posted.front().*member; });
    }
    [[nodiscard]] bool fits(std::size_t mine, std::size_t whole, shard_counts counts) const {
        return counts.size() == size() && mine == counts[rank_] && whole == total_count(counts);
    }
    [[nodiscard]] bool all_fit() const {
        return algorithm::all_of(board_->posted, [](auto const& c) { return c.fits; });
    }
    void require_shards() const;
    void require(bool holds, std::string const& problem) const;

    template <class Scalar>
    [[nodiscard]] Scalar const* posted(std::size_t rank) const {
        return static_cast<Scalar const*>(board_->posted[rank].data);
    }
    template <class Scalar>
    [[nodiscard]] std::vector<Scalar> combination_of(std::size_t begin, std::size_t end, reduction how) const {
        std::vector<Scalar> result(posted<Scalar>(0) + begin, posted<Scalar>(0) + end);
        for (std::size_t r = 1; r < size(); ++r)
            for (std::size_t n = begin; n < end; ++n) {
                Scalar const next = posted<Scalar>(r)[n];
                result[n - begin] =
                    how == reduction::sum ? result[n - begin] + next : std::max(result[n - begin], next);
            }
        return result;
    }
    template <class Scalar>
    void count(collective kind, uneven how, std::size_t elements) {
        double const size_of_one = static_cast<double>(charged_size_ ? charged_size_ : sizeof(Scalar));
        traffic_.add(kind, how, how == uneven::grouped ? size() : 1,
                     bytes(static_cast<double>(elements) * size_of_one));
    }

    detail::rank_world* world_;
    std::shared_ptr<detail::rank_board> board_;
    std::size_t rank_, world_rank_;
    std::size_t charged_size_ = 0;
    heddle::traffic traffic_;
    std::map<std::vector<std::size_t>, std::size_t> groups_;
};

static_assert(communicator_of<in_process_communicator, float> && point_to_point_of<in_process_communicator, double>);

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

HEDDLE_INLINE void in_process_communicator::meet(collective kind, uneven how, std::size_t element_size,
                                                 detail::posted_call call) {
    call.kind = kind;
    call.how = how;
    call.element_size = element_size;
    board_->posted[rank_] = std::move(call);
    world_->meet(*board_, world_rank_, name(kind));
    require(agree(&detail::posted_call::kind) && agree(&detail::posted_call::how) &&
                agree(&detail::posted_call::element_size),
            "different collectives or element types");
}

HEDDLE_INLINE void in_process_communicator::require_shards() const {
    require(agree(&detail::posted_call::counts), "different shards");
    require(all_fit(), "data that do not fit the shards");
}

HEDDLE_INLINE void in_process_communicator::require(bool holds, std::string const& problem) const {
    if (holds) return;
    std::string text = "ranks meet with " + problem + ":";
    for (std::size_t r = 0; r < size(); ++r) {
        auto const& call = board_->posted[r];
        bool const shards = call.kind == collective::all_gather || call.kind == collective::reduce_scatter;
        text += (r ? ", rank " : " rank ") + std::to_string(board_->members[r]) + " in " + name(call.kind) +
                (!shards                      ? ""
                 : call.how == uneven::padded ? " (padded)"
                                              : " (grouped)") +
                " of " + std::to_string(call.length + total_count(call.counts)) + " elements";
    }
    world_->fail(std::make_exception_ptr(error(text))); // should one rank catch it and go on
    throw error(text);
}

} // namespace heddle

#endif
