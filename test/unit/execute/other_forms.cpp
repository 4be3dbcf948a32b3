// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

#include <string>
#include <vector>

using namespace heddle;
using namespace heddle::test;

namespace {

/// The first result of a kernel whose operator a rule describes.
dense forward_of(char const* kind, char const* rule, std::vector<dense> const& operands,
                 std::vector<tensor_shape> results, operator_attributes attributes) {
    program_builder b;
    std::vector<tensor_id> ids;
    std::vector<dense const*> pointers;
    for (auto const& v : operands) {
        ids.push_back(b.parameter("w" + std::to_string(ids.size()), v.dims));
        pointers.push_back(&v);
    }
    operator_options options;
    options.results = std::move(results);
    options.attributes = std::move(attributes);
    auto const made = b.apply_multi(kind, parse_index_rule(rule), ids, std::move(options));
    std::vector<detail::entries> const all{detail::numbered(b.tensor(made[0]).shape)};
    auto const p = b.finish(b.apply("sum", detail::rule_text(all, {{}}, "0"), {made[0]}));
    return eigen_kernels<double>().forward(whole_call(p, 0, 1), pointers).front();
}

} // namespace

TEST_CASE("gates, quotients and reversed differences are right, and split as their rules say") {
    for (std::int64_t dim : {0, 1, -1})
        check({"torch.nn.functional.glu",
               {{4, 6}},
               {T(0), number(dim)},
               {},
               {dim == 0 ? tensor_shape{2, 6} : tensor_shape{4, 3}}});
    operator_check gated({"torch.nn.functional.glu", {{2}}, {T(0)}, {}, {{1}}}, 1);
    CHECK(gated.results()[0][0] == doctest::Approx(gated.operands()[0][0] / (1 + std::exp(-gated.operands()[0][1]))));
    check({"torch.nn.functional.prelu", {{4, 3, 2}, {3}}, {T(0), T(1)}, {}, {{4, 3, 2}}});
    check({"torch.nn.functional.prelu", {{4, 3}, {1}}, {T(0), T(1)}, {}, {{4, 3}}});
    check({"torch.addcdiv",
           {{4, 3}, {3}, {4, 1}},
           {T(0), T(1), T(2)},
           {{"value", real(0.5)}},
           {{4, 3}},
           {{2, domain::positive()}}});
    check({"torch.rsub", {{4, 3}, {3}}, {T(0), T(1)}, {{"alpha", real(2)}}, {{4, 3}}});
    check({"torch.rsub", {{4, 3}}, {T(0), number(1)}, {}, {{4, 3}}});
    operator_check reversed({"torch.rsub", {{1}, {1}}, {T(0), T(1)}, {{"alpha", real(2)}}, {{1}}}, 1);
    CHECK(
        reversed.results()[0][0] ==
        doctest::Approx(reversed.operands()[0][0] - 2 * reversed.operands()[1][0])); // operands as the rule orders them
    check({"torch.max", {{4, 3}, {3}}, {T(0), T(1)}, {}, {{4, 3}}});
}

TEST_CASE("products of fewer dimensions, moved dimensions and sorted elements are right") {
    check({"torch.outer", {{4}, {3}}, {T(0), T(1)}, {}, {{4, 3}}});
    check({"torch.addmv", {{4}, {4, 3}, {3}}, {T(0), T(1), T(2)}, {{"alpha", real(0.5)}}, {{4}}});
    check({"torch.addbmm", {{2}, {3, 4, 5}, {3, 5, 2}}, {T(0), T(1), T(2)}, {{"beta", real(0.5)}}, {{4, 2}}});
    check({"torch.movedim", {{2, 3, 4}}, {T(0), number(0), number(-1)}, {}, {{3, 4, 2}}});
    check({"torch.sort", {{4, 5}}, {T(0)}, {{"descending", flag(true)}}, {{4, 5}, {4, 5}}});
    operator_check stable(
        {"torch.sort", {{4}}, {T(0)}, {{"descending", flag(true)}, {"stable", flag(true)}}, {{4}, {4}}, {{0, {1, 1}}}},
        1);
    CHECK(stable.results()[1].data == std::vector<double>{0, 1, 2, 3});
    for (char const* name : {"argmax", "argmin"}) check({name, {{4, 5, 2}}, {T(0), number(1)}, {}, {{4, 2}}});
    operator_check first({"argmax", {{3}}, {T(0)}, {}, {{}}}, 1);
    auto const x = first.operands()[0].data;
    CHECK(static_cast<std::size_t>(first.results()[0][0]) ==
          static_cast<std::size_t>(std::ranges::max_element(x) - x.begin()));
}

