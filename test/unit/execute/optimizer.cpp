// SPDX-License-Identifier: BSL-1.0
// Optimisers by their formulas, and steps on ranks equal to those on the single device.
#include "kernels.hpp"

#include <heddle/execute/in_process.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/optimizer.hpp>
#include <heddle/execute/random_sources.hpp>
#include <support/cases.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>

using namespace heddle;

namespace {

constexpr int iterations = 3;

/// Largest difference of any parameter after some steps on the single device and on ranks, relative to at least one.
template <class Rule>
double difference_after_steps(program const& p, plan const& what, Rule const& rule, std::uint64_t seed) {
    auto const start = random_sources<double>(p, seed);
    auto expected = start;
    optimizer<dense_tensor<double>, Rule> single(rule);
    for (int n = 0; n < iterations; ++n)
        single.step(expected, run_single_device(p, expected, test::kernels(), seed).gradients);

    auto const indexed = index_program(p);
    double worst = 0;
    std::mutex lock;
    run_ranks(what.devices.size(), [&](in_process_communicator& communicator) {
        interpreter<double, in_process_communicator, eigen_kernels<double>> run(p, indexed, what, communicator,
                                                                                test::kernels(), seed);
        optimizer<dense_tensor<double>, Rule> mine(rule);
        auto stored = run.place(start);
        for (int n = 0; n < iterations; ++n) mine.step(stored, run.run(stored).gradients);
        for (tensor_id t = 0; t < p.tensor_count(); ++t) {
            if (p.tensor(t).role != tensor_role::parameter) continue;
            auto const whole = run.gather(t, stored.at(t));
            std::scoped_lock const guard(lock);
            REQUIRE(whole.dims == p.tensor(t).shape);
            for (extent e = 0; e < whole.elements(); ++e)
                worst = std::max(worst,
                                 std::abs(whole[e] - expected.at(t)[e]) / std::max(1.0, std::abs(expected.at(t)[e])));
            if (!p.tensor(t).trainable) CHECK(whole == start.at(t));
        }
    });
    return worst;
}

// A rule with the state of what it steps is no rule, and one of numbers of one type is none of others.
static_assert(!optimizer_rule<optimizer<dense_tensor<double>, sgd>, double>);
struct of_doubles {
    static constexpr std::size_t moments = 0;
    void step(double& x, double gradient, std::array<double, moments>&, std::uint64_t) const { x -= gradient; }
};
static_assert(optimizer_rule<of_doubles, double> && !optimizer_rule<of_doubles, float>);

} // namespace

TEST_CASE("an optimiser steps one element by the formulas") {
    double x = 1;
    std::array<double, 1> velocity{};
    sgd const descent{.rate = 0.5, .momentum = 0.25};
    descent.step(x, 2.0, velocity, 1);
    CHECK(x == 0.0);
    descent.step(x, 1.0, velocity, 2); // v = 0.25 * 2 + 1
    CHECK(x == -0.75);

    double y = 1;
    std::array<double, 2> moments{};
    adam const rule{.rate = 0.125, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 0};
    rule.step(y, 3.0, moments, 1); // corrected, the first step is the rate whatever the gradient
    CHECK(y == doctest::Approx(0.875).epsilon(1e-14));
    rule.step(y, -1.0, moments, 2);
    double const m = (0.5 * 1.5 + 0.5 * -1) / (1 - 0.25), v = (0.75 * 2.25 + 0.25) / (1 - 0.5625);
    CHECK(y == doctest::Approx(0.875 - 0.125 * m / std::sqrt(v)).epsilon(1e-14));
}

TEST_CASE("three steps on ranks are three steps on the single device") {
    int tied = 0, frozen = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(400u); ++seed) {
        test::random_source random(seed);
        auto const p = test::random_program(random, {.least_operators = 3, .most_operators = 6});
        auto const indexed = index_program(p);
        auto const plan = test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 5)), random);
        for (auto const& t : indexed.tensors) {
            tied += t.info.trainable && t.consumers.size() > 1;
            frozen += t.is_parameter() && !t.info.trainable;
        }
        CAPTURE(seed);
        INFO(test::describe(p));
        CHECK(difference_after_steps(p, plan, sgd{.rate = 0.01, .momentum = 0.9}, seed) < 1e-10);
        // A gradient that is rounding alone is stepped by rate * rounding / epsilon.
        CHECK(difference_after_steps(p, plan, adam{.rate = 0.01, .epsilon = 1e-4}, seed) < 1e-10);
    }
    CHECK(tied > 0);
    CHECK(frozen > 0);
}

TEST_CASE("what is not as it is stored is refused") {
    program_builder builder;
    auto const x = builder.input("x", {4, 4}), w = builder.parameter("w", {4, 4});
    auto const p = builder.finish(
        builder.apply("sum", "(a b) -> (); 0", {builder.apply("matmul", "(a k), (k b) -> (a b); 0*1", {x, w})}));
    auto const indexed = index_program(p);
    auto const whole = random_sources<double>(p, 1);
    auto parameters = whole;
    optimizer<dense_tensor<double>, sgd> steps;
    CHECK_THROWS_AS(
        steps.step(parameters, {{w, {tensor_form::replicated(), dense_tensor<double>(tensor_shape{2, 4})}}}),
        input_error);
    CHECK(parameters == whole);
    test::random_source random(1);
    for (bool refused = false; !refused;) { // until a plan cuts w
        auto const plan = test::random_plan(indexed, 2, random);
        bool const cuts_w = std::ranges::any_of(plan.steps, [&](auto const& s) {
            auto const* const read = s.instruction.template as<instruction::read>();
            return read && read->tensor == w && read->to.is_shard();
        });
        if (!cuts_w) continue;
        run_ranks(2, [&](in_process_communicator& c) {
            interpreter<double, in_process_communicator, eigen_kernels<double>> run(p, indexed, plan, c,
                                                                                    test::kernels());
            CHECK_THROWS_AS(static_cast<void>(run.run(whole)), input_error);
        });
        refused = true;
    }
}
