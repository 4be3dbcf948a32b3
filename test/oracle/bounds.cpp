// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Bounds hold for every program: at given shares, and at the ratios of a grid.
#include "support/random_plans.hpp"
#include "support/random_programs.hpp"

#include <heddle/clp/ratio_solver.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/cost/front_bound.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/plan/buckets.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/global_bound.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/theory/cut_space.hpp>
#include <support/cases.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <sstream>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;

/// Calls `visit` with all vectors of `count` shares that are multiples of 1 / `steps` and sum to one.
void for_all_shares(std::size_t count, int steps, std::function<void(share_vector const&)> const& visit) {
    share_vector shares(count);
    std::function<void(std::size_t, int)> const fill = [&](std::size_t d, int left) {
        if (d + 1 == count) {
            shares[d] = static_cast<double>(left) / steps;
            visit(shares);
            return;
        }
        for (int mine = 0; mine <= left; ++mine) {
            shares[d] = static_cast<double>(mine) / steps;
            fill(d + 1, left - mine);
        }
    };
    fill(0, steps);
}

/// Returns the least seconds of any path that fits.
template <class Accumulator>
double least_seconds(priced_graph const& priced) {
    double best = test::infinite;
    move_list path;
    std::function<void(std::size_t)> const walk = [&](std::size_t node) {
        if (priced.graph().is_last(node)) {
            auto const cost = program_clock<Accumulator>(priced).evaluate(path);
            if (priced.fits(cost)) best = std::min(best, cost.seconds);
            return;
        }
        for (auto const& e : priced.graph().out(node)) {
            path.push_back(e.action);
            walk(e.to);
            path.pop_back();
        }
    };
    walk(0);
    return best;
}

double count_paths(cut_graph const& graph) {
    std::vector<double> count(graph.node_count());
    for (std::size_t n = graph.node_count(); n-- > 0;) {
        count[n] = graph.is_last(n);
        for (auto const& e : graph.out(n)) count[n] += count[e.to];
    }
    return count[0];
}

/// Has programs of few operators on few devices, and all their paths.
struct small_case {
    explicit small_case(random_source& random, bool saturates = false)
        : made(test::random_program(random, {.most_operators = 4, .most_extent = 6})),
          devices(test::random_cluster(
              random, {.most_types = 3,
                       .most_devices = 3,
                       .memory = random.chance(0.3) ? test::memory_kind::tight : test::memory_kind::loose})),
          p(index_program(made)), space(p), graph(search::explore(space)) {
        if (saturates) test::add_efficiencies(random, devices);
    }

    [[nodiscard]] std::vector<step_work> steps(training_options const& training) const {
        std::vector<step_work> result;
        for (auto const& i : space.instructions()) result.push_back(make_step(p, i, training));
        return result;
    }

    program made;
    cluster devices;
    indexed_program p;
    cut_space space;
    cut_graph graph;
};

/// Counts the statuses met.
struct outcomes {
    int optimal = 0, bounded = 0, infeasible = 0;
};

template <class Accumulator>
void check_synthesis(priced_graph const& priced, outcomes& met) {
    double const best = least_seconds<Accumulator>(priced);
    auto const found = synthesise<Accumulator>(priced, {});
    CHECK(found.lower_bound <= best * (1 + 1e-9));
    CHECK(found.path.has_value() == (best < test::infinite));
    if (!found.path) {
        CHECK(found.status == search::status::infeasible);
        ++met.infeasible;
        return;
    }
    CHECK(found.status != search::status::limit);
    CHECK(found.cost.seconds == doctest::Approx(best).epsilon(1e-8));
    ++(found.status == search::status::optimal ? met.optimal : met.bounded);
}

