// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

#include <string>

using namespace heddle;
using namespace heddle::test;

TEST_CASE("reductions that are no sums are right") {
    for (char const* name : {"amax", "amin", "logsumexp", "prod", "var", "std"}) {
        CAPTURE(name);
        std::string const target = std::string("torch.") + name;
        check({target, {{4, 3, 5}}, {T(0), number(1)}, {}, {{4, 5}}});
        check({target, {{4, 3, 5}}, {T(0), ints({0, -1})}, {{"keepdim", flag(true)}}, {{1, 3, 1}}});
    }
    for (char const* target : {"torch.var_mean", "torch.std_mean"}) {
        check({target, {{4, 3, 5}}, {T(0), number(1)}, {}, {{4, 5}, {4, 5}}});
        check({target,
               {{4, 3, 5}},
               {T(0), ints({0, -1})},
               {{"keepdim", flag(true)}, {"correction", number(0)}},
               {{1, 3, 1}, {1, 3, 1}}});
    }
    operator_check both({"torch.var_mean", {{2}}, {T(0)}, {}, {{}, {}}}, 1);
    auto const pair = both.operands()[0].data;
    CHECK(both.results()[0][0] == doctest::Approx((pair[0] - pair[1]) * (pair[0] - pair[1]) / 2));
    CHECK(both.results()[1][0] == doctest::Approx((pair[0] + pair[1]) / 2));
    check({"torch.max", {{4, 3}}, {T(0)}, {}, {{}}});
    check({"torch.var", {{4, 3}}, {T(0), number(1)}, {{"unbiased", flag(false)}}, {{4}}});
    check({"norm", {{4, 3}}, {T(0), number(2), number(-1), flag(true)}, {}, {{4, 1}}});
    CHECK_THROWS_AS(operator_check({"norm", {{4, 3}}, {T(0), number(1), number(-1)}, {}, {{4}}, {}, {}, true}, 1),
                    input_error);
    for (std::int64_t dim : {0, 1, 2}) check({"torch.cumsum", {{4, 3, 5}}, {T(0), number(dim)}, {}, {{4, 3, 5}}});
    operator_check sums({"torch.cumsum", {{3}}, {T(0), number(0)}, {}, {{3}}}, 1);
    auto const x = sums.operands()[0].data;
    CHECK(sums.results()[0].data == std::vector<double>{x[0], x[0] + x[1], x[0] + x[1] + x[2]});
    operator_check of_sample({"torch.var", {{3}}, {T(0), number(0)}, {}, {{}}}, 1);
    auto const y = of_sample.operands()[0].data;
    double const mean = (y[0] + y[1] + y[2]) / 3;
    CHECK(of_sample.results()[0][0] ==
          doctest::Approx(
              ((y[0] - mean) * (y[0] - mean) + (y[1] - mean) * (y[1] - mean) + (y[2] - mean) * (y[2] - mean)) / 2));
}
