// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Triples as a search problem: states are sets of properties, actions are triples.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace heddle::search {

/// A set of small numbers; all sets of one problem have the same capacity.
class property_set {
public:
    property_set() = default;
    explicit property_set(std::size_t capacity) : words_((capacity + 63) / 64) {}

    void insert(std::size_t id) { words_[id / 64] |= std::uint64_t{1} << (id % 64); }
    void erase(std::size_t id) { words_[id / 64] &= ~(std::uint64_t{1} << (id % 64)); }
    [[nodiscard]] bool contains(std::size_t id) const { return (words_[id / 64] >> (id % 64)) & 1; }
    [[nodiscard]] bool includes(property_set const& other) const {
        for (std::size_t w = 0; w < words_.size(); ++w)
            if (other.words_[w] & ~words_[w]) return false;
        return true;
    }
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (std::size_t w = 0; w < words_.size(); ++w)
            for (std::uint64_t rest = words_[w]; rest; rest &= rest - 1) visit(w * 64 + static_cast<std::size_t>(std::countr_zero(rest)));
    }
    [[nodiscard]] std::size_t hash() const {
        std::uint64_t h = 0x9e3779b97f4a7c15u;
        for (auto w : words_) h = (std::rotl(h, 23) ^ w) * 0xff51afd7ed558ccdu;
        return static_cast<std::size_t>(h ^ (h >> 32));
    }
    friend bool operator==(property_set const&, property_set const&) = default;

private:
    std::vector<std::uint64_t> words_;
};

} // namespace heddle::search

template <>
struct std::hash<heddle::search::property_set> {
    std::size_t operator()(heddle::search::property_set const& s) const { return s.hash(); }
};

namespace heddle::search {

/// One action on property sets: applicable where `pre` is held; drops `remove`, adds `add`.
struct property_action {
    std::vector<std::uint32_t> pre, add, remove;
};

/// The accumulator of plain sums: a cost per action.
class additive_cost {
public:
    using label = double;
    /// Keeps a reference to `costs`.
    explicit additive_cost(std::span<double const> costs) : costs_(costs) {}
    [[nodiscard]] label initial() const { return 0; }
    void extend(label& l, std::size_t action) const { l += costs_[action]; }
    [[nodiscard]] double total(label l) const { return l; }
    [[nodiscard]] bool dominates(label a, label b) const { return a <= b; }

private:
    std::span<double const> costs_;
};

/// The bound that knows nothing of the way to go: what has been spent. Admissible for `additive_cost`.
struct blind_bound {
    double operator()(property_set const&, double spent) const { return spent; }
};

/// A planning task over properties whose path costs an accumulator keeps.
///
/// `Accumulator` has `label initial()`, `void extend(label&, std::size_t action)`,
/// `double total(label)` and `bool dominates(label, label)`; `Bound` maps (state, label) to a lower
/// bound on the total of every completion.
/// Properties that no action can still use are all alike: they are *filled in*, so that sets which
/// differ in them alone become one state and whatever produces them is no longer tried. (HAP section
/// 4.5, third optimisation, drops them instead, after which their producers look useful again.)
/// *Precondition:* what one action removes, none adds.
template <class Accumulator, class Bound>
class property_space {
public:
    using state = property_set;
    using label = typename Accumulator::label;
    using action = std::uint32_t;

    /// Keeps references to `actions`. `fill_unused` switches the third optimisation.
    property_space(std::size_t property_count, std::span<property_action const> actions, std::span<std::uint32_t const> initial,
                   std::span<std::uint32_t const> goal, Accumulator accumulator, Bound bound, bool fill_unused = true)
        : actions_(actions), goal_(goal.begin(), goal.end()), start_(property_count), users_(property_count), producers_(property_count),
          is_goal_property_(property_count), accumulator_(std::move(accumulator)), bound_(std::move(bound)), fill_unused_(fill_unused) {
        for (auto id : goal) is_goal_property_[id] = true;
        for (action a = 0; a < actions.size(); ++a) {
            for (auto id : actions[a].pre) users_[id].push_back(a);
            for (auto id : actions[a].add) producers_[id].push_back(a);
            if (actions[a].pre.empty()) free_.push_back(a);
        }
        for (auto id : initial) start_.insert(id);
        if (!fill_unused) return;
        std::vector<std::uint32_t> all(property_count);
        std::iota(all.begin(), all.end(), 0u);
        fill(start_, std::move(all));
    }

