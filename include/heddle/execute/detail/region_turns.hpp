// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief When a rank drops what is made again for the backward pass, and makes it again.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>

#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace heddle::detail {

/// The steps of a plan that run again, by the last step that makes or uses what they make: they are dropped after that
/// one in the forward pass, and run again before its adjoint. Parameters that are unsharded for them are there until
/// then.
class region_turns {
public:
    /// `p` has the plan's tensors, operators and regions.
    region_turns(plan const& of, indexed_program const& p);
    /// Returns the steps that run again where a step is the last of their region, in order.
    [[nodiscard]] std::span<std::size_t const> at(std::size_t step) const;
    /// Tells whether no region has a step behind.
    [[nodiscard]] bool is_last(std::size_t step) const { return !by_last_.empty() && by_last_.rbegin()->first == step; }

private:
    std::map<std::size_t, std::vector<std::size_t>> by_last_;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

#include <heddle/theory/recomputation.hpp>

namespace heddle::detail {

HEDDLE_INLINE region_turns::region_turns(plan const& of, indexed_program const& p) {
    struct region_steps {
        std::size_t last = 0;
        std::vector<std::size_t> again;
    };
    std::map<region_number, region_steps> regions;
    std::vector<std::size_t> unshards; // for the next computation
    for (std::size_t n = 0; n < of.steps.size(); ++n) {
        auto const& s = of.steps[n];
        auto const* const unshard = s.acting().as<instruction::unshard>();
        if (unshard && unshard->is_resharded) unshards.push_back(n);
        auto const* const compute = s.instruction.as<instruction::compute>();
        auto const mine = compute ? std::exchange(unshards, {}) : std::vector<std::size_t>();
        auto const region = compute ? region_of(p, compute->op) : s.step.region;
        if (region == no_region) continue;
        auto& r = regions[region];
        r.last = n;
        if (!s.step.runs_again) continue;
        r.again.insert(r.again.end(), mine.begin(), mine.end());
        r.again.push_back(n);
    }
    for (auto& [region, r] : regions) {
        auto& list = by_last_[r.last];
        list.insert(list.end(), r.again.begin(), r.again.end());
    }
}

HEDDLE_INLINE std::span<std::size_t const> region_turns::at(std::size_t step) const {
    auto const found = by_last_.find(step);
    if (found == by_last_.end()) return {};
    return found->second;
}

} // namespace heddle::detail

#endif
