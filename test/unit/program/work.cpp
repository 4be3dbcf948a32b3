// SPDX-License-Identifier: BSL-1.0
// Operations and bytes of one operator of each family, computed by hand.
#include "one_call.hpp"

#include <heddle/cost/step.hpp>
#include <heddle/theory/theory.hpp>

#include <doctest/doctest.h>

#include <algorithm>

using namespace heddle;
using namespace heddle::test;

namespace {

/// The work of the whole operator if all operands but integers are trained: operations forward and backward, the bytes
/// that the main kernel of a pass reads and writes, and the bytes saved beside tensors.
struct expected_work {
    one_call call;
    double forward, backward, forward_bytes, backward_bytes, saved = 0;
};

void check(expected_work const& e) {
    CAPTURE(e.call.target);
    auto const o = add(e.call);
    CHECK(o.is_known);
    auto const all = computations(o.indexed, 0);
    auto const whole = std::ranges::find_if(all, [](instruction::compute const& i) {
        return i.loop < 0 &&
               std::ranges::all_of(
                   i.operands, [](tensor_form f) { return f == tensor_form::replicated(); }) &&
               std::ranges::all_of(i.results, [](tensor_form f) { return f == tensor_form::replicated(); });
    });
    REQUIRE(whole != all.end());
    auto const s = make_step(o.indexed, *whole, {});
    CHECK(s.forward.operations.value == doctest::Approx(e.forward));
    CHECK(s.backward.operations.value == doctest::Approx(e.backward));
    CHECK(s.forward.whole.value == e.forward_bytes);
    CHECK(s.backward.whole.value == e.backward_bytes);
    CHECK(s.saved.whole.value == e.saved);
}

constexpr auto f32 = element_type::float32, i64 = element_type::int64;

} // namespace

TEST_CASE("products take two operations for each multiplication, and twice that backward") {
    check({{"torch.nn.functional.linear", {{8, 5, 4}, {3, 4}, {3}}, {T(0), T(1), T(2)}, {}, {{8, 5, 3}}},
           960,
           1920,
           4 * (160 + 12 + 3 + 120),
           4 * (120 + 160 + 12 + 160 + 12 + 3)});
    // 4 channels in 2 groups of 2, windows of 9: 18 products for each of 2 * 6 * 49 results.
    check({{"torch.conv2d",
            {{2, 4, 7, 7}, {6, 2, 3, 3}},
            {T(0), T(1), none(), number(1), number(1), number(1), number(2)},
            {},
            {{2, 6, 7, 7}}},
           2. * 588 * 18,
           4. * 588 * 18,
           4 * (392 + 108 + 588),
           4 * (588 + 392 + 108 + 392 + 108)});
    // Each of 200 elements is multiplied by 3 windows of 9.
    check({{"torch.conv_transpose2d",
            {{2, 4, 5, 5}, {4, 3, 3, 3}},
            {T(0), T(1), none(), number(2)},
            {},
            {{2, 3, 11, 11}}},
           2. * 200 * 27,
           4. * 200 * 27,
           4 * (200 + 108 + 726),
           4 * (726 + 2 * (200 + 108))});
    // Scores and context of 2 * 6 heads of 3 by 4; keys and values of 2 * 2 heads.
    check({{"torch.nn.functional.scaled_dot_product_attention",
            {{2, 6, 3, 5}, {2, 2, 4, 5}, {2, 2, 4, 5}},
            {T(0), T(1), T(2)},
            {{"enable_gqa", flag(true)}},
            {{2, 6, 3, 5}}},
           2. * 2 * 12 * 12 * 5,
           4. * 2 * 12 * 12 * 5,
           4 * (180 + 80 + 80 + 180),
           4 * (180 + 2 * (180 + 80 + 80)),
           4 * 12 * 12});
    // 4 gates of 2 units: 8 rows of 3 + 2 products for each of 4 samples, and 20 operations a unit.
    check({{"torch.lstm_cell",
            {{4, 3}, {4, 2}, {4, 2}, {8, 3}, {8, 2}},
            {T(0), list({T(1), T(2)}), T(3), T(4)},
            {},
            {{4, 2}, {4, 2}}},
           2. * 160 + 160,
           4. * 160 + 320,
           4 * (12 + 8 + 8 + 24 + 16 + 8 + 8 + 32),
           4 * (8 + 8 + 2 * (12 + 8 + 8 + 24 + 16) + 32),
           4 * 32});
}

