// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

using namespace heddle;
using namespace heddle::test;

TEST_CASE("bags of embeddings take sums, means, factors and padding") {
    auto const bags = [](char const* mode) {
        return operator_case{"torch.nn.functional.embedding_bag",
                             {{4, 3}, {6, 2}},
                             {T(0), T(1)},
                             {{"mode", text(mode)}},
                             {{4, 2}},
                             {{0, domain::below(6)}}};
    };
    for (char const* mode : {"sum", "mean"}) {
        CAPTURE(mode);
        check(bags(mode));
        auto padded = bags(mode);
        padded.keywords["padding_idx"] = number(-5);
        check(padded);
        padded.domains[0] = {1, 2, element_type::int64}; // nothing counts
        operator_check const none(padded, 1);
        CHECK(none.results()[0].data == std::vector<double>(8, 0.0));
    }
    auto weighted = bags("sum");
    weighted.operands.push_back({4, 3});
    weighted.keywords["per_sample_weights"] = T(2);
    check(weighted);
    auto largest = bags("max");
    largest.is_blocked = true;
    CHECK_THROWS_AS(operator_check(largest, 1), input_error);
}

TEST_CASE("elements take the place of others") {
    operator_case c{"torch.scatter", {{4, 5}, {4, 3}, {4, 3}}, {T(0), number(1), T(1), T(2)}, {},
                    {{4, 5}},        {{1, domain::below(5)}}};
    check(c);
    for (double value : {0.0, 1.5})
        check({"scatter",
               {{4, 3, 2}, {5, 3, 2}},
               {T(0), number(0), T(1), real(value)},
               {},
               {{4, 3, 2}},
               {{1, domain::below(4)}}});
    c.domains[1] = {2, 3, element_type::int64}; // all the same place
    operator_check same(c, 1);
    for (extent n = 0; n < 4; ++n)
        for (extent place = 0; place < 5; ++place)
            CHECK(same.results()[0][n * 5 + place] ==
                  (place == 2 ? same.operands()[2][n * 3 + 2] : same.operands()[0][n * 5 + place]));
}

TEST_CASE("channels become pixels, and pixels channels") {
    check({"torch.pixel_shuffle", {{3, 8, 2, 3}}, {T(0), number(2)}, {}, {{3, 2, 4, 6}}});
    check({"torch.pixel_shuffle", {{9, 2, 1}}, {T(0), number(3)}, {}, {{1, 6, 3}}});
    check({"torch.pixel_unshuffle", {{3, 2, 4, 6}}, {T(0), number(2)}, {}, {{3, 8, 2, 3}}});
    operator_check fine({"torch.pixel_shuffle", {{4, 1, 2}}, {T(0), number(2)}, {}, {{1, 2, 4}}}, 1);
    auto const x = fine.operands()[0].data;
    CHECK(fine.results()[0].data == std::vector<double>{x[0], x[2], x[1], x[3], x[4], x[6], x[5], x[7]});
}

TEST_CASE("diagonals are right") {
    check({"torch.diagonal", {{4, 4, 3}}, {T(0)}, {}, {{3, 4}}});
    for (std::int64_t offset : {-2, 0, 1}) {
        extent const count = offset == 0 ? 4 : offset == 1 ? 3 : 2;
        check({"diagonal", {{5, 4, 2, 4}}, {T(0), number(offset), number(-1), number(1)}, {}, {{5, 2, count}}});
    }
    operator_check below({"torch.diagonal", {{3, 2}}, {T(0), number(-1)}, {}, {{2}}}, 1);
    auto const x = below.operands()[0].data;
    CHECK(below.results()[0].data == std::vector<double>{x[2], x[5]});
}
