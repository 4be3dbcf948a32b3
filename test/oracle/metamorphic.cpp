// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Costs move as they must when the problem does: at fixed ratios by `synthesise`, and in what `plan_hap`
/// promises of a plan.
#include "support/random_programs.hpp"

#include <heddle/cost/priced_graph.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/synthesis/synthesise.hpp>
#if __has_include(<heddle/clp/ratio_solver.hpp>)
#include <heddle/clp/ratio_solver.hpp>
#define HEDDLE_TEST_HAS_SOLVER 1
#endif
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/verify.hpp>
#include <support/cases.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace {

using namespace heddle;
using test::random_source;

std::vector<step_work> steps_of_space(cut_space const& space) {
    std::vector<step_work> result;
    for (auto const& i : space.instructions()) result.push_back(make_step(space.program(), i, {}));
    return result;
}

share_vector random_ratios(random_source& random, std::size_t count) {
    share_vector ratios;
    double sum = 0;
    for (std::size_t d = 0; d < count; ++d) sum += ratios.emplace_back(random.between(0.05, 1.0));
    for (auto& r : ratios) r /= sum;
    return ratios;
}

/// One program, synthesised on one cluster after another.
class bench_of_clusters {
public:
    explicit bench_of_clusters(random_source& random, int most_operators = 5)
        : made_(test::random_program(random, {.most_operators = most_operators, .most_extent = 5})),
          p_(index_program(made_)), space_(p_), graph_(search::explore(space_)), steps_(steps_of_space(space_)) {}

    [[nodiscard]] synthesis_result at(cluster const& c, share_vector const& ratios) const {
        auto const model = per_device_model(c, element_type::float32);
        priced_graph const priced(space_, graph_, steps_, model, integral_shares(p_, ratios));
        synthesis_options options;
        options.search.limits.labels = 5000;
        return synthesise(priced, options);
    }
    [[nodiscard]] std::string text() const { return test::describe(made_); }

private:
    program made_;
    indexed_program p_;
    cut_space space_;
    cut_graph graph_;
    std::vector<step_work> steps_;
};

/// Checks that `better` does not cost more than `worse`, as far as each is proven.
void check_no_dearer(synthesis_result const& better, synthesis_result const& worse) {
    if (!worse.path) return;
    REQUIRE(better.status != search::status::infeasible);
    CHECK(better.lower_bound <= worse.cost.seconds * (1 + 1e-9));
    if (better.status != search::status::limit) CHECK(better.cost.seconds <= worse.cost.seconds * (1 + 1e-9));
}

void check_same(synthesis_result const& a, synthesis_result const& b) {
    check_no_dearer(a, b);
    check_no_dearer(b, a);
}

void scale_link(network_link& l, double factor) { l.bandwidth *= factor; }

cluster with_faster_links(cluster c, double factor) {
    scale_link(*c.intra, factor);
    scale_link(*c.inter, factor);
    for (auto& [kind, model] : c.measured)
        for (auto& piece : model.pieces) piece.slope *= 1 / factor;
    return c;
}

cluster with_faster_device(cluster c, std::size_t type, double factor) {
    c.types[type].bandwidth *= factor;
    for (auto& [element, table] : c.types[type].rates) {
        table.fallback *= factor;
        for_each_speed(table, [&](class_speed& speed) {
            if (speed.rate) *speed.rate *= factor;
            if (speed.bandwidth) *speed.bandwidth *= factor;
            if (speed.overhead) *speed.overhead *= 1 / factor;
        });
    }
    c.types[type].overhead *= 1 / factor;
    return c;
}

/// Makes everything take twice as long.
cluster twice_as_slow(cluster c) {
    for (std::size_t t = 0; t < c.types.size(); ++t) c = with_faster_device(std::move(c), t, 0.5);
    for (auto* l : {&*c.intra, &*c.inter}) {
        l->bandwidth *= 0.5;
        l->latency *= 2;
    }
    for (auto& [kind, model] : c.measured)
        for (auto& piece : model.pieces) {
            piece.latency *= 2;
            piece.slope *= 2;
        }
    return c;
}

