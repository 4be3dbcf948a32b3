// SPDX-License-Identifier: BSL-1.0
// What a proof finds: wrong kernels, gradients that are missing or no numbers, bytes that are not as charged.
#include "kernels.hpp"

#include <heddle/execute/prove.hpp>
#include <heddle/plan/verify.hpp>
#include <support/cases.hpp>
#include <support/errors.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace heddle;

namespace {

using test::contains;

/// Two layers in float32 on half-precision weights and looked-up rows.
program mixed_program() {
    program_builder builder;
    auto const ids = builder.input("ids", {6}, element_type::int64);
    auto const table = builder.parameter("in.table", {5, 8}, element_type::float16),
               w = builder.parameter("out.weight", {8, 4}, element_type::float64);
    operator_options lookup;
    lookup.sparse_operands = {1};
    auto const x = builder.apply("embedding", "(a), (v e) -> (a e); 1", {ids, table}, lookup);
    auto const y = builder.apply("relu", "(a e) -> (a e)", {x}, {.result_type = element_type::float32});
    return builder.finish(
        builder.apply("sum", "(a b) -> (); 0", {builder.apply("matmul", "(a k), (k b) -> (a b); 0*1", {y, w})}));
}

/// A plan of the program with a collective, and with the relu split.
plan plan_with_split_relu(program const& p, test::random_source& random) {
    auto const indexed = index_program(p);
    for (;;) {
        auto plan = test::random_plan(indexed, 3, random);
        bool split = false, moves = false;
        for (auto const& s : plan.steps) {
            split |= is_split(s.instruction) && p.kind(s.instruction.as<instruction::compute>()->op) == "relu";
            moves |= !s.step.forward_transfers.empty();
        }
        if (split && moves) return plan;
    }
}

/// The kernels with a relu that `spoil`s its result where it runs on a part.
template <class Spoil>
eigen_kernels<double> spoiled(Spoil spoil) {
    auto kernels = test::kernels();
    auto relu = kernels.library_kernel("relu");
    auto const forward = relu.forward;
    relu.forward = [=](auto const& call, auto x) {
        auto y = forward(call, x);
        bool const is_part = std::ranges::any_of(call.operands[0], [](auto const& held) { return held.has_value(); });
        if (is_part && !y[0].data.empty()) spoil(y[0].data[0]);
        return y;
    };
    kernels.set("relu", relu);
    return kernels;
}

} // namespace

TEST_CASE("bytes are those of each tensor's own element type") {
    auto const p = mixed_program();
    auto const indexed = index_program(p);
    double moved = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(300u); ++seed) {
        test::random_source random(seed);
        auto const plan = test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 4)), random);
        CAPTURE(seed);
        auto const shown = prove(p, plan, test::kernels());
        CHECK_MESSAGE(shown, shown.problem);
        for (auto b : shown.executed) moved += b.value;
    }
    CHECK(moved > 0);
}

TEST_CASE("a wrong result is found, with its place") {
    auto const p = mixed_program();
    test::random_source random(1);
    auto const plan = plan_with_split_relu(p, random);
    REQUIRE(prove(p, plan, test::kernels()));
    auto const wrong = prove(p, plan, spoiled([](double& x) { x += 1e-6; }));
    CHECK_FALSE(wrong);
    CHECK(wrong.worst_error > 1e-9);
    CHECK(wrong.worst_error < 1e-4);
    CHECK(contains(wrong.problem, wrong.worst_tensor));
    CHECK(prove(p, plan, spoiled([](double& x) { x += 1e-6; }), {.tolerance = 1e-3}));
    auto const not_a_number = prove(p, plan, spoiled([](double& x) { x = std::numeric_limits<double>::quiet_NaN(); }));
    CHECK(contains(not_a_number.problem, "no finite number"));
}

TEST_CASE("bytes that the cost does not charge are found") {
    auto const p = mixed_program();
    test::random_source random(1);
    auto plan = plan_with_split_relu(p, random);
    for (auto& s : plan.steps)
        for (auto& t : s.step.forward_transfers) t.size *= 2;
    auto const shown = prove(p, plan, test::kernels());
    CHECK(contains(shown.problem, "charges"));
    CHECK(shown.worst_error < 1e-10);
}

TEST_CASE("an operator without a kernel is named before anything runs") {
    program_builder builder;
    auto const w = builder.parameter("w", {4});
    auto const p = builder.finish(
        builder.apply("sum", "(a) -> (); 0", {builder.apply("magic", "(a) -> (a)", {w}, {.name = "layers.3.magic"})}));
    test::random_source random(1);
    auto const plan = test::random_plan(index_program(p), 2, random);
    try {
        static_cast<void>(prove(p, plan, test::kernels()));
        FAIL("expected an error");
    } catch (input_error const& e) {
        CHECK(contains(e.what(), "layers.3.magic"));
        CHECK(contains(e.what(), "'magic'"));
    }
}

TEST_CASE("gradients are measured on their layer, a vanishing layer on the model, a vanishing model on the loss") {
    program_builder builder;
    auto const a = builder.parameter("block.a", {2}), b = builder.parameter("block.b", {2}),
               c = builder.parameter("tail.c", {2}), d = builder.parameter("d", {2});
    auto const sum = builder.apply("add", "(i), (i), (i), (i) -> (i); 0 + 1 + 2 + 3", {a, b, c, d});
    auto const p = builder.finish(builder.apply("sum", "(i) -> (); 0", {sum}));
    auto const gradient = [](double x) {
        return std::pair(tensor_form::replicated(), dense_tensor<double>(tensor_shape{2}, x));
    };
    detail::gradient_scale const scale(
        p, {0.05, {{a, gradient(-8)}, {b, gradient(1e-9)}, {c, gradient(0)}, {d, gradient(2)}}});
    CHECK(scale.of("block.a") == 8);
    CHECK(scale.of("block.b") == 8);
    CHECK(scale.of("tail.c") == doctest::Approx(8e-6));
    CHECK(scale.of("d") == 2);
    CHECK(scale.of_loss(0.05) == 8);
    CHECK(scale.of_loss(-50) == 50);
    detail::gradient_scale const rounding(
        p, {3, {{a, gradient(1e-17)}, {b, gradient(0)}, {c, gradient(0)}, {d, gradient(2e-16)}}});
    CHECK(rounding.of("block.a") == doctest::Approx(3e-4));
    detail::gradient_scale const nothing(p,
                                         {0, {{a, gradient(0)}, {b, gradient(0)}, {c, gradient(0)}, {d, gradient(0)}}});
    CHECK(nothing.of("block.a") == 1);
}
