// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

using namespace heddle;
using namespace heddle::test;

namespace {

operator_case einsum(char const* equation, std::vector<tensor_shape> operands, tensor_shape result) {
    std::vector<literal> arguments{text(equation)};
    for (tensor_id k = 0; k < operands.size(); ++k) arguments.push_back(T(k));
    return {"torch.functional.einsum", std::move(operands), arguments, {}, {std::move(result)}};
}

} // namespace

TEST_CASE("linear and matrix products are right, and split as their rules say") {
    check({"torch.nn.functional.linear", {{5, 4}, {3, 4}}, {T(0), T(1)}, {}, {{5, 3}}});
    check({"torch.nn.functional.linear", {{2, 5, 4}, {3, 4}, {3}}, {T(0), T(1), T(2)}, {}, {{2, 5, 3}}});
    check({"torch.nn.functional.linear", {{4}, {1, 4}, {1}}, {T(0), T(1), T(2)}, {}, {{1}}});
    check({"torch.mm", {{5, 4}, {4, 3}}, {T(0), T(1)}, {}, {{5, 3}}});
    check({"torch.bmm", {{2, 5, 4}, {2, 4, 3}}, {T(0), T(1)}, {}, {{2, 5, 3}}});
    check({"matmul", {{4, 1, 5, 2}, {3, 2, 6}}, {T(0), T(1)}, {}, {{4, 3, 5, 6}}});
    check({"matmul", {{3, 1}, {1, 4}}, {T(0), T(1)}, {}, {{3, 4}}});
    check({"matmul", {{4}, {3, 4, 2}}, {T(0), T(1)}, {}, {{3, 2}}});
    check({"torch.mv", {{3, 4}, {4}}, {T(0), T(1)}, {}, {{3}}});
    check({"torch.dot", {{4}, {4}}, {T(0), T(1)}, {}, {{}}});
    check({"torch.addmm",
           {{6}, {5, 4}, {4, 6}},
           {T(0), T(1), T(2)},
           {{"beta", real(0.5)}, {"alpha", real(2)}},
           {{5, 6}}});
    check({"torch.baddbmm", {{2, 5, 1}, {2, 5, 4}, {2, 4, 6}}, {T(0), T(1), T(2)}, {}, {{2, 5, 6}}});
    operator_check added({"torch.addmm",
                          {{1, 1}, {1, 1}, {1, 1}},
                          {T(0), T(1), T(2)},
                          {{"beta", real(0.5)}, {"alpha", real(2)}},
                          {{1, 1}}},
                         1);
    auto const& x = added.operands();
    CHECK(added.results()[0][0] == doctest::Approx(0.5 * x[0][0] + 2 * x[1][0] * x[2][0]));
}

TEST_CASE("einsum is right, and splits as its equation says") {
    check(einsum("bsd,bsec->becd", {{2, 3, 4}, {2, 3, 2, 3}}, {2, 2, 3, 4}));
    check(einsum("becd,edh->bech", {{2, 3, 2, 4}, {3, 4, 5}}, {2, 3, 2, 5}));
    check(einsum("becd,bsec->bsd", {{2, 3, 2, 4}, {2, 3, 3, 2}}, {2, 3, 4}));
    check(einsum("a,ab,b->", {{3}, {3, 4}, {4}}, {}));
    check(einsum("ab,ab->ab", {{2, 3}, {1, 3}}, {2, 3}));
    check(einsum("abc->cb", {{2, 3, 4}}, {4, 3}));
    check(einsum("ik, kj", {{2, 3}, {3, 5}}, {2, 5}));
    // Operands with lists of numbers, with and without one for the result.
    check({"torch.functional.einsum",
           {{2, 3}, {3, 5}},
           {T(0), ints({0, 7}), T(1), ints({7, 51}), ints({51, 0})},
           {},
           {{5, 2}}});
    check({"torch.functional.einsum",
           {{2, 3, 4}, {4, 5}},
           {T(0), list({{literal::ellipsis{}}, number(1)}), T(1), ints({1, 2})},
           {},
           {{2, 3, 5}}});
    CHECK_THROWS_WITH_AS(operator_check({"torch.functional.einsum", {{2}}, {T(0), ints({52})}, {}, {{2}}}, 1),
                         "operator 'op', argument 'equation': expected numbers from 0 to 51", input_error);
    check(einsum("ab,c->b", {{2, 3}, {4}}, {3}));
    check(einsum("ii->i", {{3, 3}}, {3}));
    check(einsum("ii->", {{3, 3}}, {}));
    check(einsum("...a,ab->...b", {{2, 4, 3}, {3, 5}}, {2, 4, 5}));
    check(einsum("a...,...", {{3, 2, 4}, {1, 4}}, {2, 4, 3}));
    check(einsum("...ab,...b->...", {{2, 3, 4}, {4}}, {2}));
}

