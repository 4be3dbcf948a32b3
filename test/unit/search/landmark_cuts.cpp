// SPDX-License-Identifier: BSL-1.0
#include <heddle/search/best_first.hpp>
#include <heddle/search/properties/landmark_bound.hpp>
#include <heddle/search/properties/landmark_cuts.hpp>
#include <heddle/search/properties/property_space.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace {

using namespace heddle;
using numbers = std::vector<std::uint32_t>;

numbers sorted_ids(std::span<std::uint32_t const> list) {
    numbers ids(list.begin(), list.end());
    std::ranges::sort(ids);
    return ids;
}

} // namespace

TEST_CASE("landmark cuts of a chain pay the cheaper alternative of each link") {
    // 0 for 3 or for 5, then the goal 1 for 2: cuts {a, b} at 3 and {c} at 2; b has 2 left that nobody needs to pay.
    std::vector<search::property_action> const actions{{{}, {0}, {}}, {{}, {0}, {}}, {{0}, {1}, {}}};
    std::vector<double> const costs{3, 5, 2};
    search::property_task const task(2, actions, numbers{}, numbers{1});
    auto const cuts = search::find_landmark_cuts(task, costs);
    REQUIRE(cuts.weights == std::vector<double>{3, 2});
    CHECK(sorted_ids(cuts.actions[0]) == numbers{0, 1});
    CHECK(sorted_ids(cuts.actions[1]) == numbers{2});
    CHECK(sorted_ids(cuts.cuts_of[1]) == numbers{0});
    CHECK(cuts.total == 5);
    CHECK(cuts.unpaid == 0);
    CHECK(cuts.on_way == std::vector<char>{1, 0, 1});
}

TEST_CASE("landmark cuts of a join pay all parts, not the dearest alone") {
    // 0 for 1 and 1 for 2, joined for nothing: cuts {a} at 1 and {b} at 2. The dearest precondition alone would give 2.
    std::vector<search::property_action> const actions{{{}, {0}, {}}, {{}, {1}, {}}, {{0, 1}, {2}, {}}};
    search::property_task const task(3, actions, numbers{}, numbers{2});
    auto const cuts = search::find_landmark_cuts(task, std::vector<double>{1, 2, 0});
    CHECK(cuts.total == 3);
    CHECK(cuts.unpaid == 0);
    CHECK(cuts.on_way == std::vector<char>{1, 1, 1});
}

TEST_CASE("landmark cuts of a way and a detour pay for both") {
    // 0 directly for 4 (a), or 1 for 1 (b) and from 1 to 0 for 1 (c). First {a, c} at 1; then c is free, so what leads
    // to 1 stands for it: {a, b} at 1. Now b and c are free, a has 2 left.
    std::vector<search::property_action> const actions{{{}, {0}, {}}, {{}, {1}, {}}, {{1}, {0}, {}}};
    std::vector<double> const costs{4, 1, 1};
    search::property_task const task(2, actions, numbers{}, numbers{0});
    auto const cuts = search::find_landmark_cuts(task, costs);
    REQUIRE(cuts.weights == std::vector<double>{1, 1});
    CHECK(sorted_ids(cuts.actions[0]) == numbers{0, 2});
    CHECK(sorted_ids(cuts.actions[1]) == numbers{0, 1});
    CHECK(cuts.on_way == std::vector<char>{0, 1, 1});

    // The bound on the way: b pays the second cut, c the first; a pays both at once.
    search::landmark_bound const bound(task, search::additive_cost(costs));
    CHECK(bound.is_tight());
    auto memory = bound.start();
    CHECK(memory.rests[0] == 2);
    CHECK(sorted_ids(bound.landmark(memory)) == numbers{0, 2});
    bound.follow(memory, 1);
    CHECK(memory.rests[0] == 1);
    bound.follow(memory, 1);
    CHECK(memory.rests[0] == 1);
    CHECK(sorted_ids(bound.landmark(memory)) == numbers{0, 2});
    bound.follow(memory, 2);
    CHECK(memory.rests[0] == 0);
    CHECK(bound.landmark(memory).empty());
    auto direct = bound.start();
    bound.follow(direct, 0);
    CHECK(direct.rests[0] == 0);
    CHECK(bound.prefers(1));
    CHECK_FALSE(bound.prefers(0));
}

