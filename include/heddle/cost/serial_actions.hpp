// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The serial accumulator over numbered actions, for a theory searched in any order.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/search/properties/property_space.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// `serial` as the accumulator of a `search::property_space`: each action is a sequence of priced steps.
///
/// If there are several classes the order of actions matters, since a collective closes a stage. There is one
/// relaxation per class, which counts every collective and the work of that class.
class serial_actions {
public:
    using label = serial::label;

    /// `steps[a]` are the steps of action a, in order.
    serial_actions(std::size_t class_count, std::vector<std::vector<step_cost>> steps)
        : clocks_(class_count), class_count_(class_count), steps_(std::move(steps)) {}

    [[nodiscard]] label initial() const { return clocks_.initial(); }
    void extend(label& l, std::size_t action) const {
        for (auto const& s : steps_[action]) clocks_.extend(l, s);
    }
    [[nodiscard]] double total(label const& l) const { return clocks_.total(l); }
    [[nodiscard]] bool dominates(label const& a, label const& b) const { return clocks_.dominates(a, b); }

    [[nodiscard]] bool is_commutative() const { return class_count_ == 1; }
    [[nodiscard]] std::size_t relaxation_count() const { return class_count_; }
    [[nodiscard]] double relaxed_cost(std::size_t k, std::size_t action) const;
    /// Returns a lower bound: what is closed and deferred, and the open work of the slowest class with all that is left
    /// for it.
    [[nodiscard]] double total_after(label const& l, std::span<double const> rests) const;

private:
    serial clocks_;
    std::size_t class_count_;
    std::vector<std::vector<step_cost>> steps_;
};
static_assert(search::accumulator<serial_actions>);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE double serial_actions::relaxed_cost(std::size_t k, std::size_t action) const {
    double sum = 0;
    for (auto const& s : steps_[action])
        sum += s.forward_transfer + s.backward_transfer + s.deferred + s.refresh + s.forward[k] + s.backward[k] +
               s.update[k];
    return sum;
}

HEDDLE_INLINE double serial_actions::total_after(label const& l, std::span<double const> rests) const {
    double most = 0;
    for (std::size_t k = 0; k < class_count_; ++k)
        most = std::max(most, l.forward[k] + l.backward[k] + l.update[k] + rests[k]);
    return l.closed + l.deferred + most;
}

} // namespace heddle

#endif
