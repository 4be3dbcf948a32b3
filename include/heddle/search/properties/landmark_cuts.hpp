// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Landmark cuts of a property task: a partition of its costs that bounds every way to the goal.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/search/properties/property_task.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle::search {

/// Sets of actions such that every way to the goal takes at least one of each, with weights that add up to no more than
/// its cost for any action. So the sum of all weights is at most the cost of any way, and the sum over the cuts that a
/// path has not met is at most what is left to pay after it.
struct landmark_cuts {
    number_lists actions;
    /// The cuts that each action is in.
    number_lists cuts_of;
    std::vector<double> weights;
    /// Tells for each action whether it is on a way that is cheap if nothing is ever removed.
    std::vector<char> on_way;
    /// What that way costs beyond `total`.
    double unpaid = 0;
    /// Tells whether no other cuts give more.
    [[nodiscard]] bool is_tight() const { return unpaid <= 1e-9 * total; }
    /// The sum of the weights; infinite if the goal cannot be reached.
    double total = 0;
};

namespace detail {

/// Finds cuts subgoal by subgoal, from the start to the goal.
///
/// A subgoal is a set of properties of which every way holds one at some time: a goal property is one, and so is a
/// group in which every first achiever of a subgoal has a precondition. While a subgoal costs something, the zone from
/// which it is reached for nothing is grown backwards; the actions that enter the zone are a cut.
///
/// An action that no longer costs anything is kept out of a cut by one of its preconditions that still cost something.
/// Which of them is chosen is a matter of taste, and decides how much the cuts are worth.
class landmark_cut_finder {
public:
    /// If there are several preconditions, takes the one that comes first or last among the subgoals.
    enum class taste { first, last };

    using action = property_task::action;
    using property = std::uint32_t;

    landmark_cut_finder(property_task const& task, std::span<double const> costs, std::span<std::uint32_t const> groups,
                        taste preferred);

    landmark_cuts find();

private:
    /// Marks the actions of one way to the goal that no longer costs anything. It goes backwards from the goal and
    /// takes, for each property needed, the action for which meeting cuts again costs least. What it meets only once,
    /// the weights pay for in full.
    void mark_way(landmark_cuts& cuts) const;

    /// What a subset of the actions reaches if nothing is ever removed.
    struct reached {
        std::vector<char> holds;
        /// The number of preconditions of each action that are not held.
        std::vector<std::uint32_t> missing;
        /// The properties of the start, then each property after what an action that adds it needs. The users of those
        /// before `spread` have been updated.
        std::vector<property> order;
        std::size_t spread = 0;
    };
    template <class Allowed>
    [[nodiscard]] reached reach(Allowed const& allowed) const {
        reached r{std::vector<char>(task_.property_count()), std::vector<std::uint32_t>(task_.action_count()), {}, 0};
        for (auto p : task_.initial()) hold(r, p);
        for (action a = 0; a < task_.action_count(); ++a) {
            r.missing[a] = static_cast<std::uint32_t>(task_.pre(a).size());
            if (r.missing[a] == 0 && allowed(a)) hold_added(r, a);
        }
        spread(r, allowed);
        return r;
    }
    static void hold(reached& r, property p) {
        if (!std::exchange(r.holds[p], char{1})) r.order.push_back(p);
    }
    void hold_added(reached& r, action a) const {
        for (auto p : task_.add(a)) hold(r, p);
    }
    template <class Allowed>
    void spread(reached& r, Allowed const& allowed) const {
        while (r.spread < r.order.size())
            for (auto a : task_.users(r.order[r.spread++]))
                if (--r.missing[a] == 0 && allowed(a)) hold_added(r, a);
    }

    /// Visits the possible actions that add one of `zone` and need none of it; the zone may grow meanwhile.
    template <class Visit>
    void for_each_entering(std::vector<property> const& zone, Visit&& visit) {
        for (std::size_t n = 0; n < zone.size(); ++n)
            for (auto a : task_.producers(zone[n])) {
                if (can_.missing[a] != 0 || std::exchange(seen_[a], char{1})) continue;
                touched_.push_back(a);
                if (!needs_zone(a)) visit(a);
            }
        for (auto a : touched_) seen_[a] = 0;
        touched_.clear();
    }
    [[nodiscard]] bool needs_zone(action a) const {
        return algorithm::any_of(task_.pre(a), [&](property p) { return in_zone_[p]; });
    }
    void mark(std::vector<property> const& zone, char value) {
        for (auto p : zone) in_zone_[p] = value;
    }

    /// Chains backwards from the goal, depth first; each subgoal comes after those it needs.
    [[nodiscard]] std::vector<std::vector<property>> subgoals();

    /// Returns the groups, none of them held at first, in which every first achiever of a subgoal has a precondition.
    [[nodiscard]] std::vector<std::uint32_t> needed_groups(std::vector<property> const& subgoal);

