// SPDX-License-Identifier: BSL-1.0
// Programs and clusters that planners have stumbled over.
#include <heddle/clp/all.hpp>
#include <heddle/heddle.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

using namespace heddle;

cluster two_devices(double first_memory, double second_memory) {
    cluster c;
    for (double memory : {first_memory, second_memory})
        c.types.push_back({"of " + std::to_string(memory), bytes(memory), bytes_per_second(600e9), seconds(0), {{element_type::float32, {flops_per_second(8e12)}}}});
    c.machines = {{0, 1, 1}, {1, 1, 1}};
    c.inter = network_link{bytes_per_second(3e9), seconds(2e-5)};
    return c;
}

} // namespace

TEST_CASE("one parameter as two operands is read once") {
    program_builder b;
    auto const w = b.parameter("w", {4096, 4096});
    auto const p = b.finish(b.apply("sum", "(i j) -> (); 0", {b.apply("gram", "(i !k), (j !k) -> (i j); 0*1", {w, w})}));
    auto const made = find_plan(p, two_devices(16e9, 16e9), clp::ratio_solver{});
    REQUIRE(made.exists());
    auto const checked = verify(p, made);
    INFO(checked.problem);
    CHECK(checked);
}

TEST_CASE("a device too small for its part gets none") {
    program_builder b;
    auto h = b.input("x", {65536, 1024});
    for (int l = 0; l < 20; ++l) {
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, b.parameter("w" + std::to_string(l), {1024, 1024})}, {.category = operator_class::matmul});
        h = b.apply("relu", "(b n) -> (b n)", {h}, {.saved_results = {0}});
    }
    auto const p = b.finish(b.apply("sum", "(b n) -> (); 0", {h}));
    auto const made = find_plan(p, two_devices(16e9, 0.2e9), clp::ratio_solver{});
    INFO(made.reason);
    REQUIRE(made.exists());
    CHECK(verify(p, made));
    CHECK(made.memory[1].total() <= 0.2e9);
}

TEST_CASE("an operator of many parameters is planned without trying all ways to bring them") {
    program_builder b;
    std::vector<tensor_id> parts;
    std::string rule, terms;
    for (int n = 0; n < 40; ++n) {
        parts.push_back(b.parameter("w" + std::to_string(n), {8, 8}));
        rule += n ? ", (i j)" : "(i j)";
        terms += (n ? " + " : "") + std::to_string(n);
    }
    auto const p = b.finish(b.apply("sum", "(i j) -> (); 0", {b.apply("add_all", rule + " -> (i j); " + terms, parts)}));
    auto const made = find_plan(p, two_devices(16e9, 16e9), clp::ratio_solver{});
    REQUIRE(made.exists());
    CHECK(verify(p, made));
    CHECK_FALSE(made.warnings.empty()); // and it says that it did not try them all
}
