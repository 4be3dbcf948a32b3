// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A planning task over properties, indexed once for everything that searches it.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/requirements.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace heddle::search {

/// An action on property sets: it is applicable where `pre` is held, drops `remove`, and adds `add`.
struct property_action {
    std::vector<std::uint32_t> pre, add, remove;
};

/// Lists of numbers that lie one after the other in memory.
class number_lists {
public:
    number_lists() = default;
    /// `lists(n, visit)` visits the numbers of list n.
    template <class Lists>
    number_lists(std::size_t count, Lists const& lists) : first_(count + 1) {
        for (std::size_t n = 0; n < count; ++n) {
            lists(n, [&](std::uint32_t id) { numbers_.push_back(id); });
            first_[n + 1] = static_cast<std::uint32_t>(numbers_.size());
        }
    }
    [[nodiscard]] std::span<std::uint32_t const> operator[](std::size_t n) const {
        return std::span(numbers_).subspan(first_[n], first_[n + 1] - first_[n]);
    }
    [[nodiscard]] std::size_t size() const { return first_.size() - 1; }

    /// Returns, for each of `count` numbers, the lists that have it, ascending.
    [[nodiscard]] number_lists transposed(std::size_t count) const;

private:
    std::vector<std::uint32_t> first_{0}, numbers_;
};

/// The task is to hold all of `goal`, from the properties of `initial`.
/// *Invariant.* Lists are ascending without repetition. What an action removes is in its `pre`, and no action adds it:
/// it is a *budget*. So holding more never hurts.
class property_task {
public:
    using action = std::uint32_t;

    /// *Precondition:* the invariant holds, and all numbers are below `property_count`.
    property_task(std::size_t property_count, std::span<property_action const> actions,
                  std::span<std::uint32_t const> initial, std::span<std::uint32_t const> goal);

    [[nodiscard]] std::size_t property_count() const { return property_count_; }
    [[nodiscard]] std::size_t action_count() const { return pre_.size(); }
    [[nodiscard]] std::span<std::uint32_t const> initial() const { return initial_; }
    [[nodiscard]] std::span<std::uint32_t const> goal() const { return goal_; }
    [[nodiscard]] std::span<std::uint32_t const> pre(action a) const { return pre_[a]; }
    [[nodiscard]] std::span<std::uint32_t const> add(action a) const { return add_[a]; }
    [[nodiscard]] std::span<std::uint32_t const> remove(action a) const { return remove_[a]; }
    /// Returns the actions that need, add, or remove a property.
    [[nodiscard]] std::span<action const> users(std::uint32_t property) const { return users_[property]; }
    [[nodiscard]] std::span<action const> producers(std::uint32_t property) const { return producers_[property]; }
    [[nodiscard]] std::span<action const> consumers(std::uint32_t property) const { return consumers_[property]; }

private:
    std::size_t property_count_;
    std::vector<std::uint32_t> initial_, goal_;
    number_lists pre_, add_, remove_, users_, producers_, consumers_;
};

} // namespace heddle::search

#if HEDDLE_DEFINITIONS

namespace heddle::search {

HEDDLE_INLINE number_lists number_lists::transposed(std::size_t count) const {
    number_lists result;
    result.first_.assign(count + 1, 0);
    for (auto id : numbers_) ++result.first_[id + 1];
    std::partial_sum(result.first_.begin(), result.first_.end(), result.first_.begin());
    result.numbers_.resize(numbers_.size());
    auto next = result.first_;
    for (std::uint32_t n = 0; n < size(); ++n)
        for (auto id : (*this)[n]) result.numbers_[next[id]++] = n;
    return result;
}

HEDDLE_INLINE property_task::property_task(std::size_t property_count, std::span<property_action const> actions,
                                           std::span<std::uint32_t const> initial, std::span<std::uint32_t const> goal)
    : property_count_(property_count), initial_(initial.begin(), initial.end()), goal_(goal.begin(), goal.end()) {
    auto const lists = [&](std::vector<std::uint32_t> property_action::* part) {
        return number_lists(actions.size(),
                            [&](std::size_t a, auto&& visit) { std::ranges::for_each(actions[a].*part, visit); });
    };
    pre_ = lists(&property_action::pre);
    add_ = lists(&property_action::add);
    remove_ = lists(&property_action::remove);
    users_ = pre_.transposed(property_count);
    producers_ = add_.transposed(property_count);
    consumers_ = remove_.transposed(property_count);
}

} // namespace heddle::search

#endif
