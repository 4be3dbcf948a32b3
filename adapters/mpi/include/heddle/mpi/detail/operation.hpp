// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Calls of MPI that end in time: what they return is checked, and no wait spins or is for ever.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>

#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>

namespace heddle::mpi::detail {

template <class Scalar>
[[nodiscard]] MPI_Datatype datatype() {
    static_assert(std::is_same_v<Scalar, float> || std::is_same_v<Scalar, double>,
                  "Ranks exchange elements of type float or double.");
    return std::is_same_v<Scalar, float> ? MPI_FLOAT : MPI_DOUBLE;
}

/// Tells what this rank does, for messages; the text is made only if it is wanted.
struct operation {
    std::string_view name;
    std::size_t elements = 0;
    int rank = 0, ranks = 0;
    /// The position of this operation among those of the rank's communicator, from 1.
    std::size_t number = 0;

    [[nodiscard]] std::string text() const {
        return "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ", " + std::string(name) + " of " +
               std::to_string(elements) + " elements (operation " + std::to_string(number) + " of its group)";
    }
};

/// *Throws* `error` with MPI's own words if a call has failed.
inline void check(int code, operation const& what) {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    throw error(what.text() + ": " + std::string(text.data(), static_cast<std::size_t>(length)));
}

/// Returns a number of elements as MPI counts them. *Throws* `error` if it cannot.
[[nodiscard]] inline int count(std::size_t elements, operation const& what) {
    if (elements > static_cast<std::size_t>(std::numeric_limits<int>::max()))
        throw error(what.text() + ": MPI counts up to " + std::to_string(std::numeric_limits<int>::max()) +
                    " elements");
    return static_cast<int>(elements);
}

/// Waits until `test(done)` sets its argument. At first it asks again at once, then after naps, so that ranks that
/// share a processor do not burn each other's time. *Throws* `error` after `time_out`.
template <class Test>
void wait_in_time(seconds time_out, operation const& what, Test&& test) {
    using clock = std::chrono::steady_clock;
    constexpr int eager = 64;
    constexpr std::chrono::microseconds longest{500};
    auto const begun = clock::now();
    std::chrono::microseconds nap{1};
    for (int asked = 0;; ++asked) {
        int done = 0;
        check(test(&done), what);
        if (done) return;
        if (asked < eager) {
            std::this_thread::yield();
            continue;
        }
        if (std::chrono::duration<double>(clock::now() - begun).count() > time_out.value)
            throw error(what.text() + ": no end after " + std::to_string(static_cast<long long>(time_out.value)) +
                        " s; another rank has died, hangs, or does something else");
        std::this_thread::sleep_for(nap);
        nap = std::min(nap * 2, longest);
    }
}

inline void wait_in_time(seconds time_out, operation const& what, MPI_Request& request,
                         MPI_Status* status = MPI_STATUS_IGNORE) {
    wait_in_time(time_out, what, [&](int* done) { return MPI_Test(&request, done, status); });
}

} // namespace heddle::mpi::detail
