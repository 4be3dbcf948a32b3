// SPDX-License-Identifier: BSL-1.0
#include <heddle/search/properties/property_task.hpp>
#include <heddle/search/properties/stubborn_set.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace {

using namespace heddle;
using numbers = std::vector<std::uint32_t>;

numbers of(std::span<std::uint32_t const> list) { return {list.begin(), list.end()}; }

search::property_set holding(search::property_task const& task, std::initializer_list<std::size_t> ids) {
    search::property_set s(task.property_count());
    for (auto id : ids) s.insert(id);
    return s;
}

/// Facts 0 and 1, goal 2, budget 3, which making either fact spends.
std::vector<search::property_action> const either{{{3}, {0}, {3}}, {{3}, {1}, {3}}, {{0}, {2}, {}}};

} // namespace

TEST_CASE("number_lists keeps its lists, and transposes them") {
    std::vector<numbers> const lists{{4, 1}, {}, {1, 2, 3}};
    search::number_lists const packed(lists.size(), [&](std::size_t n, auto&& visit) {
        for (auto id : lists[n]) visit(id);
    });
    CHECK(packed.size() == 3);
    for (std::size_t n = 0; n < 3; ++n) CHECK(of(packed[n]) == lists[n]);
    auto const across = packed.transposed(6);
    CHECK(across.size() == 6);
    CHECK(of(across[0]).empty());
    CHECK(of(across[1]) == numbers{0, 2});
    CHECK(of(across[2]) == numbers{2});
    CHECK(of(across[4]) == numbers{0});
    CHECK(of(across[5]).empty());
    CHECK(search::number_lists().size() == 0);
    CHECK(search::number_lists().transposed(2).size() == 2);
}

TEST_CASE("property_task knows which actions need, add and remove a property") {
    search::property_task const task(4, either, numbers{3}, numbers{2});
    CHECK(task.property_count() == 4);
    CHECK(task.action_count() == 3);
    CHECK(of(task.initial()) == numbers{3});
    CHECK(of(task.goal()) == numbers{2});
    CHECK(of(task.pre(1)) == numbers{3});
    CHECK(of(task.add(1)) == numbers{1});
    CHECK(of(task.remove(1)) == numbers{3});
    CHECK(of(task.remove(2)).empty());
    CHECK(of(task.users(3)) == numbers{0, 1});
    CHECK(of(task.users(0)) == numbers{2});
    CHECK(of(task.users(2)).empty());
    CHECK(of(task.producers(2)) == numbers{2});
    CHECK(of(task.producers(3)).empty());
    CHECK(of(task.consumers(3)) == numbers{0, 1});
    CHECK(of(task.consumers(0)).empty());
}

TEST_CASE("stubborn_sets takes independent branches one after the other") {
    // 0 and 1 from nothing, then 2 from both; 3 is of no use to anybody.
    std::vector<search::property_action> const actions{{{}, {0}, {}}, {{}, {1}, {}}, {{0, 1}, {2}, {}}, {{}, {3}, {}}};
    search::property_task const task(4, actions, numbers{}, numbers{2});
    search::stubborn_sets const stubborn(task);
    auto const at = [&](std::initializer_list<std::size_t> held, numbers const& landmark = {}) {
        return of(stubborn.at(holding(task, held), landmark));
    };
    CHECK(at({}) == numbers{0});
    CHECK(at({0}) == numbers{1});
    CHECK(at({1}) == numbers{0});
    CHECK(at({0, 1}) == numbers{2});
    CHECK(at({0, 1, 2}).empty());
    // A landmark says where to begin.
    CHECK(at({}, {1}) == numbers{1});
    CHECK(at({}, {2}) == numbers{0});
    CHECK(at({1}, {1, 2}) == numbers{0});
}

TEST_CASE("stubborn_sets also tries whatever spends the same budget") {
    search::property_task const task(4, either, numbers{3}, numbers{2});
    search::stubborn_sets const stubborn(task);
    CHECK(of(stubborn.at(holding(task, {3}), {})) == numbers{0, 1});
    CHECK(of(stubborn.at(holding(task, {0}), {})) == numbers{2});
    // Spent on the wrong one: the goal is out of reach.
    CHECK(of(stubborn.at(holding(task, {1}), {})).empty());
    // Needing a budget without spending it interferes likewise.
    std::vector<search::property_action> const reader{{{3}, {0}, {}}, {{3}, {1}, {3}}, {{0, 1}, {2}, {}}};
    search::property_task const reading(4, reader, numbers{3}, numbers{2});
    CHECK(of(search::stubborn_sets(reading).at(holding(reading, {3}), {})) == numbers{0, 1});
    std::vector<search::property_action> const spender{{{3}, {0}, {3}}, {{3}, {1}, {}}, {{0, 1}, {2}, {}}};
    search::property_task const spending(4, spender, numbers{3}, numbers{2});
    CHECK(of(search::stubborn_sets(spending).at(holding(spending, {3}), {})) == numbers{0, 1});
}

TEST_CASE("stubborn_sets makes nothing for an action whose budget is spent") {
    std::vector<search::property_action> const actions{{{}, {0}, {}}, {{0, 3}, {2}, {3}}};
    search::property_task const task(4, actions, numbers{3}, numbers{2});
    search::stubborn_sets const stubborn(task);
    CHECK(of(stubborn.at(holding(task, {3}), {})) == numbers{0});
    CHECK(of(stubborn.at(holding(task, {}), {})).empty());
}
