// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Inside the substitute: memory, streams, and what happens before what.
#pragma once

#include "substitute.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace heddle::test::substitute {

/// For each stream, how much of its work is done before.
using vector_clock = std::map<std::size_t, std::size_t>;
void merge(vector_clock& into, vector_clock const& other);

/// Something on a stream. It is done once `advance()` says so.
struct work {
    std::string name;
    std::function<bool()> advance;
    bool is_done = false;
};
using work_ptr = std::shared_ptr<work>;

struct access {
    std::size_t stream = 0, number = 0;
    std::string what;
    bool writes = false;
    std::size_t begin = 0, end = 0;
};

struct allocation {
    std::size_t begin = 0, size = 0, rank = 0;
    bool is_there = true;
    std::vector<access> accesses;
};

} // namespace heddle::test::substitute

struct CUstream_st {
    std::size_t id = 0, rank = 0;
    std::size_t length = 0;
    bool is_there = true;
    heddle::test::substitute::vector_clock clock;
    std::deque<heddle::test::substitute::work_ptr> queue;
    /// Calls of NCCL that are still to be enqueued here, in the background.
    std::size_t launching = 0;
    /// The recording that it has joined, or 0.
    std::size_t recording = 0;
};

struct CUevent_st {
    heddle::test::substitute::work_ptr marker;
    heddle::test::substitute::vector_clock clock;
    std::size_t recording = 0;
};

namespace heddle::test::substitute {

/// What one rank's thread has.
struct host {
    vector_clock clock;
    std::size_t iterations = 0, open_groups = 0, aborted = 0, recording = 0;
    ncclResult_t next_failure = ncclSuccess;
    bool fails_later = false;
    std::map<std::string, std::size_t> calls;
};

/// All of it is guarded by `lock`.
class machine {
public:
    static machine& get();

    void reset(std::size_t ranks);
    /// Throws if ranks have left something.
    void check_left();

    [[nodiscard]] host& mine() { return hosts_.at(rank()); }
    /// The rank of the calling thread.
    [[nodiscard]] static std::size_t rank();
    static void become(std::size_t rank);
    /// The calling thread looks after a rank, and is not its host: what it waits for is no wait of the host.
    static void help(std::size_t rank);
    [[nodiscard]] static bool is_host();

    /// Keeps the first problem, for all ranks.
    void note(std::string const& problem);
    [[noreturn]] void violate(std::string const& problem);
    /// Throws if there is a problem already.
    void go_on() const;
    [[nodiscard]] bool has_problem() const { return problem_.has_value(); }
    [[nodiscard]] std::optional<std::string> const& problem() const { return problem_; }

    [[nodiscard]] void* take(std::size_t size);
    [[nodiscard]] allocation& allocation_of(void const* begin, std::size_t size, std::string const& what);
    [[nodiscard]] bool is_device(void const* address) const;
    [[nodiscard]] void* view(void const* device) const;
    [[nodiscard]] std::string describe(void const* device) const;

    [[nodiscard]] cudaStream_t stream_of(cudaStream_t given);
    [[nodiscard]] cudaStream_t new_stream();
    [[nodiscard]] cudaEvent_t new_event() { return &events_.emplace_back(); }
    void remove(cudaEvent_t e) {
        events_.remove_if([&](auto const& x) { return &x == e; });
    }

    /// Enqueues work, and checks what it uses against all that was enqueued before; `may_throw` is off in what
    /// destructors call.
    work_ptr enqueue(cudaStream_t on, std::string name, ranges const& reads, ranges const& writes,
                     std::function<bool()> advance, bool may_throw = true);
    /// As if the host did it, once it has waited for what it has.
    void host_access(std::string const& name, ranges const& reads, ranges const& writes, bool may_throw = true);

    /// Does all that can be done.
    void pump();
    /// Waits until work is done.
    void wait(std::unique_lock<std::mutex>& guard, work_ptr const& for_it);
    void refuse_wait(std::string const& how);

    void begin_recording(cudaStream_t origin);
    /// A stream is about to wait for an event.
    void join_recording(cudaStream_t on, cudaEvent_t event);
    /// Makes sure that what was recorded is waited for.
    void check_recording(cudaStream_t origin);
    void end_recording();

    std::mutex lock;
    std::condition_variable changed;
    std::size_t communicators = 0;

private:
    machine();
    void use(vector_clock const& known, access const& now, allocation& a, bool may_throw);
    void use_all(vector_clock const& known, access now, ranges const& reads, ranges const& writes, bool may_throw);

    std::vector<host> hosts_;
    std::vector<cudaStream_t> defaults_;
    std::list<CUstream_st> streams_;
    std::list<CUevent_st> events_;
    std::map<std::size_t, allocation> memory_;
    std::size_t taken_ = 0, last_stream_ = 0, last_recording_ = 0;
    char *device_ = nullptr, *view_ = nullptr;
    int file_ = -1;
    std::optional<std::string> problem_;
};

} // namespace heddle::test::substitute
