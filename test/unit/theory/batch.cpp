// SPDX-License-Identifier: BSL-1.0
#include <heddle/program/program.hpp>
#include <heddle/theory/batch.hpp>

#include <doctest/doctest.h>

using namespace heddle;

TEST_CASE("groups split what has the batch, and run the rest whole") {
    program_builder b;
    auto const x = b.input("x", {8, 4});
    auto const w = b.parameter("w", {6, 4});
    auto const g = b.parameter("g", {8, 6});
    auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w});
    auto const z = b.apply("add", "(b n), (b n) -> (b n); 0 + 1", {y, g}); // a parameter with the batch is whole on all
    auto const s = b.apply("sum", "(b n) -> (n); 0", {y});
    auto const t = b.apply("sum", "(b n) -> (); 0", {z});
    auto const u = b.apply("sum", "(n) -> (); 0", {s});
    auto const loss = b.apply("add", "(), () -> (); 0 + 1", {t, u});
    auto indexed = index_program(b.finish(loss));
    CHECK_FALSE(indexed.is_split_inside);
    for (auto const& tensor : indexed.tensors) CHECK(tensor.inside == no_factor);
    split_inside(indexed);
    CHECK(indexed.is_split_inside);
    CHECK(indexed.tensors[x].inside == 0);
    CHECK(indexed.tensors[y].inside == 0);
    CHECK(indexed.tensors[z].inside == 0);
    for (auto whole : {w, g, s, t, u, loss}) CHECK(indexed.tensors[whole].inside == no_factor);
    auto const& ops = indexed.operators;
    CHECK(ops[0].inside_loop >= 0);
    CHECK(ops[1].inside_loop < 0);
    CHECK(ops[2].loops[static_cast<std::size_t>(ops[2].inside_loop)].is_reduction);
    CHECK(ops[3].inside_loop >= 0);
    CHECK(ops[4].inside_loop < 0);
    CHECK(ops[5].inside_loop < 0);
}

TEST_CASE("a reduction over the batch is split inside only where no term would be added once per device") {
    program_builder b;
    auto const x = b.input("x", {8, 6});
    auto const c = b.parameter("c", {6});
    auto const y = b.apply("sum plus", "(b n), (n) -> (n); 0 + 1", {x, c});
    auto indexed = index_program(b.finish(b.apply("sum", "(n) -> (); 0", {y})));
    split_inside(indexed);
    CHECK(indexed.tensors[x].inside == 0);
    CHECK(indexed.operators[0].inside_loop < 0);
}