TEST_CASE("arithmetic is right, and splits as its rules say") {
    for (char const* target : {"operator.add", "operator.sub", "operator.mul", "operator.truediv"}) {
        bool const division = std::string(target) == "operator.truediv";
        for (auto const& [x, y, z] : {std::tuple{tensor_shape{4, 3}, tensor_shape{4, 3}, tensor_shape{4, 3}},
                                      {tensor_shape{4, 3}, tensor_shape{3}, tensor_shape{4, 3}},
                                      {tensor_shape{1, 3}, tensor_shape{4, 1}, tensor_shape{4, 3}}}) {
            operator_case c{target, {x, y}, {T(0), T(1)}, {}, {z}};
            if (division) c.domains = {{1, domain::positive()}};
            check(c);
        }
        for (bool const first : {false, true}) {
            operator_case c{target, {{4, 3}}, {first ? real(1.5) : T(0), first ? T(0) : real(1.5)}, {}, {{4, 3}}};
            if (division) c.domains = {{0, domain::positive()}};
            check(c);
        }
    }
    check({"torch.add", {{4, 3}, {4, 3}}, {T(0), T(1)}, {{"alpha", real(2.5)}}, {{4, 3}}});
    check({"torch.sub", {{4, 3}, {3}}, {T(0), T(1)}, {{"alpha", real(2.5)}}, {{4, 3}}});
    check({"operator.add", {{4, 3}}, {T(0), number(0)}, {}, {{4, 3}}});
    check({"operator.neg", {{4, 3}}, {T(0)}, {}, {{4, 3}}});
    check({"contiguous", {{4, 3}}, {T(0)}, {}, {{4, 3}}});
    operator_check sum({"torch.sub", {{2}, {2}}, {T(0), T(1)}, {{"alpha", number(3)}}, {{2}}}, 1);
    CHECK(sum.results()[0][1] == doctest::Approx(sum.operands()[0][1] - 3 * sum.operands()[1][1]));
}

TEST_CASE("arguments that no rule describes are refused, not ignored") {
    operator_case floor{"torch.div", {{3}, {3}}, {T(0), T(1)}, {{"rounding_mode", text("floor")}}, {{3}}};
    floor.is_blocked = true; // linear in nothing
    CHECK_THROWS_WITH_AS(operator_check(floor, 1), "operator 'op': no kernel computes 'div' with these arguments",
                         input_error);
    CHECK_THROWS_AS(operator_check({"my.relu", {{3}}, {T(0)}, {}, {{3}}, {}, {}, true}, 1), input_error);
}

TEST_CASE("float and double agree") {
    program_builder b;
    auto const x = b.parameter("x", {5, 4}), w = b.parameter("w", {3, 4});
    auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w});
    auto const p = b.finish(b.apply("sum", "(b n) -> (); 0", {y}));
    eigen_kernels<float> const single;
    eigen_kernels<double> const twice;
    dense_tensor<float> a({5, 4}), c({3, 4});
    dense a2({5, 4}), c2({3, 4});
    for (extent n = 0; n < 20; ++n) a2[n] = a[n] = static_cast<float>(n) / 8;
    for (extent n = 0; n < 12; ++n) c2[n] = c[n] = static_cast<float>(5 - n) / 4;
    std::vector<dense_tensor<float> const*> const operands{&a, &c};
    std::vector<dense const*> const operands2{&a2, &c2};
    auto const result = single.forward(whole_call(p, 0), operands);
    auto const result2 = twice.forward(whole_call(p, 0), operands2);
    for (extent n = 0; n < 15; ++n) CHECK(result[0][n] == doctest::Approx(result2[0][n]));
    std::vector<dense_tensor<float> const*> const results{&result[0]}, none_given{nullptr};
    auto const zero = single.backward(whole_call(p, 0), operands, results, none_given);
    CHECK(*zero[1] == dense_tensor<float>(tensor_shape{3, 4}));
}

TEST_CASE("sums and means are right, and split as their rules say") {
    for (char const* target : {"sum", "torch.mean"}) {
        check({target, {{4, 3}}, {T(0)}, {}, {{}}});
        check({target, {{4, 3}}, {T(0), number(-1)}, {}, {{4}}});
        check({target, {{4, 3, 5}}, {T(0)}, {{"dim", ints({0, 2})}, {"keepdim", flag(true)}}, {{1, 3, 1}}});
    }
    operator_check mean({"mean", {{4, 3}}, {T(0), number(0)}, {}, {{3}}}, 1);
    CHECK(mean.derivatives()[0].has_value());
    CHECK(mean.results()[0][0] ==
          doctest::Approx(
              (mean.operands()[0][0] + mean.operands()[0][3] + mean.operands()[0][6] + mean.operands()[0][9]) / 4));
}

