// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief `best_first` over `property_space` against exhaustive enumeration of property sets.
#include "support/random_programs.hpp"

#include <heddle/search/best_first.hpp>
#include <heddle/search/property_space.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <sstream>

namespace {

using namespace heddle;
using test::random_source;
using mask = std::uint32_t;

constexpr double infinite = std::numeric_limits<double>::infinity();

/// A planning task with costs that are small whole numbers, so that sums are exact.
struct task {
    std::size_t properties = 0;
    std::vector<std::uint32_t> initial, goal;
    std::vector<search::property_action> actions;
    std::vector<double> costs;

    static mask of(std::vector<std::uint32_t> const& ids) {
        mask m = 0;
        for (auto id : ids) m |= mask{1} << id;
        return m;
    }
    [[nodiscard]] bool applies(std::size_t a, mask s) const { return (of(actions[a].pre) & ~s) == 0; }
    [[nodiscard]] mask apply(std::size_t a, mask s) const { return (s & ~of(actions[a].remove)) | of(actions[a].add); }
    [[nodiscard]] bool reached(mask s) const { return (of(goal) & ~s) == 0; }

    [[nodiscard]] std::string text() const {
        std::ostringstream out;
        auto const list = [&](char const* what, std::vector<std::uint32_t> const& ids) {
            out << what << " {";
            for (auto id : ids) out << ' ' << id;
            out << " } ";
        };
        list("initial", initial);
        list("goal", goal);
        for (std::size_t a = 0; a < actions.size(); ++a) {
            out << "\n  action " << a << " cost " << costs[a] << ": ";
            list("pre", actions[a].pre);
            list("add", actions[a].add);
            list("remove", actions[a].remove);
        }
        return out.str();
    }
};

/// Facts, of which some hold at first, and budgets, which all do and which no action adds.
task random_task(random_source& random) {
    task t;
    auto const facts = static_cast<std::uint32_t>(random.between(3, 8));
    auto const budgets = static_cast<std::uint32_t>(random.between(0, 3));
    t.properties = facts + budgets;
    for (std::uint32_t f = 0; f < facts; ++f)
        if (random.chance(0.15)) t.initial.push_back(f);
    for (std::uint32_t b = 0; b < budgets; ++b) t.initial.push_back(facts + b);
    for (int n = random.between(1, 2); n-- > 0;)
        if (auto const g = static_cast<std::uint32_t>(random.below(facts)); std::ranges::find(t.goal, g) == t.goal.end()) t.goal.push_back(g);
    auto const draw = [&](int most, std::uint32_t count) {
        std::vector<std::uint32_t> ids;
        for (int n = random.between(0, most); n-- > 0;) ids.push_back(static_cast<std::uint32_t>(random.below(count)));
        std::ranges::sort(ids);
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
        return ids;
    };
    for (int n = random.between(4, 16); n-- > 0;) {
        search::property_action a;
        a.pre = draw(3, facts);
        a.add = draw(2, facts);
        if (a.add.empty()) a.add.push_back(static_cast<std::uint32_t>(random.below(facts)));
        if (budgets > 0 && random.chance(0.5)) {
            auto const b = facts + static_cast<std::uint32_t>(random.below(budgets));
            a.pre.push_back(b);
            if (random.chance(0.7)) a.remove.push_back(b);
        }
        t.actions.push_back(std::move(a));
        t.costs.push_back(random.chance(0.15) ? 0 : random.between(1, 20));
    }
    return t;
}

/// Least cost to the goal from every set of properties, by Bellman and Ford.
std::vector<double> costs_to_goal(task const& t) {
    std::vector<double> cost(std::size_t{1} << t.properties, infinite);
    for (mask s = 0; s < cost.size(); ++s)
        if (t.reached(s)) cost[s] = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (mask s = 0; s < cost.size(); ++s)
            for (std::size_t a = 0; a < t.actions.size(); ++a)
                if (t.applies(a, s) && t.costs[a] + cost[t.apply(a, s)] < cost[s]) {
                    cost[s] = t.costs[a] + cost[t.apply(a, s)];
                    changed = true;
                }
    }
    return cost;
}

