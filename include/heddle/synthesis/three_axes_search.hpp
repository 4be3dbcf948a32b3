// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The search of programs on a mesh of three axes, which begins with programs on two of them.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/synthesis/mesh_search_options.hpp>
#include <heddle/synthesis/mesh_turns.hpp>
#include <heddle/synthesis/two_axes_search.hpp>

#include <deque>
#include <vector>

namespace heddle::detail {

/// Searches a program on a mesh of three axes: it begins with programs on two, which have neighbouring axes as one.
/// These two axes' programs are those of two of the three, the third is planned beside them, and all take turns. Where
/// axes are not to do alike, neighbours as one keep to what one of them may do.
class three_axes_searcher : public mesh_turns {
public:
    using mesh_turns::mesh_turns;
    [[nodiscard]] mesh_search_result run();

private:
    /// Plans from a program of two axes, which has an axis and the next one as one: each of `planned`, which are of
    /// these, beside the program of the other.
    void begin_with_joined(axis_number axis, std::vector<axis_number> const& planned);
    /// Returns a bound of the programs at the best shares, which leaves one axis out: each instruction has there what
    /// is cheapest. Zero if there is none.
    [[nodiscard]] double bound() const;
    /// Returns the axis along which a sum of many bytes is there first.
    [[nodiscard]] axis_number fastest_axis() const;
    /// Returns the weights of the best program; with several classes those of programs on two axes too.
    [[nodiscard]] std::vector<relaxation_weights> weights() const;

    std::deque<two_axes_searcher> two_axes_;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/synthesis/mesh_bound.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace heddle::detail {

HEDDLE_INLINE void three_axes_searcher::begin_with_joined(axis_number axis, std::vector<axis_number> const& planned) {
    if (until_.is_over()) return;
    auto asked = options_;
    axis_number const left = planned.front(), joined = 2 * axis + 1 - left, other = axis == 0 ? 2 : 0;
    auto const [first, second] = std::minmax(joined, other);
    // The pins of the axis that is left are of tensors that are searched alike.
    asked.pinned = {options_.pinned[first], options_.pinned[second], options_.pinned[left]};
    if (!options_.strategy.empty()) asked.strategy = {options_.strategy[first], options_.strategy[second]};
    asked.worth_below = std::numeric_limits<double>::infinity();
    asked.limits = until_.rest(options_.limits);
    if (asked.limits.seconds) *asked.limits.seconds /= 2; // the rest is for what follows
    auto const sizes = axis == 0 ? std::vector{mesh_.size(0) * mesh_.size(1), mesh_.size(2)}
                                 : std::vector{mesh_.size(0), mesh_.size(1) * mesh_.size(2)};
    if (axis == 0 && asked.ratios)
        for (double& share : *asked.ratios) share /= static_cast<double>(mesh_.size(1));
    auto& two = two_axes_.emplace_back(by_, searched_.given(),
                                       axis == 0 ? with_groups_of(cluster_, static_cast<int>(mesh_.size(2))) : cluster_,
                                       mesh(sizes), asked, solve_);
    two.sketch();
    statistics_ += two.statistics();
    if (two.best().list.empty()) return;
    auto const before = kept_;
    for (std::size_t n = 0; n < kept_.size(); ++n) kept_[n] = two.kept_of(allowed_[n]);
    if (is_restricted()) kept_[left] = allowed_[left]; // other axes' pins had no part in what was explored
    double const least = best_.cost.seconds;
    for (auto const third : planned) take_turns(third, two.best().list, options_.turns);
    if (best_.cost.seconds >= least) kept_ = before;
}

HEDDLE_INLINE axis_number three_axes_searcher::fastest_axis() const {
    auto const size = [&](axis_number axis) { return static_cast<int>(mesh_.size(axis)); };
    constexpr bytes many(1e9);
    transfer across;
    across.size = many; // of a sum
    across.lines = size(1) * size(2);
    std::array times{model_.time(across, uniform_shares(best_ratios_)), 0.0, 0.0};
    for (axis_number const inside : {axis_number{1}, axis_number{2}}) {
        times[inside] =
            model_.inside({inside_step::all_reduce, many, {}, size(inside), inside == 1 ? size(2) : 1}, 0)(many.value);
    }
    return static_cast<axis_number>(algorithm::min_element(times) - times.begin());
}

HEDDLE_INLINE std::vector<relaxation_weights> three_axes_searcher::weights() const {
    std::vector<relaxation_weights> list{best_.weights->time};
    if (types_.classes.size() > 1)
        for (auto const& two : two_axes_)
            if (two.best().weights) list.push_back(two.best().weights->time);
    return list;
}

HEDDLE_INLINE double three_axes_searcher::bound() const {
    if (!options_.strategy.empty() || !best_.weights || by_.kind != relaxation_kind::clocks) return 0;
    auto const* programs = two_axes_.front().bounding();
    loosened_space of_all(searched_.program(), tokens::of_whole_copies); // of what any axis may do
    if (is_restricted()) {
        auto const allowed = either(allowed_[0], either(allowed_[1], allowed_[2]));
        programs = loosen_until_narrow(of_all, allowed, options_.bound_width, false, until_) ? &of_all : nullptr;
    }
    if (!programs || !programs->graph.has_goal()) return 0;
    auto const shares = whole_shares(best_ratios_);
    axis_number const left_out = fastest_axis();
    auto allowed = allowed_;
    if (is_restricted()) allowed.erase(allowed.begin() + static_cast<std::ptrdiff_t>(left_out));
    std::vector<double> const no_memory;
    double most = 0;
    for (auto const& of_classes : weights()) {
        mesh_prices const prices{searched_,         mesh_,      model_,    shares,
                                 options_.training, of_classes, no_memory, is_restricted() ? &allowed : nullptr,
                                 left_out};
        mesh_bound bounded(*programs, prices);
        most = std::max(most, bounded.improve(best_.cost.added, {options_.bound_rounds, options_.gap, until_, true}));
        if (most >= best_.cost.seconds * (1 - options_.gap)) break;
    }
    return most;
}

HEDDLE_INLINE mesh_search_result three_axes_searcher::run() {
    for (axis_number axis = 0; axis < 2; ++axis) {
        if (!is_restricted()) {
            begin_with_joined(axis, {axis, axis + 1});
            continue;
        }
        for (auto const planned : {axis, axis + 1}) begin_with_joined(axis, {planned});
    }
    if (best_.list.empty()) {
        if (!is_restricted()) return nothing("no program that was met fits into memory");
        char const* const what =
            options_.strategy.empty() ? "keeps what is pinned or forbidden" : "is of this strategy";
        if (!algorithm::all_of(two_axes_, &two_axes_searcher::has_programs))
            return nothing(std::string("no program ") + what);
        auto result = nothing(std::string("no program that was met ") + what + " and fits into memory");
        result.status = search::status::limit; // which is no proof
        if (result.which_limit == search::limit_kind::none) result.which_limit = search::limit_kind::width;
        return result;
    }
    settle();
    auto result = found(bound());
    result.space =
        "programs on a mesh of three axes, each of which keeps to the programs of one axis that are not slower "
        "for less memory" +
        std::string(pinned_tensors(options_).empty() ? "" : " and that keep the pins") + ", at these shares";
    return result;
}

} // namespace heddle::detail

#endif
