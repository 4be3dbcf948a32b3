// SPDX-License-Identifier: BSL-1.0
#include <heddle/program/program.hpp>
#include <heddle/theory/batch.hpp>
#include <heddle/theory/batch_split.hpp>
#include <heddle/theory/micro_batch.hpp>
#include <heddle/theory/rescale.hpp>
#include <support/traced_program.hpp>

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

TEST_CASE("labels that a loss needs whole are whole in every part, in whatever shape") {
    program_builder b;
    auto const x = b.input("x", {8, 4}), y = b.input("y", {8, 1}, element_type::int64);
    auto const scores = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, b.parameter("w", {6, 4})});
    auto const flat = b.apply("view", "(b 1) -> (b); 0", {y}, {.is_view = true}),
               labels = b.apply("clone", "(b) -> (b); 0", {flat});
    auto const p = index_program(b.finish(b.apply("cross_entropy", "(b !c), (_) -> ()", {scores, labels})));
    auto const split = split_along_batch(p);
    CHECK(split.forms[scores].is_shard());
    for (auto whole : {y, flat, labels}) CHECK(split.forms[whole] == tensor_form::replicated());
    CHECK(split.forms[p.loss] == tensor_form::partial());
    CHECK(find_batch_split(p, batch_of_inputs(p)).obstacle); // a part that has no other labels
}

TEST_CASE("the batch is found where a table is expanded to it, before any input is used") {
    program_builder b;
    auto const ids = b.input("ids", {8, 4}, element_type::int64);
    auto const positions = b.buffer("positions", {1, 4}, element_type::int64);
    auto const expanded = b.apply("expand", "(1 s) -> (b s); 0", {positions}, {.results = {{8, 4}}, .is_view = true}),
               copied = b.apply("clone", "(b s) -> (b s); 0", {expanded});
    char const* const lookup = "(b s), (v d) -> (b s d); 1";
    auto const places = b.apply("embedding", lookup, {copied, b.parameter("places", {4, 6})}),
               tokens = b.apply("embedding", lookup, {ids, b.parameter("tokens", {9, 6})});
    auto const sum = b.apply("add", "(b s d), (b s d) -> (b s d); 0 + 1", {tokens, places});
    auto const p = index_program(b.finish(b.apply("sum", "(b s d) -> (); 0", {sum})));
    auto const batch = batch_factors(p);
    for (auto t : {ids, expanded, copied, places, tokens, sum}) CHECK(batch.first_of(t) == 0);
    CHECK(batch.first_of(positions) == no_factor);
}

TEST_CASE("a batch that is taken apart into halves is cut within each") {
    test::traced_program t;
    auto const y = t.linear(t.builder.input("x", {8, 4}), "w", 4);
    auto const halves = t.calls("chunk", {test::T(y), test::number(2)}, {{4, 4}, {4, 4}}, {{"dim", test::number(0)}});
    auto const sum = t.call("operator.mul", {test::T(halves[0]), test::T(halves[1])}, {4, 4});
    auto const made = t.builder.finish(t.call("torch.sum", {test::T(sum)}, {}));
    auto const p = index_program(made);
    CHECK(batch_size_of(p) == 8);
    auto const batch = batch_factors(p);
    for (auto h : {y, halves[0], halves[1], sum})
        CHECK(p.tensors[h].factors[static_cast<std::size_t>(batch.first_of(h))].extent == 4);
    CHECK(split_along_batch(p).forms[p.loss] == tensor_form::partial());
    auto const larger = with_batch_size(made, 24);
    CHECK(larger.tensor(y).shape == tensor_shape{24, 4});
    CHECK(larger.tensor(halves[0]).shape == tensor_shape{12, 4});
    CHECK(micro_batch_of(made, 2).tensor(sum).shape == tensor_shape{2, 4});
}
