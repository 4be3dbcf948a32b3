// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a search may spend: time, and the things that it counts.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/limits.hpp>
#include <heddle/search/outcome.hpp>

#include <cstddef>
#include <limits>
#include <utility>

namespace heddle::search {

/// Enforces the limits of one search, which begins when this is constructed. A limit that was reached stays reached.
class budget {
public:
    explicit budget(limits const& l)
        : until_(l), labels_(l.labels.value_or(unlimited)), comparisons_(l.comparisons.value_or(unlimited)),
          bytes_(l.bytes.value_or(unlimited)) {}

    /// Tells whether to end, given what is kept and done so far. It is called before every step.
    [[nodiscard]] bool is_spent(std::size_t labels = 0, std::size_t comparisons = 0, std::size_t bytes = 0);
    /// Ends the search at its visitor's wish.
    void stop() { reached_ = limit_kind::stopped; }
    /// Returns which limit ended the search, or `none`.
    [[nodiscard]] limit_kind reached() const { return reached_; }
    [[nodiscard]] double elapsed() const { return until_.elapsed(); }
    /// Limits of a part, in the time that is left.
    [[nodiscard]] limits rest(limits part = {}) const { return until_.rest(std::move(part)); }

private:
    static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

    deadline until_;
    std::size_t labels_, comparisons_, bytes_;
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
