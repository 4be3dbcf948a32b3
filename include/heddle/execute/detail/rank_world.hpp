// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Where the ranks of one process meet, leave messages for each other, and stop together.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/execute/communicator.hpp>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Unwinds a rank that waits for others when one has failed; it never leaves `run_ranks`.
struct rank_stopped {};

/// What a rank posts for one collective.
struct posted_call {
    collective kind{};
    uneven how{};
    /// The sizes of an element and of the tensor (all-reduce, broadcast), and the root; ranks must agree on them.
    std::size_t element_size = 0, length = 0, root = 0;
    /// The elements of the shards by rank; for an all-to-all, of what goes to each rank.
    std::vector<std::size_t> counts{};
    /// For an all-to-all, the elements of what comes from each rank.
    std::vector<std::size_t> received{};
    reduction combines{};
    void const* data = nullptr;
    /// Tells whether this rank's data are as large as its counts say.
    bool fits = true;
};

/// Where a group's ranks meet. Its world guards it; what is posted is read between two meetings.
struct rank_board {
    std::vector<std::size_t> members;
    std::vector<posted_call> posted;
    std::size_t arrived = 0, meetings = 0;
};

/// All ranks of a run and the groups that they form. They stop together at the first failure, and when none of them can
/// go on because each has ended or waits for another.
class rank_world {
public:
    explicit rank_world(std::size_t size) : state_(size), waits_for_(size), running_(size) {}

    [[nodiscard]] std::size_t size() const { return state_.size(); }

    /// Returns the `number`-th board that these ranks share; the first of them to ask makes it.
    std::shared_ptr<rank_board> board(std::vector<std::size_t> const& members, std::size_t number);

    /// Waits until all members have come. *Throws* `rank_stopped` once any rank has failed.
    void meet(rank_board& board, std::size_t rank, std::string const& what);
    /// Waits until all members have read each other's data, even if some rank elsewhere has failed.
    void part(rank_board& board) noexcept;
    using message = std::vector<std::byte>;

    /// Leaves a message and goes on. Messages from one rank to another arrive in order.
    void post(std::size_t from, std::size_t to, message what);
    /// Waits for the next message. *Throws* `rank_stopped` once any rank has failed.
    [[nodiscard]] message take(std::size_t from, std::size_t to);
    void end(std::size_t rank);
    void fail(std::exception_ptr e);
    /// *Precondition:* all ranks have ended.
    [[nodiscard]] std::exception_ptr failure() const { return failure_; }

private:
    static constexpr char const* ended = "has ended";

    /// Tells whether this was the last member to come.
    bool arrive(rank_board& board);
    void stop(std::exception_ptr e);
    void check_progress();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> state_;
    /// For each rank, one more than the rank whose message it waits for, or 0.
    std::vector<std::size_t> waits_for_;
    std::map<std::pair<std::size_t, std::size_t>, std::deque<message>> messages_;
    std::size_t running_;
    std::exception_ptr failure_;
    std::map<std::pair<std::vector<std::size_t>, std::size_t>, std::shared_ptr<rank_board>> boards_;
};

/// While an object lives, the posted data of this rank and of the others may be read.
class reading {
public:
    reading(rank_world& world, rank_board& board) : world_(world), board_(board) {}
    reading(reading const&) = delete;
    ~reading() { world_.part(board_); }

private:
    rank_world& world_;
    rank_board& board_;
};

std::vector<std::size_t> all_ranks(std::size_t size);

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE std::shared_ptr<rank_board> rank_world::board(std::vector<std::size_t> const& members,
                                                            std::size_t number) {
    std::scoped_lock const lock(mutex_);
    auto& found = boards_[{members, number}];
    if (!found)
        found = std::make_shared<rank_board>(rank_board{members, std::vector<posted_call>(members.size()), 0, 0});
    return found;
}

HEDDLE_INLINE void rank_world::meet(rank_board& board, std::size_t rank, std::string const& what) {
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
    // Once all ranks have met, all go on: they wait for each other when they part.
    if (board.meetings == mine) throw rank_stopped{};
}

HEDDLE_INLINE void rank_world::part(rank_board& board) noexcept {
    std::unique_lock lock(mutex_);
    if (!arrive(board)) changed_.wait(lock, [&, mine = board.meetings] { return board.meetings != mine; });
}

HEDDLE_INLINE void rank_world::post(std::size_t from, std::size_t to, message what) {
    std::scoped_lock const lock(mutex_);
    messages_[{from, to}].push_back(std::move(what));
    if (waits_for_[to] != from + 1) return;
    // The rank goes on, though it may not know yet.
    waits_for_[to] = 0;
    state_[to].clear();
    ++running_;
    changed_.notify_all();
}

HEDDLE_INLINE rank_world::message rank_world::take(std::size_t from, std::size_t to) {
    std::unique_lock lock(mutex_);
    auto& queue = messages_[{from, to}];
    if (queue.empty() && !failure_) {
        state_[to] = "waits for rank " + std::to_string(from);
        waits_for_[to] = from + 1;
        --running_;
        check_progress();
        changed_.wait(lock, [&] { return failure_ || !queue.empty(); });
    }
    if (failure_) throw rank_stopped{};
    auto first = std::move(queue.front());
    queue.pop_front();
    return first;
}

HEDDLE_INLINE void rank_world::end(std::size_t rank) {
    std::scoped_lock const lock(mutex_);
    state_[rank] = ended;
    --running_;
    check_progress();
}

HEDDLE_INLINE void rank_world::fail(std::exception_ptr e) {
    std::scoped_lock const lock(mutex_);
    stop(std::move(e));
}

HEDDLE_INLINE bool rank_world::arrive(rank_board& board) {
    if (++board.arrived < board.members.size()) return false;
    board.arrived = 0;
    ++board.meetings;
    changed_.notify_all();
    return true;
}

HEDDLE_INLINE void rank_world::stop(std::exception_ptr e) {
    if (!failure_) failure_ = std::move(e);
    changed_.notify_all();
}

HEDDLE_INLINE void rank_world::check_progress() {
    if (running_ > 0 || failure_) return;
    bool any_waits = false;
    std::string text;
    for (std::size_t r = 0; r < state_.size(); ++r) {
        any_waits |= state_[r] != ended;
        text += (r ? ", rank " : "rank ") + std::to_string(r) + " " + state_[r];
    }
    if (any_waits) stop(std::make_exception_ptr(error("no rank can go on: " + text)));
}

HEDDLE_INLINE std::vector<std::size_t> all_ranks(std::size_t size) {
    std::vector<std::size_t> ranks(size);
    std::iota(ranks.begin(), ranks.end(), std::size_t{0});
    return ranks;
}

} // namespace heddle::detail

#endif
