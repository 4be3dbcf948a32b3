// SPDX-License-Identifier: BSL-1.0
// Ten thousand devices in one machine: what is alike is planned as one.
#include <heddle/clp/all.hpp>
#include <heddle/cost/alike_devices.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/amp.hpp>
#include <heddle/planner/ditto.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/hidup.hpp>

#include <support/block_programs.hpp>

#include <doctest/doctest.h>

namespace {

using namespace heddle;

cluster one_machine(int devices) {
    cluster c;
    c.name = "one machine";
    c.types = {
        {"A", bytes(1e9), bytes_per_second(1e9), seconds(1e-6), {{element_type::float32, {flops_per_second(1e9)}}}}};
    c.machines = {{.devices = devices}};
    c.intra = network_link{bytes_per_second(1e9), seconds(1e-6)};
    return c;
}

} // namespace

TEST_CASE("ten thousand devices in one machine are planned, by every planner, as quickly as a few") {
    auto const p = test::residual_blocks(64, 16, 2, true);
    auto const c = one_machine(10'000);
    search::deadline const clock;
    auto const plan = plan_hap(p, c, clp::ratio_solver{});
    REQUIRE(plan.exists());
    CHECK(verify(p, plan));
    alike_devices alike(c);
    for (auto const& cut : plan.cuts) alike.refine(cut.counts);
    CHECK(alike.classes.size() <= 1 + 64 * plan.cuts.size());
    auto const turns = plan_hidup(p, c, clp::ratio_solver{});
    REQUIRE(turns.exists());
    CHECK(verify(p, turns));
    auto const layers = repeated_layers(index_program(p));
    CHECK(plan_amp(p, layers, c).exists());
    CHECK(plan_ditto(p, layers, c).exists());
    CHECK(clock.elapsed() < 120); // seconds, of minutes before
}

TEST_CASE("kinds of stages in a machine are its aligned parts") {
    template_problem p;
    p.memory.assign(3, {bytes(1), bytes(1), bytes(1)});
    auto& type = p.types.emplace_back();
    type.times = {std::vector(3, seconds(1)), std::vector(3, seconds(2))};
    type.machines = 1;
    type.devices_per_machine = 10'000;
    for (std::size_t const group : {625u, 1250u, 2500u, 5000u, 10'000u}) type.all_reduce[group].assign(3, seconds(0));
    CHECK(stage_kinds(p).all().size() == 5);
    CHECK(plan_template(p).status == search::status::optimal);
}
