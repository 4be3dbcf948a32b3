// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a search may spend: time, and what it counts.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/outcome.hpp>

#include <cstddef>
#include <limits>
#include <optional>
#include <stop_token>

namespace heddle::search {

/// Enforces the limits of one search, which begins with it. A limit that was reached stays so.
class budget {
public:
    /// From options that have a time limit and a stop token, and may have limits on labels, comparisons and bytes.
    template <class Options>
        requires requires(Options const& o) {
            std::optional<double>(o.time_limit_seconds);
            std::stop_token(o.stop);
        }
    explicit budget(Options const& o) : until_(o.time_limit_seconds, o.stop) {
        if constexpr (requires { o.label_limit; }) labels_ = o.label_limit;
        if constexpr (requires { o.comparison_limit; }) comparisons_ = o.comparison_limit;
        if constexpr (requires { o.memory_limit_bytes; }) bytes_ = o.memory_limit_bytes;
    }

    /// Whether to end, with so much kept and done so far. Asked before every step.
    [[nodiscard]] bool is_spent(std::size_t labels, std::size_t comparisons = 0, std::size_t bytes = 0);
    /// Ends the search, as its visitor wants.
    void stop() { reached_ = limit_kind::stopped; }
    /// What ended it; none where nothing did.
    [[nodiscard]] limit_kind reached() const { return reached_; }
    [[nodiscard]] double elapsed() const { return until_.elapsed(); }

private:
    static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

    deadline until_;
    std::size_t labels_ = unlimited, comparisons_ = unlimited, bytes_ = unlimited;
    limit_kind reached_ = limit_kind::none;
};

} // namespace heddle::search

#if HEDDLE_DEFINITIONS

namespace heddle::search {

HEDDLE_INLINE bool budget::is_spent(std::size_t labels, std::size_t comparisons, std::size_t bytes) {
    if (reached_ != limit_kind::none) return true;
    if (labels >= labels_) reached_ = limit_kind::labels;
    else if (comparisons >= comparisons_) reached_ = limit_kind::comparisons;
    else if (bytes >= bytes_) reached_ = limit_kind::memory;
    else reached_ = until_.reached();
    return reached_ != limit_kind::none;
}

} // namespace heddle::search

#endif
