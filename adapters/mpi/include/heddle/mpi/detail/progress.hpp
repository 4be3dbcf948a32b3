// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Lets MPI go on with what is under way while a process computes.
#pragma once

#include <heddle/base/requirements.hpp>

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace heddle::mpi::detail {

/// How many operations of this process are under way.
inline std::atomic<int> under_way{0};

/// A thread that calls MPI from time to time while operations are under way. MPI moves data in its own calls alone,
/// beyond what the system keeps for its connections: without the thread what is sent beside computation waits for its
/// end.
/// *Precondition:* MPI is initialised with MPI_THREAD_MULTIPLE, and is finalised after this object is gone.
class progress {
public:
    progress() : thread_([this] { run(); }) {}
    progress(progress const&) = delete;
    progress& operator=(progress const&) = delete;
    ~progress() {
        is_over_ = true;
        thread_.join();
    }

private:
    void run() const {
        // Often enough for parts of a message to follow each other, and a few per cent of a processor at most.
        constexpr std::chrono::milliseconds pause{1};
        while (!is_over_) {
            int found = 0;
            if (under_way > 0) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
            std::this_thread::sleep_for(pause);
        }
    }

    std::atomic<bool> is_over_{false};
    std::thread thread_;
};

} // namespace heddle::mpi::detail
