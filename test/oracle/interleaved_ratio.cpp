// SPDX-License-Identifier: BSL-1.0
// The ratio problem of micro-batches in turn agrees with the recurrence, and its solution with all ratios of a grid.
#include <heddle/balance/interleaved_ratio_problem.hpp>
#include <heddle/clp/ratio_solver.hpp>
#include <heddle/cost/duplex.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/realise.hpp>
#include <support/random_programs.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

using namespace heddle;

namespace {

/// A random program of two device types, with random stages and no memory limit.
struct turned_program {
    indexed_program program;
    training_options training;
    cost_model model;
    program_steps steps;
    bool gathers_again = false;

    turned_program(test::random_source& random, cluster const& c)
        : program(index_program(test::random_program(random, {.least_operators = 3, .most_operators = 6}))),
          training{
              .micro_batches = random.between(2, 3), .accumulated = random.chance(0.3) ? 4 : 1, .turn = seconds(1e-4)},
          model(c, device_types(c).classes) {
        cut_space space(program);
        space.divide_into_stages();
        auto const graph = search::explore(space);
        auto const paths = search::paths_to_goal(graph, [](auto) { return 1.0; });
        move_list path;
        for (search::graph_node at; at.level + 1 < graph.level_count();) {
            auto out = graph.out(at);
            std::erase_if(out, [&](auto const& e) { return std::isinf(paths.to_goal({at.level + 1, e.to})); });
            auto const& e = random.of(out);
            path.push_back(e.action);
            at = {at.level + 1, e.to};
        }
        std::vector<step_work> all;
        for (auto const& i : space.instructions()) all.push_back(make_step(program, i, training));
        uniform_shares const shares(even_ratios(model));
        for (std::size_t level = 0; level < path.size(); ++level) {
            if (space.moves()[path[level]].begins_stage) steps.stage_starts.push_back(steps.steps.size());
            for (auto i : space.moves()[path[level]].instructions) {
                steps.steps.push_back(model.decided(all[i], shares));
                gathers_again = gathers_again || space.instructions()[i].is<instruction::reshard>();
            }
        }
    }

    [[nodiscard]] double seconds_at(std::vector<double> const& ratios) const {
        duplex const clock(model.class_count(), training);
        auto label = clock.initial();
        for (std::size_t n = 0; n < steps.steps.size(); ++n) {
            if (std::ranges::binary_search(steps.stage_starts, n)) clock.close(label);
            clock.extend(label, model.price(steps.steps[n], uniform_shares(ratios)));
        }
        return clock.total(label);
    }
    [[nodiscard]] ratio_problem problem_near(std::vector<double> const& ratios) const {
        return make_interleaved_ratio_problem(steps, model, even_ratios(model), training, ratios);
    }
    /// Returns ratios at which the first type's devices have `part` of all.
    [[nodiscard]] std::vector<double> split_at(double part) const {
        return {part / model.classes()[0].count, (1 - part) / model.classes()[1].count};
    }
};

} // namespace

TEST_CASE("the problem of micro-batches in turn is their recurrence, and its solution the best of all ratios") {
    clp::ratio_solver solver;
    int compared = 0, solved = 0, better = 0;
    for (std::uint64_t seed = 1; compared < 150; ++seed) {
        test::random_source random(seed);
        auto const c = test::random_cluster(random, {.most_types = 2, .most_devices = 4});
        if (c.types.size() != 2 || device_types(c).classes.size() != 2) continue;
        turned_program const p(random, c);
        CAPTURE(seed);
        ++compared;
        std::vector<double> parts;
        for (int n = 0; n <= 400; ++n) parts.push_back(n / 400.0);
        double least = test::infinite;
        for (double part : parts) least = std::min(least, p.seconds_at(p.split_at(part)));
        for (int n = 0; n < 5; ++n) {
            auto const here = p.split_at(random.unit());
            auto const problem = p.problem_near(here);
            CHECK_NOTHROW(validate(problem));
            if (!p.gathers_again) CHECK(problem.objective(here) == doctest::Approx(p.seconds_at(here)).epsilon(1e-9));
            for (int k = 0; k < 5; ++k) {
                auto const there = p.split_at(random.unit());
                CHECK(problem.objective(there) <= p.seconds_at(there) * (1 + 1e-9));
            }
        }
        auto ratios = even_ratios(p.model);
        double bound = 0;
        for (int round = 0; round < 3; ++round) {
            auto problem = p.problem_near(ratios);
            problem.memory_limits.assign(2, test::infinite);
            auto const solution = solver.solve(problem);
            REQUIRE(solution.feasible);
            bound = std::max(bound, solution.objective);
            ratios = solution.ratios;
        }
        double const found = p.seconds_at(ratios);
        CHECK(bound <= least * (1 + 1e-7));
        if (found > bound * (1 + 1e-7)) continue; // the network decides elsewhere there
        ++solved;
        CHECK(found <= least * (1 + 1e-7));
        better += found < p.seconds_at(even_ratios(p.model)) * (1 - 1e-6);
    }
    MESSAGE("solved " << solved << " of " << compared << ", " << better << " of them better than even ratios");
    CHECK(solved * 5 > compared * 4);
    CHECK(better > 20);
}
