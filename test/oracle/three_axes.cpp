// SPDX-License-Identifier: BSL-1.0
// The search of programs on meshes of three axes against a dynamic programme over all product forms of small random
// programs, on machines of which the devices are those of the inner two axes, of the innermost one, or one each.
#include <heddle/clp/all.hpp>
#include <heddle/cost/mesh_step.hpp>
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/mesh.hpp>
#include <heddle/synthesis/mesh_search.hpp>
#include <heddle/synthesis/mesh_strategies.hpp>
#include <support/cases.hpp>
#include <support/mesh_optimum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

namespace {

using namespace heddle;
using test::optimum;

struct shares_as_they_are {
    [[nodiscard]] ratio_solution solve(ratio_problem const&) const { return {}; }
};

cluster eight_devices(test::random_source& random) {
    int const machines = 1 << random.between(1, 3);
    auto c = test::random_cluster(random, machines, 8 / machines);
    c.machines[0].is_group = false;
    return c;
}

mesh const pairs_of_pairs({2, 2, 2});

/// A program of few operators, and eight devices for it.
struct case_on_three_axes {
    test::random_source random;
    program model = test::random_tree(random, 1);
    indexed_program indexed = index_program(model);
    cluster machines = machines_of(eight_devices(random), pairs_of_pairs);
    mesh_search_options options{};

    explicit case_on_three_axes(std::uint64_t seed) : random(seed) { options.training.bucket = bytes(0); }
};

} // namespace

TEST_CASE("what the search of three axes finds and bounds of small programs, against all product forms") {
    constexpr std::uint64_t cases = test::sanitized ? 5 : 30;
    auto const& m = pairs_of_pairs;
    int best = 0, close = 0, compared = 0;
    double gaps = 0;
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        case_on_three_axes const given(seed);
        auto const& [random, model, indexed, c, options] = given;
        CAPTURE(seed);
        auto const found = search_mesh(indexed, c, m, shares_as_they_are{}, options);
        REQUIRE(found.program);
        double const of_axes = optimum(indexed, c, m, options.training, false).find();
        CHECK(found.lower_bound <= std::min(of_axes, found.cost) * (1 + 1e-9));
        best += found.cost <= of_axes * (1 + 1e-9);
        close += found.cost <= of_axes * 1.05;
        gaps += 1 - found.lower_bound / found.cost;
        if (seed % 10 == 0) {
            CHECK(found.cost >= optimum(indexed, c, m, options.training, true).find() * (1 - 1e-9));
            ++compared;
        }
        auto const verified = verify(indexed, *found.program);
        CHECK_MESSAGE(verified, verified.problem);
        if (seed % 4 != 0 || !verified) continue;
        auto const shown = prove(model, plan_on_mesh(indexed, *found.program), eigen_kernels<double>());
        CHECK_MESSAGE(shown, shown.problem);
    }
    MESSAGE(best << " are the best of the space, " << close << " within 5 %, mean gap " << gaps / double(cases) << ", "
                 << compared << " compared with all forms");
    CHECK(best >= cases * 3 / 4);
    CHECK(close >= cases * 9 / 10);
    CHECK(gaps <= 0.15 * double(cases));
}

TEST_CASE("programs on three axes keep the pins of each, and no bound is above the best that does") {
    constexpr std::uint64_t cases = test::sanitized ? 6 : 40;
    auto const& m = pairs_of_pairs;
    int best = 0, none = 0, bounded = 0;
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        case_on_three_axes given(seed);
        auto& [random, model, indexed, c, options] = given;
        tensor_id t = 0; // what an operator makes: parameters that are pinned may be gathered as none is without a pin
        while (indexed.tensors[t].is_source())
            t = static_cast<tensor_id>(random.between(0, static_cast<int>(indexed.tensors.size()) - 1));
        options.pinned = test::random_pins(random, indexed, t, 3, random.between(0, 2) == 0);
        auto const keeps = test::keeps_of(indexed, options.pinned);
        CAPTURE(seed);
        auto const found = search_mesh(indexed, c, m, shares_as_they_are{}, options);
        double const of_axes = optimum(indexed, c, m, options.training, false, keeps).find();
        none += !found.program;
        if (!found.program) {
            CHECK(of_axes == std::numeric_limits<double>::infinity());
            continue;
        }
        CHECK(std::ranges::all_of(found.program->steps, keeps));
        auto const verified = verify(indexed, *found.program);
        CHECK_MESSAGE(verified, verified.problem);
        CHECK(found.lower_bound <= std::min(of_axes, found.cost) * (1 + 1e-9));
        bounded += found.lower_bound >= 0.5 * found.cost;
        best += found.cost <= of_axes * (1 + 1e-9);
    }
    MESSAGE(none << " have no program, " << best << " best of the others, " << bounded << " with a gap below a half");
    CHECK(best >= (static_cast<int>(cases) - none) * 2 / 3);
    CHECK(2 * bounded >= static_cast<int>(cases) - none);
    CHECK(none < static_cast<int>(cases) / 3);
}

