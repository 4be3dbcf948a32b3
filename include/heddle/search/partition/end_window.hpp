// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The cheapest end of a part as its start moves through a row: a monotone queue.
#pragma once

#include <heddle/base/definitions.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace heddle::search::detail {

/// Sizes and costs in whole numbers of a small unit.
using ticks = std::int64_t;
inline constexpr ticks infinite = std::numeric_limits<ticks>::max();

/// The possible ends of one part that begins at a falling start. The sizes they give lie in (above, upto], so that
/// both ends of the window fall too. Its front is the cheapest end, of equals the first.
class end_window {
public:
    struct candidate {
        ticks through;
        std::size_t end;
    };
    explicit end_window(std::size_t size = 0) : open_(size) {}

    /// For a new part, which ends in [first, last].
    void reset(std::size_t first, std::size_t last);
    /// `through(end)` is the cost of an end but for what depends on the start; infinite: no end. False where this
    /// and every smaller start is too far from the first end.
    template <class Through>
    bool move_to(std::size_t start, std::size_t latest, std::vector<ticks> const& before, ticks above, ticks upto,
                 Through const& through) {
        last_ = std::min(last_, latest);
        while (before[last_] - before[start] > upto && last_ > start) --last_;
        if (last_ < first_) {
            front_ = back_;
            return false;
        }
        for (std::size_t const stop = std::max(start + 1, first_);
             pushed_ > stop && before[pushed_ - 1] - before[start] > above;) {
            --pushed_;
            if (pushed_ > last_) continue;
            ticks const cost = through(pushed_);
            if (cost == infinite) continue;
            while (back_ > front_ && open_[back_ - 1].through >= cost) --back_;
            open_[back_++] = {cost, pushed_};
        }
        while (front_ < back_ && open_[front_].end > last_) ++front_;
        return true;
    }
    [[nodiscard]] bool empty() const { return front_ == back_; }
    [[nodiscard]] candidate best() const { return open_[front_]; }

private:
    std::vector<candidate> open_;
    std::size_t front_ = 0, back_ = 0, first_ = 0, last_ = 0, pushed_ = 0;
};

} // namespace heddle::search::detail

#if HEDDLE_DEFINITIONS

namespace heddle::search::detail {

HEDDLE_INLINE void end_window::reset(std::size_t first, std::size_t last) {
    front_ = back_ = 0;
    first_ = first;
    pushed_ = last + 1;
    last_ = last;
}

} // namespace heddle::search::detail

#endif
