// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a person has while a command works: Ctrl-C, and a line on the terminal.
#pragma once

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

namespace heddle::cli {

/// While an object lives, Ctrl-C asks the work for what it has so far; a second Ctrl-C ends the process. If stderr is a
/// terminal, a line on it says what is being done, for how long, how good the best is and how far it is from its bound.
class attended_run {
public:
    attended_run();
    ~attended_run();
    attended_run(attended_run const&) = delete;
    attended_run& operator=(attended_run const&) = delete;

    [[nodiscard]] std::stop_token stop() const { return stop_.get_token(); }
    /// `unit` follows the number.
    void show(std::string const& phase, std::optional<double> best = {}, std::optional<double> bound = {},
              char const* unit = " s");

private:
    void attend();
    void draw();

    bool const is_watched_;
    std::chrono::steady_clock::time_point const start_ = std::chrono::steady_clock::now();
    std::stop_source stop_;
    struct sigaction before_{};
    std::mutex mutex_;
    std::condition_variable ended_;
    bool has_ended_ = false, is_drawn_ = false;
    std::string phase_, found_;
    std::thread attendant_;
};

} // namespace heddle::cli
