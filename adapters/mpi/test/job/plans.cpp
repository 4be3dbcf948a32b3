// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <heddle/execute/devices.hpp>
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/prove_stages.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/plan/verify_staged.hpp>

#include <support/catalogue_programs.hpp>
#include <support/random_mesh_programs.hpp>
#include <support/random_plans.hpp>
#include <support/random_programs.hpp>
#include <support/random_stages.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>

using namespace heddle;

TEST_CASE("random plans compute on processes what the single device does") {
    auto& world = test::world();
    eigen_kernels<double> const backend;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, 1 + static_cast<int>(seed % 5));
        auto const plan = test::random_plan(index_program(p, test::random_segments(p, random)), world.size(), random);
        REQUIRE(verify(p, plan));
        plan_proof<eigen_kernels<double>> mine(p, plan, backend, {.seed = seed});
        mine.run_rank(world);
        CHECK(mine.compared().problem == "");
    }
}

TEST_CASE("so do random plans on meshes, whose lines are groups of processes") {
    auto& world = test::world();
    eigen_kernels<double> const backend;
    mesh const m(world.size() == 4 ? std::vector<std::size_t>{2, 2} : std::vector<std::size_t>{1, world.size()});
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, 1 + static_cast<int>(seed % 5));
        auto const indexed = index_program(p);
        auto const plan = plan_on_mesh(indexed, test::random_mesh_program(indexed, m, random));
        REQUIRE(verify(p, plan).problem == "");
        plan_proof<eigen_kernels<double>> mine(p, plan, backend, {.seed = seed});
        on_device<double>(plan, world, [&](auto& ranks) { mine.run_rank(ranks); });
        CHECK(mine.compared().problem == "");
    }
}

namespace {

/// Runs a plan of stages on these processes, and compares it with a single device.
void check_stages(program const& p, staged_plan const& what, std::uint64_t seed) {
    REQUIRE(verify(p, what).problem == "");
    eigen_kernels<double> const backend;
    staged_proof<eigen_kernels<double>> mine(p, what, backend, {.seed = seed});
    mine.run_rank(test::world());
    CHECK(mine.compared().problem == "");
}

} // namespace

TEST_CASE("so do random stages, each on processes of its own") {
    auto& world = test::world();
    int run = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed + 310'000);
        auto const grown = test::find_catalogue_program(random, 1 + static_cast<int>(seed % 5));
        auto const what = grown ? test::random_stages(*grown, world.size(), random) : std::nullopt;
        if (!what || what->device_count != world.size()) continue;
        check_stages(*grown, *what, seed);
        ++run;
    }
    CHECK(run > 10);
}

TEST_CASE("so do stages that pass the processes in rounds") {
    auto& world = test::world();
    if (world.size() == 1) return; // a round has two stages at least
    int run = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed + 315'000);
        auto const p = test::random_chain(random);
        auto const what = test::random_stages(p, world.size(), random, static_cast<std::size_t>(random.between(2, 3)));
        if (!what || what->device_count != world.size() || !verify(p, *what)) continue;
        check_stages(p, *what, seed);
        ++run;
    }
    CHECK(run > 10);
}

TEST_CASE("so do stages in which parts of a micro-batch take turns") {
    auto& world = test::world();
    int run = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed + 316'000);
        auto const p = test::random_chain(random);
        auto const what = test::random_stages(p, world.size(), random, 1, true);
        if (!what || what->device_count != world.size()) continue;
        check_stages(p, *what, seed);
        run += std::ranges::any_of(what->stages, [](auto const& s) { return s.turns() > 1; });
    }
    CHECK(run > 10);
}
