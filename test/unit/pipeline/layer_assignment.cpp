// SPDX-License-Identifier: BSL-1.0
#include <heddle/pipeline/layer_assignment.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>

namespace {

using namespace heddle;
using cuts = std::vector<std::size_t>;

/// Forward a second, backward two; 10 bytes kept, 3 saved of which 1 is the input.
layer_assignment_problem equal_layers(std::size_t layers, std::size_t devices, std::int64_t micro_batches) {
    layer_assignment_problem p;
    p.times = {{std::vector(layers, seconds(1)), std::vector(layers, seconds(2))}};
    p.memory.assign(layers, {bytes(10), bytes(3), bytes(1)});
    p.devices.resize(devices);
    p.micro_batches = micro_batches;
    return p;
}

std::string error_of(std::function<void(layer_assignment_problem&)> const& spoil) {
    auto p = equal_layers(4, 2, 2);
    p.links = {{bytes_per_second(1), seconds(0)}};
    spoil(p);
    try {
        (void)assign_layers(p);
    } catch (input_error const& e) { return e.what(); }
    return "";
}

} // namespace

TEST_CASE("layers are spread evenly, with every term of the time") {
    auto p = equal_layers(6, 3, 5);
    p.links = {{bytes_per_second(2), seconds(0.25)}, {bytes_per_second(4), seconds(0)}};
    auto const a = assign_layers(p);
    CHECK(a.status == search::status::optimal);
    CHECK(a.cuts == cuts{0, 2, 4, 6});
    CHECK(a.stage_count() == 3);
    REQUIRE(a.cost);
    CHECK(a.cost->stages == std::vector(3, seconds(6)));
    CHECK(a.cost->boundaries == std::vector{seconds(0.75), seconds(0.25)});
    CHECK(a.cost->slowest == seconds(6));
    CHECK(a.cost->total == seconds(4 * 6 + 18 + 1));
    CHECK(a.cost->memory == std::vector{bytes(20 + 3 * 6), bytes(20 + 2 * 6), bytes(20 + 6)});
    CHECK(cost_of(p, cuts{0, 1, 2, 6}).total == seconds(4 * 12 + 18 + 1));
}

TEST_CASE("a slower device holds fewer layers") {
    auto p = equal_layers(9, 2, 8);
    p.times.push_back({std::vector(9, seconds(2)), std::vector(9, seconds(4))});
    p.devices[0].type = 1;
    CHECK(assign_layers(p).cuts == cuts{0, 3, 9});
}

TEST_CASE("memory moves the cuts by the micro-batches in flight") {
    auto p = equal_layers(8, 2, 16);
    for (auto& d : p.devices) d.memory_limit = bytes(70);
    auto const plain = assign_layers(p); // 16 a layer on the first device, 13 on the second
    CHECK(plain.cuts == cuts{0, 4, 8});
    p.devices[0].memory_limit = bytes(63);
    CHECK(assign_layers(p).cuts == cuts{0, 3, 8});
    auto const all = assign_layers(p, {}, gpipe{}); // 58 a layer
    CHECK(all.status == search::status::infeasible);
    REQUIRE(all.shortage);
    CHECK(all.shortage->stage == 1);
    CHECK(all.shortage->first == 1);
    CHECK(all.shortage->end == 8);
    CHECK(all.shortage->needed == bytes(7 * 58));
    CHECK(all.shortage->limit == bytes(70));
    CHECK(all.reason ==
          "stage 1 cannot hold layers 1 to 7, which need 4.06e-07 GB of its 7e-08 GB with 16 micro-batches in flight");
}

TEST_CASE("recomputation pays a forward pass for memory") {
    auto p = equal_layers(8, 2, 16);
    p.devices[0].memory_limit = bytes(56);
    p.devices[1].memory_limit = bytes(56);
    CHECK(assign_layers(p).status == search::status::infeasible); // 3 and 4 layers fit
    p.recompute = true;
    auto const a = assign_layers(p); // 12 and 11 a layer, and 3 for the one at work
    CHECK(a.cuts == cuts{0, 4, 8});
    CHECK(a.cost->memory == std::vector{bytes(4 * 12 + 3), bytes(4 * 11 + 3)});
    CHECK(a.cost->total == seconds(15 * 16 + 32));
}

