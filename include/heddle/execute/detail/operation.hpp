// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a rank does with others, for messages, and waits for others that end in time.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <thread>

namespace heddle::detail {

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

/// Waits until `done()`. At first it asks again at once, then after naps, so that ranks that share a processor do not
/// burn each other's time. *Throws* `error` after `time_out`.
template <class Done>
void wait_in_time(seconds time_out, operation const& what, Done&& done) {
    using clock = std::chrono::steady_clock;
    constexpr int eager = 64;
    constexpr std::chrono::microseconds longest{500};
    auto const begun = clock::now();
    std::chrono::microseconds nap{1};
    for (int asked = 0; !done(); ++asked) {
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

} // namespace heddle::detail
