// SPDX-License-Identifier: BSL-1.0
#include <heddle/pipeline/strategy.hpp>
#include <heddle/pipeline/strategy_baselines.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using cuts = std::vector<std::size_t>;

/// Two machines of two devices each. Four layers of 1 s a sample, 0.5 s of it launch, or 0.75 s on two devices; 8 bytes
/// of gradients, 16 kept, 2 saved and 1 sent a sample. 4 bytes/s inside, 2 between machines.
strategy_problem two_by_two() {
    strategy_problem p;
    p.types = {
        {"gpu", bytes(1000), seconds(0.5), {{1, {std::vector(4, seconds(1))}}, {2, {std::vector(4, seconds(0.75))}}}}};
    p.layers.assign(4,
                    {"block", {bytes(0), bytes(8)}, {bytes(0), bytes(16)}, {bytes(0), bytes(2)}, {bytes(1), bytes(0)}});
    p.machines.assign(2, {0, 2, {bytes_per_second(4), seconds(0)}, {bytes_per_second(2), seconds(0)}});
    p.global_batch = 8;
    return p;
}

std::string error_of(std::function<void(strategy_problem&, strategy&)> const& spoil) {
    auto p = two_by_two();
    strategy s{megatron_placement({2, 2, 1}), 2, 2, {0, 2, 4}};
    spoil(p, s);
    try {
        (void)evaluate(p, s);
    } catch (input_error const& e) { return e.what(); }
    return "";
}

} // namespace

TEST_CASE("every term of a strategy's time and memory is what the formula gives") {
    auto const p = two_by_two();
    // Stage 0 on machine 0, stage 1 on machine 1; a layer takes 0.5 + 2 * 0.5 s on 2 samples.
    auto const c = evaluate(p, {megatron_placement({2, 2, 1}), 2, 2, {0, 2, 4}});
    CHECK(c.stages == std::vector(2, seconds(3)));
    CHECK(c.boundaries == std::vector{seconds(1)}); // 2 bytes at 2 bytes/s
    CHECK(c.pipeline == seconds(3 + 6 + 1));
    CHECK(c.bubble == doctest::Approx(0.4));       // 6 of 10 s busy
    CHECK(c.synchronisation == seconds(16.0 / 4)); // 2 * 1/2 of 16 bytes inside a machine
    CHECK(c.total == seconds(14));
    CHECK(c.memory == std::vector{bytes(32 + 2 * 2 * 4), bytes(32 + 2 * 4)});
    CHECK(c.memory_limit == std::vector(2, bytes(1000)));
    CHECK(c.fits());
}

TEST_CASE("a pass takes the longer of queueing and work, sizes between measured ones lie on lines, sends may block") {
    auto p = two_by_two();
    auto& profile = p.types[0].profiles.at(1);
    // Per layer on 2 samples: forward 0.5 s of work, backward 1 s.
    profile.launches.assign(4, {seconds(0.75), seconds(0.25)});
    CHECK(p.time_on(0, 1, 0, 2).value == doctest::Approx(0.75 + 1));
    profile.sizes[4].assign(4, seconds(2.5));
    CHECK(p.time_on(0, 1, 0, 2).value == doctest::Approx(0.75 + 1)); // 1.5 s, on the line from 1 s for 1 sample
    CHECK(p.time_on(0, 1, 0, 8).value == doctest::Approx(5));
    profile.launches.clear();
    profile.sizes.clear();
    // As in the case above, with 3 s a stage. Both copies send 2 bytes over one link: 2 s each way.
    p.sends_block = true;
    auto const c = evaluate(p, {megatron_placement({2, 2, 1}), 2, 2, {0, 2, 4}});
    CHECK(c.boundaries == std::vector{seconds(2)});
    CHECK(c.pipeline == seconds((3 + 2) + 6 + 2 * 2));
    // A stage in the middle waits for both of its neighbours.
    p.global_batch = 3;
    auto const four = evaluate(p, {megatron_placement({4, 1, 1}), 1, 3, {0, 1, 2, 3, 4}});
    CHECK(four.boundaries == std::vector{seconds(0.25), seconds(0.5), seconds(0.25)});
    CHECK(four.pipeline == seconds(2 * (0.25 + 1 + 0.5) + 4 + 2));
}

