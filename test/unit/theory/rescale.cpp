// SPDX-License-Identifier: BSL-1.0
#include <heddle/program/program.hpp>
#include <heddle/theory/rescale.hpp>

#include <doctest/doctest.h>

#include <string>

namespace {

using namespace heddle;

program perceptron(extent batch, extent hidden) {
    program_builder b;
    auto const x = b.input("x", {batch, 6, 16}), y = b.input("y", {batch, 6}), w = b.parameter("w", {hidden, 16});
    auto const h = b.apply("linear", "(b s k), (n k) -> (b s n); 0*1", {x, w}, {.category = operator_class::matmul});
    auto const flat = b.apply("flatten", "(b s n) -> ((b s) n); 0", {h}, {.is_view = true});
    auto const soft = b.apply("softmax", "(r !n) -> (r !n)", {flat}, {.saved_results = {0}});
    auto const back = b.apply("unflatten", "((b s) n) -> (b s n); 0", {soft}, {.extents = {{"s", 6}}, .is_view = true});
    auto const scaled = b.apply("scale", "(b s n), (b s) -> (b s n); 0*1", {back, y});
    return b.finish(b.apply("sum", "(b s n) -> (); 0", {scaled}));
}

void check_equal(program const& a, program const& b) {
    REQUIRE(a.tensor_count() == b.tensor_count());
    for (tensor_id t = 0; t < a.tensor_count(); ++t) {
        CAPTURE(a.tensor(t).name);
        CHECK(a.tensor(t).shape == b.tensor(t).shape);
    }
    for (operator_id o = 0; o < a.operator_count(); ++o) {
        CAPTURE(std::string(a.name(o)));
        CHECK(a.work(o).forward.value == doctest::Approx(b.work(o).forward.value));
        CHECK(a.work(o).backward.value == doctest::Approx(b.work(o).backward.value));
    }
}

} // namespace

TEST_CASE("a program rescaled along its batch is the one built so") {
    for (extent batch : {1, 4, 10, 64}) {
        CAPTURE(batch);
        check_equal(rescaled(perceptron(10, 8), {{0, 0}, {1, 0}}, batch, 10), perceptron(batch, 8));
        check_equal(with_batch_size(perceptron(10, 8), batch), perceptron(batch, 8));
    }
}

TEST_CASE("other factors are scaled with what rules tie to them") {
    auto const p = perceptron(10, 8);
    check_equal(rescaled(p, {{2, 0}}, 3, 2), perceptron(10, 12));
    check_equal(rescaled(p, {}, 3), p);
}

TEST_CASE("what cannot be scaled is said by name") {
    auto const p = perceptron(10, 8);
    CHECK_THROWS_WITH_AS((void)rescaled(p, {{2, 0}}, 1, 3), doctest::Contains("index 'n'"), input_error);
    CHECK_THROWS_WITH_AS((void)with_batch_size(p, 0), doctest::Contains("expected one at least"), input_error);
    program_builder b;
    auto const w = b.parameter("w", {});
    CHECK_THROWS_WITH_AS((void)with_batch_size(b.finish(b.apply("relu", "() -> ()", {w})), 2),
                         doctest::Contains("no input has one of two or more samples, expected"), input_error);
}
