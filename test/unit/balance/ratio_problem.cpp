// SPDX-License-Identifier: BSL-1.0
#include <heddle/balance/program_ratio_problem.hpp>
#include <heddle/balance/reduced_ratio_problem.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace {

using namespace heddle;

cluster two_type_cluster() {
    cluster c;
    device_type fast{"fast", bytes(1000), bytes_per_second(100), seconds(0), {}},
        slow{"slow", bytes(500), bytes_per_second(100), seconds(1), {}};
    fast.rates[element_type::float32].fallback = flops_per_second(300);
    slow.rates[element_type::float32].fallback = flops_per_second(100);
    c.types = {fast, slow};
    c.machines = {{0, 1, 1}, {1, 1, 2}};
    c.inter = network_link{bytes_per_second(10), seconds(0.5)};
    validate(c);
    return c;
}

ratio_problem two_types() { return {.counts = {1, 1}, .preferred = {0.5, 0.5}}; }

/// Two segments of which the first is dear on the first type.
ratio_problem two_segments() {
    ratio_problem p;
    p.counts = {1, 2};
    p.preferred = {0.5, 0.25, 0.5, 0.25};
    p.segments = 2;
    p.constant = 1;
    p.stages = {{{{0, 8}}, {{0, 4}}, {{1, 2}}, {{0, 4}}}};
    p.transfers = {{{{1, 2}}, 1, 1}, {{{0, 4}}, 0, 1}};
    p.memory = {{0, 10}, {0, 10}, {1, 10}, {1, 20}};
    p.memory_limits = {8, 10};
    return p;
}

struct plain_solver {
    ratio_solution solve(ratio_problem const& p) {
        return {p.fits(p.preferred), p.preferred, p.objective(p.preferred)};
    }
};
struct solver_of_segments : plain_solver {
    bool solves(ratio_problem const& p) { return !p.has_curves(); }
};

} // namespace

TEST_CASE("affine functions and maxima of them have these values") {
    affine a{1, 2};
    a += {3, 4};
    CHECK(a.at(0.5) == 4 + 3);
    stage_work const work{{1, 1}, {{{0, 4}, {1, 0}}, {{2, 0}}}};
    CHECK(work.at(0) == 1 + 1 + 2);
    CHECK(work.at(0.5) == 1.5 + 2 + 2);
}

TEST_CASE("ratios to start from are equal, or proportional to speed") {
    cost_model const model(two_type_cluster(), {{0, 1}, {1, 2}});
    CHECK(even_ratios(model) == std::vector{1.0 / 3, 1.0 / 3});
    auto const proportional = compute_proportional(model, element_type::float32);
    CHECK(proportional[0] == doctest::Approx(0.6));
    CHECK(proportional[1] == doctest::Approx(0.2));
}

TEST_CASE("the objective has stages, transfers at the largest ratio, and constants") {
    ratio_problem p;
    p.counts = {1, 2};
    p.constant = 10;
    p.stages = {{{{0, 6}}, {{1, 2}}}};
    p.transfers = {{{{1, 4}, {2, 0}}}};
    p.memory = {{0, 10}, {5, 10}};
    p.memory_limits = {6, 8};
    std::vector<double> const ratios{0.5, 0.25};
    CHECK(p.objective(ratios) == 10 + 3 + 3);
    CHECK(p.fits(ratios));
    CHECK_FALSE(p.fits(std::vector{0.7, 0.15}));
    CHECK_FALSE(p.fits(std::vector{0.3, 0.35}));
}

TEST_CASE("the objective of curves: the last work of every stage") {
    auto p = two_types();
    auto const volume = exchanged_volume(seconds(0), seconds(4));
    p.stages = {{{{0, 4}}, {{0, 2}}}, {{.straight = {1, 0}, .curves = {volume}}, {.curves = {volume}}}};
    std::vector<double> const ratios{0.75, 0.25};
    CHECK(p.objective(ratios) == doctest::Approx(3 + 1.75));
    CHECK(reduce(p).objective(ratios) == doctest::Approx(3 + 1.75));
    CHECK(p.has_curves());
    CHECK_FALSE(p.is_convex());
    p.stages = {{{.curves = {saturating_work(seconds(2), 0.1)}}, {}}};
    CHECK(p.is_convex());
    p.stages.clear();
    CHECK_FALSE(p.has_curves());
}

TEST_CASE("the objective of segments: stages add up over them type by type, transfers are at the larger of two") {
    auto const p = two_segments();
    validate(p);
    std::vector<double> const ratios{0.2, 0.4, 0.6, 0.2};
    CHECK(p.objective(ratios) == doctest::Approx(1 + (8 * 0.2 + 1 + 2 * 0.6) + (1 + 2 * 0.6) + 4 * 0.6));
    CHECK(p.fits(std::vector{0.2, 0.4, 0.5, 0.25}));
    CHECK_FALSE(p.fits(ratios)); // 2 + 7 of 8
}

TEST_CASE("a solver is asked for plain problems, and what else it says it takes") {
    plain_solver plain;
    solver_of_segments of_segments;
    auto curved = two_types();
    curved.stages = {{{.curves = {saturating_work(seconds(2), 0.1)}}, {}}};
    CHECK(solves(plain, two_types()));
    CHECK_FALSE(solves(plain, two_segments()));
    CHECK_FALSE(solves(plain, curved));
    CHECK(solves(of_segments, two_segments()));
    CHECK_FALSE(solves(of_segments, curved));
}

