// SPDX-License-Identifier: BSL-1.0
#include <heddle/search/best_first.hpp>
#include <heddle/search/pareto_dp.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <utility>
#include <vector>

namespace {

using namespace heddle;

/// Steps in a row, each quick and dear or slow and cheap; what counts is the money, if the time is kept.
struct errands {
    using state = std::uint32_t;
    struct label {
        int minutes = 0, money = 0;
    };
    using action = int; // minutes
    std::uint32_t count = 6;
    int most_minutes = 12;

    [[nodiscard]] std::pair<state, label> initial() const { return {0, {}}; }
    [[nodiscard]] bool is_goal(state s) const { return s == count; }
    [[nodiscard]] std::size_t level(state s) const { return s; }
    [[nodiscard]] double total(label l) const { return l.money; }
    [[nodiscard]] double bound(state, label l) const { return l.money; }
    [[nodiscard]] bool dominates(label a, label b) const { return a.minutes <= b.minutes && a.money <= b.money; }
    template <class Visit>
    void for_each_successor(state s, label l, Visit&& visit) const {
        int const i = static_cast<int>(s);
        if (l.minutes + 1 <= most_minutes) visit(1, s + 1, label{l.minutes + 1, l.money + 3 + i});
        if (l.minutes + 3 <= most_minutes) visit(3, s + 1, label{l.minutes + 3, l.money + 1});
    }
};
static_assert(search::levelled_problem<errands>);

/// Does not make labels that cost too much.
struct choosy_errands : errands {
    using errands::for_each_successor;
    template <class Visit, class IsWanted>
    void for_each_successor(state s, label l, Visit&& visit, IsWanted&& is_wanted) const {
        errands::for_each_successor(s, l, [&](int minutes, state next, label made) {
            if (is_wanted(made.money)) visit(minutes, next, made);
        });
    }
};
static_assert(search::levelled_problem<choosy_errands>);

struct without_levels : errands {
    void level(state) const;
};
static_assert(search::problem<without_levels>);
static_assert(!search::levelled_problem<without_levels>);

} // namespace

TEST_CASE("a front of labels per state finds what no single label would") {
    auto const r = search::pareto_dp(errands{});
    CHECK(r.status == search::status::optimal);
    CHECK(r.cost == 3 + 4 + 5 + 3); // three slow ones have the time, the dearest
    CHECK(r.actions == std::vector{1, 1, 1, 3, 3, 3});
    CHECK(r.lower_bound == *r.cost);
    CHECK(search::best_first(errands{}).cost == r.cost);
    CHECK(r.statistics.dominated > 0);
}

TEST_CASE("a problem may leave out successors that are not wanted, and nothing else changes") {
    for (double cutoff : {14.0, 15.0, 16.0, 100.0}) {
        CAPTURE(cutoff);
        search::pareto_options o;
        o.cutoff = cutoff;
        auto const all = search::pareto_dp(errands{}, o), some = search::pareto_dp(choosy_errands{}, o);
        CHECK(some.status == all.status);
        CHECK(some.cost == all.cost);
        CHECK(some.lower_bound == all.lower_bound);
        CHECK(some.actions == all.actions);
        CHECK(some.statistics.bounded == all.statistics.bounded);
        CHECK(some.statistics.generated <= all.statistics.generated);
        CHECK(all.statistics.generated <=
              some.statistics.generated + some.statistics.bounded); // which has the bounded that were made, too
    }
}

TEST_CASE("a result tells apart that there is no path, a cutoff, and limits") {
    auto const none = search::pareto_dp(errands{6, 5});
    CHECK(none.status == search::status::infeasible);
    CHECK_FALSE(none.cost);

    search::pareto_options o;
    o.cutoff = 15;
    CHECK(search::pareto_dp(errands{}, o).status == search::status::infeasible);
    o.cutoff = 15.5;
    CHECK(search::pareto_dp(errands{}, o).status == search::status::optimal);

    search::pareto_options few;
    few.limits.labels = 5;
    auto const stopped = search::pareto_dp(errands{}, few);
    CHECK(stopped.status == search::status::limit);
    CHECK(stopped.which_limit == search::limit_kind::labels);
    CHECK(stopped.lower_bound <= 15);

    std::stop_source source;
    source.request_stop();
    search::pareto_options stop;
    stop.limits.stop = source.get_token();
    CHECK(search::pareto_dp(errands{}, stop).which_limit == search::limit_kind::stopped);
    stop.limits.stop = {};
    stop.limits.seconds = 0.0;
    CHECK(search::pareto_dp(errands{}, stop).which_limit == search::limit_kind::time);
    stop.limits.seconds.reset();
    stop.limits.bytes = 1;
    CHECK(search::pareto_dp(errands{}, stop).which_limit == search::limit_kind::memory);
}

