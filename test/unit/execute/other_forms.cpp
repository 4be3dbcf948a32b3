// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

#include <string>
#include <vector>

using namespace heddle;
using namespace heddle::test;

TEST_CASE("gates, quotients and reversed differences") {
    for (std::int64_t dim : {0, 1, -1}) check({"torch.nn.functional.glu", {{4, 6}}, {T(0), number(dim)}, {}, {dim == 0 ? shape{2, 6} : shape{4, 3}}});
    operator_check gated({"torch.nn.functional.glu", {{2}}, {T(0)}, {}, {{1}}}, 1);
    CHECK(gated.results()[0][0] == doctest::Approx(gated.operands()[0][0] / (1 + std::exp(-gated.operands()[0][1]))));
    check({"torch.nn.functional.prelu", {{4, 3, 2}, {3}}, {T(0), T(1)}, {}, {{4, 3, 2}}});
    check({"torch.nn.functional.prelu", {{4, 3}, {1}}, {T(0), T(1)}, {}, {{4, 3}}});
    check({"torch.addcdiv", {{4, 3}, {3}, {4, 1}}, {T(0), T(1), T(2)}, {{"value", real(0.5)}}, {{4, 3}}, {{2, domain::positive()}}});
    check({"torch.rsub", {{4, 3}, {3}}, {T(0), T(1)}, {{"alpha", real(2)}}, {{4, 3}}});
    check({"torch.rsub", {{4, 3}}, {T(0), number(1)}, {}, {{4, 3}}});
    operator_check reversed({"torch.rsub", {{1}, {1}}, {T(0), T(1)}, {{"alpha", real(2)}}, {{1}}}, 1);
    CHECK(reversed.results()[0][0] == doctest::Approx(reversed.operands()[0][0] - 2 * reversed.operands()[1][0])); // operands as the rule orders them
    check({"torch.max", {{4, 3}, {3}}, {T(0), T(1)}, {}, {{4, 3}}});
}

TEST_CASE("products of fewer dimensions, dimensions moved, elements in order") {
    check({"torch.outer", {{4}, {3}}, {T(0), T(1)}, {}, {{4, 3}}});
    check({"torch.addmv", {{4}, {4, 3}, {3}}, {T(0), T(1), T(2)}, {{"alpha", real(0.5)}}, {{4}}});
    check({"torch.addbmm", {{2}, {3, 4, 5}, {3, 5, 2}}, {T(0), T(1), T(2)}, {{"beta", real(0.5)}}, {{4, 2}}});
    check({"torch.movedim", {{2, 3, 4}}, {T(0), number(0), number(-1)}, {}, {{3, 4, 2}}});
    check({"torch.sort", {{4, 5}}, {T(0)}, {{"descending", flag(true)}}, {{4, 5}, {4, 5}}});
    for (char const* name : {"argmax", "argmin"}) check({name, {{4, 5, 2}}, {T(0), number(1)}, {}, {{4, 2}}});
    operator_check first({"argmax", {{3}}, {T(0)}, {}, {{}}}, 1);
    auto const x = first.operands()[0].data;
    CHECK(static_cast<std::size_t>(first.results()[0][0]) == static_cast<std::size_t>(std::ranges::max_element(x) - x.begin()));
}

TEST_CASE("the norm of zeros has no slope") {
    operator_check const zero({"torch.norm", {{2, 3}}, {T(0), number(2), number(1)}, {}, {{2}}, {{0, {0, 0}}}}, 1);
    CHECK(zero.derivatives()[0]->data == std::vector<double>(6));
}

TEST_CASE("kernels stay within their operands, whatever a rule says") {
    using attributes = operator_attributes;
    auto const run = [](char const* kind, char const* rule, std::vector<shape> const& operands, std::vector<shape> results, attributes of_operator) {
        program_builder b;
        std::vector<tensor_id> ids;
        std::vector<dense> values;
        for (auto const& dims : operands) {
            ids.push_back(b.parameter("w" + std::to_string(ids.size()), dims));
            values.emplace_back(dims);
        }
        operator_options options;
        options.results = std::move(results);
        options.attributes = std::move(of_operator);
        auto const made = b.apply_multi(kind, parse_index_rule(rule), ids, std::move(options));
        std::vector<detail::entries> const all{detail::numbered(b.tensor(made[0]).shape)};
        auto const p = b.finish(b.apply("sum", detail::rule_text(all, {{}}, "0"), {made[0]}));
        std::vector<dense const*> pointers;
        for (auto const& v : values) pointers.push_back(&v);
        static_cast<void>(eigen_kernels<double>().forward(whole_call(p, 0, 1), pointers));
    };
    CHECK_THROWS_AS(run("slice", "(_) -> (_)", {{4}}, {{8}}, {{"start", {0}}, {"step", {1}}, {"count", {8}}}), input_error);
    CHECK_NOTHROW(run("slice", "(_) -> (_)", {{4}}, {{2}}, {{"start", {1}}, {"step", {2}}, {"count", {2}}}));
    CHECK_THROWS_AS(run("slice", "(_) -> (_)", {{4}}, {{2}}, {{"start", {1}}, {"step", {-1}}, {"count", {2}}}), input_error);
    CHECK_THROWS_AS(run("cat", "(_), (_) -> (_)", {{8}, {4}}, {{2}}, {{"dim", {0}}}), input_error);
    CHECK_THROWS_AS(run("split", "(_) -> (_), (_)", {{8}}, {{80}, {3}}, {{"dim", {0}}}), input_error);
    CHECK_THROWS_AS(run("pad", "(_) -> (_)", {{4}}, {{40}}, {{"pad", {20, 16}}, {"mode", {1}}}), input_error);
    CHECK_THROWS_AS(run("unbind", "(_ a) -> (a), (a), (a)", {{2, 4}}, {{4}, {4}, {4}}, {{"dim", {0}}}), input_error);
    CHECK_THROWS_AS(run("topk", "(_) -> (_), (_)", {{4}}, {{40}, {40}}, {{"dim", {0}}}), input_error);
    CHECK_THROWS_AS(run("cross_entropy", "(a b), (_) -> ()", {{8, 4}, {3}}, {{}}, {{"mean", {1}}}), input_error);
}