TEST_CASE("a strategy of three axes has a program that keeps to it") {
    mesh const m({2, 2, 2});
    std::map<std::string, int> found_some;
    for (std::uint64_t seed = 1; seed <= test::cases(10u); ++seed) {
        test::random_source random(seed);
        auto const model = test::random_tree(random, 1);
        auto const indexed = index_program(model);
        auto const c = eight_devices(random);
        CAPTURE(seed);
        for (auto const& strategy : mesh_strategies_of(indexed)) {
            mesh_search_options options;
            options.strategy = {strategy.allowed[0], strategy.allowed[0], strategy.allowed[1]};
            auto const p = plan_mesh(model, c, m, shares_as_they_are{}, options);
            if (!p.exists()) continue;
            ++found_some[strategy.name];
            for (auto const& s : p.steps)
                for (axis_number a = 0; a < 3; ++a) {
                    auto const* const change = s.on_axis(a).change();
                    if (change && indexed.tensors[change->tensor].is_parameter() && !is_keep(s.on_axis(a)))
                        CHECK(options.strategy[a](s.on_axis(a)));
                }
            auto const verified = verify(model, p);
            CHECK_MESSAGE(verified, verified.problem);
        }
    }
    for (auto const* const name : {"data x ZeRO-1", "data x tensor"}) CHECK((found_some[name] >= 5 || test::sanitized));
}

TEST_CASE("an axis of one place changes no cost") {
    int same = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(6u); ++seed) {
        test::random_source random(seed);
        auto const indexed = index_program(test::random_tree(random, 1));
        auto const c = test::random_cluster(random, 2, 2);
        training_options const training{.bucket = bytes(0)};
        CAPTURE(seed);
        double const of_two = optimum(indexed, c, mesh({2, 2}), training, false).find();
        for (auto const& m : {mesh({2, 1, 2}), mesh({2, 2, 1})})
            CHECK(optimum(indexed, c, m, training, false).find() == doctest::Approx(of_two).epsilon(1e-9));
        mesh_search_options options;
        options.training = training;
        same += search_mesh(indexed, c, mesh({2, 1, 2}), shares_as_they_are{}, options).cost <= of_two * (1 + 1e-9);
    }
    CHECK((same >= 5 || test::sanitized));
}

TEST_CASE("slices of unlike devices have shares of their own on three axes") {
    int uneven = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(20u); ++seed) {
        test::random_source random(seed);
        auto const model = test::random_tree(random);
        auto c = test::random_cluster(random, 2, random.between(0, 1) == 0 ? 2 : 4);
        c.machines[0].is_group = false;
        c.types.push_back(c.types[0]);
        c.types[1].name = "slow";
        c.types[1].rates[element_type::float32].fallback = c.types[0].rates[element_type::float32].fallback * 0.3;
        c.machines.push_back(c.machines[0]);
        c.machines[1].type = 1;
        mesh const m(c.machines[0].devices == 4 ? std::vector<std::size_t>{4, 2, 2}
                                                : std::vector<std::size_t>{2, 2, 2});
        CAPTURE(seed);
        auto const p = plan_mesh(model, c, m, clp::ratio_solver{}, {.compares = false});
        REQUIRE(p.exists());
        CHECK(p.lower_bound <= p.cost());
        CHECK(evaluate(p, machines_of(c, m)).time.total() == p.cost());
        auto const verified = verify(model, p);
        CHECK_MESSAGE(verified, verified.problem);
        uneven += p.ratios[0].front() != p.ratios[0].back();
        if (seed % 4 != 0 || !verified) continue;
        auto const shown = prove(model, p, eigen_kernels<double>());
        CHECK_MESSAGE(shown, shown.problem);
    }
    CHECK((uneven > 0 || test::sanitized));
}

