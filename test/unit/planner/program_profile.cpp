// SPDX-License-Identifier: BSL-1.0
#include "support/block_programs.hpp"

#include <heddle/pipeline/strategy.hpp>
#include <heddle/synthesis/layer_costs.hpp>
#include <heddle/synthesis/program_profile.hpp>
#include <heddle/theory/rescale.hpp>

#include <doctest/doctest.h>

#include <map>
#include <utility>
#include <vector>

namespace {

using namespace heddle;

/// 1e6 flops and 1e5 bytes per second; 1 ms to start a kernel; links of 1e5 bytes/s and 2 ms inside, 1e4 and 5 ms
/// between.
cluster machines_of(int devices, int count) {
    cluster c;
    c.name = "small";
    c.types = {
        {"slow", bytes(1e6), bytes_per_second(1e5), seconds(1e-3), {{element_type::float32, {flops_per_second(1e6)}}}},
        {"fast", bytes(2e6), bytes_per_second(1e6), seconds(1e-3), {{element_type::float32, {flops_per_second(1e7)}}}}};
    c.machines = {{.type = 0, .devices = devices, .count = count}, {.type = 1, .devices = devices}};
    c.intra = network_link{bytes_per_second(1e5), seconds(2e-3)};
    c.inter = network_link{bytes_per_second(1e4), seconds(5e-3)};
    return c;
}

seconds total(layer_cost const& c) { return c.forward + c.backward; }

} // namespace

TEST_CASE("a layer on one device takes what its operators' rooflines say") {
    auto const p = index_program(test::residual_blocks(8, 6, 2));
    auto const costs = layer_pricer(p, layers_at(p, {0, 1, 11}), {}).price(tensor_group_of(machines_of(1, 1), 0, 1));
    // (8 6) x (6 6): forward 2 * 8 * 6 * 6 flops, three tensors; backward the weight's gradient alone, as much work,
    // and two tensors read and one written.
    double const forward = 1e-3 + std::max(576 / 1e6, 4 * (48 + 36 + 48) / 1e5);
    CHECK(costs[0].forward.value == doctest::Approx(forward));
    // The result is used twice, in the block and around it: two cotangents are read, their sum is written.
    CHECK(costs[0].backward.value == doctest::Approx(forward + 1e-3 + 3 * 4 * 48 / 1e5));
    CHECK(costs[0].kept == bytes(16 * 36)); // value, gradient, two numbers of Adam
    CHECK(costs[0].gradients == bytes(4 * 36));
    CHECK(costs[0].saved == bytes(4 * 48)); // the input
}

TEST_CASE("a layer's optimiser steps at the memory's rate, and a group's all-reduce has a buffer") {
    auto const p = index_program(test::residual_blocks(8, 6, 2));
    layer_pricer const pricer(p, layers_at(p, {0, 1, 11}), {});
    auto const alone = pricer.price(tensor_group_of(machines_of(2, 1), 0, 1)),
               grouped = pricer.price(tensor_group_of(machines_of(2, 1), 0, 2));
    CHECK(alone[0].update.value > 36 * 4 / 1e5); // the weight at least
    CHECK(alone[1].update > alone[0].update);
    CHECK(grouped[1].update <= alone[1].update);
    CHECK(alone[1].buffer == bytes(0));
    CHECK(grouped[1].buffer.value >= 8 * 6 * 4); // an activation, whole
}

TEST_CASE("layers add up to the program, and operators to layers") {
    auto const p = index_program(test::residual_blocks(8, 6, 3));
    for (std::size_t degree : {1u, 2u, 4u}) {
        auto const group = tensor_group_of(machines_of(4, 1), 0, degree);
        auto const whole = layer_pricer(p, layers_at(p, {0, 15}), {}).price(group);
        seconds forward, backward;
        bytes kept;
        for (auto const& c : layer_pricer(p, repeated_layers(p), {}).price(group)) {
            forward += c.forward;
            backward += c.backward;
            kept += c.kept;
        }
        CHECK(forward.value == doctest::Approx(whole[0].forward.value));
        CHECK(backward.value == doctest::Approx(whole[0].backward.value));
        CHECK(kept.value == doctest::Approx(whole[0].kept.value));
    }
    seconds sum;
    for (auto const t : operator_times(p, machines_of(1, 1), 0)) sum += t;
    CHECK(sum.value ==
          doctest::Approx(
              total(layer_pricer(p, layers_at(p, {0, 15}), {}).price(tensor_group_of(machines_of(1, 1), 0, 1))[0])
                  .value));
}