TEST_CASE("rings that leave a machine together share its link") {
    auto p = two_by_two();
    // Each stage has a copy on either machine: two rings cross.
    auto const both = evaluate(p, {{{2, 2, 1}, {0, 2, 1, 3}}, 4, 1, {0, 2, 4}});
    CHECK(both.synchronisation == seconds(16.0 / (2.0 / 2)));
    // One ring of four devices, in and out of each machine once, carries 1.5 times its gradients.
    auto const one = evaluate(p, {megatron_placement({1, 4, 1}), 2, 1, {0, 4}});
    CHECK(one.synchronisation == seconds(1.5 * 32 / 2));
    CHECK(one.bubble == 0);
    // Two tensor groups: two rings of half the gradients each.
    auto const halves = evaluate(p, {megatron_placement({1, 2, 2}), 4, 1, {0, 4}});
    CHECK(halves.pipeline == seconds(4 * (0.5 + 4 * 0.25)));
    CHECK(halves.synchronisation == seconds(16.0 / (2.0 / 2)));
}

TEST_CASE("sums of gradients are as much slower than links say as one over all devices was measured to be") {
    auto const p = two_by_two();
    auto measured = p;
    seconds_per_byte const links(1.5 / 2); // of a ring of all devices
    measured.all_reduce = {{{seconds(5), seconds_per_byte(0)}, {seconds(0), 3 * links}}};
    constexpr double per_layer = 8;
    auto const sums = [&](strategy const& s) {
        return std::pair(evaluate(p, s).synchronisation, evaluate(measured, s).synchronisation);
    };
    auto const all = sums({megatron_placement({1, 4, 1}), 2, 1, {0, 4}});
    CHECK(all.first == links * bytes(4 * per_layer));
    CHECK(all.second == 3 * all.first);
    auto const across = sums({{{2, 2, 1}, {0, 2, 1, 3}}, 4, 1, {0, 2, 4}});
    CHECK(across.second == 3 * across.first);
    auto const inside = sums({megatron_placement({2, 2, 1}), 2, 2, {0, 2, 4}});
    CHECK(inside.second == inside.first);
    CHECK(strategy_model(measured).measured_speedup() == 1);
    measured.all_reduce = {{{seconds(0), 0.25 * links}}};
    CHECK(strategy_model(measured).measured_speedup() == 4);
    measured.all_reduce = collective_model{};
    CHECK_THROWS_WITH_AS(validate(measured), doctest::Contains("all-reduce"), input_error);
}

TEST_CASE("stages sum the gradients of a parameter they share after their copies have") {
    auto p = two_by_two();
    p.shared = {{{0, 1, 3}, {bytes(0), bytes(6)}}};
    // Stages on their own machines: 16 - 6 bytes on the first, of whose layers two share, 16 on the second; then both
    // pairs cross at once.
    auto const c = evaluate(p, {megatron_placement({2, 2, 1}), 2, 2, {0, 2, 4}});
    CHECK(c.synchronisation == seconds(16.0 / 4 + 6.0 / (2.0 / 2)));
    CHECK(c.total == c.pipeline + c.synchronisation);
    // Copies on their own machines: a stage's two rings cross, the parameter stays inside.
    auto const inside = evaluate(p, {{{2, 2, 1}, {0, 2, 1, 3}}, 4, 1, {0, 2, 4}});
    CHECK(inside.synchronisation == seconds(16.0 / (2.0 / 2) + 6.0 / 4));
    // One copy: stages alone, three of four, on two machines.
    auto const four = evaluate(p, {megatron_placement({4, 1, 1}), 2, 4, {0, 1, 2, 3, 4}});
    CHECK(four.synchronisation == seconds(2 * 2.0 / 3 * 6 / 2));
    // One stage has it once.
    auto const one = evaluate(p, {megatron_placement({1, 4, 1}), 2, 1, {0, 4}});
    CHECK(one.synchronisation == seconds(1.5 * (32 - 2 * 6) / 2));
    // Tensor groups: half of it on each device.
    auto const halves = evaluate(p, {megatron_placement({2, 1, 2}), 2, 4, {0, 2, 4}});
    CHECK(halves.synchronisation == seconds(3.0 / (2.0 / 2)));
}

TEST_CASE("a stage is as slow as the device it is on, a copy as its slowest stage") {
    auto p = two_by_two();
    p.types.push_back(p.types[0]);
    p.types[1].profiles.at(1).scale = 2;
    p.machines[1].type = 1;
    auto const c = evaluate(p, {megatron_placement({2, 2, 1}), 2, 2, {0, 3, 4}});
    CHECK(c.stages == std::vector{seconds(4.5), seconds(3)});
    // Copies of both types: the second is slower.
    auto const mixed = evaluate(p, {{{2, 2, 1}, {0, 2, 1, 3}}, 2, 2, {0, 3, 4}});
    CHECK(mixed.stages == std::vector{seconds(9), seconds(3)});
    CHECK(mixed.boundaries == std::vector{seconds(0.5)}); // inside
}

