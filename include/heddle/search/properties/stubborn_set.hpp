// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which actions of a property task are worth trying in a state, if actions that do not interfere commute.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/search/properties/property_set.hpp>
#include <heddle/search/properties/property_task.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace heddle::search {

[[nodiscard]] inline bool is_applicable(property_task const& task, property_task::action a, property_set const& s) {
    return algorithm::all_of(task.pre(a), [&](auto id) { return s.contains(id); });
}
/// Tells whether an action adds something that the set lacks. Sets only grow, except for budgets, so an action that
/// adds nothing is never part of a way without superfluous actions.
[[nodiscard]] inline bool is_useful(property_task const& task, property_task::action a, property_set const& s) {
    return algorithm::any_of(task.add(a), [&](auto id) { return !s.contains(id); });
}

/// Computes strong stubborn sets.
///
/// Among the useful actions, a stubborn set of a state has one of every way to the goal. With an action that is not
/// applicable it has all that add one of the action's missing properties; with one that is, all that take from it or
/// from which it takes. So the first of its actions on a way can be moved to the front of it, and the applicable ones
/// suffice as successors: for each way without superfluous actions, one order of it is kept.
/// *Reference.* Valmari 1991; Wehrle and Helmert 2012.
/// *Thread safety.* Not even const calls are thread-safe: they share scratch memory.
class stubborn_sets {
public:
    using action = property_task::action;

    /// Keeps a reference to `task`.
    explicit stubborn_sets(property_task const& task)
        : task_(task), member_(task.action_count()), asked_(task.property_count()) {}

    /// Returns the applicable useful actions of a stubborn set of `s` in a fixed order, none if the goal is out of
    /// reach. The result is valid until the next call. `landmark` has one action of every way from `s` to the goal; if
    /// it is empty, the producers of a missing goal are used.
    [[nodiscard]] std::span<action const> at(property_set const& s, std::span<action const> landmark) const;

private:
    void add_all(std::span<action const> actions, property_set const& s) const;
    /// Adds the producers of one missing property, preferably of one that is wanted already.
    void ask_for_missing(std::span<std::uint32_t const> wanted, property_set const& s) const;

    property_task const& task_;
    mutable std::vector<char> member_, asked_;
    mutable std::vector<action> open_, members_, chosen_;
    mutable std::vector<std::uint32_t> asked_list_;
};

} // namespace heddle::search

#if HEDDLE_DEFINITIONS

namespace heddle::search {

HEDDLE_INLINE std::span<stubborn_sets::action const> stubborn_sets::at(property_set const& s,
                                                                       std::span<action const> landmark) const {
    chosen_.clear();
    add_all(landmark, s);
    if (landmark.empty()) ask_for_missing(task_.goal(), s);
    while (!open_.empty()) {
        auto const a = open_.back();
        open_.pop_back();
        if (!is_applicable(task_, a, s)) {
            ask_for_missing(task_.pre(a), s);
            continue;
        }
        chosen_.push_back(a);
        for (auto id : task_.remove(a)) add_all(task_.users(id), s);
        for (auto id : task_.pre(a)) add_all(task_.consumers(id), s);
    }
    for (auto a : members_) member_[a] = 0;
    for (auto id : asked_list_) asked_[id] = 0;
    members_.clear();
    asked_list_.clear();
    algorithm::sort(chosen_);
    return chosen_;
}

HEDDLE_INLINE void stubborn_sets::add_all(std::span<action const> actions, property_set const& s) const {
    for (auto a : actions) {
        if (member_[a] || !is_useful(task_, a, s)) continue;
        // What has been consumed never comes back.
        if (algorithm::any_of(task_.remove(a), [&](auto budget) { return !s.contains(budget); })) continue;
        member_[a] = 1;
        members_.push_back(a);
        open_.push_back(a);
    }
}

HEDDLE_INLINE void stubborn_sets::ask_for_missing(std::span<std::uint32_t const> wanted, property_set const& s) const {
    std::uint32_t const* first = nullptr;
    for (auto const& id : wanted) {
        if (s.contains(id)) continue;
        if (asked_[id]) return;
        if (!first) first = &id;
    }
    if (!first) return;
    asked_[*first] = 1;
    asked_list_.push_back(*first);
    add_all(task_.producers(*first), s);
}

} // namespace heddle::search

#endif
