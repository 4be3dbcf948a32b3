// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

using namespace heddle;
using namespace heddle::test;

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

TEST_CASE("root-mean-square norm") {
    check({"torch.nn.functional.rms_norm", {{2, 3, 4}, {4}}, {T(0), ints({4}), T(1), real(1e-3)}, {}, {{2, 3, 4}}});
    check({"torch.nn.functional.rms_norm", {{4, 2, 3}}, {T(0), ints({2, 3})}, {{"eps", real(0.1)}}, {{4, 2, 3}}});
}

TEST_CASE("group norm and instance norm") {
    for (std::int64_t groups : {1, 2, 3, 6}) {
        operator_case c{"torch.nn.functional.group_norm", {{3, 6, 2, 2}, {6}, {6}}, {T(0), number(groups), T(1), T(2)}, {}, {{3, 6, 2, 2}}};
        check(c);
    }
    check({"torch.nn.functional.group_norm", {{4, 6}}, {T(0), number(2)}, {}, {{4, 6}}});
    check({"torch.nn.functional.instance_norm", {{2, 3, 5}, {3}, {3}}, {T(0)}, {{"weight", T(1)}, {"bias", T(2)}}, {{2, 3, 5}}});
    CHECK_THROWS_WITH_AS(operator_check({"torch.nn.functional.group_norm", {{4, 6}}, {T(0), number(4)}, {}, {{4, 6}}}, 1),
                         "operator 'op', argument 'num_groups': is 4, expected a divisor of 6 channels", input_error);
}
