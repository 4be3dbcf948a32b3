// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

using namespace heddle;
using namespace heddle::test;

namespace {

operator_case conv(shape x, shape w, shape y, std::vector<std::int64_t> stride, literal padding, std::vector<std::int64_t> dilation, std::int64_t groups, bool bias) {
    extent const out = w[0];
    std::string const target = "torch.conv" + std::to_string(x.size() - 2) + "d";
    operator_case c{target, {std::move(x), std::move(w)}, {T(0), T(1)}, {{"stride", ints(stride)}, {"padding", padding}, {"dilation", ints(dilation)}, {"groups", number(groups)}}, {std::move(y)}};
    if (bias) {
        c.operands.push_back({out});
        c.keywords["bias"] = T(2);
    }
    return c;
}

} // namespace

TEST_CASE("convolutions") {
    check(conv({2, 3, 7}, {4, 3, 3}, {2, 4, 4}, {2}, ints({1}), {1}, 1, true));
    check(conv({2, 3, 5, 6}, {2, 3, 3, 2}, {2, 2, 3, 5}, {2, 1}, ints({1, 0}), {1, 1}, 1, true));
    check(conv({1, 2, 5, 5}, {3, 2, 2, 2}, {1, 3, 3, 3}, {1, 1}, ints({0, 0}), {2, 2}, 1, false));
    check(conv({2, 6, 4, 4}, {6, 2, 3, 3}, {2, 6, 4, 4}, {1, 1}, number(1), {1, 1}, 3, true));
    check(conv({2, 4, 3, 3}, {8, 1, 2, 2}, {2, 8, 2, 2}, {1, 1}, number(0), {1, 1}, 4, true));
    check(conv({2, 2, 4, 4}, {3, 2, 3, 2}, {2, 3, 4, 4}, {1, 1}, text("same"), {1, 1}, 1, true));
    check(conv({2, 4, 3, 3, 2}, {4, 2, 2, 2, 1}, {2, 4, 2, 2, 2}, {1, 1, 1}, number(0), {1, 1, 1}, 2, true));
}

TEST_CASE("a convolution with one place is a product") {
    operator_check c(conv({1, 2, 1}, {1, 2, 1}, {1, 1, 1}, {1}, number(0), {1}, 1, true), 1);
    auto const& x = c.operands();
    CHECK(c.results()[0][0] == doctest::Approx(x[0][0] * x[1][0] + x[0][1] * x[1][1] + x[2][0]));
}

TEST_CASE("pools") {
    check({"torch.nn.functional.max_pool2d", {{2, 3, 6, 6}}, {T(0), number(2)}, {}, {{2, 3, 3, 3}}});
    check({"torch.nn.functional.max_pool2d", {{2, 3, 7, 7}}, {T(0), number(3), number(2), number(1)}, {}, {{2, 3, 4, 4}}});
    check({"torch.nn.functional.max_pool2d", {{3, 6, 5}}, {T(0), ints({2, 2}), ints({1, 1}), ints({0, 0}), ints({2, 1})}, {}, {{3, 4, 4}}});
    check({"torch.nn.functional.avg_pool2d", {{2, 3, 6, 6}}, {T(0), ints({3, 2}), number(1)}, {}, {{2, 3, 4, 5}}});
    check({"torch.nn.functional.avg_pool2d", {{2, 3, 6, 6}}, {T(0), number(3), number(2), number(1)}, {{"count_include_pad", flag(false)}}, {{2, 3, 3, 3}}});
    check({"torch.nn.functional.avg_pool2d", {{2, 3, 5, 5}}, {T(0), number(2)}, {{"ceil_mode", flag(true)}, {"divisor_override", number(3)}}, {{2, 3, 3, 3}}});
    for (extent side : {1, 2, 3, 7}) check({"torch.nn.functional.adaptive_avg_pool2d", {{2, 3, 7, 5}}, {T(0), number(side)}, {}, {{2, 3, side, side}}});
}
