// SPDX-License-Identifier: BSL-1.0
#include <heddle/pipeline/strategy_baselines.hpp>
#include <heddle/planner/amp.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace {

using namespace heddle;
using list = std::vector<std::size_t>;

/// Four machines of four devices; an embedding, blocks and a head.
strategy_problem transformer(std::size_t blocks = 12) {
    strategy_problem p;
    p.types = {{"fast", bytes(16e9), seconds(0.002), {}}, {"slow", bytes(16e9), seconds(0.002), {}}};
    for (std::size_t l = 0; l < blocks + 2; ++l) {
        bool const block = l > 0 && l <= blocks;
        p.layers.push_back({block ? "block" : "",
                            {bytes(0), bytes(block ? 5e7 : 2e8)},
                            {bytes(0), bytes(block ? 2.5e8 : 1e9)},
                            {bytes(1e7), bytes(block ? 1e8 : 1e7)},
                            {bytes(4e6), bytes(0)}});
        for (std::size_t t = 0; t < 2; ++t)
            for (std::size_t degree : {1u, 2u, 4u})
                p.types[t].profiles[degree].layers.emplace_back((block ? 0.01 : 0.004) * (t == 0 ? 1 : 2) /
                                                                (0.4 + 0.6 * static_cast<double>(degree)));
    }
    p.machines.assign(4, {0, 4, {bytes_per_second(2e10), seconds(5e-6)}, {bytes_per_second(1.2e9), seconds(2e-5)}});
    p.global_batch = 32;
    return p;
}

template <class Call>
std::string error_of(Call const& call) {
    try {
        call();
    } catch (input_error const& e) { return e.what(); }
    return "";
}

} // namespace

TEST_CASE("the record is best first, has no two of one shape, and is no slower than the baselines") {
    auto const p = transformer();
    auto const found = plan_amp(p);
    CHECK(found.status == search::status::feasible);
    REQUIRE(found.record.size() == 10);
    CHECK(found.best == 0);
    CHECK(found.lower_bound <= found.record[0].cost.total);
    CHECK(found.lower_bound.value > 0);
    CHECK(found.statistics.placements > 0);
    CHECK(found.unprofiled_degrees.empty());
    std::set<std::tuple<parallel_degrees, std::int64_t>> shapes;
    for (auto const& r : found.record) {
        shapes.emplace(r.plan.degrees(), r.plan.micro_batch_size);
        CHECK(evaluate(p, r.plan).total == r.cost.total);
        CHECK(r.cost.fits());
        CHECK_FALSE(r.is_tried);
    }
    CHECK(shapes.size() == 10);
    CHECK(std::ranges::is_sorted(found.record, {}, [](auto const& r) { return r.cost.total; }));
    for (auto const balance : {layer_balance::count, layer_balance::parameters})
        for (auto const& s : megatron_strategies(p, balance)) CHECK(evaluate(p, s).total >= found.record[0].cost.total);
    search::random_stream random(3);
    for (int i = 0; i < 200; ++i)
        if (auto const s = random_strategy(p, random); evaluate(p, s).fits())
            CHECK(evaluate(p, s).total >= found.record[0].cost.total);
}

TEST_CASE("the fastest strategy of those tried is best, and one that fails is not") {
    auto const p = transformer();
    struct {
        int runs = 0;
        std::optional<seconds> on_trial(strategy const&, strategy_cost const& c) {
            ++runs;
            if (runs == 1) return {};
            return seconds(runs == 3 ? 0.5 : 1 + c.total.value);
        }
    } bench;
    auto const found = plan_amp(p, {.trials = 4}, bench);
    CHECK(bench.runs == 4);
    CHECK(found.best == 2);
    CHECK(found.record[0].is_tried);
    CHECK_FALSE(found.record[0].measured);
    CHECK(found.record[2].measured == seconds(0.5));
    CHECK_FALSE(found.record[4].is_tried);

    struct {
        std::optional<seconds> on_trial(strategy const&, strategy_cost const&) { return {}; }
    } broken;
    CHECK(plan_amp(p, {.record = 5, .trials = 3}, broken).best == 3);
    CHECK_FALSE(plan_amp(p, {.record = 3, .trials = 3}, broken).best);
}

TEST_CASE("a slow machine holds a stage of its own with fewer layers, wherever it is numbered") {
    auto p = transformer();
    amp_options const o{.shapes = {.pipeline = 4, .data = 4}};
    for (std::size_t slow : {0u, 1u, 3u}) {
        for (std::size_t m = 0; m < 4; ++m) p.machines[m].type = m == slow ? 1 : 0;
        auto const found = plan_amp(p, o);
        REQUIRE(!found.record.empty());
        auto const& s = found.record[0].plan;
        auto const machine_of = p.machine_of_device();
        std::size_t fewest = 99, on_slow = 0;
        for (std::size_t stage = 0; stage < 4; ++stage) {
            auto const layers = s.cuts[stage + 1] - s.cuts[stage];
            auto const group = s.placement.data_group(stage, 0);
            bool const is_slow = machine_of[group[0]] == slow;
            for (auto const d : group) CHECK((machine_of[d] == slow) == is_slow);
            (is_slow ? on_slow : fewest) = is_slow ? layers : std::min(fewest, layers);
        }
        CHECK(on_slow > 0);
        CHECK(on_slow <= fewest);
    }
}

