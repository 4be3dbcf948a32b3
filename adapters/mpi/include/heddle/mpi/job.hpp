// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A job: all processes that were started together, which end together.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/base/version.hpp>
#include <heddle/mpi/communicator.hpp>
#include <heddle/mpi/detail/progress.hpp>

#include <mpi.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <concepts>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <type_traits>

namespace heddle::mpi {

struct job_options {
    /// How long a rank waits for others in one operation.
    seconds time_out{300};
    /// Whether a thread of each process lets MPI go on while the process computes, where MPI can be called by several.
    /// Without it collectives beside computation hide little of their time.
    bool progresses = true;
};

namespace detail {

/// Says why the job ends: the first rank of a machine to fail says it, and no other. Signal handlers may use it.
class last_words {
public:
    /// All ranks call it, once MPI is initialised.
    last_words() {
        MPI_Comm machine = MPI_COMM_NULL;
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
        int place = 0;
        MPI_Comm_rank(machine, &place);
        void* base = nullptr;
        MPI_Win_allocate_shared(place == 0 ? sizeof(flag) : 0, 1, MPI_INFO_NULL, machine, static_cast<void*>(&base),
                                &window_);
        MPI_Aint size = 0;
        int unit = 0;
        MPI_Win_shared_query(window_, 0, &size, &unit, static_cast<void*>(&base));
        said_ = place == 0 ? new (base) flag(0) : static_cast<flag*>(base);
        MPI_Barrier(machine); // nobody asks before it is zero
        MPI_Comm_free(&machine);
        int rank = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        std::snprintf(told_to_stop_.data(), told_to_stop_.size(),
                      "heddle: rank %d was told to stop: another rank has died, or the job was ended\n", rank);
    }
    last_words(last_words const&) = delete;
    ~last_words() { MPI_Win_free(&window_); }

    void say(char const* line) {
        if (said_->exchange(1) != 0) return;
        [[maybe_unused]] auto const written = ::write(STDERR_FILENO, line, std::strlen(line));
    }
    void say_told_to_stop() { say(told_to_stop_.data()); }

private:
    using flag = std::atomic<int>;
    static_assert(flag::is_always_lock_free);

    MPI_Win window_ = MPI_WIN_NULL;
    flag* said_ = nullptr;
    std::array<char, 128> told_to_stop_{};
};

inline last_words* words_of_process = nullptr;

inline void stop_on_signal(int) {
    if (words_of_process) words_of_process->say_told_to_stop();
    ::_exit(1);
}

/// Ends the process if MPI does not start or end in time: it waits for all processes then, and knows no time-out.
///
/// Where there are no last words, the first process of a machine that is there says it: each waits a little longer than
/// the one before, and when the first ends, `mpirun` ends the others.
class time_to_meet {
public:
    explicit time_to_meet(seconds most) {
        char const* const place = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
        double const others = place ? std::atoi(place) : 0;
        std::signal(SIGALRM, stop);
        ::alarm(static_cast<unsigned>(std::ceil(std::clamp(most.value + 5 * others, 1.0, 1e9))));
    }
    time_to_meet(time_to_meet const&) = delete;
    ~time_to_meet() {
        ::alarm(0);
        std::signal(SIGALRM, SIG_DFL);
    }

private:
    static void stop(int) {
        constexpr char const* line =
            "heddle: MPI does not start or end in time; another process has died, hangs, or was never there\n";
        if (words_of_process) words_of_process->say(line);
        else [[maybe_unused]] auto const written = ::write(STDERR_FILENO, line, std::strlen(line));
        ::_exit(1);
    }
};

} // namespace detail

/// Runs `work(communicator)` on every process that was started together (by `mpirun`), and returns what it returns, the
/// exit status of `main`.
///
/// An exception on any rank ends all of them: one line on the standard error says it, with the rank, and `mpirun` ends
/// with a status that is not zero. So does a rank that dies, and one that hangs for longer than the time-out.
/// *Preconditions.* MPI is not initialised, and is not used after.
template <class Work>
    requires std::is_invocable_r_v<int, Work&, communicator&>
[[nodiscard]] int run_job(int& argc, char**& argv, job_options const& options, Work&& work) {
    int level = 0;
    std::optional<detail::time_to_meet> meeting(options.time_out);
    if (MPI_Init_thread(&argc, &argv, options.progresses ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &level) !=
        MPI_SUCCESS) {
        std::fputs("heddle: MPI does not start\n", stderr);
        return 1;
    }
    int status = 1;
    {
        std::optional<detail::progress> beside;
        if (options.progresses && level == MPI_THREAD_MULTIPLE) beside.emplace();
        detail::last_words words;
        detail::words_of_process = &words;
        std::signal(SIGTERM, detail::stop_on_signal);
        int rank = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        // Open MPI lays errors of waits to this communicator, whichever they are of.
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        auto const fail = [&](char const* message) {
            words.say(("heddle: " + std::string(message) + " (seen by rank " + std::to_string(rank) + ")\n").c_str());
            MPI_Abort(MPI_COMM_WORLD, 1);
        };
        try {
            communicator world(MPI_COMM_WORLD, options.time_out);
            meeting.reset();
            world.require_equal("version of heddle", library_version);
            status = work(world);
            world.barrier(); // who hangs is found out before MPI_Finalize waits for it
            meeting.emplace(options.time_out);
        } catch (std::bad_alloc const&) { fail("out of memory"); } catch (std::exception const& e) {
            fail(e.what());
        } catch (...) { fail("an exception of an unknown type"); }
        std::signal(SIGTERM, SIG_DFL);
        detail::words_of_process = nullptr;
    }
    MPI_Finalize();
    return status;
}

} // namespace heddle::mpi
