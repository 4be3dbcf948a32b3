// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs with many tensors in use at once: branches side by side, tensors used in all layers. Every one has a
/// bound.
#include <heddle/clp/all.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/synthesis/global_bound.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace heddle;

namespace {

operator_options const matmul{.category = operator_class::matmul};
operator_options const elementwise{.category = operator_class::elementwise};

tensor_id linear(program_builder& b, tensor_id x, extent from, extent to, std::string const& name) {
    return b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, b.parameter(name, {to, from})}, matmul);
}
tensor_id relu(program_builder& b, tensor_id x) {
    auto saves = elementwise;
    saves.saved_results = {0};
    return b.apply("relu", "(b n) -> (b n)", {x}, saves);
}
tensor_id sum_of(program_builder& b, std::vector<tensor_id> const& terms) {
    std::string rule, sum;
    for (std::size_t n = 0; n < terms.size(); ++n) {
        rule += n == 0 ? "(b n)" : ", (b n)";
        sum += (n == 0 ? "" : " + ") + std::to_string(n);
    }
    return b.apply("add", rule + " -> (b n); " + sum, terms, elementwise);
}
program finished(program_builder& b, tensor_id y) { return b.finish(b.apply("sum", "(b n) -> (); 0", {y})); }

/// Branches from inputs of their own to one sum.
program side_by_side(int branches) {
    program_builder b;
    std::vector<tensor_id> ends;
    for (int n = 0; n < branches; ++n) {
        auto const name = std::to_string(n);
        ends.push_back(relu(b, linear(b, b.input("x" + name, {4096, 512}), 512, 256, "w" + name)));
    }
    return finished(b, linear(b, sum_of(b, ends), 256, 256, "head"));
}

/// Each layer reads the sum of all before it.
program dense_block(int layers) {
    program_builder b;
    std::vector<tensor_id> made{linear(b, b.input("x", {4096, 256}), 256, 256, "stem")};
    for (int n = 0; n < layers; ++n) {
        auto const all = made.size() == 1 ? made[0] : sum_of(b, made);
        made.push_back(relu(b, linear(b, all, 256, 256, "w" + std::to_string(n))));
    }
    return finished(b, sum_of(b, made));
}

/// A recurrence, unrolled: steps share their parameters, and the sum takes what each leaves.
program unrolled(int steps) {
    program_builder b;
    auto const w = b.parameter("w", {512, 512}), u = b.parameter("u", {512, 512});
    auto const rule = "(b k), (n k) -> (b n); 0*1";
    auto h = b.apply("linear", rule, {b.input("h", {4096, 512}), w}, matmul);
    std::vector<tensor_id> left;
    for (int n = 0; n < steps; ++n) {
        auto const x = b.apply("linear", rule, {b.input("x" + std::to_string(n), {4096, 512}), u}, matmul);
        h = relu(b, sum_of(b, {b.apply("linear", rule, {h, w}, matmul), x}));
        left.push_back(h);
    }
    return finished(b, sum_of(b, left));
}

/// Layers that all use a table made from an input, and what the first layer leaves.
program shared_by_layers(int layers) {
    program_builder b;
    auto const table = b.apply("exp", "(b) -> (b)", {b.input("positions", {4096})}, elementwise);
    auto x = linear(b, b.input("x", {4096, 512}), 512, 512, "stem");
    auto const memory = x;
    for (int n = 0; n < layers; ++n) {
        auto const name = std::to_string(n);
        auto const q = linear(b, x, 512, 512, "q" + name), k = linear(b, x, 512, 512, "k" + name),
                   v = linear(b, memory, 512, 512, "v" + name);
        auto const turned = b.apply("turn", "(b n), (b) -> (b n); 0", {q, table}, elementwise);
        auto const mixed = b.apply("mix", "(b n), (b n), (b n) -> (b n); 0*1*2", {turned, k, v}, elementwise);
        x = sum_of(b, {x, linear(b, mixed, 512, 512, "o" + name)});
    }
    return finished(b, x);
}

cluster two_types() {
    cluster c;
    for (double speed : {12e12, 4e12})
        c.types.push_back({speed > 5e12 ? "fast" : "slow",
                           bytes(16e9),
                           bytes_per_second(speed / 15),
                           seconds(5e-6),
                           {{element_type::float32, {flops_per_second(speed)}}}});
    c.machines = {{0, 1, 2}, {1, 1, 2}};
    c.intra = c.inter = network_link{bytes_per_second(6e9), seconds(2e-5)};
    return c;
}

void check_bound(program const& made, double gap) {
    auto const p = plan_hap(made, two_types(), clp::ratio_solver{});
    REQUIRE(p.exists());
    auto const checked = verify(made, p);
    CHECK_MESSAGE(checked.valid, checked.problem);
    MESSAGE("cost " << p.cost() << ", bound " << p.lower_bound << ", gap " << 100 * (1 - p.lower_bound / p.cost())
                    << " %");
    CHECK(p.lower_bound >= (1 - gap) * p.cost());
    REQUIRE(p.global_lower_bound);
    CHECK(*p.global_lower_bound > 0.5 * p.cost());
}

} // namespace

TEST_CASE("branches side by side have a bound") {
    check_bound(side_by_side(8), 0.01);
    check_bound(side_by_side(24), 0.01);
}

TEST_CASE("densely connected layers have a bound") { check_bound(dense_block(8), 0.05); }

TEST_CASE("an unrolled recurrence has a bound") { check_bound(unrolled(12), 0.05); }

TEST_CASE("layers that share tensors have a bound") {
    check_bound(shared_by_layers(4), 0.05);
    check_bound(shared_by_layers(16), 0.05);
}