cluster with_memory(cluster c, double factor) {
    for (auto& type : c.types) type.memory *= factor;
    return c;
}

template <class Check>
void for_random_clusters(std::uint64_t first, std::uint64_t count, test::cluster_limits limits, Check&& check) {
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        random_source random(seed);
        bench_of_clusters const bench(random);
        auto const c = test::random_cluster(random, limits);
        auto const ratios = random_ratios(random, c.devices().size());
        CAPTURE(seed);
        INFO(bench.text() << test::describe(c));
        check(random, bench, c, ratios);
    }
}

} // namespace

TEST_CASE("at fixed ratios more bandwidth never costs more") {
    for_random_clusters(
        1, 80, {.most_devices = 6}, [](auto& random, auto const& bench, cluster const& c, auto const& ratios) {
            check_no_dearer(bench.at(with_faster_links(c, random.log_between(1.0, 10.0)), ratios), bench.at(c, ratios));
        });
}

TEST_CASE("at fixed ratios a faster device never costs more") {
    for_random_clusters(
        1001, 80, {.most_devices = 6}, [](auto& random, auto const& bench, cluster const& c, auto const& ratios) {
            check_no_dearer(
                bench.at(with_faster_device(c, random.below(c.types.size()), random.log_between(1.0, 10.0)), ratios),
                bench.at(c, ratios));
        });
}

TEST_CASE("at fixed ratios exchanging equal devices changes nothing") {
    for_random_clusters(2001, 80, {.most_types = 2, .most_devices = 6},
                        [](auto& random, auto const& bench, cluster const& c, auto ratios) {
                            auto const before = bench.at(c, ratios);
                            auto const types = c.devices();
                            for (std::size_t d = types.size(); d-- > 1;) // shuffles within each type
                                if (std::size_t const other = random.below(d + 1); types[d] == types[other])
                                    std::swap(ratios[d], ratios[other]);
                            check_same(before, bench.at(c, ratios));
                        });
}

TEST_CASE("at fixed ratios the order of machines changes nothing") {
    for_random_clusters(3001, 60, {.most_devices = 6}, [](auto&, auto const& bench, cluster const& c, auto ratios) {
        auto const before = bench.at(c, ratios);
        auto turned = c;
        std::ranges::reverse(turned.machines); // of one type each, so that the devices turn round too
        std::ranges::reverse(ratios);
        check_same(before, bench.at(turned, ratios));
    });
}

TEST_CASE("at fixed ratios looser memory never costs more") {
    int binding = 0;
    for_random_clusters(4001, 150, {.most_devices = 5, .memory = test::memory_kind::tight},
                        [&](auto& random, auto const& bench, cluster const& c, auto const& ratios) {
                            auto const tight = bench.at(c, ratios),
                                       loose = bench.at(with_memory(c, random.between(1.0, 3.0)), ratios);
                            check_no_dearer(loose, tight);
                            binding += tight.path && loose.path && loose.cost.seconds < tight.cost.seconds;
                        });
    MESSAGE("memory made a difference " << binding << " times");
    CHECK(binding > 3);
}

TEST_CASE("at fixed ratios doubling every time doubles the cost") {
    for_random_clusters(5001, 60, {.most_devices = 6},
                        [](auto&, auto const& bench, cluster const& c, auto const& ratios) {
                            auto const once = bench.at(c, ratios);
                            auto const twice = bench.at(twice_as_slow(c), ratios);
                            CHECK(once.status == twice.status);
                            CHECK(twice.cost.seconds == doctest::Approx(2 * once.cost.seconds).epsilon(1e-12));
                            CHECK(twice.lower_bound == doctest::Approx(2 * once.lower_bound).epsilon(1e-9));
                        });
}

#ifdef HEDDLE_TEST_HAS_SOLVER