    /// Returns the actions that lead into the zone from which the subgoal is reached for nothing.
    [[nodiscard]] std::vector<action> enter_zone_of(std::vector<property> const& subgoal);

    /// Returns a precondition that is not free; of equal ones, by taste, the first or last in the list.
    [[nodiscard]] property blocker(action a) const;

    /// Subtracts the least cost in the cut from the costs of all of its actions.
    double take_cost(std::vector<action> const& cut);

    property_task const& task_;
    std::span<double const> costs_;
    taste preferred_;
    std::vector<double> rest_;
    std::vector<std::uint32_t> groups_;
    /// The number of each property's subgoal, from 1 on; 0 if it has none.
    std::vector<std::uint32_t> order_;
    reached can_, free_;
    /// Tells for each group whether it is held at first.
    std::vector<char> held_at_first_;
    std::vector<char> in_zone_, seen_;
    std::vector<action> touched_;
};

} // namespace detail

/// Finds cuts of a task under a cost per action.
///
/// `groups[p]` is the number of property p's group, below the number of properties. A group holds alternatives of one
/// thing, such as the forms of a tensor. Groups decide how good the bound is, never whether it is a bound. By default
/// each property is a group of its own, and the bound is loose if actions need several things.
/// *Precondition:* costs are finite and not negative.
/// *Complexity.* A cut takes time in the zone that it closes. With groups that is a few actions, so that a task of many
/// alike parts takes time linear in them. In the worst case it is cuts times the size of the task.
/// *Reference.* Helmert and Domshlak 2009 (landmark cuts), here built locally; Hoffmann, Porteous and Sebastia 2004
/// (backchaining).
[[nodiscard]] landmark_cuts find_landmark_cuts(property_task const& task, std::span<double const> costs,
                                               std::span<std::uint32_t const> groups = {});

} // namespace heddle::search

#if HEDDLE_DEFINITIONS

namespace heddle::search::detail {

HEDDLE_INLINE landmark_cut_finder::landmark_cut_finder(property_task const& task, std::span<double const> costs,
                                                       std::span<std::uint32_t const> groups, taste preferred)
    : task_(task), costs_(costs), preferred_(preferred), rest_(costs.begin(), costs.end()),
      groups_(groups.begin(), groups.end()), order_(task.property_count()), held_at_first_(task.property_count()),
      in_zone_(task.property_count()), seen_(task.action_count()) {
    if (groups_.empty()) {
        groups_.resize(task.property_count());
        std::iota(groups_.begin(), groups_.end(), property{0});
    }
    for (auto p : task.initial()) held_at_first_[groups_[p]] = 1;
}

HEDDLE_INLINE landmark_cuts landmark_cut_finder::find() {
    can_ = reach([](action) { return true; });
    free_ = reach([&](action a) { return rest_[a] <= 0; });
    landmark_cuts result;
    std::vector<std::vector<action>> cuts;
    if (algorithm::all_of(task_.goal(), [&](property p) { return can_.holds[p]; })) {
        for (auto const& subgoal : subgoals())
            while (algorithm::none_of(subgoal, [&](property p) { return free_.holds[p]; })) {
                cuts.push_back(enter_zone_of(subgoal));
                result.weights.push_back(take_cost(cuts.back()));
                result.total += result.weights.back();
            }
    } else {
        result.total = std::numeric_limits<double>::infinity();
    }
    result.actions =
        number_lists(cuts.size(), [&](std::size_t c, auto&& visit) { std::ranges::for_each(cuts[c], visit); });
    result.cuts_of = result.actions.transposed(task_.action_count());
    result.on_way.resize(task_.action_count());
    if (std::isfinite(result.total)) mark_way(result);
    return result;
}

HEDDLE_INLINE void landmark_cut_finder::mark_way(landmark_cuts& cuts) const {
    auto const& order = free_.order;
    std::vector<std::uint32_t> place(task_.property_count(), static_cast<std::uint32_t>(order.size()));
    for (std::uint32_t n = 0; n < order.size(); ++n) place[order[n]] = n;
    std::vector<char> met(cuts.weights.size()), needed(task_.property_count());
    for (auto p : task_.goal()) needed[p] = 1;
    for (std::size_t n = order.size(); n-- > task_.initial().size();) {
        if (!needed[order[n]]) continue;
        std::optional<action> best;
        std::pair<double, std::ptrdiff_t> least;
        for (auto a : task_.producers(order[n])) {
            if (rest_[a] > 0 || algorithm::any_of(task_.pre(a), [&](property p) { return place[p] >= n; })) continue;
            std::pair<double, std::ptrdiff_t> found{
                0, algorithm::count_if(task_.pre(a), [&](property p) { return !needed[p]; })};
            for (auto c : cuts.cuts_of[a]) found.first += met[c] ? cuts.weights[c] : 0;
            if (best && found >= least) continue;
            best = a;
            least = found;
        }
        cuts.on_way[*best] = 1;
        cuts.unpaid += least.first;
        for (auto c : cuts.cuts_of[*best]) met[c] = 1;
        for (auto p : task_.pre(*best)) needed[p] = 1;
    }
}

HEDDLE_INLINE std::vector<std::vector<landmark_cut_finder::property>> landmark_cut_finder::subgoals() {
    struct visit {
        std::uint32_t group;
        std::vector<property> members;
        std::vector<std::uint32_t> needed;
        std::size_t next = 0;
    };
    std::uint32_t const none = ~std::uint32_t{0};
    std::vector<std::vector<property>> members(task_.property_count()), result;
    for (property p = 0; p < groups_.size(); ++p)
        if (can_.holds[p]) members[groups_[p]].push_back(p);
    std::vector<char> met(task_.property_count());
    std::vector<visit> stack;
    auto const open = [&](std::uint32_t group, std::vector<property> of) {
        auto needed = needed_groups(of);
        stack.push_back({group, std::move(of), std::move(needed)});
    };
    for (auto goal : task_.goal()) {
        if (algorithm::find(task_.initial(), goal) != task_.initial().end()) continue;
        open(none, {goal});
        while (!stack.empty()) {
            if (auto& top = stack.back(); top.next < top.needed.size()) {
                auto const group = top.needed[top.next++];
                if (!std::exchange(met[group], char{1})) open(group, members[group]);
            } else {
                result.push_back(std::move(top.members));
                if (top.group != none)
                    for (auto p : result.back()) order_[p] = static_cast<std::uint32_t>(result.size());
                stack.pop_back();
            }
        }
    }
    return result;
}

HEDDLE_INLINE std::vector<std::uint32_t> landmark_cut_finder::needed_groups(std::vector<property> const& subgoal) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> counts;
    std::vector<std::uint32_t> mine, result;
    std::uint32_t achievers = 0;
    mark(subgoal, 1);
    for_each_entering(subgoal, [&](action a) {
        mine.clear();
        for (auto p : task_.pre(a))
            if (algorithm::find(mine, groups_[p]) == mine.end()) mine.push_back(groups_[p]);
        if (achievers++ == 0)
            for (auto g : mine) counts.emplace_back(g, 0);
        for (auto& [group, count] : counts) count += algorithm::find(mine, group) != mine.end();
    });
    mark(subgoal, 0);
    for (auto const& [group, count] : counts)
        if (count == achievers && !held_at_first_[group]) result.push_back(group);
    return result;
}

