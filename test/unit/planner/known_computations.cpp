// SPDX-License-Identifier: BSL-1.0
// Stages whose layers other stages have too: what is known of these is searched first.
#include "slow_links.hpp"

#include <heddle/clp/all.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/stage_planner.hpp>
#include <heddle/program/program.hpp>
#include <heddle/synthesis/known_computations.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <set>
#include <string>
#include <vector>

using namespace heddle;

namespace {

/// So many pairs of a linear operator and an activation, of so many samples.
program perceptron(int layers, extent samples = 64, extent width = 1024) {
    program_builder b;
    auto x = b.input("x", {samples, width});
    operator_options relu{.category = operator_class::elementwise};
    relu.saved_results = {0};
    for (int n = 0; n < layers; ++n) {
        auto const w = b.parameter("layers." + std::to_string(n) + ".weight", {width, width});
        x = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, {.category = operator_class::matmul});
        x = b.apply("relu", "(b n) -> (b n)", {x}, relu);
    }
    return b.finish(b.apply("sum", "(b n) -> (); 0", {x}, {.category = operator_class::reduction}));
}

/// The forms of operators' operands and results in a plan, of operators that are alike together.
std::set<std::pair<std::string, computation_codes>> computations_of(indexed_program const& p, plan const& of) {
    std::set<std::pair<std::string, computation_codes>> result;
    for (auto const& s : of.steps)
        if (auto const* const compute = s.instruction.as<instruction::compute>())
            result.emplace(p.operators[compute->op].kind, codes_of(*compute));
    return result;
}

} // namespace

TEST_CASE("operators of several programs are of one kind in use, in size or in structure") {
    auto const small = index_program(perceptron(2)), deep = index_program(perceptron(3)),
               wide = index_program(perceptron(2, 64, 2048));
    auto const alike = [&](kinds_alike by, indexed_program const& p, std::size_t in_small, std::size_t in_p) {
        kind_numbers kinds(by);
        auto const first = kinds.of(small);
        return first[in_small] == kinds.of(p)[in_p];
    };
    using enum kinds_alike;
    for (auto const by : {in_use, in_size, in_structure}) {
        CHECK(alike(by, small, 0, 0));
        CHECK(alike(by, small, 3, 3));
        CHECK(alike(by, deep, 1, 1));
        CHECK_FALSE(alike(by, deep, 0, 1));
        CHECK(alike(by, deep, 2, 4));
        CHECK_FALSE(alike(by, small, 0, 2)); // which has a backward pass for its first operand
        CHECK(alike(by, wide, 0, 0) == (by == in_structure));
    }
    program_builder b;
    auto const once = b.apply("relu", "(b) -> (b)", {b.parameter("w", {64})});
    auto const twice = b.apply("relu", "(b) -> (b)", {once}), thrice = b.apply("relu", "(b) -> (b)", {twice});
    auto const both = b.apply("add", "(b), (b) -> (b)", {twice, thrice});
    auto const uses = index_program(b.finish(b.apply("sum", "(b) -> (); 0", {both})));
    auto const repeats = [](indexed_program const& p, kinds_alike by) {
        std::string list;
        for (auto const first : operator_kinds(p, by)) list += std::to_string(first);
        return list;
    };
    CHECK(repeats(deep, in_use) == "0121216");
    CHECK(repeats(deep, in_structure) == "0121216");
    CHECK(repeats(uses, in_use) == "01234");
    CHECK(repeats(uses, in_size) == "01134");
}

TEST_CASE("a plan that keeps to what is known computes like the plans that it is known from") {
    auto const c = test::slow_links(4);
    clp::ratio_solver solver;
    hap_options asked;
    asked.compares = false;
    auto const shallow = perceptron(3, 65536), deep = perceptron(12, 65536);
    auto const indexed = index_program(deep);
    auto const from = plan_hap(shallow, c, solver, asked), free = plan_hap(deep, c, solver, asked);
    REQUIRE(from.exists());
    REQUIRE(free.exists());

    known_computations known(kinds_alike::in_size);
    CHECK_FALSE(known.keeping_to(indexed));
    known.add(index_program(shallow), from);
    CHECK_FALSE(known.keeping_to(index_program(perceptron(12, 65536, 2048)))); // other sizes
    asked.allowed_computations = known.keeping_to(indexed);
    REQUIRE(asked.allowed_computations);
    auto const kept = plan_hap(deep, c, solver, asked);
    REQUIRE(kept.exists());
    CHECK(kept.cost() == doctest::Approx(free.cost()));
    auto const verified = verify(deep, kept);
    CHECK_MESSAGE(verified, verified.problem);
    CHECK(computations_of(indexed, kept) == computations_of(index_program(shallow), from));
    CHECK(kept.space == "one-axis programs of the computations allowed at these shares");

    SUBCASE("which is a restriction of the space") {
        auto dearest = asked;
        dearest.allowed_computations = instruction_filter([](instruction const& i) { // nothing is computed in parts
            auto const* const compute = i.as<instruction::compute>();
            return !compute || compute->loop < 0;
        });
        auto const whole = plan_hap(deep, c, solver, dearest);
        REQUIRE(whole.exists());
        CHECK(whole.cost() > 2 * free.cost());
        dearest.allowed_computations =
            instruction_filter([](instruction const& i) { return !i.is<instruction::compute>(); });
        auto const none = plan_hap(deep, c, solver, dearest);
        CHECK_FALSE(none.exists());
        CHECK(none.reason == "no program keeps what is pinned or forbidden");
    }
    SUBCASE("and goes with pins") {
        auto const weight = indexed.operators[2].operands[1]; // of the second layer
        asked.pinned = {{weight, tensor_form::shard(0)}};
        auto const pinned = plan_hap(deep, c, solver, asked);
        REQUIRE(pinned.exists());
        CHECK(pinned.cost() >= kept.cost() * (1 - 1e-9));
        asked.allowed_computations->mark = {}; // which takes longer, and finds the same
        CHECK(plan_hap(deep, c, solver, asked).cost() == doctest::Approx(pinned.cost()));
        CHECK(pinned.space == "one-axis programs of the computations allowed that keep the pins at these shares");
    }
}