/// A fraction of the true cost to go: admissible and consistent.
struct scaled_bound {
    std::vector<double> const* to_goal;
    double factor;
    double operator()(search::property_set const& s, double spent) const {
        mask m = 0;
        s.for_each([&](std::size_t id) { m |= mask{1} << id; });
        return (*to_goal)[m] == infinite ? infinite : spent + factor * (*to_goal)[m];
    }
};

using blind_space = search::property_space<search::additive_cost, search::blind_bound>;
using bounded_space = search::property_space<search::additive_cost, scaled_bound>;

blind_space blind(task const& t, bool fill = true) {
    return {t.properties, t.actions, t.initial, t.goal, search::additive_cost(t.costs), {}, fill};
}
bounded_space bounded(task const& t, std::vector<double> const& to_goal, double factor, bool fill = true) {
    return {t.properties, t.actions, t.initial, t.goal, search::additive_cost(t.costs), {&to_goal, factor}, fill};
}

/// The actions lead from the initial set to the goal at the cost that was returned.
void check_solution(task const& t, search::result<std::uint32_t> const& r) {
    REQUIRE(r.cost);
    mask s = task::of(t.initial);
    double cost = 0;
    for (auto a : r.actions) {
        REQUIRE(t.applies(a, s));
        s = t.apply(a, s);
        cost += t.costs[a];
    }
    CHECK(t.reached(s));
    CHECK(cost == *r.cost);
}

template <class Space>
void check_optimum(task const& t, Space const& space, double optimum) {
    auto const r = search::best_first(space);
    if (optimum == infinite) {
        CHECK(r.status == search::status::infeasible);
        CHECK_FALSE(r.cost);
        CHECK(r.actions.empty());
        CHECK(r.lower_bound == infinite);
        return;
    }
    CHECK(r.status == search::status::optimal);
    CHECK(r.which_limit == search::limit_kind::none);
    check_solution(t, r);
    CHECK(*r.cost == optimum);
    CHECK(r.lower_bound == optimum);
}

template <class Check>
void for_random_tasks(std::uint64_t first, std::uint64_t count, Check&& check) {
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        random_source random(seed);
        auto const t = random_task(random);
        auto const to_goal = costs_to_goal(t);
        CAPTURE(seed);
        INFO(t.text());
        check(random, t, to_goal, to_goal[task::of(t.initial)]);
    }
}

} // namespace

TEST_CASE("best_first over properties finds the optimum of exhaustive enumeration") {
    int feasible = 0, infeasible = 0;
    for_random_tasks(1, 1500, [&](auto& random, task const& t, auto const& to_goal, double optimum) {
        ++(optimum == infinite ? infeasible : feasible);
        for (bool fill : {true, false}) {
            CAPTURE(fill);
            check_optimum(t, blind(t, fill), optimum);
            check_optimum(t, bounded(t, to_goal, 1, fill), optimum);
            check_optimum(t, bounded(t, to_goal, random.unit(), fill), optimum);
        }
    });
    CHECK(feasible > 400);
    CHECK(infeasible > 200);
}

TEST_CASE("filling in what nobody can use never expands more than leaving it out") {
    std::size_t filled = 0, plain = 0;
    for_random_tasks(2001, 300, [&](auto&, task const& t, auto const&, double) {
        filled += search::best_first(blind(t, true)).statistics.expanded;
        plain += search::best_first(blind(t, false)).statistics.expanded;
    });
    CHECK(filled < plain);
}

