// SPDX-License-Identifier: BSL-1.0
// The search of programs on meshes against a dynamic programme over all product forms of small random programs: no
// program is cheaper than the optimum or than the bound, and every program found computes what a single device does.
#include <heddle/cost/mesh_step.hpp>
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/json/model.hpp>
#include <heddle/plan/buckets.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/mesh.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/synthesis/beside_bounding.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/mesh_axis.hpp>
#include <heddle/synthesis/mesh_bound.hpp>
#include <heddle/synthesis/mesh_choices.hpp>
#include <heddle/synthesis/mesh_search.hpp>
#include <heddle/synthesis/mesh_strategies.hpp>
#include <heddle/synthesis/mesh_turns.hpp>
#include <heddle/synthesis/pins.hpp>
#include <heddle/theory/axis_program.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/loosened_space.hpp>
#include <heddle/theory/searched_program.hpp>
#include <heddle/theory/theory.hpp>
#include <support/block_programs.hpp>
#include <support/cases.hpp>
#include <support/mesh_optimum.hpp>
#include <support/random_programs.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using test::optimum;
using test::random_cluster;
using test::random_tree;

/// A program, and two or three machines of as many devices as a mesh.
struct mesh_case {
    program model;
    indexed_program indexed;
    cluster on;
    mesh axes;
};

mesh_case small_mesh_case(test::random_source& random) {
    auto model = random_tree(random);
    auto indexed = index_program(model);
    int const machines = random.between(2, 3), devices = random.between(2, 3);
    auto on = random_cluster(random, machines, devices);
    return {std::move(model), std::move(indexed), std::move(on),
            mesh({static_cast<std::size_t>(machines), static_cast<std::size_t>(devices)})};
}

struct no_solver {
    [[nodiscard]] ratio_solution solve(ratio_problem const&) const { return {}; }
};

} // namespace

TEST_CASE("what the search of two axes finds and proves of small programs, against all product forms") {
    constexpr std::uint64_t cases = test::sanitized ? 50 : 500;
    int best = 0, proven = 0, loosened = 0, run = 0;
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        test::random_source random(seed);
        auto const [model, indexed, c, m] = small_mesh_case(random);
        mesh_search_options options;
        options.training.bucket = bytes(0);
        options.gap = 1e-3;
        bool const is_loosened = seed % 4 == 0; // cuts are that narrow nowhere else
        if (is_loosened) options.bound_width = static_cast<std::size_t>(random.between(8, 16));
        CAPTURE(seed);
        auto const found = search_mesh(indexed, c, m, no_solver{}, options);
        REQUIRE(found.program);
        bool const is_tried_further = seed % 5 == 0; // which takes as long as the rest
        double const of_axes = optimum(indexed, c, m, options.training, false).find();
        CHECK(found.lower_bound <= std::min(of_axes, found.cost) * (1 + 1e-9));
        best += found.cost <= of_axes * (1 + 1e-9);
        (is_loosened ? loosened : proven) += found.lower_bound >= found.cost * (1 - 1e-3);
        if (is_tried_further) {
            double const least = optimum(indexed, c, m, options.training, true).find();
            CHECK(least <= of_axes * (1 + 1e-9));
            CHECK(found.cost >= least * (1 - 1e-9));
        }
        auto const verified = verify(indexed, *found.program);
        CHECK_MESSAGE(verified, verified.problem);
        if (!is_tried_further || !verified) continue;
        auto const shown = prove(model, plan_on_mesh(indexed, *found.program), eigen_kernels<double>());
        CHECK_MESSAGE(shown, shown.problem);
        ++run;
    }
    CHECK(best == int{cases});
    CHECK(proven >= cases * 3 / 4 * 17 / 20);
    MESSAGE("best " << best << ", proven to 0.1 % " << proven << " of " << cases * 3 / 4 << ", with loosened tensors "
                    << loosened << " of " << cases / 4 << ", run " << run);
}

