// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief When a rank drops what is made again for the backward pass, and makes it again.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace heddle::detail {

/// The steps of a plan that run again, by the last step that makes or uses what they make: they are dropped after that
/// one in the forward pass, and run again before its adjoint. Parameters that are unsharded for them are there until
/// then.
class region_turns {
public:
    using steps = std::vector<std::size_t>;

    /// `p` has the plan's tensors, operators and regions. What is `needed` behind the forward pass is dropped there.
    region_turns(plan const& of, indexed_program const& p, std::vector<tensor_id> const& needed);
    /// Returns the steps that run again before the adjoint of one that is the last of their region, in order.
    [[nodiscard]] steps const& again_before(std::size_t step) const { return of(again_, step); }
    /// Returns those of them that are dropped after it in the forward pass, and those that are dropped at its end.
    [[nodiscard]] steps const& dropped_after(std::size_t step) const { return of(dropped_, step); }
    [[nodiscard]] steps const& dropped_at_end() const { return at_end_; }

private:
    using by_step = std::map<std::size_t, steps>;
    [[nodiscard]] static steps const& of(by_step const& all, std::size_t step) {
        static steps const none;
        auto const found = all.find(step);
        return found == all.end() ? none : found->second;
    }

    by_step again_, dropped_;
    steps at_end_;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

#include <heddle/theory/recomputation.hpp>

namespace heddle::detail {

HEDDLE_INLINE region_turns::region_turns(plan const& of, indexed_program const& p,
                                         std::vector<tensor_id> const& needed) {
    struct region_steps {
        std::size_t last = 0;
        steps again;
    };
    std::map<region_number, region_steps> regions;
    steps unshards; // for the next computation
    for (std::size_t n = 0; n < of.steps.size(); ++n) {
        auto const& s = of.steps[n];
        auto const* const unshard = s.acting().as<instruction::unshard>();
        if (unshard && unshard->is_resharded) unshards.push_back(n);
        auto const* const compute = s.instruction.as<instruction::compute>();
        auto const mine = compute ? std::exchange(unshards, {}) : steps();
        auto const region = compute ? region_of(p, compute->op) : s.step.region;
        if (region == no_region) continue;
        auto& r = regions[region];
        r.last = n;
        if (!s.step.runs_again) continue;
        r.again.insert(r.again.end(), mine.begin(), mine.end());
        r.again.push_back(n);
    }
    for (auto const& [region, r] : regions) {
        auto const add_to = [&](steps& list) { list.insert(list.end(), r.again.begin(), r.again.end()); };
        bool const is_needed = algorithm::any_of(needed, [&](tensor_id t) { return p.tensors[t].region == region; });
        add_to(again_[r.last]);
        add_to(is_needed ? at_end_ : dropped_[r.last]);
    }
}

} // namespace heddle::detail

#endif