    [[nodiscard]] std::pair<state, label> initial() const { return {start_, accumulator_.initial()}; }
    [[nodiscard]] bool is_goal(state const& s) const {
        return std::ranges::all_of(goal_, [&](auto id) { return s.contains(id); });
    }
    [[nodiscard]] double total(label const& l) const { return accumulator_.total(l); }
    [[nodiscard]] double bound(state const& s, label const& l) const { return bound_(s, l); }
    [[nodiscard]] bool dominates(label const& a, label const& b) const { return accumulator_.dominates(a, b); }
    [[nodiscard]] bool subsumes(state const& s, state const& t) const { return s.includes(t); }
    template <class Visit>
    void for_each_feature(state const& s, Visit&& visit) const { s.for_each(visit); }

    template <class Visit>
    void for_each_successor(state const& s, label const& l, Visit&& visit) const {
        auto const apply = [&](action a) {
            if (!is_useful(a, s)) return;
            state next = s;
            for (auto id : actions_[a].remove) next.erase(id);
            for (auto id : actions_[a].add) next.insert(id);
            if (fill_unused_) fill(next, touched_by(a));
            label extended = l;
            accumulator_.extend(extended, a);
            visit(a, std::move(next), std::move(extended));
        };
        for (action a : free_) apply(a);
        // Each applicable action once: by the last of its preconditions in the set.
        s.for_each([&](std::size_t id) {
            for (action a : users_[id])
                if (actions_[a].pre.back() == id && std::ranges::all_of(actions_[a].pre, [&](auto p) { return s.contains(p); })) apply(a);
        });
    }

private:
    /// Whether an action adds something the set lacks.
    [[nodiscard]] bool is_useful(action a, state const& s) const {
        return std::ranges::any_of(actions_[a].add, [&](auto id) { return !s.contains(id); });
    }

    /// Whether an action needs a property, other than `id`, that has been consumed.
    [[nodiscard]] bool is_spent(action a, std::uint32_t id, state const& s) const {
        return std::ranges::any_of(actions_[a].remove, [&](auto budget) { return budget != id && !s.contains(budget); });
    }

    /// Whether every action with the property in its precondition adds nothing new or can never be
    /// applied. Sets only grow, budgets apart, which no action adds; so this lasts.
    [[nodiscard]] bool is_unused(std::uint32_t id, state const& s) const {
        return !is_goal_property_[id] && std::ranges::none_of(users_[id], [&](action a) { return is_useful(a, s) && !is_spent(a, id, s); });
    }

    /// What an action may have made useless: the preconditions of whatever else adds what it added, or
    /// needs what it consumed.
    [[nodiscard]] std::vector<std::uint32_t> touched_by(action a) const {
        std::vector<std::uint32_t> touched = actions_[a].remove;
        auto const touch = [&](std::vector<action> const& others) {
            for (action other : others) touched.insert(touched.end(), actions_[other].pre.begin(), actions_[other].pre.end());
        };
        for (auto id : actions_[a].add) touch(producers_[id]);
        for (auto id : actions_[a].remove) touch(users_[id]);
        std::ranges::sort(touched);
        touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
        return touched;
    }

    void fill(state& s, std::vector<std::uint32_t> candidates) const {
        while (!candidates.empty()) {
            auto const id = candidates.back();
            candidates.pop_back();
            if (s.contains(id) || !is_unused(id, s)) continue;
            s.insert(id);
            for (action producer : producers_[id]) candidates.insert(candidates.end(), actions_[producer].pre.begin(), actions_[producer].pre.end());
        }
    }

    std::span<property_action const> actions_;
    std::vector<std::uint32_t> goal_;
    state start_;
    std::vector<std::vector<action>> users_, producers_;
    std::vector<bool> is_goal_property_;
    std::vector<action> free_;
    Accumulator accumulator_;
    Bound bound_;
    bool fill_unused_;
};

} // namespace heddle::search
