// SPDX-License-Identifier: BSL-1.0
// What a planner searches if memory is loose includes the fastest of all programs.
#include "support/random_plans.hpp"
#include "support/random_programs.hpp"

#include <heddle/cost/atoms.hpp>
#include <heddle/cost/duplex.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/theory/micro_batch.hpp>

#include <doctest/doctest.h>

namespace {

using namespace heddle;
using test::random_source;

template <class Accumulator>
double least_seconds(indexed_program const& p, instruction_filter allowed, cost_model const& model,
                     integral_shares const& shares, training_options const& training) {
    cut_space space(p, operator_kinds(p), training.interleaves() ? 16 : 1);
    if (training.interleaves()) space.divide_into_stages();
    space.restrict_to(std::move(allowed));
    auto const graph = search::explore(space);
    std::vector<step_work> steps;
    for (auto const& i : space.instructions()) steps.push_back(make_step(p, i, training));
    synthesis_options options;
    options.search.limits.labels = 20'000;
    if (training.interleaves()) options.engine = search_engine::pareto_dp;
    return synthesise<Accumulator>(priced_graph(space, graph, steps, model, shares, training), options).cost.seconds;
}

/// Returns how often all programs are checked, and how often gathering after the update alone would have missed the
/// fastest.
template <class Accumulator>
std::pair<int, int> check(training_options const& training, best_gather when, std::uint64_t cases) {
    int checked = 0, missed = 0;
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        random_source random(seed + 500'000);
        program made = test::random_program(random, {.most_operators = 5, .most_extent = 5});
        auto const c = test::random_cluster(random, {.most_types = 2, .most_devices = 4});
        if (training.interleaves()) {
            if (obstacles_to_micro_batches(index_program(made)).operation) continue;
            try {
                made = micro_batch_of(made, training.micro_batches);
            } catch (input_error const&) { // an odd batch
                continue;
            }
        }
        CAPTURE(seed);
        INFO(test::describe(made) << test::describe(c));
        auto const p = index_program(made);
        auto const model = per_device_model(c, element_type::float32);
        integral_shares const shares(p, test::random_ratios(model.class_count(), random));
        auto const least = [&](instruction_filter allowed) {
            return least_seconds<Accumulator>(p, std::move(allowed), model, shares, training);
        };
        double const all = least(instruction_filter::everything());
        CHECK(least(fastest_programs(p, when)) <= all * (1 + 1e-9));
        ++checked;
        missed += least(fastest_programs(p)) > all * (1 + 1e-9);
    }
    return {checked, missed};
}

} // namespace

TEST_CASE("the programs searched where memory is loose are as fast as any") {
    SUBCASE("gradients after the backward pass") {
        CHECK(check<serial>({}, best_gather::after_update, 50).second == 0);
    }
    SUBCASE("gradients beside the backward pass") {
        CHECK(check<overlapped>({.overlaps_gradients = true}, best_gather::after_update, 50).second == 0);
    }
    SUBCASE("gradients that are copied") {
        CHECK(check<serial>({.copies_gradients = true}, best_gather::either, 40).second > 3);
    }
    SUBCASE("micro-batches in turn") {
        auto const [checked, missed] = check<duplex>({.micro_batches = 2}, best_gather::before_use, 200);
        CHECK(checked > 20);
        CHECK(missed > 3);
    }
}
