// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What regions that are made again for the backward pass hold.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/plan/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace heddle::detail {

/// What regions that are made again hold, each from the first step that belongs to it until the last: by class of
/// devices, the most that is held at one time.
class region_memory {
public:
    region_memory(std::size_t steps, std::size_t classes) : steps_(steps), classes_(classes) {}

    /// Goes on to the next step, whose copies of parameters its region has until the backward pass is through it.
    void next(plan_step const& s);
    /// Adds what the step saves in a region. The last region is held until the backward pass if it does not run again.
    void add(region_number region, bool runs_again, std::size_t k, double bytes_held) {
        auto& r = at(region);
        r.held[k] += bytes_held;
        if (!runs_again) r.last = steps_ - 1;
    }
    [[nodiscard]] double most(std::size_t k) const;

private:
    struct region_held {
        std::size_t first = 0, last = 0;
        std::vector<double> held;
    };
    region_held& at(region_number region);

    std::size_t steps_, classes_, passed_ = 0;
    double copies_ = 0;
    std::map<region_number, region_held> regions_;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE void region_memory::next(plan_step const& s) {
    ++passed_;
    auto const* const unshard = s.acting().as<instruction::unshard>();
    if (unshard && unshard->is_resharded) copies_ += s.step.transient.value;
    if (!s.instruction.is<instruction::compute>()) return;
    double const copies = std::exchange(copies_, 0.0);
    if (s.step.region == no_region) return;
    for (auto& held : at(s.step.region).held) held += s.step.runs_again ? copies : 0;
}

HEDDLE_INLINE region_memory::region_held& region_memory::at(region_number region) {
    auto const now = passed_ - 1;
    auto& found = regions_.try_emplace(region, region_held{now, now, std::vector<double>(classes_, 0.0)}).first->second;
    found.last = std::max(found.last, now);
    return found;
}

HEDDLE_INLINE double region_memory::most(std::size_t k) const {
    if (regions_.empty()) return 0;
    std::vector<double> changes(steps_ + 1);
    for (auto const& [region, r] : regions_) changes[r.first] += r.held[k], changes[r.last + 1] -= r.held[k];
    double now = 0, most = 0;
    for (double change : changes) most = std::max(most, now += change);
    return most;
}

} // namespace heddle::detail

#endif