TEST_CASE("a ratio problem that cannot be is refused by name") {
    double const nan = std::numeric_limits<double>::quiet_NaN();
    auto const refuses = [](ratio_problem const& p, char const* expected) {
        CHECK_THROWS_WITH_AS(validate(p), doctest::Contains(expected), input_error);
    };
    auto const changed = [](ratio_problem p, auto const& change) {
        change(p);
        return p;
    };
    auto const two = two_types();
    CHECK_NOTHROW(validate(two));
    refuses({}, "ratio problem, counts");
    refuses(changed(two, [](auto& p) { p.preferred = {1}; }), "one ratio per type");
    refuses(changed(two, [](auto& p) { p.counts[1] = 0; }), "type 1: expected at least one device");
    refuses(changed(two, [](auto& p) { p.stages = {{{{0, 1}}}}; }), "stage 0: expected the work of every type");
    refuses(changed(two, [=](auto& p) { p.stages = {{{{0, nan}}, {}}}; }), "stage 0: expected finite numbers");
    refuses(changed(two, [](auto& p) { p.transfers = {{}}; }), "transfer 0: a maximum of no functions");
    refuses(changed(two, [](auto& p) { p.transfers = {{{{0, 1}}, 0, 1}}; }), "transfer 0: expected segments that are");
    refuses(changed(two, [](auto& p) { p.memory = {{0, 1}, {0, 1}}; }), "one limit per type");
    refuses(changed(two, [=](auto& p) { p.memory = {{0, 1}, {0, 1}}, p.memory_limits = {1, nan}; }),
            "memory of type 1");
    refuses(changed(two, [](auto& p) { p.preferred[0] = -1; }), "preferred ratio");
    refuses(changed(two, [=](auto& p) { p.constant = nan; }), "constant");
    refuses(changed(two, [](auto& p) { p.segments = 0; }), "segments");
    refuses(changed(two, [](auto& p) { p.segments = 2; }), "one ratio per type of every segment");
    refuses(changed(two_segments(), [](auto& p) { p.memory.resize(2); }), "one row per type of every segment");
    refuses(changed(two_segments(), [](auto& p) { p.stages[0].resize(2); }), "work of every type in every segment");
    CHECK_THROWS_WITH_AS((void)reduce(two_segments()), doctest::Contains("there are several, expected one"),
                         input_error);
}

TEST_CASE("curves that cannot be are refused by name") {
    auto const refuses = [](smooth_curve const& curve, char const* expected) {
        auto p = two_types();
        p.stages = {{{}, {}}, {{.curves = {curve}}, {}}};
        CHECK_THROWS_WITH_AS(validate(p), doctest::Contains(expected), input_error);
    };
    refuses({}, "stage 1: a curve without a function");
    refuses({[](double r) { return curve_point{std::sqrt(r), 0.5 / std::sqrt(r), 0}; }, false},
            "stage 1: a curve is not finite at 0");
    auto concave = exchanged_volume(seconds(0), seconds(1));
    concave.is_convex = true;
    refuses(concave, "said to be convex is not");
}

TEST_CASE("the ratio problem of two steps and a collective") {
    cost_model const model(two_type_cluster(), {{0, 1}, {1, 2}});
    step_work first, second;
    first.share = second.share = {0, 0};
    first.forward = {flops(600), bytes(0), bytes(0), true};
    first.backward = {flops(300), bytes(0), bytes(0), true};
    first.stored = {bytes(10), bytes(100)};
    first.update = {bytes(0), bytes(50)};
    second.forward = {flops(150), bytes(100), bytes(0), true}; // bends where arithmetic passes one second
    second.forward_transfers = {{collective::all_gather, bytes(30), {0, 0}, {}, {}}};
    auto const p = make_ratio_problem({{first, second}, {{{bytes(0), bytes(200)}}}}, model, {0.6, 0.2});
    auto const by_hand = [](double a, double b) {
        double const largest = std::max(a, b);
        double const stage_1 = std::max(2 * a, 6 * b + 1);
        double const gather = 1 + 2.0 / 3 * (3 * largest * 30) / 10;
        double const open = std::max(std::max(0.5 * a, 1.0) + a, std::max(1.5 * b, 1.0) + 1 + 3 * b + 1);
        double const update = std::max(0.5 * a, 0.5 * b);
        return stage_1 + gather + open + update;
    };
    for (double a : {0.0, 0.2, 1.0 / 3, 0.6, 1.0}) {
        double const b = (1 - a) / 2;
        CAPTURE(a);
        CHECK(p.objective(std::vector{a, b}) == doctest::Approx(by_hand(a, b)));
        CHECK(p.memory[0].at(a) == doctest::Approx(10 + 300 * a));
    }
    CHECK(p.memory_limits == std::vector{1000.0, 500.0});
    CHECK(p.counts == std::vector{1, 2});
    CHECK(p.preferred == std::vector{0.6, 0.2});
}

TEST_CASE("a transfer that no ratio changes is a constant") {
    cost_model const model(two_type_cluster(), {{0, 1}, {1, 2}});
    step_work s;
    s.deferred_transfers = {{collective::all_reduce, bytes(30), {}, {}, {}}};
    auto const p = make_ratio_problem({{s}}, model, {0.6, 0.2});
    CHECK(p.transfers.empty());
    CHECK(p.constant == doctest::Approx(2 + 4.0 / 3 * 3));
}
