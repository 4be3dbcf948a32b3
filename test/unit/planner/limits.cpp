// SPDX-License-Identifier: BSL-1.0
// Limits of the pipeline planners are for all the work together, and what is over is over at once.
#include <heddle/planner/amp.hpp>
#include <heddle/planner/ditto.hpp>
#include <heddle/synthesis/price_pipeline.hpp>

#include <support/block_programs.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace {

using namespace heddle;

/// Makes types of machines, each with a speed of its own, and this many of each.
cluster unlike_machines(int types, int machines, int devices) {
    cluster c;
    c.name = "unlike";
    for (int t = 0; t < types; ++t) {
        c.types.push_back({"x" + std::to_string(t),
                           bytes(1e9),
                           bytes_per_second(1e9),
                           seconds(1e-6),
                           {{element_type::float32, {flops_per_second(1e9 * std::sqrt(2 + t))}}}});
        c.machines.push_back({.type = static_cast<std::size_t>(t), .devices = devices, .count = machines});
    }
    c.intra = network_link{bytes_per_second(1e9), seconds(1e-6)};
    c.inter = network_link{bytes_per_second(1e8), seconds(1e-5)};
    return c;
}

/// Has as many subsets of the machines as an exact search can have.
template_problem many_subsets() {
    template_problem p;
    p.micro_batches = 64;
    p.split = machine_split::free;
    std::size_t const layers = 200;
    for (std::size_t l = 0; l < layers; ++l) p.memory.push_back({bytes(1), bytes(1), bytes(1)});
    for (std::size_t t = 0; t < 5; ++t) {
        auto& type = p.types.emplace_back();
        type.name = "x" + std::to_string(t);
        for (std::size_t l = 0; l < layers; ++l) {
            double const work = 1 + 0.37 * static_cast<double>((l * 7919 + 13 * t) % 101);
            type.times.forward.emplace_back(work / std::sqrt(2.0 + static_cast<double>(t)));
            type.times.backward.emplace_back(2 * work / std::sqrt(3.0 + static_cast<double>(t)));
        }
        type.machines = 8;
        type.memory_limit = bytes(1e5);
    }
    return p;
}

std::stop_token requested_before() {
    std::stop_source source;
    source.request_stop();
    return source.get_token();
}

} // namespace

TEST_CASE("a deadline is reached by time or by a request, or never") {
    search::deadline const never;
    CHECK_FALSE(never.is_over());
    CHECK_FALSE(never.left());
    search::deadline const now({.seconds = 0});
    CHECK(now.reached() == search::limit_kind::time);
    CHECK(*now.left() == 0);
    search::deadline const later({.seconds = 1e6});
    CHECK(later.reached() == search::limit_kind::none);
    CHECK(*later.left() <= 1e6);
    CHECK(search::deadline({.stop = requested_before()}).reached() == search::limit_kind::stopped);
    CHECK(*now.rest().seconds == 0);
    CHECK(*later.rest({.seconds = 2, .labels = 3}).seconds == 2);
    CHECK(later.rest({.labels = 3}).labels == 3);
    CHECK_FALSE(never.rest().seconds);
    CHECK(never.rest({.stop = requested_before()}).stop.stop_requested());
    CHECK(search::deadline({.stop = requested_before()}).rest().stop.stop_requested());
}

