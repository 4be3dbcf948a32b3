// SPDX-License-Identifier: BSL-1.0
#include "support/block_programs.hpp"
#include "support/cases.hpp"
#include "support/random_templates.hpp"

#include <heddle/plan/pipeline_table.hpp>
#include <heddle/planner/amp.hpp>
#include <heddle/planner/ditto.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace heddle;

/// Six layers on a machine of two fast devices and two of two slow ones.
strategy_problem six_layers() {
    strategy_problem p;
    p.name = "three machines";
    p.global_batch = 16;
    p.types = {{"fast", bytes(2e9), seconds(0), {}}, {"slow", bytes(1e9), seconds(0), {}}};
    for (int l = 0; l < 6; ++l) {
        p.layers.push_back({"block." + std::to_string(l),
                            {bytes(0), bytes(5e7)},
                            {bytes(0), bytes(2e8)},
                            {bytes(1e7), bytes(0)},
                            {bytes(4e6), bytes(0)}});
        for (std::size_t degree : {1u, 2u})
            for (std::size_t type : {0u, 1u})
                p.types[type].profiles[degree].layers.emplace_back(degree == 1 ? 0.01 * static_cast<double>(type + 1)
                                                                               : 0.007 * static_cast<double>(type + 1));
    }
    network_link const inside{bytes_per_second(2e10), seconds(0)}, outside{bytes_per_second(1.25e9), seconds(0)};
    p.machines = {{0, 2, inside, outside}, {1, 2, inside, outside}, {1, 2, inside, outside}};
    return p;
}

} // namespace

TEST_CASE("the plan of AMP's strategy has every device, layer and second of it") {
    auto const p = six_layers();
    auto const found = plan_amp(p);
    auto const plan = make_pipeline_plan(p, found);
    REQUIRE(plan.exists());
    CHECK_NOTHROW(validate(plan));
    auto const& chosen = found.record[*found.best];
    CHECK(plan.cost() == doctest::Approx(chosen.cost.total.value));
    CHECK(plan.status == found.status);
    CHECK(plan.lower_bound == found.lower_bound.value);
    CHECK(plan.space == "pipelines of equal tensor groups and copies in these layers");
    CHECK(make_pipeline_plan(p, plan_amp(p, {.shapes = {.data = 2}})).space ==
          "pipelines of equal tensor groups and copies in these layers of the degrees asked for");
    CHECK(plan.copies() == chosen.plan.degrees().data);
    CHECK(plan.stages.size() == chosen.plan.degrees().pipeline);
    for (std::size_t s = 0; s < plan.stages.size(); ++s)
        for (std::size_t copy = 0; copy < plan.copies(); ++copy) {
            CHECK(plan.stages[s].devices[copy] == chosen.plan.placement.tensor_group(s, copy));
            for (auto const d : plan.stages[s].devices[copy]) CHECK(plan.devices[d].memory == chosen.cost.memory[s]);
        }
    CHECK(plan.devices[0].type == "fast");
    CHECK(plan.devices[5].machine == 2);
    CHECK(plan.micro_batches * plan.micro_batch_size * static_cast<std::int64_t>(plan.copies()) == 16);
    REQUIRE(plan.baselines.size() == 3);
    CHECK(plan.baselines.at("data parallel") == std::nullopt); // six layers do not fit a slow device
    for (auto const& [name, cost] : plan.baselines)
        if (cost) CHECK(*cost >= plan.cost() * (1 - 1e-12));
    CHECK(plan.baselines.at("Megatron, equal layers"));
}

TEST_CASE("what does not fit is a plan without stages that says why") {
    auto p = six_layers();
    for (auto& l : p.layers) l.kept.split = bytes(1e10);
    auto const plan = make_pipeline_plan(p, plan_amp(p));
    CHECK_FALSE(plan.exists());
    CHECK(plan.status == search::status::infeasible);
    CHECK_FALSE(plan.reason.empty());
    CHECK(plan.baselines.at("Megatron, equal layers") == std::nullopt);
    std::ostringstream out;
    print(out, plan);
    CHECK(out.str().find("infeasible among pipelines") != std::string::npos);
    CHECK(out.str().find(" 6 layers\n") != std::string::npos);
    CHECK(out.str().find("three machines, 6 devices\n") != std::string::npos);
}

TEST_CASE("plans of random templates have the devices of a machine in the order of its stages") {
    int found = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(40u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::random_template_problem(random);
        auto const d = plan_ditto(p);
        auto const plan = make_pipeline_plan(p, d);
        CHECK_NOTHROW(validate(plan));
        CHECK(plan.exists() == d.best.cost.has_value());
        CHECK(plan.devices.size() == p.device_count());
        if (!d.best.cost) continue;
        ++found;
        CHECK(plan.cost() == doctest::Approx(d.best.cost->total.value));
        std::size_t placed = 0;
        std::set<std::size_t> machines;
        for (std::size_t s = 0; s < plan.stages.size(); ++s) {
            auto const& group = plan.stages[s].devices.at(0);
            machines.insert(plan.devices[group.front()].machine);
            placed += group.size();
            CHECK(group.size() == d.best.stages[s].devices);
            for (auto const device : group) {
                CHECK(plan.devices[device].type == p.types[d.best.stages[s].type].name);
                CHECK(plan.devices[device].machine == plan.devices[group.front()].machine);
            }
        }
        CHECK(static_cast<std::size_t>(std::ranges::count_if(
                  plan.devices, [&](auto const& device) { return machines.contains(device.machine); })) == placed);
        CHECK((machines.size() == p.machine_count() || p.machine_count() > p.layer_count()));
        for (auto const& [name, cost] : plan.baselines)
            if (cost) CHECK(*cost >= plan.cost() * (1 - 1e-9));
    }
    CHECK(found > test::cases(10));
}

TEST_CASE("copies of a template are side by side, on machines of their own") {
    template_problem p;
    p.micro_batches = 8;
    p.memory.assign(4, {bytes(1), bytes(1), bytes(1)});
    p.types.push_back({"one", {std::vector(4, seconds(1)), std::vector(4, seconds(2))}, {}, bytes(100), 5, 1});
    auto const r = plan_copies(p, {.most_machines = 2});
    REQUIRE(r.copies > 1);
    auto const plan = make_pipeline_plan(p, r);
    CHECK_NOTHROW(validate(plan));
    CHECK(plan.copies() == r.copies);
    CHECK(plan.warnings.size() == 1);
    CHECK(plan.cost() == doctest::Approx(r.each.cost->total.value));
    CHECK(std::ranges::count(plan.devices, bytes(0), &placed_device::memory) == static_cast<std::ptrdiff_t>(r.idle[0]));
}
