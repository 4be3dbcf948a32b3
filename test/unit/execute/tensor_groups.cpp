// SPDX-License-Identifier: BSL-1.0
// Stages that tensor groups share compute what a single device does.
#include "kernels.hpp"
#include "support/block_programs.hpp"
#include "support/cases.hpp"
#include "support/pipelines.hpp"
#include "support/random_programs.hpp"

#include <heddle/execute/prove_pipeline.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace heddle;

bool is_cut(plan const& p) {
    return std::ranges::any_of(p.steps, [](plan_step const& s) { return is_split(s.instruction); });
}

/// Cuts before some of the operators.
std::vector<std::size_t> random_cuts(std::size_t operators, double chance, test::random_source& random) {
    std::vector<std::size_t> cuts{0};
    for (std::size_t o = 1; o < operators; ++o)
        if (random.chance(chance)) cuts.push_back(o);
    cuts.push_back(operators);
    return cuts;
}

} // namespace

TEST_CASE("random programs on random tensor groups, stages, copies and micro-batches have the single device's loss and "
          "gradients") {
    int run = 0, cut = 0, unlike = 0, with_copies = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(500u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::random_program(random, {.least_operators = 4, .most_operators = 12});
        CAPTURE(test::describe(p));
        auto const indexed = index_program(p);
        batch_split batch;
        try {
            batch = split_along_batch(indexed);
        } catch (input_error const&) { continue; }
        auto const cuts = random_cuts(p.operator_count(), 0.25, random);
        bool const equal = random.chance(0.5); // all stages on groups of one size
        std::vector<std::size_t> degrees;
        for (std::size_t s = 0; s + 1 < cuts.size(); ++s)
            degrees.push_back(s > 0 && equal ? degrees[0] : static_cast<std::size_t>(random.between(equal ? 2 : 1, 3)));
        auto const copies = static_cast<std::size_t>(random.between(1, 2));
        auto plan = test::pipeline_of(p, cuts, copies, random.between(1, 4), 0, degrees);
        bool found_all = true, any_cut = false;
        for (auto const d : degrees) {
            if (d == 1 || plan.groups.contains(d)) continue;
            if (auto group = test::random_group(indexed, batch, d, random, 30)) {
                any_cut = any_cut || is_cut(*group);
                plan.groups.emplace(d, *std::move(group));
            } else {
                found_all = false;
            }
        }
        if (!found_all) continue;
        auto const found = random.chance(0.8) ? prove(p, plan, test::kernels(), {.seed = seed})
                                              : prove(p, plan, test::kernels(), {.seed = seed}, gpipe{});
        CHECK_MESSAGE(found, found.problem);
        ++run;
        cut += any_cut;
        unlike += std::ranges::any_of(degrees, [&](auto d) { return d != degrees[0]; });
        with_copies += copies > 1 && any_cut;
    }
    MESSAGE(run, " run, ", cut, " of them with split operators, ", unlike, " with groups of several sizes, ",
            with_copies, " with split operators in copies");
    CHECK(cut > test::cases(100));
    CHECK(unlike > test::cases(50));
    CHECK(with_copies > test::cases(50));
}