/// Checks the bounds of plans at any ratios with every program at the ratios of a grid.
void check_global_bounds(std::uint64_t first_seed, int count, bool saturates) {
    int checked = 0, close = 0, tight = 0;
    for (std::uint64_t seed = 1; checked < count && seed <= 3000; ++seed) {
        random_source random(seed + first_seed);
        small_case const x(random, saturates);
        if (count_paths(x.graph) > 300) continue;
        ++checked;
        CAPTURE(seed);
        INFO(test::describe(x.made) << test::describe(x.devices));
        hap_options options;
        options.training.overlaps_gradients = random.chance(0.5);
        bool const overlaps = options.training.overlaps_gradients;
        clp::ratio_solver solver;
        auto const found = plan_hap(x.made, x.devices, solver, options);
        if (!found.exists()) continue;
        REQUIRE(found.global_lower_bound);
        double const bound = *found.global_lower_bound;
        CHECK(bound <= found.lower_bound);
        auto const steps = x.steps(options.training);
        auto const model = per_device_model(x.devices, main_type(x.p), options.training.bucket);
        double best = found.cost();
        for_all_shares(model.class_count(), 12, [&](share_vector const& ratios) {
            // Ratios are taken as they are, and rounded as a plan would round them.
            for (bool const rounded : {false, true}) {
                auto const least = [&](priced_graph const& priced) {
                    return overlaps ? least_seconds<overlapped>(priced) : least_seconds<serial>(priced);
                };
                best = std::min(best, rounded ? least({x.space, x.graph, steps, model, integral_shares(x.p, ratios)})
                                              : least({x.space, x.graph, steps, model, uniform_shares(ratios)}));
            }
        });
        CHECK(bound <= best * (1 + 1e-9));
        close += bound >= 0.5 * best;
        tight += bound >= 0.95 * best;
    }
    MESSAGE("of " << checked << " bounds " << tight << " are within 5 %, " << close << " within half of the best met");
    CHECK(checked == count);
    CHECK(close > count / 2);
}

} // namespace

TEST_CASE("no program at given shares costs less than the bound or the program found") {
    outcomes one_after_the_other, overlapping;
    for (std::uint64_t seed = 1, checked = 0; checked < test::cases(300u); ++seed) {
        random_source random(seed + 640000);
        small_case const x(random);
        if (count_paths(x.graph) > 2000) continue;
        ++checked;
        CAPTURE(seed);
        INFO(test::describe(x.made) << test::describe(x.devices));
        auto const steps = x.steps({});
        auto const model = per_device_model(x.devices, main_type(x.p));
        priced_graph const priced(x.space, x.graph, steps, model,
                                  integral_shares(x.p, test::random_ratios(model.class_count(), random)));
        check_synthesis<serial>(priced, one_after_the_other);
        check_synthesis<overlapped>(priced, overlapping);
    }
    for (auto const& met : {one_after_the_other, overlapping}) {
        MESSAGE(met.optimal << " optimal, " << met.bounded << " bounded, " << met.infeasible << " infeasible");
        CHECK(met.optimal > 0);
        CHECK(met.infeasible > 0);
    }
    CHECK(overlapping.bounded == 0); // a bound in the order of the search; the other holds in any order
}

TEST_CASE("no program costs less than the bound if gradients are in buckets, which a graph prices as plans do") {
    int small = 0, optimal = 0, bounded = 0, best_found = 0, with_buckets = 0;
    for (std::uint64_t seed = 1, checked = 0; checked < test::cases(300u); ++seed) {
        random_source random(seed + 650000);
        small_case const x(random);
        if (count_paths(x.graph) > 2000) continue;
        ++checked;
        CAPTURE(seed);
        training_options training{.bucket = bytes(random.of(std::vector<double>{100, 400, 1e9, 1e9}))};
        CAPTURE(training.bucket.value);
        INFO(test::describe(x.made) << test::describe(x.devices));
        auto const steps = x.steps(training);
        auto const model = per_device_model(x.devices, main_type(x.p), training.bucket);
        auto const ratios = test::random_ratios(model.class_count(), random);
        priced_graph const priced(x.space, x.graph, steps, model, integral_shares(x.p, ratios));
        bool const is_small = training.bucket == bytes(1e9);
        small += is_small && priced.small_bucket_count() > 0;
        if (is_small && checked % 2 == 0) { // labels begin buckets as plans do, but where one has to be sent early
            outcomes met;
            check_synthesis<serial>(priced, met);
            optimal += met.optimal, bounded += met.bounded;
        } else {
            double const best = least_seconds<serial>(priced);
            auto const found = synthesise<serial>(priced, {.front = checked % 2 == 0 ? 16u : 0u});
            CHECK(found.lower_bound <= best * (1 + 1e-9));
            CHECK(found.path.has_value() == (best < test::infinite));
            best_found += found.path && found.cost.seconds <= best * (1 + 1e-9);
        }
        double const best = least_seconds<overlapped>(priced);
        auto const found = synthesise<overlapped>(priced, {});
        CHECK(found.lower_bound <= best * (1 + 1e-9));
        CHECK(found.path.has_value() == (best < test::infinite));
        if (!found.path) continue;
        for (bool const overlaps : {false, true}) {
            training.overlaps_gradients = overlaps;
            auto const [p, cost] = realise(*found.path, x.space, steps, x.devices, {ratios}, training);
            priced_graph const at_its_shares(x.space, x.graph, steps, model, integral_shares(x.p, p.ratios, p.cuts));
            auto const price = overlaps ? program_clock<overlapped>(at_its_shares).evaluate(*found.path)
                                        : program_clock<serial>(at_its_shares).evaluate(*found.path);
            CHECK(price.seconds == doctest::Approx(cost.time.total()).epsilon(1e-9));
            CHECK(price.added <= price.seconds * (1 + 1e-9));
            with_buckets +=
                std::ranges::any_of(gradient_buckets(p), [](gradient_bucket const& b) { return b.steps.size() > 1; });
        }
    }
    MESSAGE(optimal << " optimal, " << bounded << " bounded, " << best_found << " as good as the best");
    CHECK(small > test::cases(30));
    CHECK(optimal > (test::sanitized ? 0 : 15));
    CHECK(best_found > test::cases(100));
    CHECK(with_buckets > test::cases(10));
}

