// SPDX-License-Identifier: BSL-1.0
#include <heddle/program/axioms.hpp>
#include <heddle/theory/batch_split.hpp>
#include <heddle/theory/micro_batch.hpp>
#include <heddle/theory/rescale.hpp>
#include <heddle/theory/whole_inputs.hpp>
#include <support/decoder.hpp>
#include <support/errors.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

using namespace heddle;

namespace {

tensor_id tensor_of(program const& p, std::string const& name) {
    for (tensor_id t = 0; t < p.tensor_count(); ++t)
        if (p.tensor(t).name == name) return t;
    FAIL(name << " is not there");
    return 0;
}

/// Tells whether nothing prevents micro-batches.
bool can_be_divided(program const& p) {
    auto const [statistic, operation] = obstacles_to_micro_batches(index_program(p));
    return !statistic && !operation;
}

} // namespace

TEST_CASE("labels that are the tokens are two inputs: each part of the batch has its tokens, and all labels") {
    auto const p = test::decoder({.batch = 8, .length = 3});
    auto const tokens = tensor_of(p, "tokens"), labels = tensor_of(p, "tokens.whole");
    CHECK(p.tensor(tokens).whole_of == "");
    CHECK(p.tensor(labels).whole_of == "tokens");
    CHECK(p.data_of(labels) == tokens);
    CHECK(p.data_of(tokens) == tokens);
    CHECK(broken_axioms(p).empty());
    CHECK(can_be_divided(p));
    auto const indexed = index_program(p);
    CHECK(batch_of_inputs(indexed) == std::vector<cut_factor>{{tokens, 0}});
    CHECK(batch_of_inputs(indexed, true) == std::vector<cut_factor>{{tokens, 0}, {labels, 0}});
    CHECK(batch_factors(indexed).first_of(labels) == no_factor);

    auto const part = micro_batch_of(p, 4);
    CHECK(part.tensor(tokens).shape == tensor_shape{2, 3});
    CHECK(part.tensor(labels).shape == tensor_shape{8, 3});
    auto const larger = with_batch_size(p, 16);
    CHECK(larger.tensor(tokens).shape == tensor_shape{16, 3});
    CHECK(larger.tensor(labels).shape == tensor_shape{16, 3});
    CHECK(can_be_divided(larger));
}

TEST_CASE("labels of their own are one input, which is whole") {
    auto const p = test::decoder({.has_labels_of_tokens = false});
    auto const labels = tensor_of(p, "labels");
    CHECK(p.tensor(labels).whole_of == "labels");
    CHECK(p.data_of(labels) == labels);
    CHECK(can_be_divided(p));
    CHECK(micro_batch_of(p, 2).tensor(labels).shape == tensor_shape{4, 3});
}

TEST_CASE("programs stay as they are where whole inputs do not help, or nothing needs them") {
    test::traced_program t;
    auto const x = t.builder.input("x", {8, 4});
    auto const y = t.linear(x, "w", 4);
    auto const made = t.builder.finish(t.call("torch.sum", {test::T(y)}, {}));
    auto const same = with_whole_inputs(made);
    CHECK(same.tensor_count() == made.tensor_count());
    CHECK(same.tensor(x).whole_of == "");

    // Each row of the loss is weighed by all rows: a product with sums over the batch has no parts.
    program_builder b;
    auto const z = b.input("z", {4, 3});
    auto const v = b.apply("mul", "(b n), (n) -> (b n); 0*1", {z, b.parameter("v", {3})});
    auto const s = b.apply("sum", "(b n) -> (n); 0", {v});
    auto const q = b.apply("mul", "(n), (n) -> (n); 0*1", {s, s});
    auto const none = with_whole_inputs(b.finish(b.apply("sum", "(n) -> (); 0", {q})));
    CHECK_FALSE(can_be_divided(none));
    for (tensor_id n = 0; n < none.tensor_count(); ++n) CHECK(none.tensor(n).whole_of == "");
}

TEST_CASE("an input that is said to be whole and is tied to the batch is an obstacle") {
    program_builder b;
    auto const x = b.input("x", {4, 3}), w = b.parameter("w", {3});
    auto const y = b.apply("mul", "(b n), (n) -> (b n); 0*1", {x, w});
    auto const mask = b.source({.name = "mask", .shape = {4, 3}, .role = tensor_role::input, .whole_of = "mask"});
    auto const z = b.apply("mul", "(b n), (b n) -> (b n); 0*1", {y, mask});
    auto const p = b.finish(b.apply("sum", "(b n) -> (); 0", {z}));
    CHECK(obstacles_to_micro_batches(index_program(p)).operation == std::optional<operator_id>(1));
    CHECK(test::error_of([&] {
              program_builder c;
              c.source({.name = "p", .shape = {2}, .role = tensor_role::parameter, .whole_of = "p"});
          }) == "tensor 'p': is whole in every part of the batch, expected so of inputs that are not differentiated");
}
