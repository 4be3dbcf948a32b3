// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The bound at any ratios against every program at the ratios of a grid.
#include "support/random_programs.hpp"

#include <heddle/clp/ratio_solver.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/theory/cut_space.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;

/// Calls with all vectors of `count` shares that are multiples of 1 / `steps` and sum to one.
void for_all_shares(std::size_t count, int steps, std::function<void(share_vector const&)> const& visit) {
    share_vector shares(count);
    std::function<void(std::size_t, int)> const fill = [&](std::size_t d, int left) {
        if (d + 1 == count) {
            shares[d] = static_cast<double>(left) / steps;
            visit(shares);
            return;
        }
        for (int mine = 0; mine <= left; ++mine) {
            shares[d] = static_cast<double>(mine) / steps;
            fill(d + 1, left - mine);
        }
    };
    fill(0, steps);
}

/// The least seconds of any path that fits.
template <class Accumulator>
double least_seconds(priced_graph const& priced) {
    double best = test::infinite;
    move_list path;
    std::function<void(std::size_t)> const walk = [&](std::size_t node) {
        if (priced.graph().is_last(node)) {
            auto const cost = priced.evaluate<Accumulator>(path);
            if (priced.fits(cost)) best = std::min(best, cost.seconds);
            return;
        }
        for (auto const& e : priced.graph().out(node)) {
            path.push_back(e.action);
            walk(e.to);
            path.pop_back();
        }
    };
    walk(0);
    return best;
}

double count_paths(cut_graph const& graph) {
    std::vector<double> count(graph.node_count());
    for (std::size_t n = graph.node_count(); n-- > 0;) {
        count[n] = graph.is_last(n);
        for (auto const& e : graph.out(n)) count[n] += count[e.to];
    }
    return count[0];
}

} // namespace

TEST_CASE("no program costs less than the bound at any ratios, whatever they are") {
    int checked = 0, close = 0, tight = 0;
    for (std::uint64_t seed = 1; checked < 150 && seed <= 3000; ++seed) {
        random_source random(seed + 610000);
        auto const made = test::random_program(random, {.most_operators = 4, .most_extent = 6});
        auto const c = test::random_cluster(random, {.most_types = 3, .most_devices = 3, .memory = random.chance(0.3) ? test::memory_kind::tight : test::memory_kind::loose});
        auto const p = index_program(made);
        cut_space space(p);
        auto const graph = search::explore(space);
        if (count_paths(graph) > 300) continue;
        ++checked;
        CAPTURE(seed);
        INFO(test::describe(made) << test::describe(c));
        hap_options options;
        options.training.overlaps_gradients = random.chance(0.5);
        bool const overlaps = options.training.overlaps_gradients;
        clp::ratio_solver solver;
        auto const found = plan_hap(made, c, solver, options);
        if (!found.exists()) continue;
        REQUIRE(found.global_lower_bound);
        double const bound = *found.global_lower_bound;
        CHECK(bound <= found.lower_bound);
        std::vector<step> steps;
        for (auto const& i : space.instructions()) steps.push_back(make_step(p, i, options.training));
        auto const model = per_device_model(c, main_type(p));
        double best = found.cost();
        for_all_shares(model.class_count(), 12, [&](share_vector const& ratios) {
            // As they are, and rounded as a plan would.
            for (bool const rounded : {false, true}) {
                auto const least = [&](priced_graph const& priced) { return overlaps ? least_seconds<overlapped>(priced) : least_seconds<serial>(priced); };
                best = std::min(best, rounded ? least({space, graph, steps, model, integral_shares(p, ratios)})
                                              : least({space, graph, steps, model, uniform_shares(ratios)}));
            }
        });
        CHECK(bound <= best * (1 + 1e-9));
        close += bound >= 0.5 * best;
        tight += bound >= 0.95 * best;
    }
    MESSAGE("of " << checked << " bounds " << tight << " are within 5 %, " << close << " within half of the best met");
    CHECK(checked == 150);
    CHECK(close > 75);
}
