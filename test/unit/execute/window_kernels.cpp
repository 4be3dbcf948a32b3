// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

using namespace heddle;
using namespace heddle::test;

namespace {

operator_case conv(tensor_shape x, tensor_shape w, tensor_shape y, std::vector<std::int64_t> stride, literal padding,
                   std::vector<std::int64_t> dilation, std::int64_t groups, bool bias) {
    extent const out = w[0];
    std::string const target = "torch.conv" + std::to_string(x.size() - 2) + "d";
    operator_case c{
        target,
        {std::move(x), std::move(w)},
        {T(0), T(1)},
        {{"stride", ints(stride)}, {"padding", padding}, {"dilation", ints(dilation)}, {"groups", number(groups)}},
        {std::move(y)}};
    if (bias) {
        c.operands.push_back({out});
        c.keywords["bias"] = T(2);
    }
    return c;
}

} // namespace

TEST_CASE("convolutions are right, and split as their rules say") {
    check(conv({2, 3, 7}, {4, 3, 3}, {2, 4, 4}, {2}, ints({1}), {1}, 1, true));
    check(conv({2, 3, 5, 6}, {2, 3, 3, 2}, {2, 2, 3, 5}, {2, 1}, ints({1, 0}), {1, 1}, 1, true));
    check(conv({1, 2, 5, 5}, {3, 2, 2, 2}, {1, 3, 3, 3}, {1, 1}, ints({0, 0}), {2, 2}, 1, false));
    check(conv({2, 6, 4, 4}, {6, 2, 3, 3}, {2, 6, 4, 4}, {1, 1}, number(1), {1, 1}, 3, true));
    check(conv({2, 4, 3, 3}, {8, 1, 2, 2}, {2, 8, 2, 2}, {1, 1}, number(0), {1, 1}, 4, true));
    check(conv({2, 2, 4, 4}, {3, 2, 3, 2}, {2, 3, 4, 4}, {1, 1}, text("same"), {1, 1}, 1, true));
    check(conv({2, 4, 3, 3, 2}, {4, 2, 2, 2, 1}, {2, 4, 2, 2, 2}, {1, 1, 1}, number(0), {1, 1, 1}, 2, true));
}

TEST_CASE("convolutions take one sample without a batch") {
    check({"torch.conv2d",
           {{4, 5, 4}, {6, 2, 3, 2}, {6}},
           {T(0), T(1), T(2), number(1), number(1), number(1), number(2)},
           {},
           {{6, 5, 5}}});
    check({"torch.conv1d", {{2, 5}, {3, 2, 3}}, {T(0), T(1)}, {}, {{3, 3}}});
    check({"torch.conv_transpose2d",
           {{4, 3, 2}, {4, 3, 2, 2}, {6}},
           {T(0), T(1), T(2), number(2), number(0), number(0), number(2)},
           {},
           {{6, 6, 4}}});
    CHECK_THROWS_WITH_AS(operator_check({"torch.conv1d", {{4, 5}, {3, 2, 3}}, {T(0), T(1)}, {}, {{3, 3}}}, 1),
                         "operator 'op', argument 'weight': takes 2 channels in 1 groups, the input has 4",
                         input_error);
}

TEST_CASE("a convolution with one place is a product") {
    operator_check c(conv({1, 2, 1}, {1, 2, 1}, {1, 1, 1}, {1}, number(0), {1}, 1, true), 1);
    auto const& x = c.operands();
    CHECK(c.results()[0][0] == doctest::Approx(x[0][0] * x[1][0] + x[0][1] * x[1][1] + x[2][0]));
}

