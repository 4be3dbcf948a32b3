// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a planner has found so far.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/synthesis/planning_progress.hpp>
#include <heddle/synthesis/stage_programs.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Keeps the best plan, the best ratios of every program, and the way there. Ratios are those of device types.
class plan_record {
public:
    struct candidate {
        move_list path;
        ratio_table ratios;
        double cost;
    };

    plan_record(stage_programs const& programs, progress_function const& progress)
        : programs_(programs), progress_(progress) {}

    /// Prices a program at ratios on integral shares, and keeps it if it is the best so far. Returns its seconds if it
    /// fits.
    std::optional<double> consider(std::string origin, move_list const& path, ratio_table const& ratios);
    /// Takes a plan that fits and is cheaper.
    void take(std::string origin, plan&& p, move_list path, ratio_table ratios);

    [[nodiscard]] bool is_empty() const { return !best_; }
    /// *Precondition* of what follows: something was found.
    [[nodiscard]] plan& best() { return *best_; }
    [[nodiscard]] plan const& best() const { return *best_; }
    [[nodiscard]] move_list const& path() const { return path_; }
    [[nodiscard]] ratio_table const& ratios() const { return ratios_; }
    /// Returns the candidates, cheapest first.
    [[nodiscard]] std::vector<candidate> const& candidates() const { return candidates_; }
    [[nodiscard]] std::vector<trajectory_point> trajectory() && { return std::move(trajectory_); }

    /// Tells whoever watches a bound for all programs at some ratios.
    void note_bound(ratio_table const& ratios, double bound);
    void tell(std::string const& phase) const;

private:
    void set_best(plan&& p, move_list path, ratio_table ratios);
    void keep(move_list const& path, ratio_table const& ratios, double cost);

    stage_programs const& programs_;
    progress_function const& progress_;
    std::optional<plan> best_;
    move_list path_;
    ratio_table ratios_;
    std::vector<candidate> candidates_;
    std::vector<trajectory_point> trajectory_;
    ratio_table bound_ratios_;
    double bound_ = 0;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::optional<double> plan_record::consider(std::string origin, move_list const& path,
                                                          ratio_table const& ratios) {
    auto [p, cost] = programs_.realise(path, ratios);
    auto const price = cost.fits ? std::optional(p.cost()) : std::nullopt;
    trajectory_.push_back({std::move(origin), p.ratios, price});
    if (price && programs_.keeps_pins(p)) {
        keep(path, ratios, *price);
        if (!best_ || *price < best_->cost()) set_best(std::move(p), path, ratios);
    }
    tell(trajectory_.back().origin);
    return price;
}

HEDDLE_INLINE void plan_record::take(std::string origin, plan&& p, move_list path, ratio_table ratios) {
    trajectory_.push_back({std::move(origin), p.ratios, p.cost()});
    set_best(std::move(p), std::move(path), std::move(ratios));
}

HEDDLE_INLINE void plan_record::note_bound(ratio_table const& ratios, double bound) {
    bound_ratios_ = ratios;
    bound_ = bound;
}

HEDDLE_INLINE void plan_record::tell(std::string const& phase) const {
    if (!progress_) return;
    planning_progress now{phase};
    if (best_) now.cost = best_->cost();
    if (best_ && bound_ratios_ == ratios_) now.lower_bound = bound_;
    progress_(now);
}

HEDDLE_INLINE void plan_record::set_best(plan&& p, move_list path, ratio_table ratios) {
    best_ = std::move(p);
    path_ = std::move(path);
    ratios_ = std::move(ratios);
}

HEDDLE_INLINE void plan_record::keep(move_list const& path, ratio_table const& ratios, double cost) {
    if (auto const known = algorithm::find(candidates_, path, &candidate::path); known != candidates_.end()) {
        if (known->cost <= cost) return;
        candidates_.erase(known);
    }
    candidates_.insert(algorithm::upper_bound(candidates_, cost, {}, &candidate::cost), {path, ratios, cost});
}

} // namespace heddle

#endif