TEST_CASE("a boundary slower than every stage sets the pace") {
    auto p = two_by_two();
    for (auto& m : p.machines) m.outside.bandwidth = bytes_per_second(0.25);
    auto const c = evaluate(p, {megatron_placement({2, 2, 1}), 1, 4, {0, 2, 4}});
    CHECK(c.boundaries == std::vector{seconds(4)});
    CHECK(c.pipeline == seconds(3 * 4 + 4 + 4));
}

TEST_CASE("strategies and problems that cannot be are refused by name") {
    using problem = strategy_problem&;
    double const nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(error_of([](problem, strategy&) {}) == "");
    CHECK(error_of([](problem, strategy& s) { s.placement = megatron_placement({2, 3, 1}); }) ==
          "strategy, degrees: 2 x 3 x 1, expected a product of 4 devices");
    CHECK(error_of([](problem, strategy& s) { s.placement.devices[0] = 1; }) ==
          "strategy, placement: expected every device once");
    CHECK(error_of([](problem, strategy& s) { s.placement = {{2, 1, 2}, {0, 2, 1, 3}}; }) ==
          "strategy, placement: a tensor group is on two machines, expected one: profiles are of one");
    CHECK(error_of([](problem p, strategy& s) {
              p.types[0].profiles.erase(2);
              s.placement = megatron_placement({2, 1, 2});
          }) == "strategy, degrees: no profile of tensor degree 2 on device type 'gpu'");
    CHECK(error_of([](problem p, strategy& s) {
              p.machines[0].devices = 8;
              s.placement = megatron_placement({10, 1, 1});
          }) == "strategy, degrees: 10 stages for 4 layers: every stage needs one");
    CHECK(error_of([](problem, strategy& s) { s.cuts = {0, 4, 4}; }) ==
          "strategy, cuts: expected 3 numbers that rise from 0 to 4");
    CHECK(error_of([](problem, strategy& s) { s.micro_batches = 3; }) ==
          "strategy, micro-batches: 3 of 2, expected just enough for 4 samples a copy");
    CHECK(error_of([&](problem p, strategy&) { p.types[0].profiles.at(2).layers[3] = seconds(nan); }) ==
          "device type 'gpu', tensor degree 2, layer 3: nan, expected a number from 0 to 1e100");
    CHECK(error_of([](problem p, strategy&) { p.types[0].profiles.at(1).layers.pop_back(); }) ==
          "device type 'gpu', tensor degree 1: 3 layers, expected 4");
    CHECK(error_of([](problem p, strategy&) {
              p.layers[1].saved.split = bytes(-1);
          }).starts_with("layer 1 'block', saved: -1"));
    CHECK(error_of([](problem p, strategy&) { p.machines[1].type = 1; }) == "machine 1: type 1, expected one of 1");
    CHECK(error_of([](problem p, strategy&) {
              p.machines[1].outside.bandwidth = bytes_per_second(0);
          }).starts_with("machine 1, outside, bandwidth: 0"));
    auto const shared = [](std::vector<std::size_t> layers, double gradients) {
        return error_of([&](problem p, strategy&) { p.shared = {{layers, {bytes(0), bytes(gradients)}}}; });
    };
    CHECK(shared({1, 3}, 8) == "");
    CHECK(shared({1}, 8) == "shared parameter 0, layers: expected two at least, rising, below 4");
    CHECK(shared({1, 1}, 8) == "shared parameter 0, layers: expected two at least, rising, below 4");
    CHECK(shared({1, 4}, 8) == "shared parameter 0, layers: expected two at least, rising, below 4");
    CHECK(shared({1, 3}, 9) ==
          "layer 1, gradients: less than those of its shared parameters, expected them to be part");
    CHECK(shared({1, 3}, nan).starts_with("shared parameter 0, gradients: nan"));
    CHECK(error_of([](problem p, strategy&) { p.global_batch = 0; }) ==
          "global batch: 0 samples, expected one at least");
}

TEST_CASE("the optimiser's longest step and a group's largest buffer count") {
    auto const before = two_by_two();
    auto p = before;
    p.types[0].profiles.at(1).update = {seconds(0.25), seconds(0.5), seconds(0.125), seconds(0.125)};
    p.layers[1].buffer = bytes(3);
    p.layers[2].buffer = bytes(5);
    strategy const stages{megatron_placement({2, 2, 1}), 2, 2, {0, 2, 4}};
    auto const cost = evaluate(p, stages), less = evaluate(before, stages);
    CHECK(cost.update == seconds(0.75));
    CHECK(cost.total.value == doctest::Approx(less.total.value + 0.75));
    CHECK(cost.memory == less.memory); // a device alone has no collectives
    strategy const groups{megatron_placement({2, 1, 2}), 2, 4, {0, 2, 4}};
    auto const grouped = evaluate(p, groups), plain = evaluate(before, groups);
    CHECK(grouped.update == seconds(0));
    CHECK(grouped.memory[0] == plain.memory[0] + bytes(2 * 3));
    CHECK(grouped.memory[1] == plain.memory[1] + bytes(2 * 5));

    p.types[0].memory = plain.memory[1]; // the buffer no longer fits
    CHECK_FALSE(evaluate(p, groups).fits());
    p = before;
    p.types[0].profiles.at(1).update.assign(3, seconds(1));
    CHECK_THROWS_WITH_AS(validate(p), "device type 'gpu', tensor degree 1, update: 3 layers, expected 4, or none",
                         input_error);
}