namespace {

hap_options quick() {
    hap_options options;
    options.synthesis.search.limits.labels = 3000;
    options.synthesis.relaxation_rounds = 10;
    options.rounds = 4;
    return options;
}

/// Checks everything that a plan says of itself.
void check_plan(program const& made, cluster const& c, plan const& p) {
    if (!p.exists()) {
        CHECK((p.status == search::status::infeasible || p.status == search::status::limit));
        CHECK_FALSE(p.reason.empty());
        for (auto const& [name, seconds] : p.baselines) CHECK_FALSE(seconds);
        return;
    }
    CHECK(p.status != search::status::infeasible);
    auto const again = evaluate(p, c);
    CHECK(again.time.total() == p.cost());
    CHECK(again.fits);
    REQUIRE(p.memory.size() == p.devices.size());
    auto const types = c.devices();
    REQUIRE(types.size() == p.devices.size());
    for (std::size_t d = 0; d < p.devices.size(); ++d) {
        CHECK(p.devices[d].memory_limit == c.types[types[d]].memory);
        CHECK(again.memory[d].total() == p.memory[d].total());
        CHECK(p.memory[d].total() <= p.devices[d].memory_limit.value);
    }
    CHECK(p.lower_bound >= 0);
    CHECK(p.lower_bound <= p.cost() * (1 + 1e-12));
    if (p.status == search::status::optimal) CHECK(p.lower_bound == doctest::Approx(p.cost()).epsilon(1e-9));
    for (auto const& [name, seconds] : p.baselines) {
        CAPTURE(name);
        if (seconds) CHECK(p.cost() <= *seconds);
    }
    for (auto const& point : p.trajectory)
        if (point.cost) CHECK(p.cost() <= *point.cost);
    CHECK(run_serial(p, c).total == doctest::Approx(p.cost()).epsilon(1e-9));
    CHECK(std::accumulate(p.ratios[0].begin(), p.ratios[0].end(), 0.0) == doctest::Approx(1));
    for (auto const& cut : p.cuts) CHECK(std::accumulate(cut.counts.begin(), cut.counts.end(), extent{0}) == cut.atoms);
    auto const checked = verify(index_program(made), p);
    CHECK_MESSAGE(checked.valid, checked.problem);
}

} // namespace

TEST_CASE("plan_hap keeps its promises on random programs") {
    int optimal = 0, feasible = 0, limit = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(150u); ++seed) {
        random_source random(seed + 60000);
        auto const made = test::random_program(random);
        auto const c = test::random_cluster(random);
        CAPTURE(seed);
        INFO(test::describe(made) << test::describe(c));
        clp::ratio_solver solver;
        auto const p = plan_hap(made, c, solver, quick());
        REQUIRE(p.exists());
        check_plan(made, c, p);
        ++(p.status == search::status::optimal ? optimal : p.status == search::status::feasible ? feasible : limit);
    }
    MESSAGE("optimal " << optimal << ", feasible " << feasible << ", limit " << limit);
}

TEST_CASE("plan_hap stays within memory or says that it cannot") {
    int found = 0, impossible = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(150u); ++seed) {
        random_source random(seed + 70000);
        auto const made = test::random_program(random);
        auto const c = test::random_cluster(random, {.memory = test::memory_kind::tight});
        CAPTURE(seed);
        INFO(test::describe(made) << test::describe(c));
        clp::ratio_solver solver;
        auto const p = plan_hap(made, c, solver, quick());
        check_plan(made, c, p);
        ++(p.exists() ? found : impossible);
    }
    MESSAGE("fits " << found << ", does not " << impossible);
    CHECK(found > test::cases(20));
    CHECK(impossible > test::cases(20));
}

TEST_CASE("plan_hap says that no memory at all is infeasible, and why") {
    for (std::uint64_t seed = 1; seed <= test::cases(30u); ++seed) {
        random_source random(seed + 80000);
        auto const made = test::random_program(random);
        auto c = test::random_cluster(random);
        for (auto& type : c.types) type.memory = bytes(1);
        CAPTURE(seed);
        INFO(test::describe(made) << test::describe(c));
        clp::ratio_solver solver;
        auto const p = plan_hap(made, c, solver, quick());
        CHECK_FALSE(p.exists());
        CHECK(p.status == search::status::infeasible);
        CHECK(p.reason.find("memory") != std::string::npos);
        CHECK(p.devices.size() == c.devices().size());
    }
}

