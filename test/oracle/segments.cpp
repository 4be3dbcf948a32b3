// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The joint linear program of segments is as good as random ratios and as the solver of one segment; plans with
/// segments are as good as plans without.
#include "support/cases.hpp"
#include "support/random_programs.hpp"

#if __has_include(<heddle/clp/all.hpp>)
#include <heddle/clp/all.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/heddle.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/synthesis/relaxation_bounds.hpp>
#include <heddle/synthesis/segments.hpp>
#include <heddle/theory/cut_space.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;

convex_pieces random_pieces(random_source& random) {
    convex_pieces pieces;
    for (int n = random.between(1, 3); n-- > 0;) pieces.push_back({random.between(0.0, 2.0), random.between(0.0, 9.0)});
    return pieces;
}

ratio_problem random_problem(random_source& random, std::size_t segments) {
    ratio_problem p;
    auto const types = static_cast<std::size_t>(random.between(1, 3)), ratios = segments * types;
    double devices = 0;
    for (std::size_t t = 0; t < types; ++t) devices += p.counts.emplace_back(random.between(1, 3));
    p.preferred.assign(ratios, 1 / devices);
    p.segments = segments;
    p.constant = random.between(0.0, 3.0);
    for (int n = random.between(1, 4); n-- > 0;)
        for (auto& work : p.stages.emplace_back(ratios)) {
            work.straight = {random.between(0.0, 2.0), random.between(0.0, 9.0)};
            if (random.chance(0.4)) work.bent.push_back(random_pieces(random));
        }
    for (std::size_t g = 0; g < segments; ++g) {
        if (random.chance(0.5)) p.transfers.push_back({random_pieces(random), g, g});
        if (g > 0 && random.chance(0.7)) p.transfers.push_back({random_pieces(random), g - 1, g});
    }
    for (std::size_t n = 0; n < ratios; ++n) p.memory.push_back({random.between(0.0, 1.0), random.between(0.0, 20.0)});
    p.memory_limits.assign(types, random.between(4.0, 40.0));
    return p;
}

/// Ratios of every segment and type.
std::vector<double> random_segment_ratios(random_source& random, ratio_problem const& p) {
    std::vector<double> ratios;
    for (std::size_t g = 0; g < p.segments; ++g) {
        double sum = 0;
        for (int count : p.counts)
            sum += count * ratios.emplace_back(random.chance(0.2) ? 0.01 : random.between(0.01, 1.0));
        for (auto& r : std::span(ratios).last(p.type_count())) r /= sum;
    }
    return ratios;
}

/// Makes two types with opposite strengths, products on one and traffic on the other, and a network that hardly counts.
cluster specialists() {
    cluster c;
    c.types = {{"products",
                bytes(16e9),
                bytes_per_second(2e11),
                seconds(0),
                {{element_type::float32, {flops_per_second(2e13)}}}},
               {"traffic",
                bytes(16e9),
                bytes_per_second(2e12),
                seconds(0),
                {{element_type::float32, {flops_per_second(4e12)}}}}};
    c.machines = {{0, 1, 1}, {1, 1, 1}};
    c.inter = network_link{bytes_per_second(1e13), seconds(1e-9)};
    return c;
}

} // namespace

TEST_CASE("no ratios of segments are better than those of the joint linear program") {
    int feasible = 0, infeasible = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        random_source random(seed);
        auto const p = random_problem(random, static_cast<std::size_t>(random.between(1, 4)));
        CAPTURE(seed);
        auto const solution = clp::ratio_solver().solve(p);
        if (solution.feasible) {
            CHECK(p.fits(solution.ratios, 1e-6));
            CHECK(solution.objective == doctest::Approx(p.objective(solution.ratios)));
            ++feasible;
        } else ++infeasible;
        for (int n = 0; n < 300; ++n) {
            auto ratios = random_segment_ratios(random, p);
            if (solution.feasible && n % 2 == 0) // near the solution
                for (std::size_t k = 0; k < ratios.size(); ++k)
                    ratios[k] = 0.98 * solution.ratios[k] + 0.02 * ratios[k];
            if (!p.fits(ratios, 0)) continue;
            REQUIRE(solution.feasible);
            CHECK(solution.objective <= p.objective(ratios) * (1 + 1e-6));
        }
    }
    CHECK(feasible > 200);
    CHECK(infeasible > 5);
}

TEST_CASE("one segment and an idle one are solved as one is") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        random_source random(seed + 5000);
        auto const p = random_problem(random, 1);
        CAPTURE(seed);
        auto two = p;
        two.segments = 2;
        auto const ratios = 2 * p.type_count();
        two.preferred.resize(ratios, p.preferred.front());
        two.memory.resize(ratios);
        for (auto& stage : two.stages) stage.resize(ratios);
        auto const one = clp::ratio_solver().solve(p), joint = clp::ratio_solver().solve(two);
        REQUIRE(joint.feasible == one.feasible);
        if (one.feasible) CHECK(joint.objective == doctest::Approx(one.objective).epsilon(1e-6));
    }
}