TEST_CASE("norms and softmax take this work") {
    check({{"torch.layer_norm", {{8, 5, 4}, {4}, {4}}, {T(0), ints({4}), T(1), T(2)}, {}, {{8, 5, 4}}},
           8 * 160,
           14 * 160,
           4 * (160 + 4 + 4 + 160),
           4 * (160 + 160 + 160 + 4 + 4)});
    check({{"torch.softmax", {{8, 4}}, {T(0), number(1)}, {}, {{8, 4}}}, 5 * 32, 5 * 32, 4 * 64, 4 * 96});
}

TEST_CASE("element-wise functions, reductions, windows and losses take this work") {
    check({{"torch.nn.functional.gelu", {{8, 4}}, {T(0)}, {}, {{8, 4}}}, 8 * 32, 8 * 32, 4 * 64, 4 * 96});
    check({{"torch.addcmul", {{8, 4}, {4}, {8, 1}}, {T(0), T(1), T(2)}, {}, {{8, 4}}},
           32,
           64,
           4 * (32 + 4 + 8 + 32),
           4 * (32 + 4 + 8 + 32 + 4 + 8)});
    check({{"torch.nn.functional.dropout2d", {{2, 3, 4, 4}}, {T(0), real(0.5)}, {}, {{2, 3, 4, 4}}},
           96,
           96,
           4 * 192 + 6,
           4 * 192 + 6,
           6});
    check({{"torch.var", {{8, 4}}, {T(0), number(1)}, {}, {{8}}}, 4 * 32, 4 * 32, 4 * 40, 4 * (8 + 8 + 32 + 32)});
    check({{"torch.nn.functional.max_pool2d", {{2, 3, 8, 8}}, {T(0), number(2)}, {}, {{2, 3, 4, 4}}},
           384,
           384,
           4 * 480 + 8 * 96,
           4 * (96 + 384 + 384) + 8 * 96,
           8 * 96});
    check({{"torch.nn.functional.interpolate",
            {{2, 3, 4, 4}},
            {T(0), ints({8, 8})},
            {{"mode", text("bilinear")}},
            {{2, 3, 8, 8}}},
           4 * 384,
           4 * 384,
           4 * 480,
           4 * 480});
    check({{"torch.nn.functional.cross_entropy",
            {{8, 10}, {8}},
            {T(0), T(1)},
            {{"reduction", text("sum")}},
            {{}},
            {f32, i64}},
           6 * 80,
           6 * 80,
           4 * 81 + 8 * 8 + 4 * 80,
           4 + 8 * 8 + 4 * 80 + 4 * 80,
           4 * 80});
    check({{"torch.nn.functional.kl_div", {{4, 3}, {4, 3}}, {T(0), T(1)}, {}, {{}}},
           4 * 12,
           4 * 12,
           4 * 25,
           4 * (1 + 24 + 24)});
}

TEST_CASE("moves and look-ups take this work") {
    check({{"torch.roll", {{4, 5}}, {T(0), number(1), number(0)}, {}, {{4, 5}}}, 20, 20, 4 * 40, 4 * 40});
    check({{"view", {{4, 5}}, {T(0)}, {}, {{20}}}, 0, 0, 0, 0});
    check({{"index_add", {{4, 3}, {5}, {5, 3}}, {T(0), number(0), T(1), T(2)}, {}, {{4, 3}}, {f32, i64}},
           15,
           15,
           4 * (12 + 15 + 12) + 8 * 5,
           4 * (12 + 12 + 15) + 8 * 5});
    check({{"torch.gather", {{4, 3}, {4, 2}}, {T(0), number(1), T(1)}, {}, {{4, 2}}, {f32, i64}},
           8,
           8,
           4 * (12 + 8) + 8 * 8,
           4 * (8 + 12) + 8 * 8});
    // 4 lines of 7: sorting compares log2(8) times.
    check({{"torch.topk", {{4, 7}}, {T(0), number(2)}, {}, {{4, 2}, {4, 2}}},
           3 * 28,
           8,
           4 * (28 + 8 + 8),
           4 * (8 + 8 + 28) + 4 * 8});
}

