// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief When work has to end: after some time or on request, for all parts of it together.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/search/outcome.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <stop_token>
#include <utility>

namespace heddle::search {

/// Runs from its construction on. Parts of the work get what is `left`.
class deadline {
public:
    explicit deadline(std::optional<double> time_limit = {}, std::stop_token stop = {})
        : time_limit_(time_limit), stop_(std::move(stop)) {}

    [[nodiscard]] double elapsed() const { return std::chrono::duration<double>(clock::now() - start_).count(); }
    /// Not below zero; nothing where there is no end.
    [[nodiscard]] std::optional<double> left() const {
        return time_limit_ ? std::optional(std::max(0.0, *time_limit_ - elapsed())) : std::nullopt;
    }
    /// `stopped`, `time`, or none as long as there is time.
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

HEDDLE_INLINE limit_kind deadline::reached() const {
    if (stop_.stop_requested()) return limit_kind::stopped;
    return time_limit_ && elapsed() >= *time_limit_ ? limit_kind::time : limit_kind::none;
}

} // namespace heddle::search

#endif
