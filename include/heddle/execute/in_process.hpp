// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Ranks as threads of one process: data really moves, and bytes are counted.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/execute/communicator.hpp>

#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// Unwinds a rank that waits for others when one has failed; never leaves `run_ranks`.
struct rank_stopped {};

/// What a rank posts for one collective.
struct posted_call {
    collective kind{};
    uneven how{};
    /// Of an element, of the tensor (all-reduce, broadcast); ranks must agree on them.
    std::size_t element_size = 0, length = 0, root = 0;
    /// Elements of the shards by rank; of an all-to-all, of what goes to each rank.
    std::vector<std::size_t> counts{};
    /// Of an all-to-all, of what comes from each rank.
    std::vector<std::size_t> received{};
    reduction combines{};
    void const* data = nullptr;
    /// Whether this rank's data are as large as its counts say.
    bool fits = true;
};

/// Where a group's ranks meet. Guarded by its world; what is posted is read between two meetings.
struct rank_board {
    std::vector<std::size_t> members;
    std::vector<posted_call> posted;
    std::size_t arrived = 0, meetings = 0;
};

/// All ranks of a run and the groups they form. They stop together: with the first failure, and when
/// none of them can go on because each has ended or waits for another.
class rank_world {
public:
    explicit rank_world(std::size_t size) : state_(size), running_(size) {}

    [[nodiscard]] std::size_t size() const { return state_.size(); }

    /// The `number`-th board that these ranks share; the first of them to ask makes it.
    std::shared_ptr<rank_board> board(std::vector<std::size_t> const& members, std::size_t number) {
        std::scoped_lock const lock(mutex_);
        auto& found = boards_[{members, number}];
        if (!found) found = std::make_shared<rank_board>(rank_board{members, std::vector<posted_call>(members.size()), 0, 0});
        return found;
    }

    /// Waits until all members have come. *Throws* `rank_stopped` once any rank has failed.
    void meet(rank_board& board, std::size_t rank, std::string const& what) {
        std::unique_lock lock(mutex_);
        if (failure_) throw rank_stopped{};
        if (arrive(board)) {
            for (std::size_t m : board.members) state_[m].clear();
            running_ += board.members.size() - 1;
            return;
        }
        state_[rank] = "waits in " + what;
        --running_;
        check_progress();
        auto const mine = board.meetings;
        changed_.wait(lock, [&] { return failure_ || board.meetings != mine; });
        // Once all have met, all go on: they wait for each other when they part.
        if (board.meetings == mine) throw rank_stopped{};
    }
    /// Waits until all members have read each other's data, even if some rank elsewhere has failed.
    void part(rank_board& board) noexcept {
        std::unique_lock lock(mutex_);
        if (!arrive(board)) changed_.wait(lock, [&, mine = board.meetings] { return board.meetings != mine; });
    }
    void end(std::size_t rank) {
        std::scoped_lock const lock(mutex_);
        state_[rank] = ended;
        --running_;
        check_progress();
    }
    void fail(std::exception_ptr e) {
        std::scoped_lock const lock(mutex_);
        stop(std::move(e));
    }
    /// *Precondition:* all ranks have ended.
    [[nodiscard]] std::exception_ptr failure() const { return failure_; }

private:
    static constexpr char const* ended = "has ended";

    /// Whether this was the last member to come.
    bool arrive(rank_board& board) {
        if (++board.arrived < board.members.size()) return false;
        board.arrived = 0;
        ++board.meetings;
        changed_.notify_all();
        return true;
    }
    void stop(std::exception_ptr e) {
        if (!failure_) failure_ = std::move(e);
        changed_.notify_all();
    }
    void check_progress() {
        if (running_ > 0 || failure_) return;
        bool any_waits = false;
        std::string text;
        for (std::size_t r = 0; r < state_.size(); ++r) {
            any_waits |= state_[r] != ended;
            text += (r ? ", rank " : "rank ") + std::to_string(r) + " " + state_[r];
        }
        if (any_waits) stop(std::make_exception_ptr(error("no rank can go on: " + text)));
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> state_;
    std::size_t running_;
    std::exception_ptr failure_;
    std::map<std::pair<std::vector<std::size_t>, std::size_t>, std::shared_ptr<rank_board>> boards_;
};

/// While it lives, this rank's and the others' posted data may be read.
class reading {
public:
    reading(rank_world& world, rank_board& board) : world_(world), board_(board) {}
    reading(reading const&) = delete;
    ~reading() { world_.part(board_); }

private:
    rank_world& world_;
    rank_board& board_;
};

inline std::vector<std::size_t> all_ranks(std::size_t size) {
    std::vector<std::size_t> ranks(size);
    std::iota(ranks.begin(), ranks.end(), std::size_t{0});
    return ranks;
}

} // namespace detail

