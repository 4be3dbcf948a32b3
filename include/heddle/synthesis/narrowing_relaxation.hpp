// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Relaxations at one weight after the other, of few programs once some of them are known to be too slow.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/cost/relaxation.hpp>
#include <heddle/search/narrowed_graph.hpp>

#include <limits>
#include <memory>
#include <optional>
#include <utility>

namespace heddle {

/// Solves relaxations of a priced graph. Programs that one of them shows to take longer than is of use are left out of
/// those that follow: where bounds are near that, it is nearly all of the graph.
/// *Lifetime:* refers to the graph.
class narrowing_relaxation {
public:
    using part = search::narrowed_graph<cut_space::action>;

    explicit narrowing_relaxation(priced_graph const& priced) : priced_(priced) {}

    [[nodiscard]] relaxation at(multipliers weights) const { return relax(priced_, graph(), std::move(weights)); }
    /// The programs that are left.
    [[nodiscard]] cut_graph const& graph() const { return part_ ? part_->graph() : priced_.graph(); }
    /// What is left of the graph, which stays as long as this is held; none as long as it is all of it.
    [[nodiscard]] std::shared_ptr<part const> const& left() const { return part_; }
    /// Leaves out the programs that take more than `most` where `under`, the last relaxation, has this bound. That is
    /// done once, as soon as bounds are near; after it nothing is done.
    void leave_out(relaxation const& under, double bound, double most);
    /// Returns a relaxation of all programs: with the weights of one of what is left or, if its bound is higher, the
    /// last one before programs were left out.
    [[nodiscard]] relaxation of_all(relaxation of_left) const;
    /// What is left out takes no less. So the lesser of this and a bound of what is left is one of all.
    [[nodiscard]] double least_left_out() const { return least_left_out_; }

private:
    priced_graph const& priced_;
    std::shared_ptr<part const> part_;
    std::optional<relaxation> last_of_all_;
    double least_left_out_ = std::numeric_limits<double>::infinity();
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE void narrowing_relaxation::leave_out(relaxation const& under, double bound, double most) {
    constexpr double near = 0.05; // of the bound: what is left out is little where more is between both
    constexpr double rounding = 1e-9;
    if (part_ || !(most - bound <= near * bound) || most <= bound) return;
    last_of_all_ = under;
    part_ = std::make_shared<part const>(priced_.graph(), under.paths, most - bound + rounding * bound);
    least_left_out_ = most;
}

HEDDLE_INLINE relaxation narrowing_relaxation::of_all(relaxation of_left) const {
    if (!part_) return of_left;
    auto again = relax(priced_, std::move(of_left.weights));
    if (again.bound() < last_of_all_->bound()) return *last_of_all_;
    return again;
}

} // namespace heddle

#endif
