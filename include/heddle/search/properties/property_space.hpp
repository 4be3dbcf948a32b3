// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A property task as a search problem: states are sets of properties.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/search/properties/landmark_bound.hpp>
#include <heddle/search/properties/property_set.hpp>
#include <heddle/search/properties/property_task.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace heddle::search {

/// Keeps the cost of a path through a property task.
///
/// *Notation.* `k` an accumulator, `l` a label, `a` an action, `rests` a span of const doubles.
/// *Valid expressions.*
/// - `k.initial()`, `k.extend(l, a)`, `k.total(l)`, `k.dominates(l, l)` are as for a search problem's labels.
/// - `k.relaxation_count()` is a number of ways to charge each action a fixed cost, `k.relaxed_cost(n, a)`, which is
/// never negative.
/// - `k.total_after(l, rests)` is at most the total after any continuation whose relaxed costs add up to at
///   least `rests[n]` for each n.
/// - `k.is_commutative()` tells whether swapping two neighbouring actions never changes the total.
template <class Accumulator>
concept accumulator = requires(Accumulator const& k, typename Accumulator::label& l, std::uint32_t a, std::size_t n,
                               std::span<double const> rests) {
    { k.initial() } -> std::convertible_to<typename Accumulator::label>;
    k.extend(l, a);
    { k.total(l) } -> std::convertible_to<double>;
    { k.dominates(l, l) } -> std::convertible_to<bool>;
    { k.relaxation_count() } -> std::convertible_to<std::size_t>;
    { k.relaxed_cost(n, a) } -> std::convertible_to<double>;
    { k.total_after(l, rests) } -> std::convertible_to<double>;
    { k.is_commutative() } -> std::convertible_to<bool>;
};

/// The accumulator of plain sums: each action has a cost, which is not negative.
class additive_cost {
public:
    using label = double;

    /// Keeps a reference to `costs`.
    explicit additive_cost(std::span<double const> costs) : costs_(costs) {}
    [[nodiscard]] label initial() const { return 0; }
    void extend(label& l, std::size_t action) const { l += costs_[action]; }
    [[nodiscard]] double total(label l) const { return l; }
    [[nodiscard]] bool dominates(label a, label b) const { return a <= b; }
    [[nodiscard]] bool is_commutative() const { return true; }
    [[nodiscard]] std::size_t relaxation_count() const { return 1; }
    [[nodiscard]] double relaxed_cost(std::size_t, std::size_t action) const { return costs_[action]; }
    [[nodiscard]] double total_after(label l, std::span<double const> rests) const { return l + rests[0]; }

private:
    std::span<double const> costs_;
};
static_assert(accumulator<additive_cost>);

/// What a `property_space` prunes with. Both prunings keep at least one cheapest way; they can be switched off to see
/// what each saves.
struct property_pruning {
    /// Properties that no action can still use are *filled in*, so that sets which differ in them alone become one
    /// state, and what produces them is no longer tried. (HAP section 4.5, third optimisation, drops them instead,
    /// after which their producers look useful again.) If a bound leads straight to the goal (its `is_tight()`), this
    /// costs more than it saves and is left out.
    bool fill_unused = true;
    /// Only one order of actions that commute is tried: the successors of a state are those in a stubborn set. It has
    /// no effect if the accumulator is not commutative.
    bool one_order = true;
};

/// A property task as a search problem; an accumulator keeps the costs of paths, and a bound prunes.
///
/// *Thread safety.* Not even const calls are thread-safe: they share scratch memory.
template <accumulator Accumulator, class Bound = blind_bound>
class property_space {
public:
    using state = property_set;
    struct label {
        typename Accumulator::label spent;
        typename Bound::memory ahead;
    };
    using action = property_task::action;
    using subsumption_index = superset_index;

    /// Keeps a reference to `task`.
    property_space(property_task const& task, Accumulator costs, Bound bound = {}, property_pruning pruning = {})
        : task_(task), costs_(std::move(costs)), bound_(std::move(bound)), pruning_(pruning),
          start_(task.property_count()), is_goal_(task.property_count()), stubborn_(task),
          is_candidate_(task.property_count()) {
        for (auto id : task.goal()) is_goal_[id] = 1;
        for (auto id : task.initial()) start_.insert(id);
        for (action a = 0; a < task.action_count(); ++a)
            if (task.pre(a).empty()) free_.push_back(a);
        if constexpr (requires {
                          { bound_.is_tight() } -> std::convertible_to<bool>;
                      })
            pruning_.fill_unused = pruning_.fill_unused && !bound_.is_tight();
        if (!pruning_.fill_unused) return;
        for (std::uint32_t id = 0; id < task.property_count(); ++id) consider(id, start_);
        fill(start_);
    }