TEST_CASE("a beam leaves labels out and says how much that may cost") {
    search::pareto_options o;
    o.beam = 1;
    auto const narrow = search::pareto_dp(errands{}, o); // the cheapest so far uses up the time
    CHECK(narrow.status == search::status::limit);
    CHECK(narrow.which_limit == search::limit_kind::width);
    CHECK(narrow.lower_bound <= 15);
    auto const lucky = search::pareto_dp(errands{6, 18}, o); // all slow
    CHECK(lucky.status == search::status::feasible);
    CHECK(lucky.cost == 6);
    CHECK(lucky.lower_bound <= 6);
    o.beam = 100;
    CHECK(search::pareto_dp(errands{}, o).status == search::status::optimal);
}

namespace {

/// One way looks cheap for long and ends dear; beside it many that look dearer.
struct detours {
    using state = std::uint32_t;
    struct label {
        int way = 0, sum = 0;
    };
    using action = int;
    [[nodiscard]] std::pair<state, label> initial() const { return {0, {}}; }
    [[nodiscard]] bool is_goal(state s) const { return s == 3; }
    [[nodiscard]] std::size_t level(state s) const { return s; }
    [[nodiscard]] double total(label l) const { return l.sum; }
    [[nodiscard]] double bound(state, label l) const { return l.sum; }
    [[nodiscard]] bool dominates(label, label) const { return false; }
    template <class Visit>
    void for_each_successor(state s, label l, Visit&& visit) const {
        if (s == 0) visit(0, s + 1, label{0, 1}), visit(1, s + 1, label{1, 2});
        else if (l.way == 0) visit(0, s + 1, label{0, l.sum + (s == 2 ? 10 : 2)});
        else
            for (int n = 1; n < 9; ++n) visit(n, s + 1, label{n, l.sum + (s == 2 ? 20 + n : 0)}); // crowd out
    }
};

} // namespace

TEST_CASE("a beam that widens keeps what narrower ones find") {
    search::widening_options o;
    o.beam = 4;
    CHECK(search::pareto_dp(detours{}, o).cost == 23);
    auto const widening = search::widening_beam(detours{}, o);
    CHECK(widening.cost == 13);
    CHECK(widening.status == search::status::feasible);
    CHECK(widening.lower_bound == 2);
    CHECK(widening.actions == std::vector<int>{0, 0, 0});
    auto const widest = search::widening_beam(detours{});
    CHECK(widest.cost == 13);
    CHECK(widest.status == search::status::optimal);
    o.narrowest = 4;
    CHECK(search::widening_beam(detours{}, o).cost == 23);
    o.narrowest = 0; // as 1
    CHECK(search::widening_beam(detours{}, o).cost == 13);
    o.narrowest = 1;
    o.beam = 100;
    o.patience = 1;
    auto const early = search::widening_beam(detours{}, o);
    CHECK(early.cost == 13);
    CHECK(early.status == search::status::feasible);
    std::stop_source stop;
    stop.request_stop();
    o.limits.stop = stop.get_token();
    auto const stopped = search::widening_beam(detours{}, o);
    CHECK(stopped.which_limit == search::limit_kind::stopped);
    CHECK_FALSE(stopped.cost);
}

TEST_CASE("a visitor sees every expansion and may stop") {
    struct visitor_type {
        std::size_t expanded = 0, solutions = 0, most = 1000;
        bool on_expand(search::progress const&) { return ++expanded <= most; }
        void on_solution(search::progress const& p) { solutions += p.incumbent.has_value(); }
    } all, three;
    auto const r = search::pareto_dp(errands{}, {}, all);
    CHECK(all.expanded == r.statistics.expanded);
    CHECK(all.solutions >= 1);
    three.most = 3;
    auto const stopped = search::pareto_dp(errands{}, {}, three);
    CHECK(stopped.which_limit == search::limit_kind::stopped);
    CHECK(stopped.statistics.expanded == 3);
}

TEST_CASE("totals below zero are proven like others") {
    struct paid_errands : errands {
        [[nodiscard]] double total(label l) const { return l.money - 1000; }
        [[nodiscard]] double bound(state, label l) const { return l.money - 1000; }
    };
    auto const r = search::pareto_dp(paid_errands{});
    CHECK(r.status == search::status::optimal);
    CHECK(r.which_limit == search::limit_kind::none);
    CHECK(r.cost == *search::pareto_dp(errands{}).cost - 1000);
    CHECK(r.lower_bound == *r.cost);
}