TEST_CASE("stages of layers that are known are searched once more where memory is tight, or a plan is needed") {
    auto c = test::slow_links(4);
    clp::ratio_solver solver;
    auto planners = detail::stage_planners_by(solver);
    std::vector<bool> calls; // whether computations were known
    planners.one_axis = [&calls, inner = planners.one_axis](program const& p, cluster const& on,
                                                            planning_options const& o) {
        calls.push_back(o.allowed_computations.has_value());
        return inner(p, on, o);
    };
    planning_options const options;
    search::deadline const until;
    std::vector<std::size_t> const devices{0, 1, 2, 3};
    auto const planned = [&](detail::stage_planner& stages, int layers, int in_flight = 1) {
        calls.clear();
        auto found = stages.plan_on(perceptron(layers), devices, 1, 8, in_flight);
        REQUIRE(found.exists());
        return found.cost();
    };
    detail::stage_planner stages(c, planners, options, until, false), others(c, planners, options, until, false);
    planned(stages, 3);
    CHECK(calls == std::vector{false});
    planned(stages, 4); // too small to be worth it
    CHECK(calls == std::vector{false});
    double const known = planned(stages, 30);
    CHECK(calls == std::vector{true});
    CHECK(known == doctest::Approx(planned(others, 30)));
    CHECK(calls == std::vector{false});
    planned(stages, 30);
    CHECK(calls.empty());

    auto const parameters = 30 * 1024. * 1024 * 4;
    c.types[0].memory = bytes(4.1 * parameters); // parameters, gradients and optimiser take 4, if they are whole
    detail::stage_planner tight(c, planners, options, until, false);
    planned(tight, 3);
    planned(tight, 30);
    CHECK(calls == std::vector{true, false});

    detail::stage_planner from_tight(c, planners, options, until, false);
    planned(from_tight, 29);
    CHECK(calls == std::vector{false});
    planned(from_tight, 26); // which is roomy
    CHECK(calls == std::vector{true, false});
    planned(from_tight, 25);
    CHECK(calls == std::vector{true});
}

TEST_CASE("a mesh that takes too long is not taken for one that does not fit") {
    auto const c = test::slow_links(4);
    clp::ratio_solver solver;
    auto planners = detail::stage_planners_by(solver);
    int calls = 0;
    planners.on_mesh = [&calls, inner = planners.on_mesh](auto const&... given) {
        ++calls;
        return inner(given...);
    };
    planning_options const options;
    search::deadline const until;
    detail::stage_planner stages(c, planners, options, until, true);
    auto const found = stages.plan_on(perceptron(2), {0, 1, 2, 3}, 2, 1, 1, 1, 1e-9);
    CHECK_FALSE(found.exists());
    CHECK(found.reason == "no program at the first shares takes less time than asked for");
    CHECK(calls == 1); // and not with recomputation
}

TEST_CASE("parts take turns as the whole computes first, and that is all where they take no less") {
    auto const c = test::slow_links(4);
    clp::ratio_solver solver;
    auto planners = detail::stage_planners_by(solver);
    std::vector<bool> calls;
    planners.part_in_turns = [&calls, inner = planners.part_in_turns](program const& p, cluster const& on,
                                                                      planning_options const& o) {
        calls.push_back(o.allowed_computations.has_value());
        auto found = inner(p, on, o);
        if (o.allowed_computations) CHECK(found.exists());
        return found;
    };
    planning_options const options;
    search::deadline const until;
    std::vector<std::size_t> const devices{0, 1, 2, 3};
    auto const turned = [&](program const& whole, program const& part, double times) {
        detail::stage_planner stages(c, planners, options, until, false);
        auto serial = stages.plan_on(whole, devices, 1, 8, 1);
        REQUIRE(serial.exists());
        serial.time.compute *= times; // which it is to take less than
        calls.clear();
        return stages.plan_in_turns(part, devices, 2, 8, 1, whole, serial);
    };
    auto const whole = perceptron(30, 64), part = perceptron(30, 32);
    auto const worse = turned(whole, part, 0.01), better = turned(whole, part, 1000);
    CHECK(better.cost() <= worse.cost());
    CHECK(calls == std::vector{true, false});
    turned(whole, part, 0.01);
    CHECK(calls == std::vector{true});
}