TEST_CASE("chunks make more boundaries and shorter stages") {
    auto p = equal_layers(8, 2, 4);
    p.links = {{bytes_per_second(1), seconds(0)}};
    p.back_link = {bytes_per_second(0.5), seconds(0)};
    auto const a = assign_layers(p, {}, one_f_one_b{2});
    CHECK(a.cuts == cuts{0, 2, 4, 6, 8});
    CHECK(a.cost->boundaries == std::vector{seconds(1), seconds(2), seconds(1)});
    CHECK(a.cost->total == seconds(5 * 6 + 24 + 4)); // (4 * 2 + 1) chunks and the boundaries
    p.micro_batches = 5;                             // in two groups
    CHECK_THROWS_AS((void)assign_layers(p, {}, one_f_one_b{2}), input_error);
}

TEST_CASE("under Oobleck's estimate it matters where the slowest stage is") {
    auto p = equal_layers(6, 3, 5);
    auto const even = assign_layers(p, {}, oobleck_estimate{});
    CHECK(even.cost->total == seconds(18 + (5 - 3 + 2) * 6 + 6)); // the last of equals
    CHECK(even.cuts == cuts{0, 2, 4, 6});
    CHECK(cost_of(p, cuts{0, 3, 5, 6}, oobleck_estimate{}).total == seconds(18 + (5 - 3 + 0) * 9 + 18));
    CHECK(cost_of(p, cuts{0, 1, 4, 6}, oobleck_estimate{}).total == seconds(18 + (5 - 3 + 1) * 9 + 15));
    CHECK(assign_layers(p, {}, oobleck_estimate{1}).cost->total == seconds(18 + 5 * 6 + 6));
    p.micro_batches = 2;
    CHECK_THROWS_AS((void)assign_layers(p, {}, oobleck_estimate{}), input_error);
    CHECK(assign_layers(p).stage_count() == 3);
}

TEST_CASE("fewer devices are used if boundaries cost more than they save") {
    auto p = equal_layers(4, 4, 2);
    p.links.assign(3, {bytes_per_second(1), seconds(0)});
    // 1: 12 + 12; 2: 6 + 12 + 1; 3: 6 + 12 + 2; 4: 3 + 12 + 3
    CHECK(assign_layers_to_some(p).stage_count() == 4);
    p.links.assign(3, {bytes_per_second(0.5), seconds(0)});
    CHECK(assign_layers_to_some(p).stage_count() == 2);
    p.links.assign(3, {bytes_per_second(0.01), seconds(0)});
    CHECK(assign_layers_to_some(p).stage_count() == 1);
    p.micro_batches = 1;
    p.links.clear();
    CHECK(assign_layers_to_some(p).stage_count() == 1); // equally fast: the fewest
    CHECK(assign_layers_to_some(equal_layers(2, 5, 100)).stage_count() == 2);
}

TEST_CASE("more stages than layers are infeasible") {
    auto const a = assign_layers(equal_layers(2, 3, 4));
    CHECK(a.status == search::status::infeasible);
    CHECK(a.reason == "3 stages for 2 layers: every stage needs one");
    CHECK_FALSE(a.shortage);
    CHECK(a.stage_count() == 0);
}

TEST_CASE("bad layers, devices and links are refused by name") {
    using problem = layer_assignment_problem&;
    double const nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(error_of([](problem) {}) == "");
    CHECK(error_of([&](problem p) { p.times[0].forward[2] = seconds(nan); }) ==
          "layer assignment, forward time on type 0 of layer 2: nan, expected a number from 0 to 1e100");
    CHECK(error_of([](problem p) { p.times[0].backward.pop_back(); }) ==
          "layer assignment, backward time on type 0: 3 layers, expected 4");
    CHECK(error_of([](problem p) {
              p.memory[1].saved = bytes(-1);
          }).starts_with("layer assignment, saved bytes of layer 1: -1"));
    CHECK(error_of([](problem p) { p = {}; }) == "layer assignment, memory: no layers, expected one at least");
    CHECK(error_of([](problem p) { p.devices.clear(); }) == "layer assignment, devices: none, expected one at least");
    CHECK(error_of([](problem p) { p.devices[1].type = 1; }) == "layer assignment, devices: type 1, expected one of 1");
    CHECK(error_of([&](problem p) {
              p.devices[1].memory_limit = bytes(nan);
          }).starts_with("layer assignment, devices: memory limit nan"));
    CHECK(error_of([](problem p) { p.devices.resize(3); }) ==
          "layer assignment, links: 1, expected one fewer than devices, or none");
    CHECK(error_of([](problem p) {
              p.links[0].bandwidth = bytes_per_second(0);
          }).starts_with("layer assignment, bandwidth of a link: 0"));
    CHECK(error_of([](problem p) { p.micro_batches = 0; }) ==
          "layer assignment, micro_batches: 0, expected one at least");
}