    [[nodiscard]] std::pair<state, label> initial() const { return {start_, {costs_.initial(), bound_.start()}}; }
    [[nodiscard]] bool is_goal(state const& s) const {
        return algorithm::all_of(task_.goal(), [&](auto id) { return s.contains(id); });
    }
    [[nodiscard]] double total(label const& l) const { return costs_.total(l.spent); }
    [[nodiscard]] double bound(state const& s, label const& l) const { return bound_(costs_, s, l.spent, l.ahead); }
    [[nodiscard]] bool dominates(label const& a, label const& b) const { return costs_.dominates(a.spent, b.spent); }
    [[nodiscard]] std::size_t memory(state const& s) const { return s.words().size_bytes(); }
    [[nodiscard]] std::size_t memory(label const& l) const { return bound_.bytes(l.ahead); }
    [[nodiscard]] bool subsumes(state const& s, state const& t) const { return s.includes(t); }

    template <class Visit>
    void for_each_successor(state const& s, label const& l, Visit&& visit) const {
        auto const apply = [&](action a) {
            state next = s;
            for (auto id : task_.remove(a)) next.erase(id);
            for (auto id : task_.add(a)) next.insert(id);
            if (pruning_.fill_unused) fill_after(a, next);
            label extended = l;
            costs_.extend(extended.spent, a);
            bound_.follow(extended.ahead, a);
            visit(a, std::move(next), std::move(extended));
        };
        if (pruning_.one_order && costs_.is_commutative()) {
            auto const chosen = stubborn_.at(s, bound_.landmark(l.ahead));
            // Among equal labels the newest is expanded first.
            for (bool preferred : {false, true})
                for (action a : chosen)
                    if (bound_.prefers(a) == preferred) apply(a);
            return;
        }
        auto const try_action = [&](action a) {
            if (is_useful(task_, a, s)) apply(a);
        };
        for (action a : free_) try_action(a);
        // Visits each applicable action once: by the last of its preconditions in the set.
        s.for_each([&](std::size_t id) {
            for (action a : task_.users(static_cast<std::uint32_t>(id)))
                if (task_.pre(a).back() == id && is_applicable(task_, a, s)) try_action(a);
        });
    }

private:
    /// Tells whether every action with the property in its precondition adds nothing new or can never be applied. This
    /// lasts, because sets only grow, except for budgets, which no action adds.
    [[nodiscard]] bool is_unused(std::uint32_t id, state const& s) const {
        return !is_goal_[id] && algorithm::none_of(task_.users(id), [&](action a) {
            return is_useful(task_, a, s) &&
                   algorithm::all_of(task_.remove(a), [&](auto budget) { return budget == id || s.contains(budget); });
        });
    }

    /// Fills in what an action may have made useless: preconditions of other actions that add what it added, or need
    /// what it consumed.
    void fill_after(action a, state& s) const {
        for (auto id : task_.add(a)) consider_needs(task_.producers(id), s);
        for (auto id : task_.remove(a)) {
            consider(id, s);
            consider_needs(task_.users(id), s);
        }
        fill(s);
    }
    void consider(std::uint32_t id, state const& s) const {
        if (s.contains(id) || is_candidate_[id]) return;
        is_candidate_[id] = 1;
        candidates_.push_back(id);
    }
    void consider_needs(std::span<action const> actions, state const& s) const {
        for (action a : actions)
            for (auto id : task_.pre(a)) consider(id, s);
    }
    void fill(state& s) const {
        while (!candidates_.empty()) {
            auto const id = candidates_.back();
            candidates_.pop_back();
            is_candidate_[id] = 0;
            if (!is_unused(id, s)) continue;
            s.insert(id);
            consider_needs(task_.producers(id), s);
        }
    }

    property_task const& task_;
    Accumulator costs_;
    Bound bound_;
    property_pruning pruning_;
    state start_;
    std::vector<char> is_goal_;
    std::vector<action> free_;
    stubborn_sets stubborn_;
    mutable std::vector<char> is_candidate_;
    mutable std::vector<std::uint32_t> candidates_;
};

} // namespace heddle::search