TEST_CASE("numbers of devices and batches that do not divide are planned") {
    auto p = transformer();
    p.machines.resize(3); // twelve devices
    p.global_batch = 10;
    auto const found = plan_amp(p);
    REQUIRE(!found.record.empty());
    bool uneven = false;
    for (auto const& r : found.record) {
        CHECK(evaluate(p, r.plan).total == r.cost.total);
        uneven |= 10 % static_cast<std::int64_t>(r.plan.degrees().data) != 0;
    }
    CHECK(uneven);
    for (auto const& r : plan_amp(p, {.shapes = {.spread_unevenly = false}}).record)
        CHECK(10 % static_cast<std::int64_t>(r.plan.degrees().data) == 0);
}

TEST_CASE("annealing over tilings is seeded, and worsens nothing") {
    auto p = transformer();
    p.machines[1].type = p.machines[2].type = 1;
    auto const plain = plan_amp(p, {.all_placements = 1, .machine_orders = 1, .annealing = {.steps = 0}});
    amp_options const o{.all_placements = 1, .machine_orders = 1, .annealing = {.seed = 5, .steps = 2000}};
    auto const a = plan_amp(p, o), b = plan_amp(p, o);
    CHECK(a.statistics.annealing.steps == 2000);
    CHECK(a.record[0].cost.total < plain.record[0].cost.total); // another order of machines
    CHECK(a.record[0].plan.placement.devices == b.record[0].plan.placement.devices);
    CHECK(a.record[0].plan.cuts == b.record[0].plan.cuts);
}

TEST_CASE("the least that exceeds memory is named") {
    auto p = transformer();
    for (auto& t : p.types) t.memory = bytes(1e8);
    auto const found = plan_amp(p);
    CHECK(found.status == search::status::infeasible);
    CHECK(found.record.empty());
    CHECK_FALSE(found.best);
    CHECK(found.statistics.infeasible == found.statistics.shapes);
    CHECK(found.reason == "the least that exceeds memory: pipeline, data, tensor degree 2, 2, 4 with micro-batches of "
                          "1: stage 0 cannot hold layers 0 to 0, "
                          "which need 0.275 GB of its 0.1 GB with 2 micro-batches in flight");
}

TEST_CASE("planning that is stopped or out of time has a bound and says why it ended") {
    auto const p = transformer();
    std::stop_source stop;
    stop.request_stop();
    auto const found = plan_amp(p, {.limits = {.stop = stop.get_token()}});
    CHECK(found.status == search::status::limit);
    CHECK(found.which_limit == search::limit_kind::stopped);
    CHECK(found.record.empty());
    CHECK(found.lower_bound.value > 0);
    CHECK(plan_amp(p, {.limits = {.seconds = 0}}).which_limit == search::limit_kind::time);
}

TEST_CASE("more stages than layers is infeasible, not an error") {
    auto const found = plan_amp(transformer(1), {.shapes = {.pipeline = 8}});
    CHECK(found.status == search::status::infeasible);
    CHECK(found.reason == "more stages than the 3 layers: every stage needs one");
}

TEST_CASE("degrees that do not multiply or are not profiled are refused by name") {
    auto p = transformer();
    CHECK(error_of([&] { (void)plan_amp(p, {.shapes = {.pipeline = 3}}); }) ==
          "degrees: none of those asked for multiply to 16 devices with a batch of 32 samples");
    CHECK(error_of([&] { (void)plan_amp(p, {.shapes = {.tensor_degrees = {8}}}); }) ==
          "tensor degree 8: does not divide the 4 devices of machine 0");
    p.types[0].profiles.erase(2);
    CHECK(plan_amp(p).unprofiled_degrees == list{2});
    CHECK(error_of([&] { (void)plan_amp(p, {.shapes = {.tensor_degrees = {1, 2}}}); }) ==
          "tensor degree 2: no profile on device type 'fast'");
    CHECK(error_of([&] { (void)plan_amp(interpolate_degrees(p, {2}), {.shapes = {.tensor_degrees = {1, 2}}}); }) == "");
    p.types[0].profiles.clear();
    CHECK(error_of([&] { (void)plan_amp(p); }) ==
          "tensor degrees: none divides every machine and is profiled on every type");
}