TEST_CASE("views keep their elements, and split as their rules say") {
    check({"transpose", {{2, 3, 5}}, {T(0), number(0), number(-1)}, {}, {{5, 3, 2}}});
    check({"permute", {{2, 3, 4}}, {T(0), number(1), number(2), number(0)}, {}, {{3, 4, 2}}});
    check({"getattr", {{2, 3}}, {T(0), text("T")}, {}, {{3, 2}}});
    check({"torch.flatten", {{2, 3, 5}}, {T(0), number(1)}, {}, {{2, 15}}});
    check({"view", {{2, 12}}, {T(0)}, {}, {{2, 3, 4}}});
    check({"reshape", {{6, 4}}, {T(0)}, {}, {{8, 3}}});
    check({"reshape", {{6, 4}}, {T(0)}, {}, {{3, 8}}});
    check({"reshape", {{4, 5, 2, 3}}, {T(0)}, {}, {{4, 5, 3, 2}}});
    check({"reshape", {{4, 6}}, {T(0)}, {}, {{24}}});
    check({"unsqueeze", {{2, 3}}, {T(0), number(1)}, {}, {{2, 1, 3}}});
    check({"expand", {{1, 3}}, {T(0), number(5), number(-1)}, {}, {{5, 3}}});
    check({"expand", {{3}}, {T(0)}, {}, {{2, 3}}});
}

TEST_CASE("parts and joins are right, and split as their rules say") {
    check({"operator.getitem", {{2, 3, 5}}, {T(0), list({whole(), number(-1)})}, {}, {{2, 5}}});
    check({"operator.getitem", {{3, 4}}, {T(0), number(1)}, {}, {{4}}});
    check({"operator.getitem", {{2, 3, 5}}, {T(0), list({{literal::ellipsis{}}, slice(1, 4, 2)})}, {}, {{2, 3, 2}}});
    check({"operator.getitem", {{2, 7}}, {T(0), list({whole(), none(), slice(-3, {})})}, {}, {{2, 1, 3}}});
    check({"torch.cat", {{4, 2, 3}, {4, 3, 3}}, {list({T(0), T(1)})}, {{"dim", number(1)}}, {{4, 5, 3}}});
    check({"torch.cat", {{2, 3}, {1, 3}, {4, 3}}, {list({T(0), T(1), T(2)})}, {}, {{7, 3}}});
    check({"chunk", {{4, 6}}, {T(0), number(2)}, {{"dim", number(-1)}}, {{4, 3}, {4, 3}}});
    check({"split", {{5, 4}}, {T(0), number(2)}, {}, {{2, 4}, {2, 4}, {1, 4}}});
    check({"models.append_cls_token", {{4, 3, 2}, {1, 1, 2}}, {T(0), T(1)}, {}, {{4, 4, 2}}});
    check({"models.get_cls_token", {{4, 3, 2}}, {T(0)}, {}, {{4, 2}}});
    operator_check slices({"operator.getitem", {{6}}, {T(0), slice(1, {}, 2)}, {}, {{3}}}, 1);
    for (extent n = 0; n < 3; ++n) CHECK(slices.results()[0][n] == slices.operands()[0][1 + 2 * n]);
}

TEST_CASE("a kind without a kernel is computed from a multilinear rule, or refused") {
    program_builder b;
    auto const x = b.parameter("x", {2, 3}), y = b.parameter("y", {3});
    auto const z = b.apply("my_product", "(a b), (b) -> (a); 0*1", {x, y});
    auto const w = b.apply("my_function", "(a) -> (a)", {z}, {.name = "strange"});
    auto const p = b.finish(b.apply("sum", "(a) -> (); 0", {w}));
    eigen_kernels<double> const backend;
    dense const a({2, 3}, {1, 2, 3, 4, 5, 6}), c({3}, {1, 0, 2});
    std::vector<dense const*> const operands{&a, &c};
    auto const result = backend.forward(whole_call(p, 0), operands);
    CHECK(result[0].data == std::vector<double>{7, 16});
    std::vector<dense const*> const more{&result[0]};
    CHECK_THROWS_WITH_AS(static_cast<void>(backend.forward(whole_call(p, 1), more)),
                         "operator 'strange': no kernel computes 'my_function'", input_error);
    CHECK(backend.can_run(whole_call(p, 0)));
    CHECK_FALSE(backend.can_run(whole_call(p, 1)));
    eigen_kernels<double> more_kernels;
    more_kernels.set("my_function", backend.library_kernel("relu"));
    CHECK(more_kernels.forward(whole_call(p, 1), more)[0] == result[0]);
    CHECK_THROWS_AS(static_cast<void>(backend.library_kernel("my_function")), input_error);
    CHECK_THROWS_AS(static_cast<void>(backend.forward(whole_call(p, 0), more)), input_error);
}
