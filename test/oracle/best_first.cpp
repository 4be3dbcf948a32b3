// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief `best_first` over `property_space` against exhaustive enumeration of property sets.
#include "support/random_programs.hpp"

#include <heddle/search/best_first.hpp>
#include <heddle/search/properties/property_space.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <sstream>

namespace {

using namespace heddle;
using test::random_source;
using mask = std::uint32_t;

using test::infinite;

/// A planning task with costs that are small whole numbers, so that sums are exact.
struct task {
    std::size_t properties = 0;
    std::vector<std::uint32_t> initial, goal;
    std::vector<search::property_action> actions;
    std::vector<double> costs;
    std::shared_ptr<search::property_task const> indexed;

    void index() { indexed = std::make_shared<search::property_task const>(properties, actions, initial, goal); }

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
        auto const write = [&](char const* what, std::vector<std::uint32_t> const& ids) {
            out << what << " {";
            for (auto id : ids) out << ' ' << id;
            out << " } ";
        };
        write("initial", initial);
        write("goal", goal);
        for (std::size_t a = 0; a < actions.size(); ++a) {
            out << "\n  action " << a << " cost " << costs[a] << ": ";
            write("pre", actions[a].pre);
            write("add", actions[a].add);
            write("remove", actions[a].remove);
        }
        return out.str();
    }
};

/// Draws facts, some of which hold at first, and budgets, all of which hold at first and which no action adds.
task random_task(random_source& random) {
    task t;
    auto const facts = static_cast<std::uint32_t>(random.between(3, 8));
    auto const budgets = static_cast<std::uint32_t>(random.between(0, 3));
    t.properties = facts + budgets;
    for (std::uint32_t f = 0; f < facts; ++f)
        if (random.chance(0.15)) t.initial.push_back(f);
    for (std::uint32_t b = 0; b < budgets; ++b) t.initial.push_back(facts + b);
    for (int n = random.between(1, 2); n-- > 0;)
        if (auto const g = static_cast<std::uint32_t>(random.below(facts));
            std::ranges::find(t.goal, g) == t.goal.end())
            t.goal.push_back(g);
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
    t.index();
    return t;
}

/// Returns the least cost to the goal from every set of properties, by Bellman and Ford.
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
struct scaled_bound : search::memoryless_bound {
    scaled_bound(std::vector<double> const& costs_to_goal, double of_it) : to_goal(&costs_to_goal), factor(of_it) {}
    std::vector<double> const* to_goal;
    double factor;
    double operator()(search::additive_cost const&, search::property_set const& s, double spent, memory) const {
        mask m = 0;
        s.for_each([&](std::size_t id) { m |= mask{1} << id; });
        return (*to_goal)[m] == infinite ? infinite : spent + factor * (*to_goal)[m];
    }
};

using blind_space = search::property_space<search::additive_cost, search::blind_bound>;
using bounded_space = search::property_space<search::additive_cost, scaled_bound>;

using landmark_space = search::property_space<search::additive_cost, search::landmark_bound>;

blind_space blind(task const& t, search::property_pruning pruning = {}) {
    return {*t.indexed, search::additive_cost(t.costs), {}, pruning};
}
bounded_space bounded(task const& t, std::vector<double> const& to_goal, double factor,
                      search::property_pruning pruning = {}) {
    return {*t.indexed, search::additive_cost(t.costs), scaled_bound(to_goal, factor), pruning};
}
landmark_space with_landmarks(task const& t, std::vector<std::uint32_t> const& groups = {},
                              search::property_pruning pruning = {}) {
    search::additive_cost const costs(t.costs);
    return {*t.indexed, costs, search::landmark_bound(*t.indexed, costs, groups), pruning};
}
/// Puts properties together at random: the groups may be good or bad, and the bound must hold.
std::vector<std::uint32_t> random_groups(task const& t, random_source& random) {
    std::vector<std::uint32_t> groups;
    auto const most = static_cast<std::size_t>(random.between(1, static_cast<int>(t.properties)));
    for (std::size_t p = 0; p < t.properties; ++p) groups.push_back(static_cast<std::uint32_t>(random.below(most)));
    return groups;
}
constexpr search::property_pruning prunings[] = {{true, true}, {true, false}, {false, true}, {false, false}};

