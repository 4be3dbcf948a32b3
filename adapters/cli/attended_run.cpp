// SPDX-License-Identifier: BSL-1.0
// Handles Ctrl-C, and draws the line on a terminal that says how far the work is.
#include "attended_run.hpp"

#include <heddle/base/printable.hpp>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <system_error>

namespace heddle::cli {

namespace {

using namespace std::chrono_literals;
/// The pace at which a stop is passed on and the line is redrawn.
constexpr auto pace = 50ms;

static_assert(std::atomic<bool>::is_always_lock_free); // so that a signal may set it
std::atomic<bool> was_interrupted = false;

std::size_t terminal_width() {
    winsize size{};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

} // namespace

attended_run::attended_run() : is_watched_(isatty(STDERR_FILENO) == 1) {
    was_interrupted = false;
    sigaction(SIGINT, nullptr, &before_);
    if (before_.sa_handler != SIG_IGN) { // else somebody wants it to go on, such as nohup
        struct sigaction action{};
        action.sa_handler = [](int) { was_interrupted = true; };
        action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART; // the second one ends the process
        sigaction(SIGINT, &action, nullptr);
    }
    try {
        attendant_ = std::thread([this] { attend(); });
    } catch (std::system_error const&) { // no threads left: the work goes on unattended
        sigaction(SIGINT, &before_, nullptr);
    }
}

attended_run::~attended_run() {
    {
        std::lock_guard const lock(mutex_);
        has_ended_ = true;
    }
    ended_.notify_one();
    if (attendant_.joinable()) attendant_.join();
    sigaction(SIGINT, &before_, nullptr);
}

void attended_run::show(std::string const& phase, std::optional<double> best, std::optional<double> bound,
                        char const* unit) {
    if (!is_watched_) return;
    std::string found;
    char text[64];
    if (best) {
        std::snprintf(text, sizeof text, ", best %.6g%s", *best, unit);
        found = text;
    }
    if (best && bound && *bound > 0 && *bound <= *best * (1 + 1e-9)) {
        std::snprintf(text, sizeof text, ", gap %.2f %%", std::max(0.0, 100 * (1 - *bound / *best)));
        found += text;
    }
    std::lock_guard const lock(mutex_);
    phase_ = phase;
    found_ = std::move(found);
}

void attended_run::attend() {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, pace, [&] { return has_ended_; })) {
        if (was_interrupted && !stop_.stop_requested()) stop_.request_stop();
        if (is_watched_) draw();
    }
    if (is_drawn_) std::fputs("\r\033[K", stderr);
}

void attended_run::draw() {
    std::chrono::duration<double> const elapsed = std::chrono::steady_clock::now() - start_;
    char time[32];
    std::snprintf(time, sizeof time, ", %.1f s", elapsed.count());
    std::string line = (stop_.stop_requested() ? "stopping: " : "") + printable(phase_, 60) + time + found_;
    // A character in the last column would break the line.
    line.resize(std::min(line.size(), terminal_width() - 1));
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    std::fflush(stderr);
    is_drawn_ = true;
}

} // namespace heddle::cli
