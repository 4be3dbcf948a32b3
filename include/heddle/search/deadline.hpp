// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief When work has to end: after some time or on request, for all of its parts together.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/search/limits.hpp>
#include <heddle/search/outcome.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <stop_token>

namespace heddle::search {

/// Runs from its construction on. Parts of the work get what is `left`, as `rest` has it.
class deadline {
public:
    /// Takes the time and the token of the limits.
    explicit deadline(limits const& l = {}) : time_limit_(l.seconds), stop_(l.stop) {}

    [[nodiscard]] double elapsed() const { return std::chrono::duration<double>(clock::now() - start_).count(); }
    /// Returns the seconds left, not below zero; nothing if there is no time limit.
    [[nodiscard]] std::optional<double> left() const {
        return time_limit_ ? std::optional(std::max(0.0, *time_limit_ - elapsed())) : std::nullopt;
    }
    /// Limits of a part, in no more time than is left.
    [[nodiscard]] limits rest(limits part = {}) const;
    /// Returns `stopped`, `time`, or `none` as long as there is time.
    [[nodiscard]] limit_kind reached() const;
    [[nodiscard]] bool is_over() const { return reached() != limit_kind::none; }
    [[nodiscard]] std::stop_token const& stop() const { return stop_; }

private:
    using clock = std::chrono::steady_clock;

    std::optional<double> time_limit_;
    std::stop_token stop_;
    clock::time_point start_ = clock::now();
};

} // namespace heddle::search

#if HEDDLE_DEFINITIONS

namespace heddle::search {

HEDDLE_INLINE limits deadline::rest(limits part) const {
    if (auto const time = left()) part.seconds = std::min(*time, part.seconds.value_or(*time));
    if (!part.stop.stop_possible()) part.stop = stop_;
    return part;
}

HEDDLE_INLINE limit_kind deadline::reached() const {
    if (stop_.stop_requested()) return limit_kind::stopped;
    return time_limit_ && elapsed() >= *time_limit_ ? limit_kind::time : limit_kind::none;
}

} // namespace heddle::search

#endif