TEST_CASE("a cutoff admits exactly what is cheaper") {
    for_random_tasks(3001, 300, [&](auto&, task const& t, auto const&, double optimum) {
        if (optimum == infinite) return;
        search::options options;
        options.cutoff = optimum + 1;
        auto const above = search::best_first(blind(t), options);
        CHECK(above.status == search::status::optimal);
        CHECK(above.cost == optimum);
        options.cutoff = optimum;
        auto const at = search::best_first(blind(t), options);
        CHECK(at.status == search::status::infeasible);
        CHECK_FALSE(at.cost);
        CHECK(at.lower_bound <= optimum);
        CHECK(at.lower_bound >= optimum * (1 - 1e-9));
    });
}

TEST_CASE("a limit on labels stops the search with a bound that holds") {
    int stopped = 0;
    for_random_tasks(4001, 400, [&](auto& random, task const& t, auto const& to_goal, double optimum) {
        search::options options;
        options.label_limit = random.below(12);
        CAPTURE(options.label_limit);
        auto const check = [&](auto const& space) {
            auto const r = search::best_first(space, options);
            // A bound holds whatever the status.
            CHECK(r.lower_bound <= optimum);
            switch (r.status) {
            case search::status::optimal:
                CHECK(*r.cost == optimum);
                CHECK(r.which_limit == search::limit_kind::none);
                break;
            case search::status::infeasible: CHECK(optimum == infinite); break;
            case search::status::limit:
                ++stopped;
                CHECK(r.which_limit == search::limit_kind::labels);
                if (r.cost) check_solution(t, r);
                break;
            case search::status::feasible: FAIL_CHECK("feasible without a gap"); break;
            }
        };
        check(blind(t));
        check(bounded(t, to_goal, 0.5));
    });
    CHECK(stopped > 100);
}

TEST_CASE("a relative gap stops early with a bound that holds") {
    for_random_tasks(5001, 1500, [&](auto& random, task const& t, auto const& to_goal, double optimum) {
        search::options options;
        options.relative_gap = random.between(0.0, 1.0);
        CAPTURE(options.relative_gap);
        auto const check = [&](auto const& space) {
            auto const r = search::best_first(space, options);
            if (optimum == infinite) {
                CHECK(r.status == search::status::infeasible);
                return;
            }
            check_solution(t, r);
            CHECK(r.lower_bound <= optimum);
            CHECK(*r.cost >= optimum);
            CHECK(*r.cost <= optimum * (1 + options.relative_gap) * (1 + 1e-12));
            if (r.status == search::status::optimal) CHECK(*r.cost == optimum);
            else CHECK(r.status == search::status::feasible);
        };
        check(blind(t));
        check(bounded(t, to_goal, random.unit()));
    });
}

TEST_CASE("with a cutoff and a gap, infeasible still means that nothing is cheaper than the bound") {
    for_random_tasks(7001, 500, [&](auto& random, task const& t, auto const&, double optimum) {
        search::options options;
        options.relative_gap = random.between(0.0, 0.5);
        options.cutoff = std::ceil(optimum == infinite ? 50 : optimum * random.between(0.8, 1.5));
        CAPTURE(options.relative_gap);
        CAPTURE(options.cutoff);
        auto const r = search::best_first(blind(t), options);
        CHECK(r.lower_bound <= optimum);
        if (r.cost) CHECK(*r.cost >= optimum);
        if (r.status == search::status::infeasible) CHECK(optimum * (1 + options.relative_gap) * (1 + 1e-12) >= options.cutoff);
    });
}

TEST_CASE("a search is deterministic") {
    for_random_tasks(8001, 100, [&](auto&, task const& t, auto const&, double) {
        auto const a = search::best_first(blind(t)), b = search::best_first(blind(t));
        CHECK(a.actions == b.actions);
        CHECK(a.cost == b.cost);
        CHECK(a.statistics.expanded == b.statistics.expanded);
        CHECK(a.statistics.generated == b.statistics.generated);
        CHECK(a.statistics.kept == b.statistics.kept);
    });
}

