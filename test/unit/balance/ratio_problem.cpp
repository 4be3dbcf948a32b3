// SPDX-License-Identifier: BSL-1.0
#include <heddle/balance/program_ratio_problem.hpp>

#include <doctest/doctest.h>

namespace {

using namespace heddle;

cluster two_type_cluster() {
    cluster c;
    device_type fast{"fast", bytes(1000), bytes_per_second(100), seconds(0), {}},
        slow{"slow", bytes(500), bytes_per_second(100), seconds(1), {}};
    fast.rates[element_type::float32].fallback = flops_per_second(300);
    slow.rates[element_type::float32].fallback = flops_per_second(100);
    c.types = {fast, slow};
    c.machines = {{0, 1, 1}, {1, 1, 2}};
    c.inter = network_link{bytes_per_second(10), seconds(0.5)};
    validate(c);
    return c;
}

} // namespace

TEST_CASE("affine functions and maxima of them") {
    affine a{1, 2};
    a += {3, 4};
    CHECK(a.at(0.5) == 4 + 3);
    stage_work const work{{1, 1}, {{{0, 4}, {1, 0}}, {{2, 0}}}};
    CHECK(work.at(0) == 1 + 1 + 2);
    CHECK(work.at(0.5) == 1.5 + 2 + 2);
}

TEST_CASE("ratios to start from") {
    cost_model const model(two_type_cluster(), {{0, 1}, {1, 2}});
    CHECK(even(model) == std::vector{1.0 / 3, 1.0 / 3});
    auto const proportional = compute_proportional(model, element_type::float32);
    CHECK(proportional[0] == doctest::Approx(0.6));
    CHECK(proportional[1] == doctest::Approx(0.2));
}

TEST_CASE("the objective: stages, transfers at the largest ratio, constants") {
    ratio_problem p;
    p.counts = {1, 2};
    p.constant = 10;
    p.stages = {{{{0, 6}, {}}, {{1, 2}, {}}}};
    p.transfers = {{{1, 4}, {2, 0}}};
    p.memory = {{0, 10}, {5, 10}};
    p.memory_limits = {6, 8};
    std::vector<double> const ratios{0.5, 0.25};
    CHECK(p.objective(ratios) == 10 + 3 + 3);
    CHECK(p.fits(ratios));
    CHECK_FALSE(p.fits(std::vector{0.7, 0.15}));
    CHECK_FALSE(p.fits(std::vector{0.3, 0.35}));
}

TEST_CASE("the ratio problem of two steps and a collective") {
    cost_model const model(two_type_cluster(), {{0, 1}, {1, 2}});
    step first, second;
    first.share = second.share = {0, 0};
    first.forward = {flops(600), bytes(0), bytes(0), true};
    first.backward = {flops(300), bytes(0), bytes(0), true};
    first.stored = {bytes(10), bytes(100)};
    first.update = {bytes(0), bytes(50)};
    second.forward = {flops(150), bytes(100), bytes(0), true}; // bends where arithmetic passes one second
    second.forward_transfers = {{collective::all_gather, bytes(30), {0, 0}, {}, {}}};
    std::vector<holding> const saved{{bytes(0), bytes(200)}};
    auto const p = make_ratio_problem(std::vector{first, second}, saved, model, {0.6, 0.2});
    auto const by_hand = [](double a, double b) {
        double const largest = std::max(a, b);
        double const stage_1 = std::max(2 * a, 6 * b + 1);
        double const gather = 1 + 2.0 / 3 * (3 * largest * 30) / 10;
        double const open = std::max(std::max(0.5 * a, 1.0) + a, std::max(1.5 * b, 1.0) + 1 + 3 * b + 1);
        double const update = std::max(0.5 * a, 0.5 * b);
        return stage_1 + gather + open + update;
    };
    for (double a : {0.0, 0.2, 1.0 / 3, 0.6, 1.0}) {
        double const b = (1 - a) / 2;
        CAPTURE(a);
        CHECK(p.objective(std::vector{a, b}) == doctest::Approx(by_hand(a, b)));
        CHECK(p.memory[0].at(a) == doctest::Approx(10 + 300 * a));
    }
    CHECK(p.memory_limits == std::vector{1000.0, 500.0});
    CHECK(p.counts == std::vector{1, 2});
    CHECK(p.preferred == std::vector{0.6, 0.2});
}

TEST_CASE("a transfer that no ratio changes is a constant") {
    cost_model const model(two_type_cluster(), {{0, 1}, {1, 2}});
    step s;
    s.deferred_transfers = {{collective::all_reduce, bytes(30), {}, {}, {}}};
    auto const p = make_ratio_problem(std::vector{s}, {}, model, {0.6, 0.2});
    CHECK(p.transfers.empty());
    CHECK(p.constant == doctest::Approx(2 + 4.0 / 3 * 3));
}
