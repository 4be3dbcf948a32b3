// SPDX-License-Identifier: BSL-1.0
#include <heddle/search/partition/partition.hpp>
#include <heddle/search/partition/partition_with_tail.hpp>

#include <doctest/doctest.h>

#include <limits>

namespace {

using namespace heddle;
using cuts = std::vector<std::size_t>;

} // namespace

TEST_CASE("partition balances when the largest part weighs most") {
    auto const r = search::partition(
        {.sizes = {{1, 2, 3, 4, 5, 6}}, .kinds = {0, 0, 0}, .cut_costs = {}, .reach = {}, .largest_weight = 10});
    CHECK(r.status == search::status::optimal);
    CHECK(r.cost == 10 * 9 + 21);
    CHECK(r.lower_bound == 10 * 9 + 21);
    CHECK(r.cuts == cuts{0, 3, 5, 6}); // 6 9 6
}

TEST_CASE("partition takes the cheapest cuts when the largest part is free") {
    auto const r = search::partition({.sizes = {{1, 1, 1, 1}},
                                      .kinds = {0, 0, 0},
                                      .cut_costs = {{9, 3, 2, 1}, {9, 9, 4, 1}},
                                      .reach = {},
                                      .largest_weight = 0});
    CHECK(r.cost == 4 + 2 + 1);
    CHECK(r.cuts == cuts{0, 2, 3, 4});
    CHECK(r.statistics.thresholds == 1);
}

TEST_CASE("partition trades cuts for balance") {
    search::partition_problem p{
        .sizes = {{1, 1, 1, 1}}, .kinds = {0, 0}, .cut_costs = {{0, 1, 6, 1}}, .reach = {}, .largest_weight = 4};
    CHECK(search::partition(p).cuts == cuts{0, 1, 4}); // 4 * 3 + 1 < 4 * 2 + 6
    p.largest_weight = 6;
    CHECK(search::partition(p).cuts == cuts{0, 2, 4});
}

TEST_CASE("partition knows kinds of parts and their reach") {
    search::partition_problem p{.sizes = {{1, 1, 1, 1, 1, 1}, {2, 2, 2, 2, 2, 2}},
                                .kinds = {0, 1},
                                .cut_costs = {},
                                .reach = {},
                                .largest_weight = 3};
    CHECK(search::partition(p).cuts == cuts{0, 4, 6});
    p.reach = {{3, 3, 6, 6, 6, 6, 6}, {6, 6, 6, 6, 6, 6, 6}};
    CHECK(search::partition(p).cuts == cuts{0, 3, 6});
    p.reach[1] = {3, 4, 5, 5, 6, 6, 6};
    CHECK(search::partition(p).status == search::status::infeasible);
}

TEST_CASE("of equally cheap partitions the one with the smallest cuts is taken") {
    // Tenths have no exact binary form, and 10 tenths added up are not 1.
    auto const tenths = std::vector<double>(10, 0.1);
    CHECK(search::partition({.sizes = {tenths}, .kinds = {0, 0, 0}, .cut_costs = {}, .reach = {}, .largest_weight = 7})
              .cuts == cuts{0, 2, 6, 10});
    CHECK(search::partition({.sizes = {tenths}, .kinds = {0, 0, 0}, .cut_costs = {}, .reach = {}, .largest_weight = 0})
              .cuts == cuts{0, 1, 2, 10});
    // 2 * 3 + 1 and 2 * 2 + 3: equal with different largest parts.
    CHECK(search::partition(
              {.sizes = {{1, 1, 1, 1}}, .kinds = {0, 0}, .cut_costs = {{9, 1, 3, 1}}, .reach = {}, .largest_weight = 2})
              .cuts == cuts{0, 1, 4});
    CHECK(search::partition({.sizes = {{0, 0, 0}}, .kinds = {0, 0}, .cut_costs = {}, .reach = {}, .largest_weight = 2})
              .cuts == cuts{0, 1, 3});
}

TEST_CASE("partition is infeasible for too few items, and free for none") {
    auto const r =
        search::partition({.sizes = {{1, 1}}, .kinds = {0, 0, 0}, .cut_costs = {}, .reach = {}, .largest_weight = 1});
    CHECK(r.status == search::status::infeasible);
    CHECK_FALSE(r.cost);
    CHECK(r.cuts.empty());
    auto const nothing =
        search::partition({.sizes = {{}}, .kinds = {}, .cut_costs = {}, .reach = {}, .largest_weight = 1});
    CHECK(nothing.cost == 0);
    CHECK(nothing.cuts == cuts{0});
}

TEST_CASE("partition_with_tail counts the parts from the largest on twice") {
    search::partition_problem p{
        .sizes = {{4, 1, 1, 1, 1, 4}}, .kinds = {0, 0}, .cut_costs = {}, .reach = {}, .largest_weight = 0};
    // 5 and 7: 12 + 1 * 7 + 7; 8 and 4: 12 + 0 * 8 + 12; 6 and 6: 12 + 1 * 6 + 6
    CHECK(search::partition_with_tail(p).cost == 24);
    p.largest_weight = 1;
    auto const r = search::partition_with_tail(p);
    CHECK(r.cost == 30); // 6 and 6, the last of equals: 12 + 2 * 6 + 6
    CHECK(r.cuts == cuts{0, 3, 6});
    CHECK(search::partition_with_tail(p, {.cutoff = 30}).status == search::status::infeasible);
    CHECK(search::partition_with_tail(p, {.limits = {.labels = 1}}).lower_bound <= 30);
    p.kinds = std::vector<std::size_t>(7);
    CHECK(search::partition_with_tail(p).status == search::status::infeasible);
}

TEST_CASE("partition stops at limits with what it has, and keeps to a cutoff") {
    search::partition_problem p{
        .sizes = {{}}, .kinds = std::vector<std::size_t>(10), .cut_costs = {}, .reach = {}, .largest_weight = 5};
    for (int i = 0; i < 100; ++i) p.sizes[0].push_back(i * 37 % 101);
    auto const best = search::partition(p);
    auto const cut_short = search::partition(p, {.limits = {.labels = 1}});
    CHECK(cut_short.status == search::status::limit);
    CHECK(cut_short.which_limit == search::limit_kind::labels);
    CHECK(cut_short.statistics.thresholds == 1);
    CHECK(*cut_short.cost > *best.cost);
    CHECK(cut_short.lower_bound <= *best.cost);
    CHECK(cut_short.lower_bound >= 99 * 50); // all items
    std::stop_source stop;
    stop.request_stop();
    CHECK(search::partition(p, {.limits = {.stop = stop.get_token()}}).which_limit == search::limit_kind::stopped);
    CHECK(search::partition(p, {.limits = {.seconds = 0}}).which_limit == search::limit_kind::time);
    auto const none = search::partition(p, {.cutoff = *best.cost});
    CHECK(none.status == search::status::infeasible);
    CHECK(none.lower_bound == *best.cost);
    CHECK(search::partition(p, {.cutoff = *best.cost + 1}).cuts == best.cuts);
}
