// SPDX-License-Identifier: BSL-1.0
// Segments with ratios of their own: who has which, what they cost, and that planning with them is never worse.
#include <heddle/plan/verify.hpp>
#include <heddle/program/program.hpp>
#include <heddle/synthesis/segments.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

using namespace heddle;

/// A perceptron with a layer of products and one that only moves bytes.
program two_kinds() {
    program_builder b;
    auto const x = b.input("x", {512, 1024});
    auto const w = b.parameter("layers.0.weight", {4096, 1024}), g = b.parameter("layers.1.scale", {4096});
    auto h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, {.category = operator_class::matmul});
    for (int n = 0; n < 6; ++n)
        h = b.apply("scale", "(b n), (n) -> (b n); 0*1", {h, g}, {.category = operator_class::elementwise});
    return b.finish(b.apply("sum", "(b n) -> (); 0", {h}));
}

} // namespace

TEST_CASE("layers are told by the names of parameters") {
    CHECK(segments_by_layer(two_kinds()) == std::vector<segment_number>{0, 1, 1, 1, 1, 1, 1, 1});
    program_builder b;
    auto const x = b.input("x", {8, 8});
    auto h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, b.parameter("stem.weight", {8, 8})});
    for (std::string const name : {"encoder.layer_0.w", "encoder.layer_0.v", "encoder.layer_1.w", "head.w"})
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, b.parameter(name, {8, 8})});
    auto const p = b.finish(b.apply("sum", "(b n) -> (); 0", {h}));
    CHECK(segments_by_layer(p) == std::vector<segment_number>{0, 0, 0, 1, 1, 1}); // no digit in `stem` and `head`
}

TEST_CASE("segments begin at named operators") {
    auto const p = two_kinds();
    CHECK(segments_from(p, {p.name(1), p.name(7)}) == std::vector<segment_number>{0, 1, 1, 1, 1, 1, 1, 2});
    CHECK(segments_from(p, {p.name(0)}) == std::vector<segment_number>(8, 0));
    CHECK_THROWS_WITH_AS((void)segments_from(p, {"none"}), doctest::Contains("no operator 'none'"), input_error);
    CHECK(numbered_in_order({7, 3, 7, 9}) == std::vector<segment_number>{0, 1, 0, 2});
}

TEST_CASE("a tensor that two segments touch has its factors twice; verification knows of segments") {
    auto const p = two_kinds();
    std::vector<segment_number> const segments{0, 1, 1, 1, 1, 1, 1, 1};
    auto const indexed = index_program(p, segments);
    CHECK(segment_count(indexed) == 2);
    tensor_id const between = p.results(0)[0];
    REQUIRE(indexed.tensors[between].factors.size() == 4);
    for (std::size_t f = 0; f < 2; ++f) {
        CHECK(is_same_place(indexed.tensors[between].factors[f], indexed.tensors[between].factors[f + 2]));
        CHECK(indexed.tensors[between].factors[f].segment == 0);
        CHECK(indexed.tensors[between].factors[f + 2].segment == 1);
    }
    CHECK_THROWS_WITH_AS((void)index_program(p, std::vector<segment_number>{0, 1}),
                         doctest::Contains("expected one for each of 8 operators"), input_error);
}
