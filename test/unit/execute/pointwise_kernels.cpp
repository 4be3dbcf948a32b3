// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

#include <algorithm>
#include <string>

using namespace heddle;
using namespace heddle::test;

TEST_CASE("element-wise functions are right, and split as their rules say") {
    for (char const* target :
         {"relu", "torch.tanh", "torch.sigmoid", "torch.exp", "torch.nn.functional.gelu", "torch.nn.functional.silu"})
        check({target, {{4, 3}}, {T(0)}, {}, {{4, 3}}});
    check({"torch.nn.functional.gelu", {{4, 3}}, {T(0)}, {{"approximate", text("tanh")}}, {{4, 3}}});
    for (char const* target : {"torch.sqrt", "torch.log"})
        check({target, {{4, 3}}, {T(0)}, {}, {{4, 3}}, {{0, domain::positive()}}});
}

TEST_CASE("more functions of one element are right, and split as their rules say") {
    for (char const* name :
         {"abs", "square", "sin", "cos", "tan", "atan", "sinh", "cosh", "erf", "erfc", "expm1", "exp2"})
        check({std::string("torch.") + name, {{4, 3}}, {T(0)}, {}, {{4, 3}}});
    for (char const* name :
         {"relu6", "hardsigmoid", "hardswish", "mish", "selu", "logsigmoid", "log_sigmoid", "softsign", "tanhshrink",
          "leaky_relu", "elu", "celu", "softplus", "hardtanh", "softshrink", "hardshrink"})
        check({std::string("torch.nn.functional.") + name, {{4, 3}}, {T(0)}, {}, {{4, 3}}, {{0, {-4, 4}}}});
    for (char const* name : {"rsqrt", "reciprocal", "log1p", "log2", "log10"})
        check({std::string("torch.") + name, {{4, 3}}, {T(0)}, {}, {{4, 3}}, {{0, domain::positive()}}});
    check({"torch.nn.functional.threshold", {{4, 3}}, {T(0), real(0.2), number(-1)}, {}, {{4, 3}}});
    check({"torch.nn.functional.softshrink", {{4, 3}}, {T(0), real(0.3)}, {}, {{4, 3}}});
    check({"torch.nn.functional.leaky_relu", {{4, 3}}, {T(0), real(0.3)}, {}, {{4, 3}}});
    check({"torch.nn.functional.celu", {{4, 3}}, {T(0)}, {{"alpha", real(0.7)}}, {{4, 3}}});
    check({"torch.nn.functional.softplus", {{4, 3}}, {T(0), number(2), number(1)}, {}, {{4, 3}}});
    check({"torch.pow", {{4, 3}}, {T(0), number(3)}, {}, {{4, 3}}});
    check({"torch.clamp", {{4, 3}}, {T(0)}, {{"min", real(-0.5)}}, {{4, 3}}});
    check({"clamp", {{4, 3}}, {T(0), real(-0.5), real(0.25)}, {}, {{4, 3}}});
    operator_check const bounded({"clamp", {{40}}, {T(0), real(-0.5), real(0.25)}, {}, {{40}}}, 1);
    CHECK(std::ranges::minmax(bounded.results()[0].data).min == -0.5);
    CHECK(std::ranges::minmax(bounded.results()[0].data).max == 0.25);
    check({"operator.mod", {{4, 3}}, {T(0), real(-0.3)}, {}, {{4, 3}}});
    check({"torch.div", {{4, 3}}, {T(0), real(0.3)}, {{"rounding_mode", text("floor")}}, {{4, 3}}});
    operator_check const rest({"torch.remainder", {{40}}, {T(0), real(0.25)}, {}, {{40}}}, 1);
    CHECK(std::ranges::minmax(rest.results()[0].data).min >= 0);
    CHECK(std::ranges::minmax(rest.results()[0].data).max < 0.25);
    operator_check const quotient({"operator.floordiv", {{40}}, {T(0), real(0.25)}, {}, {{40}}}, 1);
    CHECK(std::ranges::minmax(quotient.results()[0].data).min == -4);
    CHECK(std::ranges::minmax(quotient.results()[0].data).max == 3);
    check({"torch.pow", {{4, 3}, {3}}, {T(0), T(1)}, {}, {{4, 3}}, {{0, domain::positive()}}});
}