TEST_CASE("planners of pipelines do next to nothing once time is over or a stop is requested") {
    auto const p = test::residual_blocks(16, 8, 6, true);
    auto const layers = repeated_layers(index_program(p));
    auto const c = unlike_machines(2, 2, 2);
    for (auto const which : {search::limit_kind::time, search::limit_kind::stopped}) {
        std::optional<double> const time = which == search::limit_kind::time ? std::optional(0.0) : std::nullopt;
        std::stop_token const stop = which == search::limit_kind::stopped ? requested_before() : std::stop_token();
        auto const check = [&](pipeline_plan const& plan) {
            CHECK_FALSE(plan.exists());
            CHECK(plan.status == search::status::limit);
            CHECK(plan.which_limit == which);
            CHECK(plan.lower_bound == 0);
            CHECK(plan.devices.size() == 8);
        };
        search::limits const limits{.seconds = time, .stop = stop};
        check(plan_amp(p, layers, c, {.limits = limits}));
        check(plan_ditto(p, layers, c, {.planner = {.limits = limits}}));

        auto const problem = many_subsets();
        auto const exact = plan_template(problem, {.limits = limits});
        CHECK(exact.which_limit == which);
        CHECK(exact.statistics.cells == 0);
        auto const recovered = recover(problem, fold(problem), {.limits = limits});
        CHECK(recovered.which_limit == which);
        CHECK(recovered.statistics.states == 0);
        auto const strategies = plan_amp(make_strategy_problem(p, layers, c), {.limits = limits});
        CHECK(strategies.which_limit == which);
        CHECK(strategies.statistics.assignment.cells == 0);
        CHECK(strategies.lower_bound > seconds(0));
        CHECK(strategies.lower_bound <= plan_amp(make_strategy_problem(p, layers, c)).lower_bound);
        CHECK(baselines_of(make_strategy_problem(p, layers, c), search::deadline(limits)).empty());
    }
}

TEST_CASE("a time limit is of recovery and the exact search together, with all that they lay out") {
    auto const problem = many_subsets();
    double const limit = 0.3;
    search::deadline const clock;
    auto const found = plan_ditto(problem, {.limits = {.seconds = limit}});
    CHECK(clock.elapsed() < 5 * limit); // alone the tables take longer
    CHECK(found.best.status == search::status::limit);
    CHECK(found.best.which_limit == search::limit_kind::time);
    CHECK(found.best.cost);
    CHECK(found.best.lower_bound.value > 0);
}

TEST_CASE("a time limit is of all sizes of micro-batch together") {
    auto const p = test::residual_blocks(64, 6, 20, true);
    auto const layers = repeated_layers(index_program(p));
    auto const c = unlike_machines(4, 6, 2);
    double const limit = 0.4;
    search::deadline const clock;
    (void)make_template_problem(p, layers, c, 8, 8, machine_split::free);
    double const one_size = clock.elapsed();
    auto const found =
        plan_ditto(p, layers, c, {.split = machine_split::free, .planner = {.limits = {.seconds = limit}}});
    CHECK(found.seconds < 3 * limit + 2 * one_size); // seven sizes divide the batch
    CHECK(found.status == search::status::limit);
}

TEST_CASE("a plan says of no plan no number that a file cannot hold") {
    auto const p = test::residual_blocks(8, 6, 6, true);
    auto const layers = repeated_layers(index_program(p));
    auto c = unlike_machines(2, 1, 1);
    for (auto& t : c.types) t.memory = bytes(10);
    for (auto const method : {template_method::recover, template_method::exact, template_method::both}) {
        auto const plan = plan_ditto(p, layers, c, {.planner = {.method = method}});
        CHECK_FALSE(plan.exists());
        CHECK(plan.status == search::status::infeasible);
        CHECK(std::isfinite(plan.lower_bound));
        CHECK_FALSE(plan.reason.empty());
    }
}

TEST_CASE("machines beyond the layers are left out, and a warning counts them") {
    auto const p = test::residual_blocks(8, 6, 2, true);
    auto const layers = repeated_layers(index_program(p));
    auto const c = unlike_machines(2, 4, 1);
    REQUIRE(layers.size() < 8);
    auto const plan = plan_ditto(p, layers, c);
    REQUIRE(plan.exists());
    CHECK_NOTHROW(validate(plan));
    CHECK(plan.devices.size() == 8);
    REQUIRE(plan.stages.size() <= layers.size());
    CHECK(plan.warnings.front() == std::to_string(8 - plan.stages.size()) + " machines are left out");
    CHECK(difference(plan, priced(p, plan, c)).empty());
}