TEST_CASE("matrices of bandwidths that are asymmetric, disconnected, not square or not numbers are refused") {
    auto const with = [](std::vector<std::vector<double>> const& rows) {
        return error_of([&](strategy_problem& p, strategy&) {
            for (auto const& row : rows) {
                auto& out = p.bandwidths.emplace_back();
                for (double x : row) out.emplace_back(x);
            }
        });
    };
    CHECK(with({{0, 4, 2, 2}, {4, 0, 2, 2}, {2, 2, 0, 4}, {2, 2, 4, 0}}) == "");
    CHECK(with({{0, 4, 2, 2}, {4, 0, 2, 2}, {2, 3, 0, 4}, {2, 2, 4, 0}}) ==
          "bandwidths, devices 1 and 2: 2.000000 one way and 3.000000 the other, expected the same");
    CHECK(with({{0, 4, 0, 0}, {4, 0, 0, 0}, {0, 0, 0, 4}, {0, 0, 4, 0}}) ==
          "bandwidths: no links lead from device 0 to device 2");
    CHECK(with({{0, 4}, {4, 0}}) == "bandwidths: 2 rows, expected one per device, 4");
    CHECK(with({{0, 4, 2, 2}, {4, 0, 2, 2}, {2, 2, 0}, {2, 2, 4, 0}}) ==
          "bandwidths, row 2: 3 numbers, expected one per device, 4");
    CHECK(with({{0, -4, 2, 2}, {-4, 0, 2, 2}, {2, 2, 0, 4}, {2, 2, 4, 0}}) ==
          "bandwidths, devices 0 and 1: -4.000000, expected bytes per second, not negative");
}

TEST_CASE("profiles are interpolated only where asked, between two that were measured") {
    auto p = two_by_two();
    auto& rows = p.types[0].profiles;
    rows = {{1, {{seconds(8), seconds(0), seconds(4), seconds(1)}}},
            {4, {{seconds(2), seconds(1), seconds(4), seconds(4)}}}};
    auto const all = interpolate_degrees(p, {1, 2, 4});
    auto const& made = all.types[0].profiles.at(2).layers;
    CHECK(made[0].value == doctest::Approx(4)); // a straight line between logarithms
    CHECK(made[1].value == doctest::Approx(0.5));
    CHECK(made[2].value == doctest::Approx(4));
    CHECK(made[3].value == doctest::Approx(2));
    CHECK(all.types[0].profiles.at(4).layers == rows.at(4).layers);
    CHECK(p.usable_degrees() == std::vector<std::size_t>{1});
    CHECK(all.usable_degrees() == std::vector<std::size_t>{1, 2});
    CHECK_THROWS_WITH_AS((void)interpolate_degrees(p, {8}),
                         "device type 'gpu', tensor degree 8: no profile, and none on either side to interpolate",
                         input_error);
}

TEST_CASE("baselines balance layers by count and by parameters, take Megatron's degrees, and draw valid strategies") {
    auto p = two_by_two();
    CHECK(uniform_cuts(7, 3) == cuts{0, 3, 5, 7});
    p.layers[0].gradients.split = bytes(24);
    CHECK(parameter_cuts(p, 2) == cuts{0, 1, 4});

    auto const all = megatron_strategies(p, layer_balance::count);
    REQUIRE(all.size() == 4); // micro-batches of 1, 2 on four copies; of 4, 8 on fewer
    CHECK(all[0].degrees() == parallel_degrees{1, 4, 1});
    CHECK(all[1].micro_batch_size == 2);
    CHECK(all[1].degrees() == parallel_degrees{1, 4, 1});
    CHECK(all[2].micro_batch_size == 4);
    CHECK(all[2].degrees() == parallel_degrees{2, 2, 1});
    CHECK(all[3].degrees() == parallel_degrees{4, 1, 1});
    p.types[0].memory = bytes(50); // 64 are kept on a single stage
    CHECK(megatron_strategies(p, layer_balance::count)[0].degrees() == parallel_degrees{2, 2, 1});

    search::random_stream random(1);
    for (int i = 0; i < 100; ++i) CHECK(evaluate(p, random_strategy(p, random)).total.value > 0);
}
