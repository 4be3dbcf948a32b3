// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief One communicator of NCCL with a stream of its own: every call is checked and ends in time.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/operation.hpp>
#include <heddle/nccl/cuda.hpp>
#include <heddle/nccl/detail/watchdog.hpp>

#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

namespace heddle::nccl::detail {

using heddle::detail::operation;

/// A type of 16 bits is told by its exponents: those of bfloat16 are float's.
template <class Scalar>
[[nodiscard]] constexpr ncclDataType_t type_of() {
    using limits = std::numeric_limits<Scalar>;
    constexpr bool is_whole = std::is_same_v<Scalar, float> || std::is_same_v<Scalar, double>;
    static_assert(is_whole || (sizeof(Scalar) == 2 && limits::is_specialized && !limits::is_integer),
                  "Ranks exchange elements of type float, double or of one of 16 bits.");
    if constexpr (is_whole) return std::is_same_v<Scalar, float> ? ncclFloat32 : ncclFloat64;
    else return limits::max_exponent == std::numeric_limits<float>::max_exponent ? ncclBfloat16 : ncclFloat16;
}
[[nodiscard]] constexpr ncclRedOp_t operator_of(reduction how) { return how == reduction::sum ? ncclSum : ncclMax; }

/// Tells whether NCCL has done what it was asked, or is about to.
[[nodiscard]] constexpr bool is_good(ncclResult_t code) { return code == ncclSuccess || code == ncclInProgress; }

[[nodiscard]] inline std::string new_id() {
    ncclUniqueId id{};
    if (auto const code = ncclGetUniqueId(&id); code != ncclSuccess)
        throw error(std::string("making an id of a communicator: NCCL says: ") + ncclGetErrorString(code));
    return {id.internal, sizeof id.internal};
}

/// An operation on a stream, and the event after it.
struct started {
    event done;
    bool is_enqueued = false;
};

/// NCCL is asked not to block: a call that is not done at once is asked for again, no longer than the time-out. After
/// an error nothing is left of the communicator on the device. The watchdog aborts it too if NCCL reports an error or
/// an operation is not done in time, while the host does something else; the next call says so.
class link : public watched {
public:
    /// Begins to join ranks by what `new_id` gave one of them; see `is_ready`.
    link(std::string const& id, std::size_t ranks, std::size_t rank, seconds time_out, operation const& what,
         std::shared_ptr<watchdog> dog)
        : time_out_(time_out), dog_(std::move(dog)) {
        ncclUniqueId own{};
        if (id.size() != sizeof own.internal) throw error(what.text() + ": what the store has is no id of NCCL's");
        std::memcpy(own.internal, id.data(), id.size());
        ncclConfig_t config = not_blocking();
        check(ncclCommInitRankConfig(&comm_, static_cast<int>(ranks), own, static_cast<int>(rank), &config), what);
        dog_->add(*this);
    }
    /// Takes part in dividing the ranks of another one; it has no ranks if `color` is `NCCL_SPLIT_NOCOLOR`.
    link(link& whole, int color, int key, operation const& what) : time_out_(whole.time_out_), dog_(whole.dog_) {
        ncclConfig_t config = not_blocking();
        {
            std::scoped_lock const guard(whole.lock_);
            whole.check(ncclCommSplit(whole.comm_, color, key, &comm_, &config), what);
        }
        whole.settle(what);
        if (color != NCCL_SPLIT_NOCOLOR) settle(what);
        dog_->add(*this);
    }
    ~link() override {
        dog_->remove(*this);
        if (std::uncaught_exceptions() > uncaught_) abort();
        if (!comm_) return;
        try { // what is enqueued is still done, and others wait for it
            operation const what{.name = "leaving a communicator"};
            check(ncclCommFinalize(comm_), what);
            settle(what);
            ncclCommDestroy(std::exchange(comm_, nullptr));
        } catch (...) {} // NOLINT(bugprone-empty-catch): it was aborted
    }

