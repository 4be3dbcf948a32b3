// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A thread that looks after communicators while the host of their rank does something else.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/nccl/cuda.hpp>

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace heddle::nccl::detail {

/// What is looked after: `look()` is called now and then by the watchdog's thread, between `add` and `remove`.
class watched {
public:
    watched() = default;
    watched(watched const&) = delete;
    virtual ~watched() = default;
    virtual void look() noexcept = 0;
};

/// Looks a hundred times in the time-out, but every tenth of a second at least. Its thread has the device of the thread
/// that made it.
class watchdog {
public:
    explicit watchdog(seconds time_out) {
        int device = 0;
        check(cudaGetDevice(&device), "asking for the current device");
        auto const pause = std::chrono::duration<double>(std::min(time_out.value / 100, 0.1));
        thread_ = std::jthread([this, device, pause](std::stop_token const& stop) {
            if (cudaSetDevice(device) != cudaSuccess) return;
            std::unique_lock guard(lock_);
            while (!stop.stop_requested()) {
                for (auto* w : all_) w->look();
                changed_.wait_for(guard, stop, pause, [] { return false; });
            }
        });
    }

    void add(watched& w) {
        std::scoped_lock const guard(lock_);
        all_.push_back(&w);
    }
    /// It is not looked at when this has returned.
    void remove(watched& w) {
        std::scoped_lock const guard(lock_);
        std::erase(all_, &w);
    }

private:
    std::mutex lock_;
    std::condition_variable_any changed_;
    std::vector<watched*> all_;
    std::jthread thread_; // ends first
};

} // namespace heddle::nccl::detail