TEST_CASE("the objective of a program's segments is its time") {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        random_source random(seed + 7000);
        auto const made = test::random_program(random);
        std::vector<segment_number> segments(made.operator_count());
        for (auto& s : segments) s = static_cast<segment_number>(random.below(3));
        segments = numbered_in_order(segments);
        auto const p = index_program(made, segments);
        auto const c = test::random_cluster(random, {.most_types = 3});
        device_types const types(c);
        if (types.classes.size() == 1) continue; // the same ratios everywhere: nothing moves between segments
        cost_model const model(c, types.classes);
        cut_space space(p);
        auto const graph = search::explore(space);
        std::vector<step_work> all;
        for (auto const& i : space.instructions()) all.push_back(make_step(p, i, {}));
        priced_graph const priced(space, graph, all, model,
                                  segment_shares(p, ratio_table(segment_count(p), even_ratios(model))));
        auto const bounds = improve_bounds(priced, 3);
        if (!bounds.path) continue;
        auto const segment_of = [&](share_ref ref) -> std::size_t {
            return p.tensors[ref.tensor].factors[static_cast<std::size_t>(ref.factor)].segment;
        };
        ratio_table ratios;
        for (std::size_t g = 0; g < segment_count(p); ++g) {
            auto& row = ratios.emplace_back();
            double sum = 0;
            for (auto const& k : types.classes) sum += k.count * row.emplace_back(random.between(0.05, 1.0));
            for (auto& r : row) r /= sum;
        }
        program_steps program;
        for (auto const& s : steps_of(*bounds.path, space, all))
            program.steps.push_back(model.decided(s.step, segment_shares(p, ratios)));
        bool const is_bounded = std::ranges::any_of(
            program.steps, [&](step_work const& s) { // grouped: a constant where its model is one line
                bool grouped = false;
                for_each_transfer(s, [&](transfer const& t) { grouped = grouped || t.how == uneven::grouped; });
                return grouped;
            });
        if (is_bounded) continue;
        auto const problem = make_ratio_problem(program, model, even_ratios(model),
                                                {.segments = segment_count(p), .segment_of = segment_of});
        CAPTURE(seed);
        std::vector<double> all_ratios;
        for (auto const& row : ratios) all_ratios.insert(all_ratios.end(), row.begin(), row.end());
        CHECK(problem.objective(all_ratios) ==
              doctest::Approx(run_serial(program.steps, model, segment_shares(p, ratios)).total).epsilon(1e-9));
    }
}

TEST_CASE("a plan with segments is never dearer than without, and is verified") {
    int cheaper = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(60u); ++seed) {
        random_source random(seed + 9000);
        auto const p = test::random_program(random);
        auto const c = test::random_cluster(random, {.most_types = 2});
        CAPTURE(seed);
        INFO(test::describe(p) << test::describe(c));
        auto const one = plan_hap(p, c, clp::ratio_solver());
        hap_options options;
        for (operator_id o = 0; o < p.operator_count(); ++o)
            options.segments.push_back(static_cast<segment_number>(3 * o / p.operator_count()));
        auto const several = plan_hap(p, c, clp::ratio_solver(), options);
        REQUIRE(several.exists() == one.exists());
        if (!one.exists()) continue;
        CHECK(several.cost() <= one.cost() * (1 + 1e-12));
        CHECK(several.lower_bound <= several.cost() * (1 + 1e-12));
        cheaper += several.cost() < one.cost() * (1 - 1e-6);
        auto const checked = verify(p, several);
        CHECK_MESSAGE(checked, checked.problem);
        CHECK(several.cost() == doctest::Approx(evaluate(several, c).time.total()));
    }
    MESSAGE(cheaper << " are cheaper with segments");
}

TEST_CASE("segments are refused where the solver takes one only") {
    struct {
        ratio_solution solve(ratio_problem const& p) { return {true, p.preferred, p.objective(p.preferred)}; }
    } solver;
    random_source random(1);
    auto const p = test::random_program(random);
    hap_options options;
    for (operator_id o = 0; o < p.operator_count(); ++o) options.segments.push_back(o > 0);
    CHECK_THROWS_WITH_AS((void)plan_hap(p, specialists(), solver, options), doctest::Contains("does not take so many"),
                         input_error);
}

TEST_CASE("devices with other strengths take other shares of other layers") {
    program_builder b;
    auto h = b.input("x", {16384, 1024});
    for (std::string const n : {"0", "1", "2", "3"})
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, b.parameter("layers.0.weight" + n, {1024, 1024})},
                    {.category = operator_class::matmul});
    for (int n = 0; n < 12; ++n)
        h = b.apply("scale", "(b n), (n) -> (b n); 0*1",
                    {h, b.parameter("layers.1.scale" + std::to_string(n), {1024})});
    auto const p = b.finish(b.apply("sum", "(b n) -> (); 0", {h}));
    auto const one = plan_hap(p, specialists(), clp::ratio_solver());
    hap_options options;
    options.segments = segments_by_layer(p);
    auto const several = plan_hap(p, specialists(), clp::ratio_solver(), options);
    REQUIRE(several.ratios.size() == 2);
    CHECK(several.cost() < 0.8 * one.cost());
    CHECK(several.ratios[0][0] > several.ratios[1][0] + 0.2);
    CHECK(std::ranges::any_of(several.steps, [](plan_step const& s) {
        return std::ranges::any_of(s.step.forward_transfers, &transfer::redistributes);
    }));
    auto const checked = verify(p, several);
    CHECK_MESSAGE(checked, checked.problem);
}
#endif