namespace {

/// What bounds the programs of two axes, and what they cost at even shares.
struct bounded_programs {
    bounded_programs(indexed_program const& p, cluster const& c, mesh const& m, std::size_t width)
        : axes(m), searched(p, {}), allowed(searched.as_searched(detail::gathered_once())),
          bounding(searched.program(), tokens::of_whole_copies), own(searched.program(), searched.kinds()),
          on(with_grouped_machines(c)), types(on), model(on, types.classes, main_type(p), training.reduction()),
          shares(integral_shares(p, types.per_device({compute_proportional(model, main_type(p))}).front()),
                 types.of_device),
          weights{std::vector<double>(types.classes.size(), 1.0 / static_cast<double>(types.classes.size()))},
          prices{searched, axes, model, shares, training, weights, no_memory},
          all_forms(searched.program().tensors.size()) {
        is_narrow = loosen_until_narrow(bounding, allowed, width, false, search::deadline());
        own.restrict_to(allowed);
        graph = search::explore(own, 10'000);
        for (tensor_id t = 0; t < all_forms.size(); ++t)
            for (std::uint16_t code = 0; code < 3 + searched.program().tensors[t].factors.size(); ++code)
                all_forms[t].insert(code);
    }
    bounded_programs(bounded_programs const&) = delete;

    [[nodiscard]] mesh_instructions program_of(std::vector<cut_space::action> const& path) const {
        mesh_instructions result;
        for (std::size_t level = 0; level < path.size(); ++level)
            for (auto n : own.moves()[path[level]].instructions)
                result.push_back(own.at(own.operator_of(level, path[level]), own.instructions()[n]));
        return result;
    }

    mesh axes;
    searched_program searched;
    instruction_filter allowed;
    loosened_space bounding;
    cut_space own;
    cut_graph graph;
    bool is_narrow = false;
    cluster on;
    device_types types;
    training_options training;
    cost_model model;
    largest_shares shares;
    relaxation_weights weights;
    std::vector<double> no_memory;
    mesh_prices prices;
    form_table all_forms;
};

} // namespace

TEST_CASE("the program that is cheapest beside a bounding one takes what the tables say at most, and goes together") {
    constexpr int cases = test::sanitized ? 20 : 200;
    int pairs = 0, together = 0, loosened = 0;
    for (std::uint64_t seed = 1; seed <= std::uint64_t{cases}; ++seed) {
        test::random_source random(seed);
        auto const small = small_mesh_case(random);
        bool const may_loosen = seed % 2 == 0;
        std::size_t const width = may_loosen ? static_cast<std::size_t>(random.between(3, 8)) : 10'000;
        CAPTURE(seed);
        bounded_programs const programs(small.indexed, small.on, small.axes, width);
        if (!programs.is_narrow) continue;
        mesh_bound bound(programs.bounding, programs.prices);
        auto const pair = bound.in_turn(0, bound.cheapest(1));
        if (pair.cost >= never) continue;
        ++pairs;
        // Both axes at once: as cheap as any pair, and no cheaper than the bound.
        search::deadline const until{search::limits{}};
        constexpr std::size_t any = 1'000'000;
        auto const best = bound.together(never, any, until);
        REQUIRE(best.best);
        double const least = best.best->cost;
        CHECK(best.bound == least);
        CHECK(bound.improve(never, {50, 1e-6, until}) <= least * (1 + 1e-9));
        for (axis_number axis = 0; axis < 2; ++axis) {
            CHECK(bound.in_turn(axis, best.best->programs[1 - axis]).cost == doctest::Approx(least).epsilon(1e-9));
            for (auto const& from : {bound.cheapest(1 - axis), pair.programs[1 - axis]})
                CHECK(bound.in_turn(axis, from).cost >= least * (1 - 1e-9));
        }
        auto const none = bound.together(least * 0.999, any, until);
        CHECK((!none.best && none.bound == least * 0.999));
        CHECK(bound.together(never, 1, until).bound <= least * (1 + 1e-9));
        bound.reprice(programs.prices);
        CHECK(bound.together(least * 1.001, any, until).bound == doctest::Approx(least).epsilon(1e-9));
        bool const is_loosened = !programs.bounding.program.loosened().empty();
        loosened += is_loosened;
        for (axis_number axis = 0; axis < 2; ++axis) {
            prices_beside const beside(axis, programs.own, programs.bounding, pair.programs[1 - axis],
                                       programs.all_forms, programs.prices);
            auto const paths = search::paths_to_goal(programs.graph, beside);
            REQUIRE(paths.to_goal() < never);
            if (!is_loosened) CHECK(paths.to_goal() <= pair.cost * (1 + 1e-9));
            auto const mine = programs.program_of(search::follow(programs.graph, paths));
            mesh_axis const other(programs.searched, small.axes, 1 - axis, mine, programs.allowed, programs.training,
                                  10'000);
            together += other.graph().has_goal();
        }
    }
    CHECK(pairs >= cases * 9 / 10);
    CHECK(loosened >= cases / 5);
    CHECK(together >= 2 * pairs * 9 / 10);
    MESSAGE(pairs << " pairs, " << loosened << " of loosened programs; " << together << " go together");
}

TEST_CASE("levels that are alike beside a bounding program have the same prices there") {
    // Layers that repeat; and experts, which are operators of several values that are taken one by one.
    auto const blocks = index_program(test::residual_blocks(12, 6, 5)),
               experts = index_program(json::read_model("examples/models/bert_moe_2.json.gz").program);
    test::random_source random(1);
    auto const c = random_cluster(random, 2, 3);
    int shared = 0;
    for (auto const& [indexed, width] : {std::pair(&blocks, 6u), {&blocks, 10'000u}, {&experts, 2'000u}}) {
        bounded_programs const programs(*indexed, c, mesh({2, 3}), width);
        REQUIRE(programs.is_narrow);
        mesh_bound bound(programs.bounding, programs.prices);
        for (auto const& other : {bound.cheapest(1), bound.in_turn(0, bound.cheapest(1)).programs[1]}) {
            auto const beside = [&] {
                return prices_beside(0, programs.own, programs.bounding, other, programs.all_forms, programs.prices);
            };
            auto const all = beside();
            std::set<std::uint64_t> kinds;
            for (std::size_t level = 0; level + 1 < programs.graph.level_count(); ++level) {
                auto const alone = beside();
                shared += !kinds.insert(all.alike(level)).second;
                for (auto bundle : programs.graph.from_level(level).bundles)
                    for (auto a : programs.graph.bundle(bundle)) {
                        CAPTURE(level);
                        CHECK(all(level, a) == alone(level, a));
                    }
            }
        }
    }
    CHECK(shared > 20);
}

TEST_CASE("programs on a mesh keep the pins of each axis, and are the best that do") {
    constexpr int cases = test::sanitized ? 10 : 80;
    int best = 0, none = 0, forbidden = 0;
    for (std::uint64_t seed = 1; seed <= std::uint64_t{cases}; ++seed) {
        test::random_source random(seed);
        auto const indexed = index_program(random_tree(random));
        auto const c = random_cluster(random, 2, 2);
        mesh const m({2, 2});
        mesh_search_options options;
        options.training.bucket = bytes(0);
        // What is read is read in the forms that are used: one that is pinned may have no program, and a parameter be
        // gathered as none is without the pin.
        auto const t = static_cast<tensor_id>(random.between(0, static_cast<int>(indexed.tensors.size()) - 1));
        bool const is_forbidden = random.between(0, 2) == 0;
        options.pinned = test::random_pins(random, indexed, t, 2, is_forbidden);
        CAPTURE(seed);
        auto const keeps = test::keeps_of(indexed, options.pinned);
        auto const found = search_mesh(indexed, c, m, no_solver{}, options);
        double const of_axes = optimum(indexed, c, m, options.training, false, keeps).find();
        bool const is_read = indexed.tensors[t].is_source();
        none += !found.program;
        forbidden += is_forbidden && found.program;
        if (!found.program) {
            CHECK((is_read || of_axes == std::numeric_limits<double>::infinity()));
            continue;
        }
        CHECK(std::ranges::all_of(found.program->steps, keeps));
        auto const verified = verify(indexed, *found.program);
        CHECK_MESSAGE(verified, verified.problem);
        if (seed % 5 == 0)
            CHECK(found.cost >= optimum(indexed, c, m, options.training, true, keeps).find() * (1 - 1e-9));
        if (!is_read) CHECK(found.lower_bound <= std::min(of_axes, found.cost) * (1 + 1e-9));
        best += found.cost <= of_axes * (1 + 1e-9);
    }
    MESSAGE(none << " have no program, " << best << " best of the others, " << forbidden << " with what is forbidden");
    CHECK(best >= (cases - none) * 9 / 10);
    CHECK(none < cases / 3);
    CHECK((forbidden > 0 || test::sanitized));
}

TEST_CASE("well-known strategies of two axes are plans, and no plan is dearer") {
    std::map<std::string, int> planned;
    int gathered = 0, run = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(40u); ++seed) {
        test::random_source random(seed);
        auto const [model, indexed, c, m] = small_mesh_case(random);
        CAPTURE(seed);
        auto const best = plan_mesh(model, c, m, no_solver{});
        REQUIRE(best.exists());
        for (auto const& strategy : mesh_strategies_of(indexed)) {
            CAPTURE(strategy.name);
            mesh_search_options options;
            options.strategy = strategy.allowed;
            auto const p = plan_mesh(model, c, m, no_solver{}, options);
            if (!p.exists()) continue;
            for (auto const& s : p.steps) // constants are made in other forms, where those are whole
                for (axis_number a = 0; a < 2; ++a) {
                    auto const* const change = s.on_axis(a).change();
                    if (change && indexed.tensors[change->tensor].is_parameter() && !is_keep(s.on_axis(a)))
                        CHECK(strategy.allowed[a](s.on_axis(a)));
                }
            CHECK(p.cost() >= best.cost() * (1 - 1e-9));
            if (best.baselines.contains(strategy.name)) {
                CHECK(best.baselines.at(strategy.name) == p.cost());
                ++planned[strategy.name];
            }
            gathered +=
                std::ranges::any_of(p.steps, [](plan_step const& s) { return s.acting().is<instruction::unshard>(); });
            auto const verified = verify(model, p);
            CHECK_MESSAGE(verified, verified.problem);
            CHECK(evaluate(p, machines_of(c, m)).time.total() == p.cost());
            if (seed % 4 != 0) continue;
            auto const shown = prove(model, p, eigen_kernels<double>());
            CHECK_MESSAGE(shown, shown.problem);
            ++run;
        }
    }
    for (auto const& [name, times] : planned) MESSAGE(name << ": " << times);
    MESSAGE(gathered << " gather for uses, " << run << " run");
    CHECK((test::sanitized || (gathered > 0 && planned.size() >= 5)));
}

TEST_CASE("gradients in buckets cost a program on a mesh what they cost its plan, and no bound is above") {
    int even = 0, together = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(200u); ++seed) {
        test::random_source random(seed);
        auto const indexed = index_program(random_tree(random));
        auto c = random_cluster(random, 2, 2);
        c.measured_across = {}; // by these a gradient may be padded at the plan's shares, and not at those searched at
        mesh const m({2, 2});
        mesh_search_options one_by_one, options;
        one_by_one.training.bucket = bytes(0);
        options.training.bucket = bytes(random.between(20, 400));
        CAPTURE(seed);
        auto const found = search_mesh(indexed, c, m, no_solver{}, options);
        auto const other = search_mesh(indexed, c, m, no_solver{}, one_by_one);
        REQUIRE((found.program && other.program));
        auto const planned = [&](mesh_program const& what) { return plan_on_mesh(indexed, what, options.training); };
        auto const mine = planned(*found.program);
        double const cost = evaluate(mine, c).time.total();
        for (auto const& bucket : gradient_buckets(mine)) together += bucket.steps.size() > 1;
        bool const is_even = is_even_inside(mine) && std::ranges::all_of(mine.cuts, [](atom_class const& cut) {
                                 return cut.counts[0] == cut.counts[1];
                             });
        even += is_even;
        if (is_even) CHECK(cost == doctest::Approx(found.cost).epsilon(1e-9));
        CHECK(cost >= found.cost * (1 - 1e-9));
        CHECK(found.lower_bound <= std::min(cost, evaluate(planned(*other.program), c).time.total()) * (1 + 1e-9));
    }
    MESSAGE(even << " are even, " << together << " buckets of several gradients");
    CHECK((even > 30 || test::sanitized));
    CHECK((together > 5 || test::sanitized)); // too few cases to have the rare ones
}

