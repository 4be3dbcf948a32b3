// SPDX-License-Identifier: BSL-1.0
// Data parallelism in every result with gradient overlap and without it, and which of the two a plan is compared with.
#include <heddle/clp/all.hpp>
#include <heddle/plan/table.hpp>
#include <heddle/planner/hap.hpp>
#include <support/random_programs.hpp>

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <utility>

using namespace heddle;

namespace {

std::string const with = ", with gradient overlap", without = ", without gradient overlap";

/// Three square layers.
program layers(extent batch, extent width) {
    program_builder b;
    auto h = b.input("x", {batch, width});
    for (auto const* name : {"w0", "w1", "w2"}) {
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, b.parameter(name, {width, width})},
                    {.category = operator_class::matmul});
        h = b.apply("relu", "(b n) -> (b n)", {h}, {.saved_results = {0}});
    }
    return b.finish(b.apply("sum", "(b n) -> (); 0", {h}));
}

/// The network is so slow that a large batch stays where it is.
cluster four_equal(double memory) {
    cluster c;
    c.types = {
        {"A", bytes(memory), bytes_per_second(1e12), seconds(0), {{element_type::float32, {flops_per_second(1e12)}}}}};
    c.machines = {{0, 1, 4}};
    c.inter = network_link{bytes_per_second(1e9), seconds(1e-6)};
    return c;
}

/// Reduces one gradient after the other; otherwise all would be in one bucket, beside which there is nothing.
plan planned(program const& p, cluster const& c, bool overlaps) {
    return find_plan(p, c, clp::ratio_solver{}, {.training = {.overlaps_gradients = overlaps, .bucket = bytes(0)}});
}

} // namespace

TEST_CASE("every result has data parallelism with and without gradient overlap") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        test::random_source random(seed + 52000);
        auto const made = layers(random.between(1, 12), random.between(1, 12));
        auto const devices = test::random_cluster(random);
        CAPTURE(seed);
        INFO(test::describe(made) << test::describe(devices));
        auto const beside = planned(made, devices, true), after = planned(made, devices, false);
        for (std::string const name : {"DP-EV", "DP-CP"}) {
            REQUIRE(beside.baselines.contains(name));
            REQUIRE(after.baselines.contains(name));
            CHECK(after.other_baselines.at(name + with) == beside.baselines.at(name));
            CHECK(beside.other_baselines.at(name + without) == after.baselines.at(name));
            // The programs are searched for, so that neither claim holds to the last digit.
            if (auto const least = after.baselines.at(name))
                CHECK(after.other_baselines.at(name + with).value() <= *least * (1 + 1e-9));
        }
        CHECK(after.other_baselines.size() == 2);
        CHECK(beside.other_baselines.size() == 2);
    }
}

TEST_CASE("a plan without gradient overlap may be dearer than data parallelism with it, which its report tells apart") {
    auto const p = layers(1 << 16, 256);
    auto const plain = planned(p, four_equal(32e9), false), overlapping = planned(p, four_equal(32e9), true);
    REQUIRE(plain.exists());
    for (auto const& [name, seconds] : plain.baselines) CHECK(plain.cost() <= seconds.value());
    CHECK(plain.other_baselines.at("DP-EV" + with).value() < 0.999 * plain.cost());
    CHECK(overlapping.cost() <= plain.other_baselines.at("DP-EV" + with).value());
    std::ostringstream report;
    print(report, plain);
    auto const text = report.str();
    auto const own = text.find("\nBaselines\n"),
               other = text.find("\nUnder other options than the plan's, which may be dearer\n");
    REQUIRE(own != std::string::npos);
    REQUIRE(other != std::string::npos);
    CHECK(own < other);
    CHECK(text.find("DP-EV, with gradient overlap") > other);

    auto const narrow = planned(p, four_equal(1e6), false);
    CHECK_FALSE(narrow.exists());
    CHECK_FALSE(narrow.baselines.at("DP-EV"));
    CHECK_FALSE(narrow.other_baselines.at("DP-EV" + with));
}