TEST_CASE("biases, parts of an attention, gradients of a norm's weights and sums of cotangents take work beside") {
    auto const step_of = [](one_call const& call) {
        auto const o = add(call);
        auto const all = computations(o.indexed, 0);
        auto const whole = std::ranges::find_if(all, [](instruction::compute const& i) {
            return i.loop < 0 && i.operands[0] == tensor_form::replicated() &&
                   i.results[0] == tensor_form::replicated();
        });
        REQUIRE(whole != all.end());
        return make_step(o.indexed, *whole, {});
    };
    // 120 results are read and written again to add the bias, and read for its gradient.
    auto const linear =
        step_of({"torch.nn.functional.linear", {{8, 5, 4}, {3, 4}, {3}}, {T(0), T(1), T(2)}, {}, {{8, 5, 3}}});
    CHECK(linear.forward.beside.whole.value == 4 * 240);
    CHECK(linear.forward.kernels_beside == 1);
    CHECK(linear.backward.beside.whole.value == 4 * 120);
    CHECK(linear.backward.kernels_beside == 1);
    auto const product = step_of({"torch.nn.functional.linear", {{8, 5, 4}, {3, 4}}, {T(0), T(1)}, {}, {{8, 5, 3}}});
    CHECK(product.forward.kernels_beside + product.backward.kernels_beside == 0);
    // The gradients of weight and bias come from the cotangent and the operand, together.
    auto const norm =
        step_of({"torch.layer_norm", {{8, 5, 4}, {4}, {4}}, {T(0), ints({4}), T(1), T(2)}, {}, {{8, 5, 4}}});
    CHECK(norm.forward.kernels_beside == 0);
    CHECK(norm.backward.beside.whole.value == 4 * 320);
    CHECK(norm.backward.kernels_beside == 1);
    auto const attention = step_of({"torch.nn.functional.scaled_dot_product_attention",
                                    {{2, 6, 3, 5}, {2, 6, 4, 5}, {2, 6, 4, 5}},
                                    {T(0), T(1), T(2)},
                                    {},
                                    {{2, 6, 3, 5}}});
    CHECK(attention.forward.beside.whole.value == 2 * 4 * 12 * 12);
    CHECK(attention.backward.beside.whole.value == 3 * 4 * 12 * 12);
    // When a parameter is read, its cotangents are read two by two and their sum is written.
    auto const squared = add({"operator.mul", {{8, 4}}, {T(0), T(0)}, {}, {{8, 4}}});
    auto const read = make_step(
        squared.indexed, instruction::read(squared.indexed.operators[0].operands[0], tensor_form::replicated()), {});
    CHECK(read.backward.beside.whole.value == 4 * 96);
    CHECK(read.backward.kernels_beside == 1);
    // The cotangents of a value are summed by the operator that makes it, twice if there are three.
    program_builder b;
    auto const y = b.apply("relu", "(i j) -> (i j)", {b.parameter("x", {8, 4})});
    auto const p = index_program(b.finish(b.apply("sum", "(i j), (i j), (i j) -> (); 0*1*2", {y, y, y})));
    for (auto const& i : computations(p, 0)) {
        auto const s = make_step(p, i, {});
        CHECK((s.backward.beside.whole + s.backward.beside.split).value == 2 * 4 * 96);
        CHECK(s.backward.kernels_beside == 2);
    }
}