/// Checks that the actions lead from the initial set to the goal at the cost that was returned.
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
        for (auto pruning : prunings) {
            CAPTURE(pruning.fill_unused);
            CAPTURE(pruning.one_order);
            check_optimum(t, blind(t, pruning), optimum);
            check_optimum(t, bounded(t, to_goal, 1, pruning), optimum);
            check_optimum(t, bounded(t, to_goal, random.unit(), pruning), optimum);
            check_optimum(t, with_landmarks(t, {}, pruning), optimum);
            check_optimum(t, with_landmarks(t, random_groups(t, random), pruning), optimum);
        }
    });
    CHECK(feasible > 400);
    CHECK(infeasible > 200);
}

TEST_CASE("filling in what nobody can use never expands more than leaving it out") {
    std::size_t filled = 0, plain = 0;
    for_random_tasks(2001, 300, [&](auto&, task const& t, auto const&, double) {
        filled += search::best_first(blind(t, {true, false})).statistics.expanded;
        plain += search::best_first(blind(t, {false, false})).statistics.expanded;
    });
    CHECK(filled < plain);
}

TEST_CASE("every way to the goal meets each landmark cut, and no action pays for more than it costs") {
    std::size_t tight = 0, feasible = 0;
    for_random_tasks(9001, 1000, [&](auto& random, task const& t, auto const& to_goal, double optimum) {
        auto const groups = random.chance(0.5) ? random_groups(t, random) : std::vector<std::uint32_t>{};
        auto const cuts = search::find_landmark_cuts(*t.indexed, t.costs, groups);
        CHECK(cuts.total <= optimum * (1 + 1e-12));
        if (optimum == infinite) return;
        ++feasible;
        tight += cuts.total >= optimum * (1 - 1e-12);
        std::vector<double> paid(t.actions.size());
        for (std::size_t c = 0; c < cuts.weights.size(); ++c) {
            CHECK(cuts.weights[c] > 0);
            auto without = t;
            for (auto a : cuts.actions[c]) {
                paid[a] += cuts.weights[c];
                without.actions[a].add.clear();
            }
            CHECK(costs_to_goal(without)[task::of(t.initial)] == infinite);
        }
        for (std::size_t a = 0; a < paid.size(); ++a) CHECK(paid[a] <= t.costs[a] * (1 + 1e-12));
        // Along any way, what is left of the weights never exceeds what is left to pay.
        search::additive_cost const costs(t.costs);
        search::landmark_bound const bound(*t.indexed, costs, groups);
        auto memory = bound.start();
        mask s = task::of(t.initial);
        for (int step = 0; step < 10; ++step) {
            std::vector<std::uint32_t> open;
            for (std::uint32_t a = 0; a < t.actions.size(); ++a)
                if (t.applies(a, s)) open.push_back(a);
            if (open.empty()) break;
            auto const a = random.of(open);
            s = t.apply(a, s);
            bound.follow(memory, a);
            CHECK(memory.rests[0] <= to_goal[s] * (1 + 1e-12) + 1e-9);
        }
    });
    MESSAGE(tight << " of " << feasible << " bounds equal the optimum");
    CHECK(tight > feasible / 2);
}

TEST_CASE("one order of commuting actions expands less, and grows mildly with independent branches") {
    std::size_t one = 0, all = 0;
    for_random_tasks(2001, 300, [&](auto&, task const& t, auto const&, double) {
        one += search::best_first(blind(t, {false, true})).statistics.expanded;
        all += search::best_first(blind(t, {false, false})).statistics.expanded;
    });
    CHECK(one < all);

    // There are k branches of three steps, each with a dear and a cheap way, joined at the end.
    auto const branches = [](std::uint32_t k) {
        task t;
        t.properties = 3 * k + 1;
        t.goal = {3 * k};
        search::property_action join{{}, {3 * k}, {}};
        for (std::uint32_t b = 0; b < k; ++b)
            for (std::uint32_t n = 0; n < 3; ++n)
                for (double cost : {1.0, 2.0}) {
                    t.actions.push_back(
                        {n ? std::vector{3 * b + n - 1} : std::vector<std::uint32_t>{}, {3 * b + n}, {}});
                    t.costs.push_back(cost);
                    if (n == 2 && cost == 1.0) join.pre.push_back(3 * b + n);
                }
        t.actions.push_back(join);
        t.costs.push_back(1);
        t.index();
        return t;
    };
    for (std::uint32_t k : {1u, 2u, 5u, 20u}) {
        auto const t = branches(k);
        auto const r = search::best_first(with_landmarks(t));
        CHECK(r.cost == 3.0 * k + 1);
        CHECK(r.statistics.expanded == 3 * k + 1);
    }
}

