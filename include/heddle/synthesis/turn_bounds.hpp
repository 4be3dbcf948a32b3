// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Bounds of two micro-batches that take turns in one stage, on many sets of devices.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/synthesis/stage_bounds.hpp>

#include <compare>
#include <cstddef>
#include <vector>

namespace heddle {

/// Sets of devices in the order of what turns on one axis of them take at least. Each is bounded by the mean of work and
/// collectives that is best for one of them, and by the one that is best for itself as soon as its place in the order
/// depends on that. *Lifetime:* refers to the bounds of stages.
class turn_bounds {
public:
    struct bounded_set {
        double least = 0;
        stage_devices on;
        bool is_best = false;
        friend auto operator<=>(bounded_set const&, bounded_set const&) = default;
    };

    /// Sets whose bounds are `enough` are not told apart.
    turn_bounds(stage_bounds& stages, stage_devices const& typical, std::vector<stage_devices> const& others,
                double enough);

    /// Returns the set of which n others have less, and what turns take there at least.
    [[nodiscard]] bounded_set const& nth(std::size_t n, double enough);
    [[nodiscard]] std::size_t size() const { return sets_.size(); }
    [[nodiscard]] double on_typical() const { return on_typical_; }

private:
    stage_bounds& stages_;
    std::vector<bounded_set> sets_; // the first `settled_` are in order
    std::size_t settled_ = 0;
    double on_typical_ = 0;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>

#include <algorithm>
#include <span>
#include <utility>

namespace heddle {

HEDDLE_INLINE turn_bounds::turn_bounds(stage_bounds& stages, stage_devices const& typical,
                                       std::vector<stage_devices> const& others, double enough)
    : stages_(stages) {
    auto const [least, work] = stages.most_in_turns(typical, enough);
    on_typical_ = least;
    sets_.push_back({least, typical, true});
    for (auto const& on : others) sets_.push_back({stages.least_in_turns(on, work), on});
}

HEDDLE_INLINE turn_bounds::bounded_set const& turn_bounds::nth(std::size_t n, double enough) {
    for (; settled_ <= n; ++settled_) {
        std::span const rest(sets_.begin() + static_cast<std::ptrdiff_t>(settled_), sets_.end());
        auto& first = rest.front();
        while (true) {
            std::swap(first, *algorithm::min_element(rest));
            if (first.is_best || first.least >= enough) break;
            first = {std::max(first.least, stages_.most_in_turns(first.on, enough).first), first.on, true};
        }
    }
    return sets_[n];
}

} // namespace heddle

#endif
