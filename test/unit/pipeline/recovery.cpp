// SPDX-License-Identifier: BSL-1.0
#include <heddle/pipeline/greedy_recovery.hpp>
#include <heddle/pipeline/recovery.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

namespace {

using namespace heddle;

/// One device a machine; `counts[t]` of a type that is t + 1 times as fast as the first.
template_problem ladder(std::size_t layers, std::vector<std::size_t> const& counts) {
    template_problem p;
    p.memory.assign(layers, {bytes(10), bytes(3), bytes(1)});
    p.micro_batches = 40;
    for (std::size_t t = 0; t < counts.size(); ++t) {
        auto& type = p.types.emplace_back();
        type.name = "x" + std::to_string(t + 1);
        auto const speed = static_cast<double>(t + 1);
        type.times = {std::vector(layers, seconds(1 / speed)), std::vector(layers, seconds(2 / speed))};
        type.machines = counts[t];
    }
    return p;
}

} // namespace

TEST_CASE("merged stages get what their devices are worth") {
    auto const p = ladder(12, {2, 2}); // 6 folded devices, 2 layers each
    auto const t = recover(p, fold(p));
    REQUIRE(t.stages.size() == 4);
    for (auto const& s : t.stages) CHECK(s.end - s.first == 2 * (s.type + 1));
    CHECK(t.cost->total == seconds(39 * 6 + 4 * 6));
    CHECK(t.lower_bound <= t.cost->total);
    CHECK(t.cost->total == plan_template(p).cost->total);
}

TEST_CASE("more folded devices than layers, and devices that are all of one type, are recovered") {
    auto const p = ladder(7, {1, 0, 0, 0, 2}); // 11 folded devices
    auto const t = recover(p, fold(p));
    REQUIRE(t.cost);
    CHECK(t.stages.size() == 3);
    CHECK(t.cost->total == plan_template(p).cost->total);
    auto const same = ladder(9, {3});
    CHECK(recover(same, fold(same)).status == search::status::optimal); // 3 layers each: meets its bound
}

TEST_CASE("merged stages must fit their memory") {
    auto p = ladder(12, {2, 2});
    for (auto& type : p.types) type.memory_limit = bytes(60); // 3 layers of 19 at the front or 4 of 13 at the end
    auto const t = recover(p, fold(p));
    REQUIRE(t.cost);
    for (auto const m : t.cost->memory) CHECK(m <= bytes(60));
    CHECK(t.cost->total >= plan_template(p).cost->total);
    for (auto& type : p.types) type.memory_limit = bytes(12);
    auto const none = recover(p, fold(p));
    CHECK(none.status == search::status::infeasible);
    CHECK(none.shortage);
}

TEST_CASE("if there are more machines than layers some are left out") {
    auto const p = ladder(2, {2, 2});
    auto const t = recover(p, fold(p));
    REQUIRE(t.cost);
    CHECK(t.stages.size() == 2);
    for (auto const& s : t.stages) CHECK(s.type == 1); // twice as fast
    CHECK(t.cost->total == plan_template(p).cost->total);
    CHECK(recover_greedily(p, fold(p)).cost);
}

TEST_CASE("a device a million times slower makes recovery no longer than its layers") {
    auto p = ladder(40, {1, 8, 4});
    for (auto* row : {&p.types[0].times.forward, &p.types[0].times.backward})
        for (auto& x : *row) x *= 1e6;
    auto const f = fold(p);
    CHECK(f.factors[0] == 1);
    CHECK(f.devices <= 16 * 40 + 13);
    CHECK(f.factors[2] > f.factors[1]);
    auto const t = recover(p, f);
    REQUIRE(t.cost);
    CHECK(t.stages.size() == 13);
    CHECK(t.statistics.cells < 16 * f.devices);
    CHECK(t.cost->total.value <= 1.001 * plan_template(p).cost->total.value);
    CHECK(fold(p, {.most_per_layer = 1'000'000}).devices > 8'000'000);
}

TEST_CASE("greedy recovery gives strong devices whole stages of the folded template and may leave none for others") {
    auto const p = ladder(12, {2, 2});
    auto const t = recover_greedily(p, fold(p)); // 6 stages for 4 devices
    CHECK(t.status == search::status::infeasible);
    CHECK(t.reason == "no devices are left for stage 4 of the folded cluster's template, which has 6");
    auto q = p;
    for (auto& type : q.types) { // one machine of two devices each: the folded cluster may share stages
        type.machines = 1;
        type.devices_per_machine = 2;
        type.all_reduce[2].assign(12, seconds(0));
    }
    q.micro_batches = 2;
    auto const found = recover_greedily(q, fold(q));
    REQUIRE(found.cost);
    CHECK(found.status == search::status::feasible);
    CHECK(found.cost->total >= plan_template(q).cost->total);
}

TEST_CASE("a stopped recovery says so") {
    auto const p = ladder(12, {2, 2});
    std::stop_source source;
    source.request_stop();
    recovery_options o;
    o.limits.stop = source.get_token();
    auto const t = recover(p, fold(p), o);
    CHECK(t.status == search::status::limit);
    CHECK(t.which_limit == search::limit_kind::stopped);
    CHECK_FALSE(t.cost);
}