TEST_CASE("functions of several elements broadcast, are right, and split as their rules say") {
    for (char const* name : {"minimum", "maximum", "atan2", "logaddexp"}) {
        check({std::string("torch.") + name, {{4, 3}, {4, 3}}, {T(0), T(1)}, {}, {{4, 3}}});
        check({std::string("torch.") + name, {{4, 3}, {3}}, {T(0), T(1)}, {}, {{4, 3}}});
        check({std::string("torch.") + name, {{4, 1, 3}, {2, 1}}, {T(0), T(1)}, {}, {{4, 2, 3}}});
    }
    check({"torch.addcmul", {{4, 3}, {4, 1}, {3}}, {T(0), T(1), T(2)}, {{"value", real(0.5)}}, {{4, 3}}});
    check({"torch.lerp", {{4, 3}, {4, 1}}, {T(0), T(1), real(0.3)}, {}, {{4, 3}}});
    check({"torch.lerp", {{4, 3}, {4, 3}, {3}}, {T(0), T(1), T(2)}, {}, {{4, 3}}});
    operator_case mask{"torch.where", {{4, 3}, {4, 3}, {3}},   {T(0), T(1), T(2)}, {},
                       {{4, 3}},      {{0, domain::boolean()}}};
    check(mask);
    check({"torch.where", {{4, 1}, {4, 3}}, {T(0), real(2), T(1)}, {}, {{4, 3}}, {{0, domain::boolean()}}});
    check({"masked_fill", {{4, 3}, {4, 3}}, {T(0), T(1), number(0)}, {}, {{4, 3}}, {{1, domain::boolean()}}});
    operator_check const filled(
        {"masked_fill", {{4, 5}, {5}}, {T(0), T(1), real(-7)}, {}, {{4, 5}}, {{1, domain::boolean()}}}, 3);
    CHECK(std::ranges::count(filled.results()[0].data, -7) % 4 == 0);
}

TEST_CASE("comparisons and steps have a derivative of zero") {
    auto const is_zero = [](std::optional<dense> const& d) {
        return d && std::ranges::all_of(d->data, [](double v) { return v == 0; });
    };
    for (char const* name : {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or"}) {
        operator_check c(
            {std::string("torch.") + name, {{4, 3}, {3}}, {T(0), T(1)}, {}, {{4, 3}}, {{1, domain::below(2)}}}, 1);
        for (auto const& d : c.derivatives()) CHECK(is_zero(d));
        for (double v : c.results()[0].data) CHECK_UNARY(v == 0 || v == 1);
    }
    operator_check const above({"torch.gt", {{30}}, {T(0), real(0.25)}, {}, {{30}}}, 1);
    for (extent n = 0; n < 30; ++n)
        CHECK(above.results()[0][n] == (const_cast<operator_check&>(above).operands()[0][n] > 0.25));
    for (char const* name : {"sign", "floor", "ceil", "round", "logical_not"}) {
        operator_check c({std::string("torch.") + name, {{4, 3}}, {T(0)}, {}, {{4, 3}}}, 1);
        CHECK(is_zero(c.derivatives()[0]));
    }
}

TEST_CASE("stochastic depth drops whole samples of the whole batch") {
    auto const depth = [](char const* mode, bool training) {
        return operator_case{"torchvision.ops.stochastic_depth.stochastic_depth",
                             {{7, 3, 2}},
                             {T(0), real(0.4), text(mode), flag(training)},
                             {},
                             {{7, 3, 2}}};
    };
    check(depth("row", true));
    check(depth("batch", true));
    check(depth("row", false));
    operator_check rows(depth("row", true), 2);
    int kept = 0;
    for (extent row = 0; row < 7; ++row) {
        double const ratio = rows.results()[0][row * 6] / rows.operands()[0][row * 6];
        kept += ratio != 0;
        for (extent n = row * 6; n < row * 6 + 6; ++n)
            CHECK(rows.results()[0][n] == doctest::Approx(ratio * rows.operands()[0][n]));
    }
    CHECK_UNARY(kept > 0 && kept < 7);
}

TEST_CASE("dropout of channels drops all of a sample's channel") {
    for (auto const& [target, dims] : {std::pair("torch.nn.functional.dropout1d", tensor_shape{4, 5, 3}),
                                       {"torch.nn.functional.dropout2d", {4, 5, 3, 2}},
                                       {"torch.nn.functional.dropout3d", {2, 3, 2, 2, 2}}}) {
        operator_case c{target, {dims}, {T(0), real(0.4)}, {}, {dims}};
        check(c);
        operator_check dropped(c, 1);
        extent const channel = count_elements(dims) / (dims[0] * dims[1]);
        for (extent n = 0; n < count_elements(dims); ++n)
            CHECK((dropped.results()[0][n] == 0) == (dropped.results()[0][n / channel * channel] == 0));
    }
    CHECK_THROWS_AS(
        operator_check({"torch.nn.functional.dropout2d", {{4, 5, 3}}, {T(0)}, {}, {{4, 5, 3}}, {}, {}, true}, 1),
        input_error);
}

TEST_CASE("dropout draws by the place in the whole tensor") {
    auto const dropout = [](double p, bool training) {
        return operator_case{"torch.nn.functional.dropout",
                             {{4, 3, 5}},
                             {T(0)},
                             {{"p", real(p)}, {"training", flag(training)}},
                             {{4, 3, 5}}};
    };
    check(dropout(0.4, true));
    check(dropout(0.4, false));
    operator_check idle(dropout(0.4, false), 1);
    CHECK(idle.results()[0] == idle.operands()[0]);
    operator_check active(dropout(0.4, true), 1);
    for (extent n = 0; n < 60; ++n) {
        double const ratio = active.results()[0][n] / active.operands()[0][n];
        CHECK_UNARY(ratio == 0 || ratio == doctest::Approx(1 / 0.6));
    }
}