TEST_CASE_TEMPLATE("no program costs less than a bound by fronts of labels, which is exact where none are joined",
                   Accumulator, serial, overlapped) {
    int raised = 0, exact = 0, joined = 0, hasty = 0;
    for (std::uint64_t seed = 1, checked = 0; checked < test::cases(700u); ++seed) {
        random_source random(seed + 660000);
        small_case const x(random);
        if (count_paths(x.graph) > 1000) continue;
        ++checked;
        CAPTURE(seed);
        training_options const training{.bucket = bytes(random.of(std::vector<double>{60, 100, 200, 400, 1e9}))};
        CAPTURE(training.bucket.value);
        INFO(test::describe(x.made) << test::describe(x.devices));
        auto const steps = x.steps(training);
        auto const model = per_device_model(x.devices, main_type(x.p), training.bucket);
        priced_graph const priced(x.space, x.graph, steps, model,
                                  integral_shares(x.p, test::random_ratios(model.class_count(), random)));
        double const best = least_seconds<Accumulator>(priced);
        if (best == test::infinite) continue;
        multipliers weights{{test::random_ratios(model.class_count(), random)},
                            std::vector<double>(model.class_count(), 0.0)};
        if (Accumulator::relaxation == relaxation_kind::turns) {
            auto& turns = weights.time.turns.emplace();
            for (auto n = random.below(4); n > 0; --n)
                turns.move(random.between(0.0, 1.0), random.below(x.p.operators.size() + 1));
        }
        if (random.chance(0.3))
            for (auto& price : weights.memory) price = random.between(0.0, 1e-3) * best / model.memory_limit(0);
        auto const under = relax(priced, weights);
        double const of_all = bound_by_fronts<Accumulator>(priced, under, 2 * best, {100000});
        CHECK(of_all >= under.bound() - 1e-9 * best);
        CHECK(of_all <= best * (1 + 1e-9));
        CHECK(bound_by_fronts<Accumulator>(priced, under, best / 2, {16}) <= best / 2);
        CHECK(bound_by_fronts<Accumulator>(priced, under, best, {100000}) >= of_all * (1 - 1e-9));
        raised += of_all > under.bound() + 1e-6 * best;
        exact += of_all > best * (1 - 1e-9);
        for (std::size_t const front : {1, 2, 8}) {
            double const of_few = bound_by_fronts<Accumulator>(priced, under, 2 * best, {front});
            CHECK(of_few >= under.bound() - 1e-9 * best);
            CHECK(of_few <= of_all * (1 + 1e-9));
            joined += of_few < of_all * (1 - 1e-9);
        }
        double const in_haste =
            bound_by_fronts<Accumulator>(priced, under, 2 * best, {100000, random.between(0.0, 2000.0)});
        CHECK(in_haste >= under.bound() - 1e-9 * best);
        CHECK(in_haste <= of_all * (1 + 1e-9));
        hasty += in_haste < of_all * (1 - 1e-9);
    }
    MESSAGE(raised << " bounds raised, " << exact << " exact, " << joined << " lower where labels were joined, "
                   << hasty << " where comparisons were few");
    CHECK(raised > test::cases(200));
    CHECK(exact > test::cases(200));
    CHECK(joined > 0);
    CHECK(hasty > 0);
}

TEST_CASE("no program costs less than the bound at any ratios, whatever they are") {
    check_global_bounds(610000, test::cases(150), false);
}

TEST_CASE("no program costs less than the bound at any ratios if efficiency depends on the size of kernels") {
    check_global_bounds(620000, test::cases(80), true);
}