TEST_CASE("tensor groups halve a block's products and reduce its activations once in either direction") {
    auto const p = index_program(test::residual_blocks(64, 16, 2));
    auto c = machines_of(2, 1);
    c.types[0].bandwidth = bytes_per_second(1e12); // flops alone count
    c.types[0].overhead = seconds(0);
    auto const layers = repeated_layers(p);
    layer_pricer const pricer(p, layers, {});
    auto const alone = pricer.price(tensor_group_of(c, 0, 1)), both = pricer.price(tensor_group_of(c, 0, 2));
    bytes const activation(64 * 16 * 4);
    seconds const reduced = 2 * c.intra->latency + activation / c.intra->bandwidth;
    double const sum = 64 * 16 / 1e6; // the residual's flops are each device's own
    CHECK(both[1].forward.value ==
          doctest::Approx((alone[1].forward.value - sum) / 2 + sum + reduced.value).epsilon(1e-6));
    CHECK(both[1].backward.value ==
          doctest::Approx((alone[1].backward.value - sum) / 2 + sum + reduced.value).epsilon(1e-6));
    CHECK(both[1].kept == alone[1].kept / 2);
}

TEST_CASE("the strategies' problem has the times of one sample and of all, and no less between") {
    auto const program = test::residual_blocks(8, 6, 2, true);
    auto const layers = repeated_layers(index_program(program));
    auto const c = machines_of(2, 2);
    auto const problem = make_strategy_problem(program, layers, c);
    CHECK(problem.global_batch == 8);
    CHECK(problem.usable_degrees() == std::vector<std::size_t>{1, 2});
    CHECK(problem.device_count() == 6);
    CHECK(problem.machines.back().type == 1);
    CHECK(problem.types[1].memory == bytes(2e6));
    std::map<std::pair<std::size_t, std::size_t>, double> most_kept; // on either type
    for (std::size_t type : {0u, 1u})
        for (std::size_t degree : {1u, 2u})
            for (std::int64_t samples : {1, 2, 5, 8}) {
                CAPTURE(type);
                CAPTURE(degree);
                CAPTURE(samples);
                auto const priced = layer_pricer(index_program(with_batch_size(program, samples)), layers, {})
                                        .price(tensor_group_of(c, type, degree));
                for (std::size_t l = 0; l < layers.size(); ++l) {
                    seconds const predicted = problem.time_on(type, degree, l, samples), expected = total(priced[l]);
                    if (samples == 1 || samples == 8) CHECK(predicted.value == doctest::Approx(expected.value));
                    else CHECK(predicted.value >= expected.value * (1 - 1e-9));
                    CHECK(static_cast<double>(samples) * problem.layers[l].saved.on(degree).value >=
                          priced[l].saved.value * (1 - 1e-9));
                    CHECK(problem.layers[l].kept.on(degree).value >= priced[l].kept.value * (1 - 1e-9));
                    CHECK(problem.layers[l].gradients.on(degree).value >= priced[l].gradients.value * (1 - 1e-9));
                    most_kept[{degree, l}] = std::max(most_kept[{degree, l}], priced[l].kept.value);
                }
            }
    for (auto const& [at, most] : most_kept)
        CHECK(problem.layers[at.second].kept.on(at.first).value == doctest::Approx(most));
    bytes const sample(6 * 4);
    CHECK(problem.layers[0].input.whole == bytes(0));
    CHECK(problem.layers[1].input.whole == sample);
    CHECK(problem.layers[2].input.whole == 2 * sample); // with the stem's result on its way to the end
    CHECK(problem.layers[3].input.whole == 2 * sample);
    CHECK(make_strategy_problem(program, layers, c, {.global_batch = 32}).global_batch == 32);
}