TEST_CASE("pools are right, and split as their rules say") {
    check({"torch.nn.functional.max_pool2d", {{2, 3, 6, 6}}, {T(0), number(2)}, {}, {{2, 3, 3, 3}}});
    check({"torch.nn.functional.max_pool2d",
           {{2, 3, 7, 7}},
           {T(0), number(3), number(2), number(1)},
           {},
           {{2, 3, 4, 4}}});
    check({"torch.nn.functional.max_pool2d",
           {{3, 6, 5}},
           {T(0), ints({2, 2}), ints({1, 1}), ints({0, 0}), ints({2, 1})},
           {},
           {{3, 4, 4}}});
    check({"torch.nn.functional.avg_pool2d", {{2, 3, 6, 6}}, {T(0), ints({3, 2}), number(1)}, {}, {{2, 3, 4, 5}}});
    check({"torch.nn.functional.avg_pool2d",
           {{2, 3, 6, 6}},
           {T(0), number(3), number(2), number(1)},
           {{"count_include_pad", flag(false)}},
           {{2, 3, 3, 3}}});
    check({"torch.nn.functional.avg_pool2d",
           {{2, 3, 5, 5}},
           {T(0), number(2)},
           {{"ceil_mode", flag(true)}, {"divisor_override", number(3)}},
           {{2, 3, 3, 3}}});
    check({"torch.nn.functional.avg_pool2d",
           {{2, 3, 5, 5}},
           {T(0), number(40)},
           {{"ceil_mode", flag(true)}},
           {{2, 3, 1, 1}}});
    for (extent side : {1, 2, 3, 7})
        check({"torch.nn.functional.adaptive_avg_pool2d",
               {{2, 3, 7, 5}},
               {T(0), number(side)},
               {},
               {{2, 3, side, side}}});
}

TEST_CASE("pools of one and three dimensions, and those by regions, are right") {
    check({"torch.nn.functional.max_pool1d", {{2, 3, 7}}, {T(0), number(3), number(2), number(1)}, {}, {{2, 3, 4}}});
    check({"torch.nn.functional.max_pool3d", {{2, 3, 4, 4, 4}}, {T(0), number(2)}, {}, {{2, 3, 2, 2, 2}}});
    check({"torch.nn.functional.avg_pool1d", {{2, 3, 7}}, {T(0), number(3), number(2), number(1)}, {}, {{2, 3, 4}}});
    check({"torch.nn.functional.avg_pool3d", {{1, 2, 4, 3, 2}}, {T(0), ints({2, 1, 2})}, {}, {{1, 2, 2, 3, 1}}});
    check({"torch.nn.functional.adaptive_avg_pool1d", {{2, 3, 7}}, {T(0), number(3)}, {}, {{2, 3, 3}}});
    check(
        {"torch.nn.functional.adaptive_avg_pool3d", {{1, 2, 3, 4, 2}}, {T(0), ints({2, 3, 1})}, {}, {{1, 2, 2, 3, 1}}});
    for (extent side : {1, 3})
        check({"torch.nn.functional.adaptive_max_pool2d",
               {{2, 3, 7, 5}},
               {T(0), number(side)},
               {},
               {{2, 3, side, side}}});
    for (char const* target : {"torch.nn.functional.max_pool2d", "torch.nn.functional.adaptive_max_pool2d"})
        check({target,
               {{2, 3, 6, 4}},
               {T(0), number(2)},
               {},
               std::vector<tensor_shape>(2, target == std::string("torch.nn.functional.max_pool2d")
                                                ? tensor_shape{2, 3, 3, 2}
                                                : tensor_shape{2, 3, 2, 2})});
    operator_check found({"torch.nn.functional.max_pool1d", {{1, 2, 4}}, {T(0), number(2)}, {}, {{1, 2, 2}, {1, 2, 2}}},
                         1);
    auto const& channels = found.operands()[0];
    for (extent n = 0; n < 4; ++n)
        CHECK(channels[n / 2 * 4 + static_cast<extent>(found.results()[1][n])] == found.results()[0][n]);
}

