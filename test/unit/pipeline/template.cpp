// SPDX-License-Identifier: BSL-1.0
#include <heddle/pipeline/device_walk.hpp>
#include <heddle/pipeline/template.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <functional>
#include <limits>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using stages = std::vector<template_stage>;

/// Forward a second, backward two on the first type, twice that on the second; 10 bytes kept, 3 saved.
template_problem two_types(std::size_t layers, std::size_t fast, std::size_t slow, std::size_t devices,
                           std::int64_t micro_batches) {
    template_problem p;
    p.memory.assign(layers, {bytes(10), bytes(3), bytes(1)});
    p.micro_batches = micro_batches;
    for (double const factor : {1.0, 2.0}) {
        auto& t = p.types.emplace_back();
        t.name = factor > 1 ? "slow" : "fast";
        t.times = {std::vector(layers, seconds(factor)), std::vector(layers, seconds(2 * factor))};
        t.machines = factor > 1 ? slow : fast;
        t.devices_per_machine = devices;
        for (std::size_t g = 2; g <= devices; ++g) t.all_reduce[g].assign(layers, seconds(0));
    }
    return p;
}

std::string error_of(std::function<void(template_problem&)> const& spoil) {
    auto p = two_types(4, 1, 1, 2, 2);
    spoil(p);
    try {
        (void)plan_template(p);
    } catch (input_error const& e) { return e.what(); }
    return "";
}

} // namespace

TEST_CASE("a stage gets as many layers as its devices are worth") {
    auto const t = plan_template(two_types(9, 1, 1, 1, 50));
    CHECK(t.status == search::status::optimal);
    REQUIRE(t.stages.size() == 2);
    for (auto const& s : t.stages) CHECK(s.end - s.first == (s.type == 0 ? 6 : 3));
    CHECK(t.cost->total == seconds(49 * 18 + 36));
    CHECK(t.lower_bound == t.cost->total);
    CHECK(*t.gap() == 0);
}

TEST_CASE("devices share a stage where that makes the pipeline shorter, unless they talk too much") {
    auto p = two_types(8, 2, 0, 2, 4);
    auto const shared = plan_template(p); // 2 stages of 2 devices: 3 * 6 + 12, 4 of one device: 3 * 6 + 24
    CHECK(shared.stages == stages{{0, 0, 2, 0, 4}, {0, 1, 2, 4, 8}});
    CHECK(shared.cost->total == seconds(3 * 6 + 12));
    for (auto& x : p.types[0].all_reduce[2]) x = seconds(1);
    auto const apart = plan_template(p);
    CHECK(apart.stages.size() == 4);
    CHECK(apart.cost->total == seconds(3 * 6 + 24));
    CHECK(cost_of(p, shared.stages).total == seconds(3 * 14 + 28)); // 8 a stage dearer: both directions, four layers
}

TEST_CASE("a machine is halved or shared out freely") {
    auto p = two_types(8, 1, 0, 4, 100);
    auto const can = [&](std::size_t taken, std::size_t group) { return p.may_take(0, taken, group); };
    CHECK(can(0, 4));
    CHECK(can(2, 2));
    CHECK(can(3, 1));
    CHECK_FALSE(can(1, 2));
    CHECK_FALSE(can(0, 3));
    CHECK_FALSE(can(4, 1));
    CHECK_FALSE(can(0, 0));
    p.split = machine_split::free;
    CHECK(can(1, 3));
    CHECK_FALSE(can(2, 3));
    p.split = machine_split::halves;
    p.types[0].devices_per_machine = 6;
    CHECK(can(3, 3));
    CHECK(can(0, 6));
    CHECK_FALSE(can(0, 2)); // three devices are not halved
}

TEST_CASE("the walk numbers subsets upwards and takes everything in the end") {
    auto const p = two_types(8, 2, 1, 4, 1);
    device_walk const walk(p);
    std::set<device_walk::state> open{device_walk::none()}, seen;
    while (!open.empty()) {
        auto const s = *open.begin();
        open.erase(open.begin());
        seen.insert(s);
        std::size_t choices = 0;
        walk.for_each_choice(s, [&](std::size_t type, std::size_t devices, device_walk::state next) {
            ++choices;
            CHECK(next > s);
            CHECK(next < walk.count());
            CHECK(walk.devices_left(s, type) == walk.devices_left(next, type) + devices);
            CHECK(walk.devices_left(s, 1 - type) == walk.devices_left(next, 1 - type));
            open.insert(next);
        });
        CHECK((choices == 0) == (s == walk.all()));
    }
    CHECK(seen.size() ==
          3 * 2 + 3 * (2 * 2 + 3 * 1)); // whole machines, and one of either type with 1 to 3 devices taken
    CHECK(walk.devices_left(device_walk::none(), 0) == 8);
    CHECK(walk.devices_left(walk.all(), 0) == 0);
    CHECK(walk.machines_used(walk.all(), 0) == 2);
    auto many = p;
    for (int n = 0; n < 8; ++n) many.types.push_back(p.types[0]);
    for (auto& t : many.types) t.machines = 1'000'000;
    CHECK_THROWS_AS(device_walk{many}, input_error);
}

