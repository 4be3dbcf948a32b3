// SPDX-License-Identifier: BSL-1.0
// Ratio problems of steps whose efficiency depends on the size, and of some that were measured: as they are, and by lines.
#include <heddle/balance/program_ratio_problem.hpp>
#include <heddle/cost/timeline.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

namespace {

using namespace heddle;

/// A type that saturates and one that does not, two of the latter.
cluster saturating(double least) {
    cluster c;
    for (auto const* name : {"saturating", "steady"})
        c.types.push_back(
            {name, bytes(1e9), bytes_per_second(50), seconds(0.1), {{element_type::float32, {flops_per_second(100)}}}});
    c.types[0].rates[element_type::float32].by_class[operator_class::matmul].efficiency = saturation{flops(40), least};
    for (auto& type : c.types) // products of 100 flops, and a half of such
        type.rates[element_type::float32].by_class[operator_class::matmul].measured = {{flops(50), bytes(20), 0.8},
                                                                                       {flops(100), bytes(30), 1.5}};
    c.machines = {{0, 1, 1}, {1, 1, 2}};
    c.inter = network_link{bytes_per_second(10), seconds(0.5)};
    validate(c);
    return c;
}

/// A product with some traffic, and a collective after it.
step_work product(double operations, double whole, double split) {
    step_work s;
    s.share = {0, 0};
    s.category = operator_class::matmul;
    s.forward = {flops(operations), bytes(whole), bytes(split), true};
    s.backward = {flops(2 * operations), bytes(2 * whole), bytes(2 * split), true};
    s.forward_transfers = {{collective::all_gather, bytes(30), {0, 0}, {}, uneven::padded}};
    return s;
}

} // namespace

TEST_CASE("the curved problem of a program is its time, the linear one nowhere above it") {
    for (double least : {0.0, 0.1, 0.7}) {
        CAPTURE(least);
        cost_model const model(saturating(least), {{0, 1}, {1, 2}});
        CHECK(model.has_curves());
        for (auto const& s : {product(100, 0, 0), product(100, 20, 10), product(100, 10, 20), product(10, 100, 30),
                              product(100, 25, 0)}) {
            program_steps const program{{s, product(60, 1, 2), s}, {{{bytes(1), bytes(2)}}}};
            auto const curved = make_ratio_problem(program, model, {0.4, 0.3}, {.follows_curves = true});
            auto const linear = make_ratio_problem(program, model, {0.4, 0.3});
            CHECK(curved.has_curves());
            CHECK_FALSE(linear.has_curves());
            validate(curved);
            CHECK(curved.is_convex() == (least == 0));
            for (double a = 0; a <= 1; a += 1.0 / 64) {
                std::vector<double> const ratios{a, (1 - a) / 2};
                double const time = run_serial(program.steps, model, uniform_shares(ratios)).total;
                CAPTURE(a);
                CHECK(curved.objective(ratios) == doctest::Approx(time).epsilon(2e-3));
                CHECK(curved.objective(ratios) >= time * (1 - 1e-12));
                CHECK(linear.objective(ratios) <= time * (1 + 1e-12));
                if (least == 0) CHECK(linear.objective(ratios) >= 0.97 * time);
            }
            CHECK(linear.memory == curved.memory);
            CHECK(linear.transfers == curved.transfers);
        }
    }
}

TEST_CASE("stages that are alike become one, and straight ones stay") {
    cost_model const model(saturating(0), {{0, 1}, {1, 2}});
    auto plain = product(100, 0, 0);
    plain.category = operator_class::elementwise;
    std::vector<step_work> steps(5, product(100, 10, 20));
    steps.insert(steps.end(), 3, plain);
    auto const p = make_ratio_problem({steps}, model, {0.4, 0.3}, {.follows_curves = true});
    auto const curved = std::ranges::count_if(p.stages, detail::has_curves);
    CHECK(curved <= 3); // the products' forward ones, and what is open at the end
    CHECK(std::ssize(p.stages) - curved >= 3);
    std::vector<double> const ratios{0.3, 0.35};
    CHECK(p.objective(ratios) == doctest::Approx(run_serial(steps, model, uniform_shares(ratios)).total).epsilon(2e-3));
    auto const without = make_ratio_problem({std::vector(2, plain)}, model, {0.4, 0.3}, {.follows_curves = true});
    CHECK_FALSE(without.has_curves());
}