TEST_CASE("landmark cuts take a group of alternatives as a subgoal") {
    // A part in either of two forms, 0 (a, for 2) or 1 (b, for 3), each of which makes the goal 2, for 5 (c) or for 4
    // (d). Every way pays 7. As one group: {a, b} at 2, {c, d} at 4, and what is left of either way, {b, c} at 1.
    std::vector<search::property_action> const actions{{{}, {0}, {}}, {{}, {1}, {}}, {{0}, {2}, {}}, {{1}, {2}, {}}};
    search::property_task const task(3, actions, numbers{}, numbers{2});
    auto const cuts = search::find_landmark_cuts(task, std::vector<double>{2, 3, 5, 4}, numbers{0, 0, 2});
    CHECK(cuts.weights == std::vector<double>{2, 4, 1});
    CHECK(sorted_ids(cuts.actions[0]) == numbers{0, 1});
    CHECK(sorted_ids(cuts.actions[1]) == numbers{2, 3});
    CHECK(sorted_ids(cuts.actions[2]) == numbers{1, 2});
    CHECK(cuts.total == 7);
}

TEST_CASE("landmark cuts say what a way pays beyond them") {
    // Goal 2 needs 0 or 1, goal 3 both, each of which is made for 2 (a, b). The first goal's cut {a, b} at 2 leaves
    // both free, so nothing is left to charge for the second; the way meets that cut twice and pays 4.
    std::vector<search::property_action> const actions{
        {{}, {0}, {}}, {{}, {1}, {}}, {{0}, {2}, {}}, {{1}, {2}, {}}, {{0, 1}, {3}, {}}};
    std::vector<double> const costs{2, 2, 0, 0, 0};
    search::property_task const task(4, actions, numbers{}, numbers{2, 3});
    auto const cuts = search::find_landmark_cuts(task, costs);
    CHECK(cuts.weights == std::vector<double>{2});
    CHECK(sorted_ids(cuts.actions[0]) == numbers{0, 1});
    CHECK(cuts.total == 2);
    CHECK(cuts.unpaid == 2);
    search::additive_cost const accumulator(costs);
    search::landmark_bound const bound(task, accumulator);
    CHECK_FALSE(bound.is_tight());
    CHECK(search::best_first(search::property_space(task, accumulator, bound)).cost == 4);
}

TEST_CASE("landmark cuts know goals that are out of reach, held at first, or free") {
    std::vector<search::property_action> const actions{{{0}, {1}, {}}};
    std::vector<double> const costs{1};
    search::property_task const out_of_reach(2, actions, numbers{}, numbers{1});
    auto const none = search::find_landmark_cuts(out_of_reach, costs);
    CHECK(none.total == std::numeric_limits<double>::infinity());
    CHECK(none.weights.empty());
    search::additive_cost const accumulator(costs);
    search::property_space const space(out_of_reach, accumulator, search::landmark_bound(out_of_reach, accumulator));
    auto const r = search::best_first(space);
    CHECK(r.status == search::status::infeasible);
    CHECK(r.statistics.expanded == 0);
    CHECK(std::isinf(r.lower_bound));

    CHECK(search::find_landmark_cuts(search::property_task(2, actions, numbers{0, 1}, numbers{1}), costs).total == 0);
    auto const free =
        search::find_landmark_cuts(search::property_task(2, actions, numbers{0}, numbers{1}), std::vector<double>{0});
    CHECK(free.total == 0);
    CHECK(free.on_way == std::vector<char>{1});
}
