// SPDX-License-Identifier: BSL-1.0
#include <heddle/cost/step.hpp>

#include <heddle/program/program.hpp>

#include <doctest/doctest.h>

namespace {

using namespace heddle;

/// What is stored of a parameter of 12 elements, read whole.
double stored_bytes(element_type type, training_options const& training) {
    program_builder b;
    auto const x = b.input("x", {2, 4}, type);
    auto const w = b.parameter("w", {3, 4}, type);
    auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w});
    auto const p = index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {y})));
    return make_step(p, instruction::read(w, tensor_form::replicated()), training).stored.whole.value;
}

} // namespace

TEST_CASE(
    "the optimiser's state of a parameter in half precision has a float32 copy of it, unless that is switched off") {
    for (auto const half : {element_type::bfloat16, element_type::float16}) {
        CHECK(stored_bytes(half, {}) == 12 * (2 + 2 + 8 + 4)); // value, gradient, two moments, master weights
        CHECK(stored_bytes(half, {.keeps_master_weights = false}) == 12 * (2 + 2 + 8));
        CHECK(stored_bytes(half, {.optimizer_bytes_per_element = 0}) == 12 * (2 + 2 + 4));
    }
    CHECK(stored_bytes(element_type::float32, {}) == 12 * (4 + 4 + 8));
    CHECK(stored_bytes(element_type::float64, {}) == 12 * (8 + 8 + 8));
}
