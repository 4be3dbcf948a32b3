// SPDX-License-Identifier: BSL-1.0
// From a program to AMP's and Ditto's plans, and what these compute.
#include "kernels.hpp"
#include "support/block_programs.hpp"

#include <heddle/execute/prove_pipeline.hpp>
#include <heddle/execute/shrink_pipeline.hpp>
#include <heddle/planner/amp.hpp>
#include <heddle/planner/ditto.hpp>
#include <heddle/synthesis/price_pipeline.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace {

using namespace heddle;

/// Machines of one device: two slow ones, a fast one between them; links that make copies of the model dear.
cluster three_machines(double memory) {
    cluster c;
    c.name = "three";
    c.types = {{"slow",
                bytes(memory),
                bytes_per_second(1e8),
                seconds(1e-6),
                {{element_type::float32, {flops_per_second(1e6)}}}},
               {"fast",
                bytes(memory),
                bytes_per_second(1e8),
                seconds(1e-6),
                {{element_type::float32, {flops_per_second(2e6)}}}}};
    c.machines = {{.type = 0}, {.type = 1}, {.type = 0}};
    c.inter = network_link{bytes_per_second(1e6), seconds(1e-6)};
    return c;
}

/// Two machines of two devices, a slow and a fast one; products are dear, links inside machines fast.
cluster two_machines() {
    auto c = three_machines(1e9);
    c.machines = {{.type = 0, .devices = 2}, {.type = 1, .devices = 2}};
    c.intra = network_link{bytes_per_second(1e8), seconds(1e-6)};
    return c;
}

cluster machines_of_two(int count) {
    auto c = two_machines();
    c.machines = {{.type = 0, .devices = 2, .count = count}};
    return c;
}

bool is_split(plan const& p) {
    return std::ranges::any_of(p.steps, [](plan_step const& s) { return is_split(s.instruction); });
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

    auto const copies = plan_amp(p, layers, three_machines(1e9), {.shapes = {.pipeline = 1}});
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

TEST_CASE("tensor groups that AMP plans compute what the program does, in stages and copies") {
    auto const p = test::residual_blocks(8, 6, 6, true);
    auto const layers = repeated_layers(index_program(p));
    auto const c = two_machines();
    for (auto const& [pipeline, data] : {std::pair<std::size_t, std::size_t>{2, 1}, {1, 2}}) {
        auto const plan =
            plan_amp(p, layers, c, {.shapes = {.tensor_degrees = {2}, .pipeline = pipeline, .data = data}});
        REQUIRE(plan.exists());
        REQUIRE(plan.groups.contains(2));
        CHECK(is_split(plan.groups.at(2)));
        CHECK(plan.time.update.value > 0);
        auto const checked = verify(p, plan);
        CHECK_MESSAGE(checked, checked.problem);
        auto const found = prove(p, plan, test::kernels());
        CHECK_MESSAGE(found, found.problem);
        CHECK(found.ranks == 4);
        CHECK(verify_figures(p, plan, c).problem == "");
    }
    auto const copies =
        plan_amp(p, layers, machines_of_two(4),
                 {.shapes = {.tensor_degrees = {2}, .pipeline = 2, .data = 2}}); // replicas x tensor groups x 1F1B
    REQUIRE(copies.exists());
    auto const found = prove(p, copies, test::kernels());
    CHECK_MESSAGE(found, found.problem);
    CHECK(found.ranks == 8);
}

TEST_CASE("stages of a template on groups of several sizes compute what the program does") {
    auto const p = test::residual_blocks(8, 6, 6, true);
    auto const layers = repeated_layers(index_program(p));
    auto c = two_machines();
    c.machines[0].devices = 1;
    auto const plan = plan_ditto(p, layers, c, {.micro_batch_size = 2});
    REQUIRE(plan.exists());
    CHECK(std::ranges::any_of(plan.stages, [](auto const& s) { return s.degree() == 2; }));
    CHECK(std::ranges::any_of(plan.stages, [](auto const& s) { return s.degree() == 1; }));
    auto const found = prove(p, plan, test::kernels());
    CHECK_MESSAGE(found, found.problem);
    CHECK(verify_figures(p, plan, c).problem == "");
}

TEST_CASE("a plan shrunk keeps its stages, copies and groups, and is proved") {
    auto const p = test::residual_blocks(64, 24, 4, true);
    auto const layers = repeated_layers(index_program(p));
    for (std::size_t pipeline : {1u, 2u}) {
        auto const plan =
            plan_amp(p, layers, two_machines(), {.shapes = {.tensor_degrees = {2}, .pipeline = pipeline}});
        REQUIRE(plan.exists());
        auto const small = shrink(p, plan);
        CHECK(small.plan.stages.size() == plan.stages.size());
        CHECK(small.plan.copies() == plan.copies());
        CHECK(is_split(small.plan.groups.at(2)));
        CHECK(small.program.tensor(0).elements() < p.tensor(0).elements());
        CHECK(small.plan.global_batch < 64);
        auto const found = prove(small.program, small.plan, test::kernels());
        CHECK_MESSAGE(found, found.problem);
    }
}

TEST_CASE("a plan that says other costs than its cluster's is told from one that does not") {
    auto const p = test::residual_blocks(8, 6, 6, true);
    auto const layers = repeated_layers(index_program(p));
    auto const c = two_machines();
    auto const plan = plan_amp(p, layers, c, {.shapes = {.tensor_degrees = {2}, .pipeline = 2}});
    auto const again = priced(p, plan, c);
    auto const said = [&](auto&& change) {
        auto other = plan;
        change(other);
        return difference(other, again);
    };
    CHECK(said([](pipeline_plan&) {}) == "");
    CHECK(said([](pipeline_plan& q) {
              q.stages[1].time = seconds(0);
          }).starts_with("stage 1: its time is 0 s, derived anew it is "));
    CHECK(said([](pipeline_plan& q) {
              q.stages[1].boundary = seconds(0);
          }).starts_with("stage 1: what enters it is 0 s"));
    CHECK(
        said([](pipeline_plan& q) { q.time.pipeline = seconds(1e-9); }).starts_with("the pipeline's time is 1e-09 s"));
    CHECK(
        said([](pipeline_plan& q) { q.time.synchronisation = seconds(1); }).starts_with("the gradients' time is 1 s"));
    CHECK(said([](pipeline_plan& q) { q.time.update = seconds(1); }).starts_with("the optimiser's time is 1 s"));
    CHECK(
        said([](pipeline_plan& q) { q.devices[3].memory = bytes(1); }).starts_with("device 3: its memory is 1 bytes"));
    CHECK(said([](pipeline_plan& q) {
              q.devices[3].memory_limit = bytes(1e12);
          }).starts_with("device 3: its memory limit is 1e+12 bytes"));
    CHECK(said([](pipeline_plan& q) { q.devices[1].machine = 1; }) == "device 1 is on machine 1, in the cluster on 0");
    CHECK_THROWS_AS((void)priced(p, plan, three_machines(1e9)), input_error);
}
