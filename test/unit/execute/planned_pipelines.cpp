// SPDX-License-Identifier: BSL-1.0
// From a program to AMP's and Ditto's plans, and what these compute.
#include "kernels.hpp"
#include "support/block_programs.hpp"

#include <heddle/execute/prove_pipeline.hpp>
#include <heddle/planner/program_pipelines.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace {

using namespace heddle;

/// Machines of one device: two slow ones, a fast one between them; links that make copies of the model dear.
cluster three_machines(double memory) {
    cluster c;
    c.name = "three";
    c.types = {{"slow", bytes(memory), bytes_per_second(1e8), seconds(1e-6), {{element_type::float32, {flops_per_second(1e6)}}}},
               {"fast", bytes(memory), bytes_per_second(1e8), seconds(1e-6), {{element_type::float32, {flops_per_second(2e6)}}}}};
    c.machines = {{.type = 0}, {.type = 1}, {.type = 0}};
    c.inter = network_link{bytes_per_second(1e6), seconds(1e-6)};
    return c;
}

} // namespace

TEST_CASE("AMP plans a program in stages, and they compute what the program does") {
    auto const p = test::residual_blocks(8, 6, 6, true);
    auto const layers = repeated_layers(index_program(p));
    auto const c = three_machines(13e3); // 16 bytes for each of 1872 parameters are 30 kB
    auto const plan = plan_amp(p, layers, c);
    REQUIRE(plan.exists());
    CHECK(plan.stages.size() == 3);
    CHECK(plan.operator_count() == p.operator_count());
    CHECK(plan.warnings.empty());
    CHECK(plan.baselines.at("data parallel") == std::nullopt);
    auto const found = prove(p, plan, test::kernels());
    CHECK_MESSAGE(found, found.problem);
    CHECK(found.ranks == 3);

    auto const copies = plan_amp(p, layers, three_machines(1e9), {.pipeline = 1});
    REQUIRE(copies.exists());
    CHECK(copies.copies() == 3); // 3 + 3 + 2 samples
    auto const spread = prove(p, copies, test::kernels());
    CHECK_MESSAGE(spread, spread.problem);
}

TEST_CASE("Ditto plans a program in stages by machine type and chooses its micro-batch") {
    auto const p = test::residual_blocks(8, 6, 6, true);
    auto const layers = repeated_layers(index_program(p));
    auto const c = three_machines(1e9);
    auto const plan = plan_ditto(p, layers, c);
    REQUIRE(plan.exists());
    CHECK(plan.status == search::status::optimal);
    CHECK(plan.stages.size() == 3);
    CHECK(plan.micro_batches * plan.micro_batch_size == 8);
    for (std::size_t s = 0; s < 3; ++s) {
        auto const device = plan.stages[s].devices.at(0).at(0);
        CHECK(plan.devices[device].machine == device);
        CHECK(plan.devices[device].type == (device == 1 ? "fast" : "slow")); // machines as the cluster numbers them
    }
    auto const found = prove(p, plan, test::kernels());
    CHECK_MESSAGE(found, found.problem);
    for (std::int64_t size : {1, 2, 4, 8}) {
        auto const one = plan_ditto(p, layers, c, {.micro_batch_size = size});
        CHECK(one.micro_batch_size == size);
        CHECK(one.cost() >= plan.cost() * (1 - 1e-12));
        CHECK(plan.lower_bound <= one.cost());
    }
    CHECK_THROWS_AS((void)plan_ditto(p, layers, c, {.micro_batch_size = 3}), input_error);
    auto const none = plan_ditto(p, layers, three_machines(1e3));
    CHECK_FALSE(none.exists());
    CHECK(none.status == search::status::infeasible);
    CHECK_FALSE(none.reason.empty());
}