TEST_CASE("a visitor and a stop token end a search") {
    task t;
    t.properties = 3;
    t.goal = {2};
    t.actions = {{{}, {0}, {}}, {{0}, {1}, {}}, {{1}, {2}, {}}};
    t.costs = {1, 2, 4};
    SUBCASE("visitor") {
        struct stop_at_second {
            int* calls;
            bool on_expand(search::statistics const&, double) const { return ++*calls < 2; }
        };
        int calls = 0;
        auto const r = search::best_first(blind(t), {}, stop_at_second{&calls});
        CHECK(r.status == search::status::limit);
        CHECK(r.which_limit == search::limit_kind::stopped);
        CHECK(r.lower_bound == 1);
        CHECK(calls == 2);
    }
    SUBCASE("token") {
        std::stop_source source;
        source.request_stop();
        search::options options;
        options.stop = source.get_token();
        auto const r = search::best_first(blind(t), options);
        CHECK(r.status == search::status::limit);
        CHECK(r.which_limit == search::limit_kind::stopped);
        CHECK(r.lower_bound == 0);
    }
    SUBCASE("time") {
        search::options options;
        options.time_limit_seconds = 0;
        auto const r = search::best_first(blind(t), options);
        CHECK(r.status == search::status::limit);
        CHECK(r.which_limit == search::limit_kind::time);
    }
}

// ---- labels that are no numbers

namespace {

/// Two clocks and a barrier: a label's front matters, and order of actions does too.
class clocks {
public:
    struct label { double closed = 0, a = 0, b = 0; };
    explicit clocks(std::vector<label> const& actions) : actions_(&actions) {}
    [[nodiscard]] label initial() const { return {}; }
    void extend(label& l, std::size_t action) const {
        auto const& step = (*actions_)[action];
        if (step.closed > 0) l = {l.closed + std::max(l.a, l.b) + step.closed, 0, 0};
        l.a += step.a;
        l.b += step.b;
    }
    [[nodiscard]] double total(label const& l) const { return l.closed + std::max(l.a, l.b); }
    [[nodiscard]] bool dominates(label const& x, label const& y) const { return x.closed + std::max(x.a - y.a, x.b - y.b) <= y.closed; }

private:
    std::vector<label> const* actions_;
};

struct spent_so_far {
    double operator()(search::property_set const&, clocks::label const& l) const { return l.closed + std::max(l.a, l.b); }
};

} // namespace

TEST_CASE("labels with clocks and barriers: the optimum over all orders of actions") {
    int feasible = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        random_source random(seed + 100000);
        auto t = random_task(random);
        t.actions.resize(std::min<std::size_t>(t.actions.size(), 7));
        std::vector<clocks::label> steps;
        for (std::size_t a = 0; a < t.actions.size(); ++a)
            steps.push_back({random.chance(0.4) ? random.between(1, 6) * 1.0 : 0.0, random.between(0, 9) * 1.0, random.between(0, 9) * 1.0});
        clocks const accumulator(steps);
        double best = infinite;
        std::vector<bool> used(t.actions.size());
        std::function<void(mask, clocks::label)> const explore = [&](mask s, clocks::label l) {
            if (t.reached(s)) { best = std::min(best, accumulator.total(l)); return; }
            for (std::size_t a = 0; a < t.actions.size(); ++a) {
                if (used[a] || !t.applies(a, s)) continue;
                used[a] = true;
                auto next = l;
                accumulator.extend(next, a);
                explore(t.apply(a, s), next);
                used[a] = false;
            }
        };
        explore(task::of(t.initial), {});
        CAPTURE(seed);
        INFO(t.text());
        feasible += best < infinite;
        for (bool fill : {true, false}) {
            CAPTURE(fill);
            search::property_space<clocks, spent_so_far> const space(t.properties, t.actions, t.initial, t.goal, accumulator, {}, fill);
            auto const r = search::best_first(space);
            CHECK((r.status == search::status::infeasible) == (best == infinite));
            if (best < infinite) {
                REQUIRE(r.cost);
                CHECK(*r.cost == best);
            }
        }
    }
    CHECK(feasible > 100);
}