TEST_CASE("collectives along an axis of machines have the links between them, and share their network cards") {
    cluster c;
    c.types = {
        {"gpu", bytes(1e9), bytes_per_second(1e9), seconds(0), {{element_type::float32, {flops_per_second(1)}}}}};
    c.machines = {{0, 4, 4, false, 2}};
    c.intra = network_link{bytes_per_second(1000), seconds(1)};
    c.inter = network_link{bytes_per_second(100), seconds(10)};
    auto const joined = machines_of(c, mesh({2, 2, 4}));
    CHECK(joined.machines[0].count == 2);
    CHECK(joined.machines[0].devices == 8);
    CHECK(joined.machines[0].joined == 2);
    CHECK(joined.machines[0].network_cards == 4);
    cost_model const model(joined, {{0, 2, 8}});
    auto const sum = [&](int members, int lines) {
        return model.inside({inside_step::all_reduce, bytes(100), bytes(0), members, lines}, 0)(100);
    };
    CHECK(sum(4, 1) == doctest::Approx(2 * 3 * 1 + 2 * 0.75 * 0.1)); // inside a machine
    CHECK(sum(2, 4) == doctest::Approx(2 * 10 + 1 * 2.0));           // four lines on two cards
    auto alone = c;
    alone.machines = {{0, 1, 8, false, 1}};
    auto const squares = machines_of(alone, mesh({2, 2, 2}));
    CHECK(cost_model(squares, {{0, 2, 4}}).inside({inside_step::all_reduce, bytes(100), bytes(0), 2, 2}, 0)(100) ==
          doctest::Approx(2 * 10 + 1.0)); // each has a card of its own
    auto measured = c;
    measured.measured[collective::all_reduce].pieces = {model_of(c, collective::all_reduce).pieces[0]};
    measured.measured[collective::all_reduce].pieces[0].slope *= 3;
    CHECK(cost_model(machines_of(measured, mesh({2, 2, 4})), {{0, 2, 8}})
              .inside({inside_step::all_reduce, bytes(100), bytes(0), 2, 4}, 0)(100) ==
          doctest::Approx(2 * 10 + 3 * 2.0));
    auto const split = machines_of(c, mesh({8, 2}));
    CHECK(split.machines[0].joined == 1);
    CHECK(cost_model(split, {{0, 8, 2}}).inside({inside_step::all_reduce, bytes(100), bytes(0), 2, 1}, 0)(0) == 2);
    auto const undone = with_groups_of(joined, 2);
    CHECK(undone.machines[0].count == 8);
    CHECK(undone.machines[0].joined == 1);
    CHECK(undone.machines[0].network_cards == 2);
    auto unlike = c;
    unlike.machines.push_back({0, 8, 2});
    CHECK_THROWS_WITH_AS((void)machines_of(unlike, mesh({4, 2, 4})), doctest::Contains("unequally many"), input_error);
    for (auto const& sizes : {std::vector<std::size_t>{2, 4, 2}, {2, 8, 1}, {4, 2, 4}, {2, 8}, {16, 1, 1}}) {
        CAPTURE(to_string(mesh(sizes)));
        CHECK_THROWS_WITH_AS((void)machines_of(c, mesh(sizes)), doctest::Contains("three axes"), input_error);
    }
}

TEST_CASE(
    "a plan on three axes costs what its program does; pins and strategies of other numbers of axes are refused") {
    mesh const m({2, 2, 2});
    int pairs_of_machines = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(30u); ++seed) {
        test::random_source random(seed);
        auto const model = test::random_tree(random);
        auto const c = eight_devices(random);
        CAPTURE(seed);
        auto const p = plan_mesh(model, c, m, shares_as_they_are{});
        REQUIRE(p.exists());
        CHECK(p.mesh() == m);
        CHECK(evaluate(p, machines_of(c, m)).time.total() == p.cost());
        CHECK(p.lower_bound <= p.cost());
        auto const of_machine = static_cast<std::size_t>(c.machines[0].devices);
        CHECK(p.baselines.contains("mesh 4 x 2") == (of_machine >= 2));
        CHECK(p.baselines.contains("mesh 2 x 4") == (of_machine >= 4));
        auto const verified = verify(model, p);
        CHECK_MESSAGE(verified, verified.problem);
        pairs_of_machines += c.machines[0].devices < 4;
    }
    CHECK(pairs_of_machines > 0);
    test::random_source random(1);
    auto const model = test::random_tree(random);
    mesh_search_options options;
    options.pinned[2] = {{0, tensor_form::replicated()}};
    CHECK_THROWS_WITH_AS((void)plan_mesh(model, eight_devices(random), mesh({4, 2}), shares_as_they_are{}, options),
                         doctest::Contains("expected as many axes as"), input_error);
    options.strategy.assign(2, {[](instruction const&) { return true; }, instruction_filter::no_mark});
    CHECK_THROWS_WITH_AS((void)plan_mesh(model, eight_devices(random), m, shares_as_they_are{}, options),
                         doctest::Contains("expected as many axes as"), input_error);
}