TEST_CASE("transposed convolutions are the adjoints of convolutions") {
    auto const transposed = [](tensor_shape x, tensor_shape w, tensor_shape y, std::int64_t stride,
                               std::int64_t padding, std::int64_t dilation, std::int64_t groups, bool bias) {
        operator_case c{"torch.conv_transpose" + std::to_string(x.size() - 2) + "d",
                        {std::move(x), std::move(w)},
                        {T(0), T(1)},
                        {{"stride", number(stride)},
                         {"padding", number(padding)},
                         {"dilation", number(dilation)},
                         {"groups", number(groups)}},
                        {std::move(y)}};
        if (bias) {
            c.operands.push_back({c.results[0][1]});
            c.keywords["bias"] = T(2);
        }
        return c;
    };
    check(transposed({2, 3, 4}, {3, 4, 3}, {2, 4, 9}, 2, 0, 1, 1, true));
    check(transposed({2, 4, 3, 3}, {4, 3, 2, 2}, {2, 6, 4, 4}, 2, 1, 1, 2, true));
    check(transposed({1, 2, 3, 2}, {2, 1, 2, 2}, {1, 1, 5, 4}, 1, 0, 2, 1, false));
    check(transposed({1, 2, 2, 2, 2}, {2, 2, 2, 1, 2}, {1, 2, 3, 2, 3}, 1, 0, 1, 1, false));
    // <conv(x), y> = <x, transposed(y)> with the same weight.
    operator_check forward(conv({2, 3, 5, 5}, {4, 3, 3, 3}, {2, 4, 2, 2}, {2, 2}, ints({0, 0}), {1, 1}, 1, false), 4);
    operator_check adjoint(transposed({2, 4, 2, 2}, {4, 3, 3, 3}, {2, 3, 5, 5}, 2, 0, 1, 1, false), 5);
    auto const &x = forward.operands()[0], &w = forward.operands()[1];
    eigen_kernels<double> const kernels;
    program_builder b;
    auto const made = add_call(b, {"op",
                                   "torch.conv_transpose2d",
                                   {T(0), T(1), none(), number(2)},
                                   {},
                                   {b.parameter("y", {2, 4, 2, 2}), b.parameter("w", {4, 3, 3, 3})},
                                   {{{2, 3, 5, 5}, element_type::float32}}});
    auto const p = b.finish(b.apply("sum", "(a b c d) -> (); 0", {made.results[0]}));
    auto const& y = adjoint.operands()[0];
    std::vector<dense const*> const operands{&y, &w};
    auto const back = kernels.forward(whole_call(p, 0), operands)[0];
    double left = 0, right = 0;
    for (extent n = 0; n < y.elements(); ++n) left += forward.results()[0][n] * y[n];
    for (extent n = 0; n < x.elements(); ++n) right += x[n] * back[n];
    CHECK(left == doctest::Approx(right));
}

