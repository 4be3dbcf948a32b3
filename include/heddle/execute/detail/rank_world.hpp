// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Where the ranks of one process meet, leave messages for each other, and stop together.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/execute/communicator.hpp>

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
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
    void* output = nullptr;
    /// Tells whether this rank's data are as large as its counts say.
    bool fits = true;
};

/// A collective that ranks of a group have started. Its world guards it until all of them have; then the last to come
/// carries it out for all.
struct rank_operation {
    std::vector<posted_call> posted;
    std::size_t arrived = 0;
    bool is_running = false, is_done = false;
    /// A member has gone: nobody gets anything.
    bool is_given_up = false;
    std::exception_ptr failure;
    /// The elements that are counted, and the members that wait.
    std::size_t carried = 0;
    std::vector<std::size_t> waiting;
};

/// Where a group's ranks meet: the operations that not all of them have started, and how many each has.
struct rank_board {
    std::vector<std::size_t> members, started;
    std::map<std::size_t, std::shared_ptr<rank_operation>> open;
};

/// All ranks of a run and the groups that they form. They stop together at the first failure, and when none of them can
/// go on because each has ended or waits for another.
class rank_world {
public:
    explicit rank_world(std::size_t size) : state_(size), waits_for_(size), running_(size) {}

    [[nodiscard]] std::size_t size() const { return state_.size(); }

    /// Returns the `number`-th board that these ranks share; the first of them to ask makes it.
    std::shared_ptr<rank_board> board(std::vector<std::size_t> const& members, std::size_t number);

    /// Posts what a member does. Returns the operation, and whether this was the last member to come, which then
    /// carries the operation out and calls `finish`. *Throws* `rank_stopped` once any rank has failed.
    [[nodiscard]] std::pair<std::shared_ptr<rank_operation>, bool> start(rank_board& board, std::size_t member,
                                                                         posted_call what);
    /// Everybody has what the operation gives, or its failure.
    void finish(rank_operation& operation);
    /// Waits until the operation is done. *Throws* its failure, and `rank_stopped` once any rank has failed.
    void wait(rank_operation& operation, std::size_t rank);
    /// Returns when nobody reads or writes data of the operation.
    void leave(rank_operation& operation) noexcept;

    using message = std::vector<std::byte>;

    /// Leaves a message and goes on. Messages from one rank to another arrive in order.
    void post(std::size_t from, std::size_t to, message what);
    /// Returns the number of the next message from one rank to another, which no other call returns.
    [[nodiscard]] std::size_t next_message(std::size_t from, std::size_t to);
    /// Waits for a message. *Throws* `rank_stopped` once any rank has failed.
    [[nodiscard]] message take(std::size_t from, std::size_t to, std::size_t number);
    void end(std::size_t rank);
    void fail(std::exception_ptr e);
    /// *Precondition:* all ranks have ended.
    [[nodiscard]] std::exception_ptr failure() const { return failure_; }

private:
    static constexpr char const* ended = "has ended";
    struct mailbox {
        std::map<std::size_t, message> arrived;
        std::size_t sent = 0, asked_for = 0;
    };
    /// The sender, and the number of the message.
    using awaited_message = std::pair<std::size_t, std::size_t>;

    void go_on(std::size_t rank);
    void stop(std::exception_ptr e);
    void check_progress();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> state_;
    /// For each rank, the message that it waits for.
    std::vector<std::optional<awaited_message>> waits_for_;
    std::map<std::pair<std::size_t, std::size_t>, mailbox> messages_;
    std::size_t running_;
    std::exception_ptr failure_;
    std::map<std::pair<std::vector<std::size_t>, std::size_t>, std::shared_ptr<rank_board>> boards_;
};

std::vector<std::size_t> all_ranks(std::size_t size);

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE std::shared_ptr<rank_board> rank_world::board(std::vector<std::size_t> const& members,
                                                            std::size_t number) {
    std::scoped_lock const lock(mutex_);
    auto& found = boards_[{members, number}];
    if (!found) found = std::make_shared<rank_board>(rank_board{members, std::vector<std::size_t>(members.size()), {}});
    return found;
}

HEDDLE_INLINE std::pair<std::shared_ptr<rank_operation>, bool> rank_world::start(rank_board& board, std::size_t member,
                                                                                 posted_call what) {
    std::scoped_lock const lock(mutex_);
    if (failure_) throw rank_stopped{};
    auto const number = board.started[member]++;
    auto& found = board.open[number];
    if (!found) {
        found = std::make_shared<rank_operation>();
        found->posted.resize(board.members.size());
    }
    found->posted[member] = std::move(what);
    if (++found->arrived < board.members.size() || found->is_given_up) return {found, false};
    found->is_running = true;
    auto full = std::move(found);
    board.open.erase(number);
    return {std::move(full), true};
}

HEDDLE_INLINE void rank_world::finish(rank_operation& operation) {
    std::scoped_lock const lock(mutex_);
    operation.is_running = false;
    operation.is_done = true;
    for (auto r : operation.waiting) go_on(r);
    changed_.notify_all();
}

HEDDLE_INLINE void rank_world::wait(rank_operation& operation, std::size_t rank) {
    std::unique_lock lock(mutex_);
    if (!operation.is_done && !failure_) {
        operation.waiting.push_back(rank);
        state_[rank] = std::string("waits in ") + name(operation.posted.front().kind);
        --running_;
        check_progress();
    }
    // Once all ranks have started, all go on.
    changed_.wait(lock, [&] { return operation.is_done || (failure_ && !operation.is_running); });
    if (!operation.is_done) throw rank_stopped{};
    if (operation.failure) std::rethrow_exception(operation.failure);
}

HEDDLE_INLINE void rank_world::leave(rank_operation& operation) noexcept {
    std::unique_lock lock(mutex_);
    operation.is_given_up = true;
    changed_.wait(lock, [&] { return !operation.is_running; });
}

HEDDLE_INLINE void rank_world::post(std::size_t from, std::size_t to, message what) {
    std::scoped_lock const lock(mutex_);
    auto& box = messages_[{from, to}];
    box.arrived.emplace(box.sent, std::move(what));
    if (waits_for_[to] != awaited_message(from, box.sent++)) return;
    // The rank goes on, though it may not know yet.
    waits_for_[to].reset();
    go_on(to);
    changed_.notify_all();
}

HEDDLE_INLINE std::size_t rank_world::next_message(std::size_t from, std::size_t to) {
    std::scoped_lock const lock(mutex_);
    return messages_[{from, to}].asked_for++;
}

HEDDLE_INLINE rank_world::message rank_world::take(std::size_t from, std::size_t to, std::size_t number) {
    std::unique_lock lock(mutex_);
    auto& arrived = messages_[{from, to}].arrived;
    if (!arrived.contains(number) && !failure_) {
        state_[to] = "waits for rank " + std::to_string(from);
        waits_for_[to] = awaited_message(from, number);
        --running_;
        check_progress();
        changed_.wait(lock, [&] { return failure_ || arrived.contains(number); });
    }
    if (failure_) throw rank_stopped{};
    return std::move(arrived.extract(number).mapped());
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

HEDDLE_INLINE void rank_world::go_on(std::size_t rank) {
    state_[rank].clear();
    ++running_;
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