    [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
    [[nodiscard]] bool has_ranks() const { return comm_ != nullptr; }
    [[nodiscard]] std::pair<int, int> rank_and_ranks(operation const& what) {
        std::scoped_lock const guard(lock_);
        std::pair<int, int> result;
        check(ncclCommUserRank(comm_, &result.first), what);
        check(ncclCommCount(comm_, &result.second), what);
        return result;
    }

    /// Tells whether NCCL is done with what it was asked. *Throws* `error` if it has failed meanwhile.
    [[nodiscard]] bool is_ready(operation const& what) {
        std::scoped_lock const guard(lock_);
        require_working(what);
        ncclResult_t state = ncclSuccess;
        check(ncclCommGetAsyncError(comm_, &state), what);
        check(state, what);
        return state != ncclInProgress;
    }
    /// Waits until it is. *Throws* `error` if it is not in time.
    void settle(operation const& what) {
        in_time(what, [&] { return is_ready(what); });
    }
    /// Waits until `done()`. If that fails or takes too long, the communicator is aborted.
    template <class Done>
    void in_time(operation const& what, Done&& done) {
        try {
            heddle::detail::wait_in_time(time_out_, what, done);
        } catch (...) {
            std::scoped_lock const guard(lock_);
            abort();
            throw;
        }
    }

    /// Enqueues what `calls(communicator, stream)` does, which returns NCCL's result, as one group of NCCL.
    template <class Calls>
    void enqueue(operation const& what, Calls&& calls) {
        {
            std::scoped_lock const guard(lock_);
            require_working(what);
            check(ncclGroupStart(), what);
            auto const code = calls(comm_, stream());
            auto const ended = ncclGroupEnd();
            check(code, what);
            check(ended, what);
        }
        settle(what);
    }
    /// Notes that what was enqueued ends here; the watchdog sees to it that this is in time. What is recorded as a
    /// graph runs whenever the graph does.
    void watch(operation const& what, std::shared_ptr<started> own) { watch(what, std::move(own), stream()); }
    void watch(operation const& what, std::shared_ptr<started> own, cudaStream_t on) {
        own->done.record(on);
        own->is_enqueued = true;
        if (is_recorded(on)) return;
        std::scoped_lock const guard(lock_);
        running_.push_back({what, std::move(own), clock::now()});
    }

    void look() noexcept override {
        std::scoped_lock const guard(lock_);
        if (!comm_) return;
        try {
            ncclResult_t state = ncclSuccess;
            check(ncclCommGetAsyncError(comm_, &state), {.name = "looking after the communicator"});
            check(state, {.name = "looking after the communicator"});
            while (!running_.empty() && running_.front().own->done.is_past()) running_.pop_front();
            if (running_.empty()) return;
            auto const& oldest = running_.front();
            if (std::chrono::duration<double>(clock::now() - oldest.since).count() < time_out_.value) return;
            failure_ = oldest.what.text() + ": is not done on the device in " + std::to_string(time_out_.value) + " s";
            abort();
        } catch (std::exception const& e) { failure_ = e.what(); }
    }

private:
    [[nodiscard]] static ncclConfig_t not_blocking() {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        return config;
    }
    void require_working(operation const& what) const {
        if (!comm_)
            throw error(what.text() + ": the communicator was aborted after an error" +
                        (failure_.empty() ? "" : ": " + failure_));
    }
    void check(ncclResult_t code, operation const& what) {
        if (is_good(code)) return;
        std::string const text =
            what.text() + ": NCCL says: " + ncclGetErrorString(code) + ": " + ncclGetLastError(comm_);
        abort();
        throw error(text);
    }
    void abort() {
        running_.clear();
        if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
    }

    using clock = std::chrono::steady_clock;
    struct running {
        operation what;
        std::shared_ptr<started> own;
        clock::time_point since;
    };

    seconds time_out_;
    std::shared_ptr<watchdog> dog_;
    /// Guards what the watchdog uses too: all below but the stream.
    std::mutex lock_;
    std::deque<running> running_;
    std::string failure_;
    int uncaught_ = std::uncaught_exceptions();
    nccl::stream stream_;
    ncclComm_t comm_ = nullptr;
};

} // namespace heddle::nccl::detail