TEST_CASE("resizing is right, and splits as its rule says") {
    for (bool const corners : {false, true}) {
        check({"torch.nn.functional.interpolate",
               {{2, 3, 4, 5}},
               {T(0), ints({7, 3})},
               {{"mode", text("bilinear")}, {"align_corners", flag(corners)}},
               {{2, 3, 7, 3}}});
        check({"torch.nn.functional.interpolate",
               {{2, 3, 4}},
               {T(0), ints({1})},
               {{"mode", text("linear")}, {"align_corners", flag(corners)}},
               {{2, 3, 1}}});
    }
    for (bool const corners : {false, true})
        check({"torch.nn.functional.interpolate",
               {{2, 3, 4, 5}},
               {T(0), ints({7, 3})},
               {{"mode", text("bicubic")}, {"align_corners", flag(corners)}},
               {{2, 3, 7, 3}}});
    // Halfway between two of four: a/8 = -3/32 of each outer one, the rest of the inner ones; beyond an edge is the
    // edge.
    operator_check cubic({"torch.nn.functional.interpolate",
                          {{1, 1, 1, 4}},
                          {T(0), ints({1, 2})},
                          {{"mode", text("bicubic")}},
                          {{1, 1, 1, 2}}},
                         1);
    auto const &four = cubic.operands()[0], &two = cubic.results()[0];
    CHECK(two[0] == doctest::Approx(-0.09375 * (four[0] + four[2]) + 0.59375 * (four[0] + four[1])));
    CHECK(two[1] == doctest::Approx(-0.09375 * (four[1] + four[3]) + 0.59375 * (four[2] + four[3])));
    check({"torch.nn.functional.interpolate", {{2, 3, 4, 4}}, {T(0)}, {{"scale_factor", number(2)}}, {{2, 3, 8, 8}}});
    operator_check twice(
        {"torch.nn.functional.interpolate", {{1, 1, 2}}, {T(0)}, {{"scale_factor", number(2)}}, {{1, 1, 4}}}, 1);
    auto const &x = twice.operands()[0], &y = twice.results()[0];
    CHECK(y.data == std::vector<double>{x[0], x[0], x[1], x[1]});
    // A factor that does not divide evenly: sizes are rounded down, places follow from the factor unless it is computed
    // anew from the sizes.
    operator_check nearest(
        {"torch.nn.functional.interpolate", {{1, 1, 3}}, {T(0)}, {{"scale_factor", real(1.3)}}, {{1, 1, 3}}}, 1);
    auto const& three = nearest.operands()[0];
    CHECK(nearest.results()[0].data == std::vector<double>{three[0], three[0], three[1]});
    auto const line = [](bool recomputed) {
        return operator_case{
            "torch.nn.functional.interpolate",
            {{1, 1, 3}},
            {T(0)},
            {{"scale_factor", real(1.5)}, {"mode", text("linear")}, {"recompute_scale_factor", flag(recomputed)}},
            {{1, 1, 4}}};
    };
    operator_check given(line(false), 1), anew(line(true), 1);
    auto const &from = given.operands()[0], &to = given.results()[0];
    CHECK(to[1] == doctest::Approx((from[0] + from[1]) / 2));
    CHECK(to[3] == doctest::Approx(from[1] / 6 + from[2] * 5 / 6));
    CHECK(anew.results()[0][1] == doctest::Approx(anew.operands()[0][0] * 3 / 8 + anew.operands()[0][1] * 5 / 8));
    CHECK(anew.results()[0][3] == doctest::Approx(anew.operands()[0][2]));
    for (char const* mode : {"nearest", "bilinear", "bicubic"})
        check({"torch.nn.functional.interpolate",
               {{2, 3, 4, 5}},
               {T(0)},
               {{"mode", text(mode)}, {"scale_factor", {literal::list{real(1.3), real(0.7)}}}},
               {{2, 3, 5, 3}}});
    operator_check ends({"torch.nn.functional.interpolate",
                         {{1, 1, 2}},
                         {T(0)},
                         {{"mode", text("linear")}, {"align_corners", flag(true)}},
                         {{1, 1, 3}}},
                        1);
    CHECK(ends.results()[0][1] == doctest::Approx((ends.operands()[0][0] + ends.operands()[0][1]) / 2));
    CHECK_THROWS_AS(operator_check({"torch.nn.functional.interpolate",
                                    {{2, 3, 4, 5}},
                                    {T(0), ints({7, 3})},
                                    {{"mode", text("area")}},
                                    {{2, 3, 7, 3}},
                                    {},
                                    {},
                                    true},
                                   1),
                    input_error);
}

TEST_CASE("a convolution in groups that is split along two loops has all groups where it has no input channel") {
    program_builder b;
    auto const x = b.input("x", {1, 4, 3}), w = b.parameter("w", {6, 2, 1}), bias = b.parameter("bias", {6});
    traced_call conv{"conv",       "torch.conv1d", {T(x), T(w), T(bias)}, {{"groups", number(2)}},
                     {x, w, bias}, {{{1, 6, 3}}}};
    auto const y = add_call(b, conv).results.front();
    auto const p = b.finish(b.apply("sum", "(b c l) -> (); 0", {y}));
    auto const indexed = index_program(p);
    auto const loop_of = [&](bool is_reduction, extent size) {
        return *std::ranges::find_if(indexed.operators[0].loops, [&](split_loop const& loop) {
            return loop.is_reduction == is_reduction && loop.extent == size;
        });
    };
    auto call = split_call(p, indexed, 0, loop_of(true, 2), 0, 0);
    split_call(call, p, indexed, 0, loop_of(false, 3), 1, 2);
    dense const none({1, 0, 3}), nothing({4, 0, 1}), added({4}, {1, 2, 3, 4});
    std::vector<dense const*> const operands{&none, &nothing, &added};
    auto const made = eigen_kernels<double>().forward(std::move(call), operands);
    CHECK(made[0] == dense({1, 4, 3}, {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4}));
}