TEST_CASE("the k cheapest programs are those of enumeration") {
    int several = 0;
    for_random_tasks(11001, 400, [&](auto& random, task const& t, auto const&, double optimum) {
        // Holds every program without an action that adds nothing, by its set of actions.
        std::map<std::vector<std::uint32_t>, double> programs;
        std::vector<std::uint32_t> path;
        std::set<std::pair<mask, std::vector<std::uint32_t>>> seen;
        auto const sorted = [](std::vector<std::uint32_t> ids) {
            std::ranges::sort(ids);
            return ids;
        };
        std::function<void(mask, double)> const explore = [&](mask s, double cost) {
            if (!seen.emplace(s, sorted(path)).second || seen.size() > 20'000) return;
            if (t.reached(s)) {
                programs.emplace(sorted(path), cost);
                return;
            }
            for (std::uint32_t a = 0; a < t.actions.size(); ++a) {
                if (!t.applies(a, s) || (task::of(t.actions[a].add) & ~s) == 0) continue;
                path.push_back(a);
                explore(t.apply(a, s), cost + t.costs[a]);
                path.pop_back();
            }
        };
        explore(task::of(t.initial), 0);
        if (seen.size() > 20'000) return;
        std::vector<double> costs;
        for (auto const& [actions, cost] : programs) costs.push_back(cost);
        std::ranges::sort(costs);
        std::vector<double> needed;
        for (auto const& [actions, cost] : programs)
            if (std::ranges::none_of(programs, [&](auto const& other) {
                    return other.first.size() < actions.size() && std::ranges::includes(actions, other.first);
                }))
                needed.push_back(cost);
        std::ranges::sort(needed);
        search::options options;
        options.solution_count = static_cast<std::size_t>(random.between(2, 6));
        CAPTURE(options.solution_count);
        for (auto pruning : prunings) {
            CAPTURE(pruning.fill_unused);
            CAPTURE(pruning.one_order);
            auto const r = search::best_first(with_landmarks(t, {}, pruning), options);
            if (optimum == infinite) {
                CHECK(r.status == search::status::infeasible);
                continue;
            }
            REQUIRE(r.cost);
            CHECK(r.status == search::status::optimal);
            CHECK(*r.cost == costs.front());
            std::set<std::vector<std::uint32_t>> found{sorted(r.actions)};
            double last = *r.cost;
            for (auto const& other : r.runners_up) {
                CHECK(found.insert(sorted(other.actions)).second);
                CHECK(other.cost >= last);
                CHECK(programs.at(sorted(other.actions)) == other.cost);
                last = other.cost;
            }
            CHECK(last >= costs[r.runners_up.size()]);
            // Pruning hides only programs with an action too many.
            for (std::size_t n = 0; n < std::min(needed.size(), options.solution_count); ++n) {
                REQUIRE(n <= r.runners_up.size());
                CHECK((n ? r.runners_up[n - 1].cost : *r.cost) <= needed[n]);
            }
            if (pruning.fill_unused || pruning.one_order) continue;
            REQUIRE(1 + r.runners_up.size() == std::min(options.solution_count, costs.size()));
            several += !r.runners_up.empty();
            for (std::size_t n = 0; n < r.runners_up.size(); ++n) CHECK(r.runners_up[n].cost == costs[n + 1]);
        }
    });
    CHECK(several > 100);
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
        options.limits.labels = random.below(12);
        CAPTURE(*options.limits.labels);
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
        if (r.status == search::status::infeasible)
            CHECK(optimum * (1 + options.relative_gap) * (1 + 1e-12) >= options.cutoff);
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
    t.index();
    SUBCASE("visitor") {
        struct stop_at_second {
            int* calls;
            bool on_expand(search::progress const&) const { return ++*calls < 2; }
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
        options.limits.stop = source.get_token();
        auto const r = search::best_first(blind(t), options);
        CHECK(r.status == search::status::limit);
        CHECK(r.which_limit == search::limit_kind::stopped);
        CHECK(r.lower_bound == 0);
    }
    SUBCASE("memory") {
        search::options options;
        options.limits.bytes = 300;
        auto const r = search::best_first(blind(t), options);
        CHECK(r.status == search::status::limit);
        CHECK(r.which_limit == search::limit_kind::memory);
        CHECK(r.lower_bound <= 7);
    }
    SUBCASE("solutions are told") {
        struct listener {
            std::vector<double>* costs;
            void on_solution(search::progress const& p) const {
                REQUIRE(p.incumbent);
                costs->push_back(*p.incumbent);
                CHECK(p.gap().value() >= 0);
            }
        };
        std::vector<double> costs;
        CHECK(search::best_first(blind(t), {}, listener{&costs}).cost == 7);
        CHECK(costs == std::vector{7.0});
    }
    SUBCASE("time") {
        search::options options;
        options.limits.seconds = 0;
        auto const r = search::best_first(blind(t), options);
        CHECK(r.status == search::status::limit);
        CHECK(r.which_limit == search::limit_kind::time);
    }
}

// ---- labels that are not numbers

namespace {

/// Has two clocks and a barrier: a label's front matters, and the order of actions does too.
class clocks {
public:
    struct label {
        double closed = 0, a = 0, b = 0;
    };
    explicit clocks(std::vector<label> const& actions) : actions_(&actions) {}
    [[nodiscard]] label initial() const { return {}; }
    void extend(label& l, std::size_t action) const {
        auto const& step = (*actions_)[action];
        if (step.closed > 0) l = {l.closed + std::max(l.a, l.b) + step.closed, 0, 0};
        l.a += step.a;
        l.b += step.b;
    }
    [[nodiscard]] double total(label const& l) const { return l.closed + std::max(l.a, l.b); }
    [[nodiscard]] bool dominates(label const& x, label const& y) const {
        return x.closed + std::max(x.a - y.a, x.b - y.b) <= y.closed;
    }
    [[nodiscard]] bool is_commutative() const { return false; }
    [[nodiscard]] std::size_t relaxation_count() const { return 2; }
    [[nodiscard]] double relaxed_cost(std::size_t clock, std::size_t action) const {
        auto const& step = (*actions_)[action];
        return step.closed + (clock == 0 ? step.a : step.b);
    }
    [[nodiscard]] double total_after(label const& l, std::span<double const> rests) const {
        return l.closed + std::max(l.a + rests[0], l.b + rests[1]);
    }

private:
    std::vector<label> const* actions_;
};

} // namespace

TEST_CASE("with clocks and barriers as labels, the optimum over all orders of actions is found") {
    int feasible = 0;
    std::size_t blindly = 0, by_clock = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        random_source random(seed + 100000);
        auto t = random_task(random);
        t.actions.resize(std::min<std::size_t>(t.actions.size(), 7));
        std::vector<clocks::label> steps;
        for (std::size_t a = 0; a < t.actions.size(); ++a)
            steps.push_back({random.chance(0.4) ? random.between(1, 6) * 1.0 : 0.0, random.between(0, 9) * 1.0,
                             random.between(0, 9) * 1.0});
        clocks const accumulator(steps);
        double best = infinite;
        std::vector<bool> used(t.actions.size());
        std::function<void(mask, clocks::label)> const explore = [&](mask s, clocks::label l) {
            if (t.reached(s)) {
                best = std::min(best, accumulator.total(l));
                return;
            }
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
        t.index();
        auto const check = [&](auto const& space) {
            auto const r = search::best_first(space);
            CHECK((r.status == search::status::infeasible) == (best == infinite));
            if (best < infinite) {
                REQUIRE(r.cost);
                CHECK(*r.cost == best);
            }
            return r.statistics.expanded;
        };
        for (bool fill : {true, false}) {
            CAPTURE(fill);
            search::property_pruning const pruning{.fill_unused = fill};
            blindly += check(search::property_space(*t.indexed, accumulator, search::blind_bound{}, pruning));
            by_clock += check(search::property_space(*t.indexed, accumulator,
                                                     search::landmark_bound(*t.indexed, accumulator), pruning));
        }
    }
    CHECK(feasible > 100);
    MESSAGE("expanded " << blindly << " blindly, " << by_clock << " with cuts of each clock");
    CHECK(by_clock < blindly);
}

TEST_CASE(
    "open stages: the work of independent branches grows mildly, and stays exact where orders can be enumerated") {
    // Each branch has two steps in two forms, and barriers that turn one form into the other.
    auto const branches = [](std::uint32_t k, std::vector<clocks::label>& steps) {
        random_source random(77);
        task t;
        t.properties = 5 * k + 1;
        t.goal = {5 * k};
        search::property_action join{{}, {5 * k}, {}};
        auto const add = [&](search::property_action a, clocks::label cost) {
            t.actions.push_back(std::move(a));
            t.costs.push_back(0);
            steps.push_back(cost);
        };
        for (std::uint32_t b = 0; b < k; ++b) {
            auto const work = [&] { return clocks::label{0, random.between(1, 9) * 1.0, random.between(1, 9) * 1.0}; };
            std::uint32_t const first = 5 * b;
            for (std::uint32_t form : {0u, 1u}) add({{}, {first + form}, {}}, work());
            add({{first}, {first + 1}, {}}, {2, 0, 0});
            add({{first + 1}, {first}, {}}, {3, 0, 0});
            for (std::uint32_t form : {0u, 1u}) add({{first + form}, {first + 2 + form}, {}}, work());
            for (std::uint32_t form : {0u, 1u}) add({{first + 2 + form}, {first + 4}, {}}, {form ? 0.0 : 1.0, 0, 0});
            join.pre.push_back(first + 4);
        }
        add(join, {});
        t.index();
        return t;
    };
    std::vector<std::size_t> expanded;
    for (std::uint32_t k = 1; k <= 6; ++k) {
        std::vector<clocks::label> steps;
        auto const t = branches(k, steps);
        clocks const accumulator(steps);
        std::vector<std::uint32_t> groups;
        for (std::uint32_t p = 0; p < t.properties; ++p)
            groups.push_back(p % 5 < 2 ? p - p % 5 : p % 5 < 4 && p + 1 < t.properties ? p - p % 5 + 2 : p);
        auto const r = search::best_first(
            search::property_space(*t.indexed, accumulator, search::landmark_bound(*t.indexed, accumulator, groups)));
        REQUIRE(r.status == search::status::optimal);
        expanded.push_back(r.statistics.expanded);
        if (k > 2) continue;
        auto const blindly =
            search::best_first(search::property_space(*t.indexed, accumulator, search::blind_bound{}, {false, false}));
        CHECK(r.cost == blindly.cost);
    }
    std::string counts;
    for (auto n : expanded) counts += " " + std::to_string(n);
    MESSAGE("expanded for 1 to 6 branches:" << counts);
    CHECK(expanded[5] < 10'000); // of more than a million sets of properties
}

TEST_CASE("with clocks and barriers as labels, the k cheapest sets of actions are found, each in its best order") {
    int several = 0;
    for (std::uint64_t seed = 1; seed <= 500; ++seed) {
        random_source random(seed + 200000);
        auto t = random_task(random);
        // Each action has a second one at other costs, so that different sets of actions lead to the same state.
        t.actions.resize(std::min<std::size_t>(t.actions.size(), 5));
        for (std::size_t a = t.actions.size(); a-- > 0;) t.actions.push_back(t.actions[a]);
        std::vector<clocks::label> steps;
        for (std::size_t a = 0; a < t.actions.size(); ++a)
            steps.push_back({random.chance(0.4) ? random.between(1, 6) * 1.0 : 0.0, random.between(0, 9) * 1.0,
                             random.between(0, 9) * 1.0});
        clocks const accumulator(steps);
        std::map<std::set<std::size_t>, double> best;
        std::set<std::size_t> used;
        std::function<void(mask, clocks::label)> const explore = [&](mask s, clocks::label l) {
            if (t.reached(s)) {
                auto const [place, is_new] = best.emplace(used, accumulator.total(l));
                place->second = std::min(place->second, accumulator.total(l));
                return;
            }
            for (std::size_t a = 0; a < t.actions.size(); ++a) {
                if (!t.applies(a, s) || (task::of(t.actions[a].add) & ~s) == 0) continue;
                used.insert(a);
                auto next = l;
                accumulator.extend(next, a);
                explore(t.apply(a, s), next);
                used.erase(a);
            }
        };
        explore(task::of(t.initial), {});
        std::vector<double> costs;
        for (auto const& [actions, cost] : best) costs.push_back(cost);
        std::ranges::sort(costs);
        CAPTURE(seed);
        INFO(t.text());
        t.index();
        search::options options;
        options.solution_count = static_cast<std::size_t>(random.between(2, 6));
        auto const check = [&](auto const& space) {
            auto const r = search::best_first(space, options);
            if (costs.empty()) {
                CHECK(r.status == search::status::infeasible);
                return;
            }
            CHECK(r.status == search::status::optimal);
            CHECK(r.cost == costs[0]);
            REQUIRE(1 + r.runners_up.size() == std::min(options.solution_count, costs.size()));
            for (std::size_t n = 0; n < r.runners_up.size(); ++n) CHECK(r.runners_up[n].cost == costs[n + 1]);
            several += !r.runners_up.empty();
        };
        check(search::property_space(*t.indexed, accumulator, search::landmark_bound(*t.indexed, accumulator),
                                     {.fill_unused = false}));
        check(search::property_space(*t.indexed, accumulator, search::blind_bound{}, {.fill_unused = false}));
    }
    CHECK(several > 200);
}
