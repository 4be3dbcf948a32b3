// SPDX-License-Identifier: BSL-1.0
#include <heddle/metis/all.hpp>

#include <heddle/program/program.hpp>

#include <doctest/doctest.h>

#include <numeric>
#include <string>

using namespace heddle;

namespace {

/// Layers in a row: a wide product, then an element-wise function.
program layers(int count) {
    program_builder b;
    auto x = b.input("x", {64, 256});
    for (int n = 0; n < count; ++n) {
        auto const w = b.parameter("layers." + std::to_string(n) + ".weight", {256, 256});
        x = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, {.category = operator_class::matmul});
        x = b.apply("relu", "(b n) -> (b n)", {x}, {.category = operator_class::elementwise});
    }
    return b.finish(b.apply("sum", "(b n) -> (); 0", {x}));
}

} // namespace

TEST_CASE("equal layers in a row come apart into equal runs") {
    auto const p = layers(12);
    auto const segments = metis::segments(p, 4);
    REQUIRE(segments.size() == p.operator_count());
    std::vector<int> sizes(4);
    int boundaries = 0;
    for (std::size_t o = 0; o < segments.size(); ++o) {
        REQUIRE(segments[o] < 4);
        ++sizes[segments[o]];
        boundaries += o > 0 && segments[o] != segments[o - 1];
    }
    for (int size : sizes) CHECK((size >= 5 && size <= 8));
    CHECK(boundaries == 3);
    CHECK(segments == metis::segments(p, 4));
}

TEST_CASE("one segment and as many as operators are made, and more are refused") {
    auto const p = layers(2);
    CHECK(metis::segments(p, 1) == std::vector<segment_number>(5, 0));
    CHECK(metis::segments(p, 5).size() == 5);
    CHECK_THROWS_WITH_AS(static_cast<void>(metis::segments(p, 6)), doctest::Contains("at most 5, the operators"),
                         input_error);
    CHECK_THROWS_AS(static_cast<void>(metis::segments(p, 0)), input_error);
}
