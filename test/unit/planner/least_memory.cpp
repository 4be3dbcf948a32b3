// SPDX-License-Identifier: BSL-1.0
// What programs hold at least, and plans that are not searched for as it is more than there is.
#include <heddle/clp/ratio_solver.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/hidup.hpp>
#include <heddle/planner/mesh.hpp>
#include <heddle/synthesis/memory_reason.hpp>
#include <heddle/synthesis/recomputed_plans.hpp>
#include <heddle/theory/recomputation.hpp>
#include <support/cases.hpp>
#include <support/random_plans.hpp>
#include <support/random_programs.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace heddle;

/// So many devices alike, alone or in machines of two.
cluster alike_cluster(int devices, double memory, int in_machine = 1) {
    cluster c;
    c.name = "alike";
    c.types = {{"device",
                bytes(memory),
                bytes_per_second(1e9),
                seconds(1e-6),
                {{element_type::float32, {flops_per_second(1e9)}}}}};
    c.machines = {{.type = 0, .devices = in_machine, .count = devices / in_machine}};
    c.intra = c.inter = network_link{bytes_per_second(1e8), seconds(1e-6)};
    return c;
}

double held_by(std::vector<memory_terms> const& devices) {
    double sum = 0;
    for (auto const& d : devices) sum += d.total();
    return sum;
}

/// Two linear operators, whose weights are most of what is held.
program weighty_layers() {
    program_builder b;
    auto x = b.input("x", {8, 32});
    for (char const* name : {"first", "second"})
        x = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, b.parameter(name, {32, 32})},
                    {.category = operator_class::matmul});
    return b.finish(b.apply("sum", "(b n) -> (); 0", {x}, {.category = operator_class::reduction}));
}

} // namespace

TEST_CASE("no plan holds less than the least, however it is trained") {
    int again = 0, near = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(400u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::random_program(random);
        training_options training;
        training.optimizer_bytes_per_element = random.between(0, 2) * 4;
        training.accumulated = random.between(1, 4);
        training.in_flight = random.between(1, training.accumulated);
        training.micro_batches = random.chance(0.3) ? 2 : 1;
        if (training.micro_batches == 1 && random.chance(0.4))
            training.recomputes = random.chance(0.5) ? recomputation::full : recomputation::selective;
        auto indexed = index_program(p);
        recompute(indexed, training.recomputes, training.in_flight);
        indexed.counted_of_regions.clear();
        auto const devices = static_cast<std::size_t>(random.between(1, 4));
        auto what = test::random_plan(indexed, devices, random);
        what.provenance.training = training;
        for (auto& s : what.steps) s.step = make_step(indexed, s.instruction, training);
        auto const held = held_by(evaluate(what, alike_cluster(static_cast<int>(devices), 1e12)).memory);
        auto const least = least_memory(indexed, training).total();
        CHECK(least <= held * (1 + 1e-9));
        again += training.recomputes != recomputation::none;
        near += least > 0.5 * held;
    }
    CHECK((again > 60 || test::sanitized));
    CHECK((near > 20 || test::sanitized)); // so that the bound says something
}

TEST_CASE("what cannot fit is refused with what it needs at least, on lines and meshes and in turns") {
    auto const p = weighty_layers();
    double const least = least_memory(index_program(p), {}).total();
    // Weights, gradients and two numbers of state for each; the input is not counted, the first result is.
    CHECK(least == doctest::Approx(4 * (2 * 32 * 32 * 4) + 8 * 32 * 4));
    clp::ratio_solver solver;
    auto const says_so = [](std::string const& reason) {
        return reason.starts_with("memory: all devices together have ") && reason.find("at least") != std::string::npos;
    };
    for (double const part : {0.99, 4.0}) {
        CAPTURE(part);
        auto const c = alike_cluster(4, part * least / 4, 2);
        auto const line = plan_hap(p, c, solver), turns = plan_hidup(p, c, solver),
                   square = plan_mesh(p, c, mesh({2, 2}), solver);
        for (auto const* found : {&line, &turns, &square}) {
            CAPTURE(found->reason);
            CHECK(found->exists() == (part > 1));
            CHECK(says_so(found->reason) == (part < 1));
            if (part < 1) CHECK(found->status == search::status::infeasible);
        }
    }
}

TEST_CASE("plans on one axis are the same where a plan of their cost is of use, however little memory there is") {
    int tight = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(60u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::random_program(random);
        double const least = least_memory(index_program(p), {}).total();
        auto const c = alike_cluster(4, random.between(11, 40) / 10.0 * least / 4, 2);
        planning_options options;
        auto const all = plan_hap(p, c, clp::ratio_solver{}, options);
        if (!all.exists()) continue;
        tight += detail::is_tight(all);
        for (double const part : {0.1, 0.6, 1.0, 1.2}) {
            CAPTURE(part);
            options.worth_below = part * all.cost();
            auto const asked = plan_hap(p, c, clp::ratio_solver{}, options);
            REQUIRE(asked.exists());
            CHECK(asked.cost() >= all.cost() * (1 - 1e-9));
            if (part >= 1) CHECK(asked.cost() == all.cost());
        }
    }
    MESSAGE(tight << " with little memory");
    CHECK((tight > 10 || test::sanitized));
}

TEST_CASE("a mesh is left only if all that fits takes as long as a plan at hand, however little memory there is") {
    int left = 0, planned = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(90u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::random_program(random);
        double const least = least_memory(index_program(p), {}).total();
        clp::ratio_solver solver;
        auto const c = alike_cluster(4, random.between(11, 40) / 10.0 * least / 4, 2);
        mesh_search_options options;
        auto const all = plan_mesh(p, c, mesh({2, 2}), solver, options);
        if (!all.exists()) continue;
        for (double const part : {0.9, 0.99, 1.01, 1.2}) {
            CAPTURE(part);
            options.worth_below = part * all.cost();
            auto const asked = plan_mesh(p, c, mesh({2, 2}), solver, options);
            if (part > 1) CHECK(asked.exists());
            if (asked.exists()) CHECK(asked.cost() >= all.cost() * (1 - 1e-9));
            (asked.exists() ? planned : left) += 1;
        }
    }
    MESSAGE(left << " left, " << planned << " planned");
    CHECK((left > 4 || test::sanitized));
    CHECK((planned > 40 || test::sanitized));
}