/// One thread's end of a group of ranks; models `communicator_of` for every arithmetic type.
///
/// Sums run over the ranks in ascending order, so results are reproducible and equal on all ranks.
/// *Throws* `error` from a collective if the ranks do not make the same one, with sizes that fit; and if
/// a rank waits for another that has ended or waits elsewhere.
/// *Thread safety.* One thread per rank.
class in_process_communicator {
public:
    explicit in_process_communicator(detail::rank_world& world, std::size_t rank)
        : in_process_communicator(world, rank, world.board(detail::all_ranks(world.size()), 0), rank) {}

    [[nodiscard]] std::size_t rank() const { return rank_; }
    [[nodiscard]] std::size_t size() const { return board_->posted.size(); }
    [[nodiscard]] heddle::traffic const& traffic() const { return traffic_; }
    /// Counts bytes from now on as of elements of this size instead of the scalar's; 0: of the scalar's.
    void charge_elements_as(std::size_t element_size) { charged_size_ = element_size; }

    /// The communicator of some ranks of this one, of which this must be one; their order gives their new
    /// ranks. Several groups of the same ranks are told apart by how many this rank has formed before.
    [[nodiscard]] in_process_communicator group(std::vector<std::size_t> members) {
        auto sorted = members;
        std::ranges::sort(sorted);
        if (std::ranges::adjacent_find(sorted) != sorted.end() || (!sorted.empty() && sorted.back() >= size()))
            throw error("rank " + std::to_string(rank_) + " forms a group in which a rank is twice, or that the communicator has not");
        auto const mine = std::ranges::find(members, rank_);
        if (mine == members.end()) throw error("rank " + std::to_string(rank_) + " forms a group that it is not in");
        auto const position = static_cast<std::size_t>(mine - members.begin());
        for (auto& m : members) m = board_->members[m];
        auto const number = ++groups_[members];
        return {*world_, position, world_->board(members, number), world_rank_};
    }

    template <class Scalar>
    void all_reduce(std::span<Scalar> data, reduction how = reduction::sum) {
        meet(collective::all_reduce, uneven::padded, sizeof(Scalar), {.length = data.size(), .combines = how, .data = data.data()});
        require(agree(&detail::posted_call::length), "tensors of different sizes");
        require(agree(&detail::posted_call::combines), "different reductions");
        std::vector<Scalar> combined;
        {
            detail::reading const all(*world_, *board_);
            combined = combination_of<Scalar>(0, data.size(), how);
        }
        std::ranges::copy(combined, data.begin());
        count<Scalar>(collective::all_reduce, uneven::padded, data.size());
    }

    template <class Scalar>
    void all_gather_v(std::span<Scalar const> mine, std::span<Scalar> whole, shard_counts counts, uneven how) {
        meet(collective::all_gather, how, sizeof(Scalar), {.counts = {counts.begin(), counts.end()}, .data = mine.data(), .fits = fits(mine.size(), whole.size(), counts)});
        require_shards();
        detail::reading const all(*world_, *board_);
        auto to = whole.begin();
        for (std::size_t r = 0; r < size(); ++r) to = std::copy_n(posted<Scalar>(r), counts[r], to);
        count<Scalar>(collective::all_gather, how, carried_count(counts, how));
    }

    template <class Scalar>
    void reduce_scatter_v(std::span<Scalar const> whole, std::span<Scalar> mine, shard_counts counts, uneven how) {
        meet(collective::reduce_scatter, how, sizeof(Scalar), {.counts = {counts.begin(), counts.end()}, .data = whole.data(), .fits = fits(mine.size(), whole.size(), counts)});
        require_shards();
        detail::reading const all(*world_, *board_);
        auto const begin = total_count(counts.first(rank_));
        std::ranges::copy(combination_of<Scalar>(begin, begin + mine.size(), reduction::sum), mine.begin());
        count<Scalar>(collective::reduce_scatter, how, carried_count(counts, how));
    }

    template <class Scalar>
    void all_to_all_v(std::span<Scalar const> send, shard_counts send_counts, std::span<Scalar> receive, shard_counts receive_counts) {
        meet(collective::all_to_all, uneven::padded, sizeof(Scalar),
             {.counts = {send_counts.begin(), send_counts.end()}, .received = {receive_counts.begin(), receive_counts.end()}, .data = send.data(),
              .fits = send.size() == total_count(send_counts) && receive.size() == total_count(receive_counts)});
        std::size_t largest = 0;
        auto const& all = board_->posted;
        for (auto const& call : all) {
            require(call.counts.size() == size() && call.received.size() == size(), "another number of counts than ranks");
            largest = std::max({largest, total_count(call.counts), total_count(call.received)});
        }
        bool matched = all_fit();
        for (std::size_t r = 0; r < size(); ++r)
            for (std::size_t s = 0; s < size(); ++s) matched &= all[r].counts[s] == all[s].received[r];
        require(matched, "counts that do not fit each other or the data");
        detail::reading const peers(*world_, *board_);
        auto to = receive.begin();
        for (std::size_t r = 0; r < size(); ++r)
            to = std::copy_n(posted<Scalar>(r) + total_count(shard_counts(all[r].counts).first(rank_)), receive_counts[r], to);
        count<Scalar>(collective::all_to_all, uneven::padded, largest);
    }

