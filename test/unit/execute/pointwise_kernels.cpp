// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

using namespace heddle;
using namespace heddle::test;

TEST_CASE("element-wise functions") {
    for (char const* target : {"relu", "torch.tanh", "torch.sigmoid", "torch.exp", "torch.nn.functional.gelu", "torch.nn.functional.silu"})
        check({target, {{4, 3}}, {T(0)}, {}, {{4, 3}}});
    check({"torch.nn.functional.gelu", {{4, 3}}, {T(0)}, {{"approximate", text("tanh")}}, {{4, 3}}});
    for (char const* target : {"torch.sqrt", "torch.log"}) check({target, {{4, 3}}, {T(0)}, {}, {{4, 3}}, {{0, domain::positive()}}});
}

TEST_CASE("dropout draws by the place in the whole tensor") {
    auto const dropout = [](double p, bool training) {
        return operator_case{"torch.nn.functional.dropout", {{4, 3, 5}}, {T(0)}, {{"p", real(p)}, {"training", flag(training)}}, {{4, 3, 5}}};
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

TEST_CASE("softmax and its logarithm") {
    for (char const* target : {"torch.softmax", "torch.log_softmax"})
        for (std::int64_t dim : {0, -2, 2}) check({target, {{4, 3, 5}}, {T(0), number(dim)}, {}, {{4, 3, 5}}});
    check({"torch.softmax", {{4, 1}}, {T(0), number(1)}, {}, {{4, 1}}});
}

TEST_CASE("layer norm") {
    check({"torch.nn.functional.layer_norm", {{2, 3, 4}, {4}, {4}}, {T(0), ints({4}), T(1), T(2)}, {}, {{2, 3, 4}}});
    check({"torch.nn.functional.layer_norm", {{4, 5}, {5}}, {T(0), ints({5}), T(1)}, {{"eps", real(0.1)}}, {{4, 5}}});
    check({"torch.nn.functional.layer_norm", {{4, 2, 3}}, {T(0), ints({2, 3})}, {}, {{4, 2, 3}}});
    // Affine in the bias alone: a partial bias would have the rest added once per device.
    check({"torch.nn.functional.layer_norm", {{4, 5}, {5}}, {T(0), ints({5})}, {{"bias", T(1)}}, {{4, 5}}});
    check({"torch.nn.functional.layer_norm", {{4, 1}, {1}, {1}}, {T(0), ints({1}), T(1), T(2)}, {}, {{4, 1}}});
}

TEST_CASE("batch norm") {
    for (bool const training : {true, false}) {
        operator_case c{"torch.nn.functional.batch_norm", {{4, 3, 2}, {3}, {3}, {3}, {3}}, {T(0), T(1), T(2), T(3), T(4), flag(training)}, {}, {{4, 3, 2}}};
        c.domains = {{2, domain::positive()}};
        c.constants = {1, 2};
        check(c);
    }
    check({"torch.nn.functional.batch_norm", {{4, 3}, {3}}, {T(0)}, {{"bias", T(1)}, {"training", flag(true)}}, {{4, 3}}});
    check({"torch.nn.functional.batch_norm", {{4, 3}, {3}}, {T(0)}, {{"weight", T(1)}, {"training", flag(true)}}, {{4, 3}}});
}
