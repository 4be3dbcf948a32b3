// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Seconds of calls, and of communication and computation at the same time.
#pragma once

#include <heddle/execute/communicator.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace heddle::cli {

[[nodiscard]] inline double median(std::vector<double> all) {
    std::ranges::sort(all);
    auto const half = all.size() / 2;
    return all.size() % 2 == 1 ? all[half] : (all[half - 1] + all[half]) / 2;
}

/// Returns the seconds that a call takes.
[[nodiscard]] inline double seconds_of(std::function<void()> const& call) {
    using clock = std::chrono::steady_clock;
    auto const begun = clock::now();
    call();
    return std::chrono::duration<double>(clock::now() - begun).count();
}

/// Returns the median seconds that a call takes on the slowest rank. All ranks of the group call it.
template <class Group>
[[nodiscard]] double slowest_seconds(Group& group, int repeats, std::function<void()> const& call) {
    std::vector<double> all;
    for (int r = -1; r < repeats; ++r) { // the first one is not counted
        std::vector<double> one{1};
        group.all_reduce(std::span(one));
        one[0] = seconds_of(call);
        group.all_reduce(std::span(one), reduction::maximum);
        if (r >= 0) all.push_back(one[0]);
    }
    return median(std::move(all));
}

/// What a collective and a computation take alone, and at the same time.
struct interference {
    double collective = 0, computation = 0, together = 0;
    /// The part of the shorter one that is hidden behind the longer one: 0 if they only take turns, 1 if neither
    /// notices the other.
    [[nodiscard]] double hidden() const {
        return std::clamp((collective + computation - together) / std::min(collective, computation), 0.0, 1.0);
    }
};

/// Starts an all-reduce of this many bytes, computes for as long as it takes alone, and waits for it; the slowest rank
/// counts. All ranks of the group call it.
template <class Group>
[[nodiscard]] interference measure_interference(Group& group, int repeats, std::size_t size) {
    std::vector<float> sent(size / sizeof(float), 1.0F), computed(std::size_t{1} << 16, 1.0F);
    auto const slowest = [&](std::function<void()> const& call) { return slowest_seconds(group, repeats, call); };
    auto const compute = [&](int times) {
        for (int n = 0; n < times; ++n)
            for (auto& x : computed) x = x * 0.999F + 0.001F;
    };
    interference result;
    result.collective = slowest([&] { group.all_reduce(std::span(sent)); });
    std::vector<double> times{result.collective / std::max(seconds_of([&] { compute(10); }) / 10, 1e-9)};
    group.all_reduce(std::span(times), reduction::maximum);
    auto const of_all = static_cast<int>(std::clamp(times[0], 1.0, 1e6));
    result.computation = slowest([&] { compute(of_all); });
    result.together = slowest([&] {
        auto started = group.start_all_reduce(std::span(sent));
        compute(of_all);
        started.wait();
    });
    return result;
}

} // namespace heddle::cli
