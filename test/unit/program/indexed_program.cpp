// SPDX-License-Identifier: BSL-1.0
#include "loops.hpp"

#include <heddle/program/operators.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace heddle;

namespace {

/// Factors of a tensor as `dimension:extent*stride`.
std::string factors(indexed_program const& p, tensor_id t) {
    std::string text;
    for (auto const& f : p.tensors[t].factors)
        text += (text.empty() ? "" : " ") + std::to_string(f.dimension) + ":" + std::to_string(f.extent) + "*" +
                std::to_string(f.stride);
    return text;
}

} // namespace

TEST_CASE("a dimension without ties is one factor; an extent of one is none") {
    program_builder b;
    auto const w = b.parameter("w", {8, 1, 4});
    auto const p = index_program(b.finish(b.apply("sum", "(a 1 c) -> (); 0", {w})));
    CHECK(factors(p, w) == "0:8*1 2:4*1");
    CHECK(loops(p, 0) == "4+ 0:1 ->\n8+ 0:0 ->\n");
    CHECK(p.tensors[w].consumers == std::vector<operator_id>{0});
    CHECK(p.tensors[p.loss].has_cotangent);
}

TEST_CASE("unequal pieces have a factor of shares, and so has what runs along them") {
    // Four groups of two heads of queries and one of keys.
    auto const split_of = [](extent query_groups) {
        program_builder b;
        auto const x = b.parameter("x", {5, 6}), w = b.parameter("w", {36, 6});
        auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w});
        auto const parts = b.apply_multi("split", parse_index_rule("(b [q k]) -> (b q), (b k); 0"), {y},
                                         {.results = {{5, 24}, {5, 12}}, .is_view = true});
        auto const q = b.apply("view", "(b (g d)) -> (b g d); 0", {parts[0]}, {.extents = {{"g", query_groups}}});
        auto const k = b.apply("view", "(b (g d)) -> (b g d); 0", {parts[1]}, {.extents = {{"g", 4}}});
        return index_program(b.finish(b.apply("sum", "(b g d), (b h e) -> (); 0 + 1", {q, k})));
    };
    auto const p = split_of(4);
    factor const rows{.dimension = 0, .extent = 4, .stride = 9, .widths = {6, 3}};
    CHECK(p.tensors[1].factors == std::vector<factor>{{0, 36, 1}, {1, 6, 1}, rows});
    CHECK(loops(p, 0) == "36 1:0 -> 0:1\n4 1:2 -> 0:2\n5 0:0 -> 0:0\n6+ 0:1 1:1 ->\n");
    CHECK(loops(p, 1) == "4 0:2 -> 0:1 1:1\n5 0:0 -> 0:0 1:0\n");
    CHECK_FALSE(p.tensors[1].is_contiguous[2]);
    CHECK(factors(split_of(8), 1) == "0:36*1 1:6*1"); // groups of which the keys know nothing
}

TEST_CASE("only what the loss is differentiated by has a backward pass") {
    program_builder b;
    auto const x = b.parameter("x", {4}), encoder = b.parameter("encoder", {4});
    auto const code = b.apply("mul", "(i), (i) -> (i); 0*1", {x, encoder});
    auto const target = b.apply("detach", "(i) -> (i); 0", {code}, {.is_view = true, .stops_gradient = true});
    auto const p = index_program(b.finish(b.apply("dot", "(i), (i) -> (); 0*1", {x, target})));
    CHECK(p.tensors[x].has_cotangent);
    for (auto t : {encoder, code, target}) CHECK_FALSE(p.tensors[t].has_cotangent);
    CHECK(p.operators[0].work.forward.value > 0);
    CHECK(p.operators[0].work.backward.value == 0);
    CHECK(p.operators[0].work.saved_operands.empty());
    CHECK(p.operators[2].work.saved_operands == std::vector<std::uint8_t>{1});
}

TEST_CASE("flatten passes its factors on to the weight behind it") {
    program_builder b;
    auto const x = b.parameter("x", {2, 3, 5, 7});
    auto const flat = b.apply("flatten", "(b c h w) -> (b (c h w)); 0", {x}, {.is_view = true});
    auto const w = b.parameter("w", {4, 105});
    auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {flat, w});
    auto const p = index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {y})));
    CHECK(factors(p, flat) == "0:2*1 1:3*35 1:5*7 1:7*1");
    CHECK(factors(p, w) == "0:4*1 1:3*35 1:5*7 1:7*1");
    // Each factor of k is a loop of its own: channels stay cut through flatten and linear.
    CHECK(loops(p, 1) == "2 0:0 -> 0:0\n3+ 0:1 1:1 ->\n4 1:0 -> 0:1\n5+ 0:2 1:2 ->\n7+ 0:3 1:3 ->\n");
}

TEST_CASE("factorisations without common refinement keep the major factor alone") {
    program_builder b;
    auto const x = b.parameter("x", {24});
    auto const six = b.apply("view", "((a c)) -> (a c); 0", {x}, {.results = {{6, 4}}, .is_view = true});
    auto const eight = b.apply("view", "((a c)) -> (a c); 0", {x}, {.results = {{8, 3}}, .is_view = true});
    auto const u = b.apply("sum", "(a c) -> (); 0", {six});
    auto const v = b.apply("sum", "(a c) -> (); 0", {eight});
    auto const p = index_program(b.finish(b.apply("add", "(), () -> (); 0 + 1", {u, v})));
    CHECK(factors(p, x) == "0:2*12 0:12*1");
    CHECK(loops(p, 0) == "2 0:0 -> 0:0\n");
    CHECK(loops(p, 1) == "2 0:0 -> 0:0\n");
}

TEST_CASE("operators beside factorisations without common refinement are split along all factors that are left") {
    program_builder b;
    auto const x = b.apply("relu", "(k) -> (k)", {b.parameter("x", {24})});
    auto const six = b.apply("view", "((a c)) -> (a c); 0", {x}, {.results = {{6, 4}}, .is_view = true});
    auto const eight = b.apply("view", "((a c)) -> (a c); 0", {x}, {.results = {{8, 3}}, .is_view = true});
    auto const u = b.apply("sum", "(a c) -> (); 0", {six});
    auto const v = b.apply("sum", "(a c) -> (); 0", {eight});
    auto const p = index_program(b.finish(b.apply("add", "(), () -> (); 0 + 1", {u, v})));
    CHECK(loops(p, 0) == "12 0:1 -> 0:1\n2 0:0 -> 0:0\n");
    CHECK(loops(p, 1) == "2 0:0 -> 0:0\n");
}

TEST_CASE("a refinement travels through a chain of operators") {
    program_builder b;
    auto const x = b.parameter("x", {2, 12});
    auto const h = b.apply("relu", "(b k) -> (b k)", {x});
    auto const split = b.apply("view", "(b (h d)) -> (b h d); 0", {h}, {.results = {{2, 3, 4}}, .is_view = true});
    auto const p = index_program(b.finish(b.apply("sum", "(b h d) -> (); 0", {split})));
    CHECK(factors(p, x) == "0:2*1 1:3*4 1:4*1");
    CHECK(loops(p, 0) == "2 0:0 -> 0:0\n3 0:1 -> 0:1\n4 0:2 -> 0:2\n");
}

TEST_CASE("an index that an operand has twice is no loop") {
    program_builder b;
    auto const x = b.parameter("x", {5, 5});
    auto const d = b.apply("diagonal", "(i i) -> (i); 0", {x});
    auto const p = index_program(b.finish(b.apply("sum", "(i) -> (); 0", {d})));
    CHECK(loops(p, 0).empty());
}