TEST_CASE("of the plans on a cluster's meshes the cheapest is returned, beside what the others take") {
    int finest = 0, coarsest = 0, of_three_axes = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(40u); ++seed) {
        test::random_source random(seed);
        auto const model = random_tree(random);
        auto const c = random_cluster(random, random.between(1, 2), 4);
        CAPTURE(seed);
        auto const p = plan_meshes(model, c, no_solver{}, {.compares = false});
        REQUIRE(p.exists());
        double least = std::numeric_limits<double>::infinity();
        auto all = meshes_of(c);
        auto const of_three = meshes_of_three_axes(c);
        all.insert(all.end(), of_three.begin(), of_three.end());
        for (auto const& m : all) {
            auto const alone = plan_mesh(model, c, m, no_solver{}, {.compares = false});
            REQUIRE(alone.exists());
            least = std::min(least, alone.cost());
            if (m == p.mesh()) CHECK(alone.cost() == p.cost());
            else CHECK(p.baselines.at("mesh " + to_string(m)) == alone.cost());
        }
        CHECK(p.cost() == least);
        CHECK(p.baselines.size() + 1 == all.size());
        auto const verified = verify(model, p);
        CHECK_MESSAGE(verified, verified.problem);
        CHECK(evaluate(p, machines_of(c, p.mesh())).time.total() == p.cost());
        if (p.mesh().axis_count() == 3) ++of_three_axes;
        else (p.mesh().size(1) == 2 ? finest : coarsest) += meshes_of(c).size() > 1;
    }
    MESSAGE(finest << " on the finest mesh, " << coarsest << " on the coarsest, " << of_three_axes << " on three axes");
    CHECK((test::sanitized || (finest > 0 && coarsest > 0 && of_three_axes > 0)));
    test::random_source random(1);
    auto c = random_cluster(random, 2, 4);
    CHECK(meshes_of(c) == std::vector<mesh>{mesh({4, 2}), mesh({2, 4})});
    CHECK(meshes_of_three_axes(c) == std::vector<mesh>{mesh({2, 2, 2})});
    c.machines.push_back({0, 6, 1}); // pairs alone divide both
    CHECK(meshes_of(c) == std::vector<mesh>{mesh({7, 2})});
    CHECK(meshes_of_three_axes(c).empty());
    CHECK_THROWS_WITH_AS((void)machines_of(c, mesh({2, 7})), doctest::Contains("7 x 2"), input_error);
    c.machines = {{0, 1, 3}};
    CHECK(meshes_of(c).empty());
    CHECK(meshes_of_three_axes(c).empty());
}