TEST_CASE("a parameter that two layers use is kept by both, and their stages sum its gradients") {
    program_builder b;
    auto const w = b.parameter("w", {6, 6});
    char const* const linear = "(b k), (n k) -> (b n); 0*1";
    auto const x = b.apply("linear", linear, {b.input("x", {4, 6}), w});
    auto const program = b.finish(b.apply("sum", "(b n) -> (); 0", {b.apply("linear", linear, {x, w})}));
    auto const p = index_program(program);
    auto const problem = make_strategy_problem(program, layers_at(p, {0, 1, 3}), machines_of(1, 1));
    CHECK(problem.layers[0].kept.on(1) == bytes(16 * 36));
    CHECK(problem.layers[1].kept.on(1) == bytes(16 * 36));
    REQUIRE(problem.shared.size() == 1);
    CHECK(problem.shared[0].layers == std::vector<std::size_t>{0, 1});
    CHECK(problem.shared[0].gradients.on(1) == bytes(4 * 36));
    CHECK(make_strategy_problem(program, layers_at(p, {0, 3}), machines_of(1, 1)).shared.empty()); // one layer

    // At every degree no less than what either layer's device has of it.
    auto const grouped = make_strategy_problem(program, layers_at(p, {0, 1, 3}), machines_of(2, 1));
    for (std::size_t degree : {1u, 2u})
        for (auto const& layer :
             layer_pricer(p, layers_at(p, {0, 1, 3}), {}).price(tensor_group_of(machines_of(2, 1), 0, degree)))
            for (auto const& [tensor, gradients] : layer.shared)
                CHECK(grouped.shared[0].gradients.on(degree).value >= gradients.value * (1 - 1e-9));
}

TEST_CASE("the templates' problem has a group's time, half of what is not shared in either direction") {
    auto const program = test::residual_blocks(8, 6, 2);
    auto const layers = repeated_layers(index_program(program));
    auto const c = machines_of(4, 2);
    auto const problem = make_template_problem(program, layers, c, 2, 4);
    CHECK(problem.micro_batches == 4);
    CHECK(problem.types[0].machines == 2);
    CHECK(problem.types[0].devices_per_machine == 4);
    CHECK(problem.types[0].all_reduce.size() == 2);
    layer_pricer const pricer(index_program(with_batch_size(program, 2)), layers, {});
    for (std::size_t type : {0u, 1u})
        for (std::size_t devices : {1u, 2u, 4u}) {
            auto const priced = pricer.price(tensor_group_of(c, type, devices));
            for (std::size_t l = 0; l < layers.size(); ++l) {
                CHECK(problem.time_on(type, l, devices).value == doctest::Approx(total(priced[l]).value));
                CHECK(problem.memory[l].kept.value >=
                      static_cast<double>(devices) * priced[l].kept.value * (1 - 1e-12));
                CHECK(problem.memory[l].saved.value >=
                      static_cast<double>(devices) * priced[l].saved.value * (1 - 1e-12));
            }
        }
    CHECK(make_template_problem(program, layers, c, 2, 4, machine_split::free).types[0].all_reduce.size() == 3);
}

TEST_CASE("clusters and layers that pipelines are not planned for are refused") {
    auto const program = test::residual_blocks(8, 6, 2);
    auto const layers = repeated_layers(index_program(program));
    CHECK_THROWS_AS((void)make_strategy_problem(program, layers, with_grouped_machines(machines_of(2, 1))),
                    input_error);
    auto mixed = machines_of(2, 1);
    mixed.machines.push_back({.type = 0, .devices = 4});
    CHECK_NOTHROW((void)make_strategy_problem(program, layers, mixed));
    CHECK_THROWS_AS((void)make_template_problem(program, layers, mixed, 2, 4), input_error);
    CHECK_THROWS_AS((void)make_strategy_problem(program, {{0, 3}, {"all"}}, machines_of(2, 1)), input_error);
}