TEST_CASE("plan_hap doubles the plan's time if every time doubles") {
    for (std::uint64_t seed = 1; seed <= test::cases(60u); ++seed) {
        random_source random(seed + 90000);
        auto const made = test::random_program(random);
        auto const c = test::random_cluster(random, {.most_devices = 6});
        CAPTURE(seed);
        INFO(test::describe(made) << test::describe(c));
        clp::ratio_solver solver;
        auto const once = plan_hap(made, c, solver, quick()), twice = plan_hap(made, twice_as_slow(c), solver, quick());
        CHECK(twice.cost() == doctest::Approx(2 * once.cost()).epsilon(1e-9));
        CHECK(twice.status == once.status);
    }
}

TEST_CASE("plan_hap is deterministic") {
    for (std::uint64_t seed = 1; seed <= test::cases(20u); ++seed) {
        random_source random(seed + 95000);
        auto const made = test::random_program(random);
        auto const c = test::random_cluster(random);
        CAPTURE(seed);
        clp::ratio_solver first, second;
        auto const a = plan_hap(made, c, first, quick()), b = plan_hap(made, c, second, quick());
        CHECK(a.cost() == b.cost());
        CHECK(a.ratios == b.ratios);
        CHECK(a.lower_bound == b.lower_bound);
        REQUIRE(a.steps.size() == b.steps.size());
        for (std::size_t n = 0; n < a.steps.size(); ++n) CHECK(a.steps[n].instruction == b.steps[n].instruction);
    }
}

TEST_CASE("a plan's bound holds for every program at its integral shares") {
    int checked = 0, beaten = 0;
    for (std::uint64_t seed = 1; checked < test::cases(200) && seed <= 2000; ++seed) {
        random_source random(seed + 97000);
        auto const made = test::random_program(random, {.most_operators = 4, .most_extent = 4});
        auto const c = test::random_cluster(
            random, {.most_types = 3,
                     .most_devices = 4,
                     .memory = random.chance(0.3) ? test::memory_kind::tight : test::memory_kind::loose});
        CAPTURE(seed);
        INFO(test::describe(made) << test::describe(c));
        auto const indexed = index_program(made);
        cut_space space(indexed);
        auto const graph = search::explore(space);
        std::vector<double> count(graph.node_count());
        for (std::size_t n = graph.node_count(); n-- > 0;) {
            count[n] = graph.is_last(n);
            for (auto const& e : graph.out(n)) count[n] += count[e.to];
        }
        if (count[0] > 3000) continue;
        ++checked;
        clp::ratio_solver solver;
        auto options = quick();
        if (random.chance(0.7)) { // a plan that leaves something to be found
            options.rounds = 1;
            options.synthesis.relaxation_rounds = 1;
            options.synthesis.search.limits.labels = 1;
        }
        auto const p = plan_hap(made, c, solver, options);
        auto const model = per_device_model(c, element_type::float32, options.training.bucket);
        auto const steps = steps_of_space(space);
        // If there is no plan, no program fits at even shares.
        auto const ratios =
            p.exists() ? p.ratios[0]
                       : std::vector<double>(c.devices().size(), 1.0 / static_cast<double>(c.devices().size()));
        priced_graph const priced(space, graph, steps, model, integral_shares(indexed, ratios, p.cuts));
        double best = std::numeric_limits<double>::infinity();
        move_list path;
        auto const walk = [&](auto& self, std::size_t node) -> void {
            if (graph.is_last(node)) {
                auto const cost = program_clock<serial>(priced).evaluate(path);
                if (priced.fits(cost)) best = std::min(best, cost.seconds);
                return;
            }
            for (auto const& e : graph.out(node)) {
                path.push_back(e.action);
                self(self, e.to);
                path.pop_back();
            }
        };
        walk(walk, 0);
        if (p.exists()) {
            CHECK(p.lower_bound <= best * (1 + 1e-9));
            CHECK(best <= p.cost() * (1 + 1e-9));
            beaten += best < p.cost() * (1 - 1e-6);
        } else if (p.status == search::status::infeasible) {
            CHECK(best == std::numeric_limits<double>::infinity());
        }
    }
    CHECK(checked == test::cases(200));
    CHECK(beaten > 0);
}

#endif
