// SPDX-License-Identifier: BSL-1.0
#include <heddle/program/program.hpp>

#include <support/errors.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace heddle;

namespace {

using numbers = std::vector<std::uint8_t>;

} // namespace

TEST_CASE("the builder derives shapes, flops and what the backward reads") {
    program_builder b;
    auto const x = b.input("x", {8, 4});
    auto const w = b.parameter("w", {3, 4});
    auto const bias = b.parameter("bias", {3});
    auto const y = b.apply("linear", "(b k), (n k), (n) -> (b n); 0*1 + 2", {x, w, bias});
    auto const z = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {y, b.parameter("v", {5, 3})});
    auto const p = b.finish(b.apply("sum", "(b n) -> (); 0", {z}));

    CHECK(p.tensor(y).shape == tensor_shape{8, 3});
    CHECK(p.tensor(p.loss()).shape.empty());
    auto const& first = p.work(0); // x has no derivative: only the gradient of w, which needs x
    CHECK(first.forward.value == 2 * 8 * 4 * 3);
    CHECK(first.backward.value == first.forward.value);
    CHECK(first.saved_operands == numbers{0});
    auto const& second = p.work(1); // gradients of y and of v
    CHECK(second.forward.value == 2 * 8 * 3 * 5);
    CHECK(second.backward.value == 2 * second.forward.value);
    CHECK(second.saved_operands == numbers{0, 1});
    CHECK(p.work(2).forward.value == 8 * 5);
    CHECK(p.work(2).saved_operands.empty());
}

TEST_CASE("what depends on no trained parameter has no backward") {
    program_builder b;
    auto const frozen = b.parameter("frozen", {4}, element_type::float32, false);
    auto const h = b.apply("mul", "(b d), (d) -> (b d); 0*1", {b.input("x", {8, 4}), frozen},
                           {.extra_saved = bytes(100), .saved_results = {0}});
    auto const y = b.apply("mul", "(b d), (d) -> (b d); 0*1", {h, b.parameter("w", {4})});
    auto const p = b.finish(b.apply("sum", "(b d) -> (); 0", {y}));
    CHECK(p.work(0).backward.value == 0);
    CHECK(p.work(0).saved_operands.empty());
    CHECK(p.work(0).saved_results.empty());
    CHECK(p.work(0).extra_saved.value == 0);
    CHECK(p.work(1).saved_operands == numbers{0});
}

TEST_CASE("what the loss does not need is left out and the rest renumbered") {
    program_builder b;
    static_cast<void>(b.input("unused", {2}));
    auto const w = b.parameter("w", {4});
    static_cast<void>(b.apply("dead", "(d) -> (d); 0", {w}));
    auto const p = b.finish(b.apply("sum", "(d) -> (); 0", {w}, {.name = "total"}));
    REQUIRE(p.tensor_count() == 2);
    REQUIRE(p.operator_count() == 1);
    CHECK(p.tensor(0).name == "w");
    CHECK(p.name(0) == "total");
    CHECK(p.operands(0)[0] == 0);
    CHECK(p.loss() == 1);
}

TEST_CASE("an operator has several results, of its operands' type or another") {
    program_builder b;
    auto const x = b.parameter("x", {4, 6}, element_type::float16);
    auto const parts = b.apply_multi("chunk", parse_index_rule("(b _) -> (b _), (b _); 0"), {x},
                                     {.name = "parts", .results = {{4, 3}, {4, 3}}});
    REQUIRE(parts.size() == 2);
    CHECK(b.tensor(parts[1]).name == "parts.1");
    CHECK(b.tensor(parts[1]).type == element_type::float16);
    auto const wide = b.apply("to", "(b d) -> (b d); 0", {parts[0]}, {.result_type = element_type::float32});
    CHECK(b.tensor(wide).type == element_type::float32);
    CHECK(b.tensor(wide).size().value == 4 * 3 * 4);
}

TEST_CASE("the builder refuses what contradicts itself, by name") {
    program_builder b;
    auto const x = b.input("x", {8, 4});
    auto const w = b.parameter("w", {8, 4});
    CHECK(test::error_of([&] { static_cast<void>(b.input("empty", {8, 0})); }).find("tensor 'empty': extent 0") !=
          std::string::npos);
    CHECK(test::error_of([&] {
              static_cast<void>(b.parameter("ids", {8}, element_type::int64));
          }).find("'ids': is trained but not of a floating-point type") != std::string::npos);
    CHECK(test::error_of([&] {
              static_cast<void>(b.apply("relu", "(b) -> (b)", {x}, {.name = "act"}));
          }).find("operator 'act': operand 0: has 2 dimensions") != std::string::npos);
    CHECK(test::error_of([&] {
              static_cast<void>(b.apply("relu", "(b) -> (b)", {99}));
          }).find("operand 99 is no tensor") != std::string::npos);
    CHECK(test::error_of([&] { static_cast<void>(b.finish(w)); }).find("loss 'w': has 32 elements, expected one") !=
          std::string::npos);
    auto const constant = b.apply("sum", "(b d) -> (); 0", {x});
    CHECK(test::error_of([&] { static_cast<void>(b.finish(constant)); }).find("depends on no trained parameter") !=
          std::string::npos);
}
