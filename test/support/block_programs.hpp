// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs of repeated blocks, for tests of what cuts programs into layers.
#pragma once

#include <heddle/program/program.hpp>

#include <string>

namespace heddle::test {

/// A linear stem, then blocks `blocks.N` of two linear operators with a relu between and a residual sum, then a linear
/// head and the sum: 1 + 4 n + 2 operators. With `skips`, the stem's result is also added before the head.
[[nodiscard]] inline program residual_blocks(extent batch, extent width, int blocks, bool skips = false) {
    program_builder b;
    char const* const linear = "(b k), (n k) -> (b n); 0*1";
    operator_options matmul{.category = operator_class::matmul}, elementwise{.category = operator_class::elementwise};
    auto relu = elementwise;
    relu.saved_results = {0};
    auto x =
        b.apply("linear", linear, {b.input("x", {batch, width}), b.parameter("stem.weight", {width, width})}, matmul);
    auto const stem = x;
    for (int n = 0; n < blocks; ++n) {
        std::string const name = "blocks." + std::to_string(n);
        auto const inner = b.apply("linear", linear, {x, b.parameter(name + ".up.weight", {4 * width, width})}, matmul);
        auto const active = b.apply("relu", "(b n) -> (b n)", {inner}, relu);
        auto const outer =
            b.apply("linear", linear, {active, b.parameter(name + ".down.weight", {width, 4 * width})}, matmul);
        x = b.apply("add", "(b n), (b n) -> (b n); 0 + 1", {x, outer}, elementwise);
    }
    if (skips) x = b.apply("add", "(b n), (b n) -> (b n); 0 + 1", {x, stem}, elementwise);
    auto const y = b.apply("linear", linear, {x, b.parameter("head.weight", {3 * width, width})}, matmul);
    return b.finish(b.apply("sum", "(b n) -> (); 0", {y}, {.category = operator_class::reduction}));
}

} // namespace heddle::test