TEST_CASE("a program that does not fit once its atoms are whole is planned again with less memory") {
    int over = 0, again = 0, compared = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(300u); ++seed) {
        test::random_source random(seed);
        auto const model = random_tree(random);
        auto c = random_cluster(random, 3, 2);
        mesh const m({3, 2});
        CAPTURE(seed);
        auto const free = search_mesh(index_program(model), c, m, no_solver{}, {.training = {.bucket = bytes(0)}});
        auto const most = [](plan const& p) {
            double bytes_held = 0;
            for (auto const& d : p.memory) bytes_held = std::max(bytes_held, d.total());
            return bytes_held;
        };
        mesh_search_options const alone{.compares = false};
        auto const rounded = most(plan_mesh(model, c, m, no_solver{}, alone));
        double const before = std::ranges::max(free.memory);
        if (rounded < before * 1.01) continue;
        ++over; // what was found fits in parts of factors, and not in atoms, which are of several of them
        for (auto& type : c.types) type.memory = bytes(std::max(before, 0.99 * rounded));
        auto const p = plan_mesh(model, c, m, no_solver{}, alone);
        if (!p.exists()) continue;
        ++again;
        CHECK(most(p) <= c.types[0].memory.value);
        CHECK(p.lower_bound <= p.cost());
        CHECK(verify(model, p));
        for (auto& type : c.types) type.memory = type.memory * 0.9; // what fits there fits here
        auto const smaller = plan_mesh(model, c, m, no_solver{}, alone);
        if (smaller.exists()) CHECK(p.lower_bound <= smaller.cost() * (1 + 1e-9));
        compared += smaller.exists() && p.lower_bound > free.lower_bound * (1 + 1e-9);
    }
    MESSAGE(again << " of " << over << " fit, " << compared << " bounds that memory raises");
    CHECK(over >= test::cases(3));
    CHECK(2 * again >= over);
}