TEST_CASE("bilinear products are right, and split as their rules say") {
    for (bool const bias : {false, true}) {
        operator_case c{
            "torch.nn.functional.bilinear", {{4, 2, 3}, {4, 2, 5}, {6, 3, 5}}, {T(0), T(1), T(2)}, {}, {{4, 2, 6}}};
        if (bias) {
            c.operands.push_back({6});
            c.arguments.push_back(T(3));
        }
        check(c);
    }
    operator_check one({"torch.nn.functional.bilinear", {{1}, {2}, {1, 1, 2}}, {T(0), T(1), T(2)}, {}, {{1}}}, 1);
    auto const &x = one.operands()[0], &y = one.operands()[1], &w = one.operands()[2];
    CHECK(one.results()[0][0] == doctest::Approx(x[0] * (w[0] * y[0] + w[1] * y[1])));
}

TEST_CASE("bits of whole numbers are right") {
    std::vector<dense> const whole{dense({4}, {5, -6, 3, 0}), dense({4}, {3, 3, -1, 7})};
    CHECK(forward_of("and_", "(i), (i) -> (i)", whole, {{4}}, {}).data == std::vector<double>{1, 2, 3, 0});
    CHECK(forward_of("or_", "(i), (i) -> (i)", whole, {{4}}, {}).data == std::vector<double>{7, -5, -1, 7});
    CHECK(forward_of("xor", "(i), (i) -> (i)", whole, {{4}}, {}).data == std::vector<double>{6, -7, -4, 7});
    CHECK(forward_of("and_", "(i) -> (i)", {whole[0]}, {{4}}, {{"number", {3}}}).data ==
          std::vector<double>{1, 2, 3, 0});
    CHECK(forward_of("invert", "(i) -> (i)", {whole[0]}, {{4}}, {}).data == std::vector<double>{-6, 5, -4, -1});
}

TEST_CASE("the norm of zeros has no slope") {
    operator_check const zero({"torch.norm", {{2, 3}}, {T(0), number(2), number(1)}, {}, {{2}}, {{0, {0, 0}}}}, 1);
    CHECK(zero.derivatives()[0]->data == std::vector<double>(6));
}

TEST_CASE("kernels stay within their operands, whatever a rule says") {
    auto const run = [](char const* kind, char const* rule, std::vector<tensor_shape> const& operands,
                        std::vector<tensor_shape> results, operator_attributes of_operator) {
        static_cast<void>(
            forward_of(kind, rule, {operands.begin(), operands.end()}, std::move(results), std::move(of_operator)));
    };
    CHECK_THROWS_AS(run("slice", "(_) -> (_)", {{4}}, {{8}}, {{"start", {0}}, {"step", {1}}, {"count", {8}}}),
                    input_error);
    CHECK_NOTHROW(run("slice", "(_) -> (_)", {{4}}, {{2}}, {{"start", {1}}, {"step", {2}}, {"count", {2}}}));
    CHECK_THROWS_AS(run("slice", "(_) -> (_)", {{4}}, {{2}}, {{"start", {1}}, {"step", {-1}}, {"count", {2}}}),
                    input_error);
    CHECK_THROWS_AS(run("cat", "(_), (_) -> (_)", {{8}, {4}}, {{2}}, {{"dim", {0}}}), input_error);
    CHECK_THROWS_AS(run("split", "(_) -> (_), (_)", {{8}}, {{80}, {3}}, {{"dim", {0}}}), input_error);
    CHECK_THROWS_AS(run("pad", "(_) -> (_)", {{4}}, {{40}}, {{"pad", {20, 16}}, {"mode", {1}}}), input_error);
    CHECK_THROWS_AS(run("unbind", "(_ a) -> (a), (a), (a)", {{2, 4}}, {{4}, {4}, {4}}, {{"dim", {0}}}), input_error);
    CHECK_THROWS_AS(run("topk", "(_) -> (_), (_)", {{4}}, {{40}, {40}}, {{"dim", {0}}}), input_error);
    CHECK_THROWS_AS(run("cross_entropy", "(a b), (_) -> ()", {{8, 4}, {3}}, {{}}, {{"mean", {1}}}), input_error);
}