    template <class Scalar>
    void broadcast(std::span<Scalar> data, std::size_t root) {
        meet(collective::broadcast, uneven::padded, sizeof(Scalar), {.length = data.size(), .root = root, .data = data.data()});
        require(agree(&detail::posted_call::length) && agree(&detail::posted_call::root) && root < size(), "different tensors or roots");
        detail::reading const all(*world_, *board_);
        if (rank_ != root) std::copy_n(posted<Scalar>(root), data.size(), data.begin());
        count<Scalar>(collective::broadcast, uneven::padded, data.size());
    }

private:
    in_process_communicator(detail::rank_world& world, std::size_t rank, std::shared_ptr<detail::rank_board> board, std::size_t world_rank)
        : world_(&world), board_(std::move(board)), rank_(rank), world_rank_(world_rank) {}

    /// Posts what this rank does and waits for the others. From then until they part, all ranks decide by the
    /// same posts: what one of them requires in vain, all do.
    void meet(collective kind, uneven how, std::size_t element_size, detail::posted_call call) {
        call.kind = kind;
        call.how = how;
        call.element_size = element_size;
        board_->posted[rank_] = std::move(call);
        world_->meet(*board_, world_rank_, name(kind));
        require(agree(&detail::posted_call::kind) && agree(&detail::posted_call::how) && agree(&detail::posted_call::element_size),
                "different collectives or element types");
    }
    template <class Member>
    [[nodiscard]] bool agree(Member detail::posted_call::*member) const {
        return std::ranges::all_of(board_->posted, [&](auto const& c) { return c.*member == board_->posted.front().*member; });
    }
    [[nodiscard]] bool fits(std::size_t mine, std::size_t whole, shard_counts counts) const {
        return counts.size() == size() && mine == counts[rank_] && whole == total_count(counts);
    }
    [[nodiscard]] bool all_fit() const {
        return std::ranges::all_of(board_->posted, [](auto const& c) { return c.fits; });
    }
    void require_shards() const {
        require(agree(&detail::posted_call::counts), "different shards");
        require(all_fit(), "data that do not fit the shards");
    }
    void require(bool holds, std::string const& problem) const {
        if (holds) return;
        std::string text = "ranks meet with " + problem + ":";
        for (std::size_t r = 0; r < size(); ++r) {
            auto const& call = board_->posted[r];
            bool const shards = call.kind == collective::all_gather || call.kind == collective::reduce_scatter;
            text += (r ? ", rank " : " rank ") + std::to_string(board_->members[r]) + " in " + name(call.kind) +
                    (!shards ? "" : call.how == uneven::padded ? " (padded)" : " (grouped)") + " of " +
                    std::to_string(call.length + total_count(call.counts)) + " elements";
        }
        world_->fail(std::make_exception_ptr(error(text))); // should one rank catch it and go on
        throw error(text);
    }

    template <class Scalar>
    [[nodiscard]] Scalar const* posted(std::size_t rank) const { return static_cast<Scalar const*>(board_->posted[rank].data); }
    template <class Scalar>
    [[nodiscard]] std::vector<Scalar> combination_of(std::size_t begin, std::size_t end, reduction how) const {
        std::vector<Scalar> result(posted<Scalar>(0) + begin, posted<Scalar>(0) + end);
        for (std::size_t r = 1; r < size(); ++r)
            for (std::size_t n = begin; n < end; ++n) {
                Scalar const next = posted<Scalar>(r)[n];
                result[n - begin] = how == reduction::sum ? result[n - begin] + next : std::max(result[n - begin], next);
            }
        return result;
    }
    template <class Scalar>
    void count(collective kind, uneven how, std::size_t elements) {
        double const size_of_one = static_cast<double>(charged_size_ ? charged_size_ : sizeof(Scalar));
        traffic_.add(kind, how, how == uneven::grouped ? size() : 1, bytes(static_cast<double>(elements) * size_of_one));
    }

    detail::rank_world* world_;
    std::shared_ptr<detail::rank_board> board_;
    std::size_t rank_, world_rank_;
    std::size_t charged_size_ = 0;
    heddle::traffic traffic_;
    std::map<std::vector<std::size_t>, std::size_t> groups_;
};

static_assert(communicator_of<in_process_communicator, float> && communicator_of<in_process_communicator, double>);

/// Runs `work(communicator)` on `ranks` threads and waits for all of them.
///
/// *Throws* the first exception that left `work` on any rank or kept a thread from starting, once all ranks have stopped; a rank
/// that waits for another stops at once, one that computes stops at its next collective.
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
            } catch (...) {
                world.fail(std::current_exception());
            }
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