HEDDLE_INLINE std::vector<landmark_cut_finder::action> landmark_cut_finder::enter_zone_of(
    std::vector<property> const& subgoal) {
    auto zone = subgoal;
    std::vector<action> cut;
    mark(zone, 1);
    for_each_entering(zone, [&](action a) {
        cut.push_back(a);
        if (rest_[a] > 0) return;
        auto const chosen = blocker(a);
        in_zone_[chosen] = 1;
        zone.push_back(chosen);
    });
    std::erase_if(cut, [&](action a) { return needs_zone(a); });
    mark(zone, 0);
    return cut;
}

HEDDLE_INLINE landmark_cut_finder::property landmark_cut_finder::blocker(action a) const {
    std::optional<property> chosen;
    for (auto p : task_.pre(a)) {
        if (free_.holds[p]) continue;
        if (!chosen || (preferred_ == taste::last ? order_[p] >= order_[*chosen] : order_[p] < order_[*chosen]))
            chosen = p;
    }
    return *chosen;
}

HEDDLE_INLINE double landmark_cut_finder::take_cost(std::vector<action> const& cut) {
    double least = std::numeric_limits<double>::infinity();
    for (auto a : cut) least = std::min(least, rest_[a]);
    auto const is_free = [&](action a) { return rest_[a] <= 0; };
    for (auto a : cut) {
        rest_[a] -= least;
        if (rest_[a] > 1e-12 * costs_[a]) continue;
        rest_[a] = 0;
        if (free_.missing[a] == 0) hold_added(free_, a);
    }
    spread(free_, is_free);
    return least;
}

} // namespace heddle::search::detail

namespace heddle::search {

HEDDLE_INLINE landmark_cuts find_landmark_cuts(property_task const& task, std::span<double const> costs,
                                               std::span<std::uint32_t const> groups) {
    using finder = detail::landmark_cut_finder;
    auto cuts = finder(task, costs, groups, finder::taste::last).find();
    if (cuts.is_tight()) return cuts;
    auto others = finder(task, costs, groups, finder::taste::first).find();
    return others.total > cuts.total ? others : cuts;
}

} // namespace heddle::search

#endif
