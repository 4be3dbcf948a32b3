// SPDX-License-Identifier: BSL-1.0
#include <heddle/search/best_first.hpp>
#include <heddle/search/property_space.hpp>

#include <doctest/doctest.h>

#include <string>

namespace {

using namespace heddle;

/// A graph by its edges; labels are sums.
struct graph_problem {
    using state = int;
    using label = double;
    using action = char;
    struct edge { int from, to; double cost; char name; };
    std::vector<edge> edges;
    int goal = 0;

    [[nodiscard]] std::pair<state, label> initial() const { return {0, 0}; }
    [[nodiscard]] bool is_goal(state s) const { return s == goal; }
    [[nodiscard]] double total(label l) const { return l; }
    [[nodiscard]] double bound(state, label l) const { return l; }
    [[nodiscard]] bool dominates(label a, label b) const { return a <= b; }
    template <class Visit>
    void for_each_successor(state s, label l, Visit&& visit) const {
        for (auto const& e : edges)
            if (e.from == s) visit(e.name, e.to, l + e.cost);
    }
};
static_assert(search::problem<graph_problem>);
static_assert(!search::subsuming_problem<graph_problem>);

} // namespace

TEST_CASE("best_first finds the shortest path of a graph") {
    graph_problem const p{{{0, 1, 1, 'a'}, {0, 2, 4, 'b'}, {1, 2, 2, 'c'}, {2, 3, 1, 'd'}, {1, 3, 5, 'e'}}, 3};
    auto const r = search::best_first(p);
    CHECK(r.status == search::status::optimal);
    CHECK(r.cost == 4);
    CHECK(r.lower_bound == 4);
    CHECK(std::string(r.actions.begin(), r.actions.end()) == "acd");
    CHECK(r.statistics.expanded == 3);
    CHECK(r.statistics.generated == 5);
}

TEST_CASE("best_first: the start may be a goal") {
    auto const r = search::best_first(graph_problem{{}, 0});
    CHECK(r.status == search::status::optimal);
    CHECK(r.cost == 0);
    CHECK(r.actions.empty());
}

TEST_CASE("best_first: an unreachable goal is infeasible") {
    auto const r = search::best_first(graph_problem{{{0, 1, 1, 'a'}, {1, 0, 1, 'b'}}, 2});
    CHECK(r.status == search::status::infeasible);
    CHECK_FALSE(r.cost);
}

TEST_CASE("names of statuses and limits") {
    CHECK(std::string(search::name(search::status::feasible)) == "feasible");
    CHECK(std::string(search::name(search::limit_kind::labels)) == "labels");
}

TEST_CASE("property_set") {
    search::property_set a(130), b(130);
    for (std::size_t id : {0u, 63u, 64u, 129u}) a.insert(id);
    for (std::size_t id : {0u, 64u}) b.insert(id);
    CHECK(a.contains(129));
    CHECK_FALSE(a.contains(128));
    CHECK(a.includes(b));
    CHECK_FALSE(b.includes(a));
    std::vector<std::size_t> ids;
    a.for_each([&](std::size_t id) { ids.push_back(id); });
    CHECK(ids == std::vector<std::size_t>{0, 63, 64, 129});
    a.erase(63);
    a.erase(129);
    CHECK(a == b);
    CHECK(a.hash() == b.hash());
}

TEST_CASE("property_space: a consumed budget is gone, an unused property is filled in") {
    // 0, 1, 2 facts, 3 a budget: either action spends it.
    std::vector<search::property_action> const actions{{{3}, {0}, {3}}, {{3}, {1}, {3}}, {{0, 1}, {2}, {}}};
    std::vector<std::uint32_t> const initial{3}, goal{2};
    std::vector<double> const costs{1, 1, 1};
    using space = search::property_space<search::additive_cost, search::blind_bound>;
    search::property_task const task(4, actions, initial, goal);
    for (bool fill : {true, false})
        for (bool one_order : {true, false})
            CHECK(search::best_first(space(task, search::additive_cost(costs), {}, {fill, one_order})).status == search::status::infeasible);

    // 2 leads nowhere: with filling nobody produces it.
    std::vector<search::property_action> const more{{{}, {0}, {}}, {{}, {2}, {}}, {{0}, {1}, {}}};
    std::vector<std::uint32_t> const none, last{1};
    search::property_task const leads_nowhere(3, more, none, last);
    auto const generated = [&](bool fill) {
        return search::best_first(space(leads_nowhere, search::additive_cost(costs), {}, {fill, false})).statistics.generated;
    };
    CHECK(generated(true) == 2);
    CHECK(generated(false) > 2);
}