TEST_CASE("what a stage holds depends on the stages behind it") {
    auto p = two_types(6, 2, 0, 1, 8);
    for (auto& t : p.types) t.memory_limit = bytes(50); // 16 a layer in front, 13 behind
    CHECK(plan_template(p).cost->stages == std::vector{seconds(9), seconds(9)});
    p.types[0].memory_limit = bytes(45);
    auto const tight = plan_template(p);
    CHECK(tight.status == search::status::infeasible);
    CHECK(tight.reason == "no order of the machines has memory for all layers in its stages");
    p.types[0].memory_limit = bytes(12);
    auto const hopeless = plan_template(p);
    CHECK(hopeless.status == search::status::infeasible);
    REQUIRE(hopeless.shortage);
    CHECK(hopeless.shortage->needed == bytes(13));
    CHECK(hopeless.shortage->limit == bytes(12));
    CHECK(hopeless.reason ==
          "layer 0 needs 1.3e-08 GB even in a last stage, of the 1.2e-08 GB that the largest, 1 of 'fast', has");
}

TEST_CASE("if there are more machines than layers, the best are used and the others left out") {
    auto const p = two_types(2, 2, 1, 1, 8);
    REQUIRE(p.machine_count() == 3);
    auto const found = plan_template(p);
    CHECK(found.status == search::status::optimal);
    auto const without = plan_template(two_types(2, 2, 0, 1, 8)), alone = plan_template(two_types(2, 1, 0, 1, 8)),
               mixed = plan_template(two_types(2, 1, 1, 1, 8));
    CHECK(found.cost->total == std::min({without.cost->total, alone.cost->total, mixed.cost->total}));
    auto many = two_types(2, 1000, 1000, 1, 8); // no more subsets than stages can have
    auto const of_many = plan_template(many);
    CHECK(of_many.cost->total == found.cost->total);
    CHECK(of_many.statistics.states < 10);
}

TEST_CASE("Oobleck's estimate counts slots from the stages behind, and too few micro-batches are refused") {
    auto p = two_types(6, 3, 0, 1, 5);
    CHECK(plan_template(p, {}, oobleck_estimate{}).cost->total == seconds(18 + (5 - 3 + 2) * 6 + 6));
    CHECK(plan_template(p, {}, oobleck_estimate{1}).cost->total == seconds(18 + 5 * 6 + 6));
    p.micro_batches = 2;
    CHECK_THROWS_WITH_AS((void)plan_template(p, {}, oobleck_estimate{}),
                         "template: the schedule cannot run 2 micro-batches on the 3 stages there may be", input_error);
    CHECK(plan_template(p).status == search::status::optimal);
    CHECK_THROWS_AS((void)plan_template(p, {}, one_f_one_b{2}), input_error);
}

TEST_CASE("a search that is stopped, too large, or has nothing below its cutoff says so") {
    auto const p = two_types(40, 3, 3, 2, 50);
    auto const best = plan_template(p);
    auto const small = plan_template(p, {.limits = {.bytes = 1000}});
    CHECK(small.status == search::status::limit);
    CHECK(small.which_limit == search::limit_kind::memory);
    CHECK(small.lower_bound <= best.cost->total);
    CHECK(small.lower_bound > 0.5 * best.cost->total);
    std::stop_source source;
    source.request_stop();
    CHECK(plan_template(p, {.limits = {.stop = source.get_token()}}).which_limit == search::limit_kind::stopped);
    CHECK(plan_template(p, {.limits = {.seconds = 0.0}}).which_limit == search::limit_kind::time);
    CHECK(plan_template(p, {.cutoff = best.cost->total}).status == search::status::infeasible);
}

TEST_CASE("bad profiles are refused by name") {
    using problem = template_problem&;
    double const nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(error_of([](problem) {}) == "");
    CHECK(error_of([](problem p) { p.memory.clear(); }) == "template, memory: no layers, expected one at least");
    CHECK(error_of([](problem p) { p.types.clear(); }) ==
          "template, types: no machines with devices, expected one at least");
    CHECK(error_of([](problem p) { p.types[1].times = {}; }) ==
          "template, type 'slow': has machines but no profile, expected the times of 4 layers");
    CHECK(error_of([](problem p) {
              p.types[1].times = {};
              p.types[1].machines = 0;
          }) == "");
    CHECK(error_of([](problem p) { p.types[0].times.forward.pop_back(); }) ==
          "template, type 'fast', forward time: 3 layers, expected 4");
    CHECK(error_of([&](problem p) { p.types[0].times.backward[2] = seconds(nan); }) ==
          "template, type 'fast', backward time of layer 2: nan, expected a number from 0 to 1e100");
    CHECK(error_of([](problem p) { p.types[0].all_reduce.clear(); }) ==
          "template, type 'fast': no all-reduce times for 2 devices, which a stage may have");
    CHECK(error_of([](problem p) { p.types[0].all_reduce[2].pop_back(); }) ==
          "template, type 'fast', all-reduce on 2 devices: 3 layers, expected 4");
    CHECK(error_of([](problem p) { p.micro_batches = 0; }) == "template, micro_batches: 0, expected one at least");
    CHECK(error_of([](problem p) { p.memory[1].kept = bytes(-1); }).starts_with("template, memory of layer 1: -1"));
    CHECK(error_of([&](problem p) {
              p.types[0].memory_limit = bytes(nan);
          }).starts_with("template, type 'fast': memory limit nan"));
}
