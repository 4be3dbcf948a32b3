// SPDX-License-Identifier: BSL-1.0
// Gradients that are reduced in buckets: the same gradients, by one collective for each bucket.
#include "emulation.hpp"
#include "kernels.hpp"

#include <heddle/execute/in_process.hpp>
#include <heddle/plan/buckets.hpp>
#include <support/cases.hpp>
#include <support/catalogue_programs.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

using namespace heddle;

namespace {

/// Calls by kind of collective of one iteration on the first rank.
std::vector<std::uint64_t> calls_by_collective(program const& p, plan const& what, std::uint64_t seed) {
    auto const indexed = index_for(p, what);
    auto const sources = random_sources<double>(p, seed);
    std::vector<std::uint64_t> calls(collective_count);
    run_ranks(what.devices.size(), [&](in_process_communicator& communicator) {
        interpreter<double, in_process_communicator, eigen_kernels<double>> run(p, indexed, what, communicator,
                                                                                test::kernels(), seed);
        static_cast<void>(run.run(run.place(sources)));
        if (communicator.rank() > 0) return;
        for (std::size_t k = 0; k < collective_count; ++k)
            for (auto how : {uneven::padded, uneven::grouped})
                calls[k] += communicator.traffic().of(static_cast<collective>(k), how).calls;
    });
    return calls;
}

} // namespace

TEST_CASE("buckets of any size give the gradients of the single device, by one collective each") {
    std::map<std::string, int> seen;
    for (std::uint64_t seed = 1; seed <= test::cases(600u); ++seed) {
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, random.between(3, 8));
        auto const indexed = index_program(p, test::random_segments(p, random));
        auto what = test::random_plan(indexed, static_cast<std::size_t>(random.between(2, 4)), random);
        CAPTURE(seed);
        what.provenance.training.bucket = bytes(0);
        auto const one_by_one = calls_by_collective(p, what, seed);
        what.provenance.training.bucket = bytes(random.of(std::vector<double>{300, 3000, 1e9}));
        INFO(test::describe(p) << test::describe(what));
        auto const shown = test::emulate(p, what, seed);
        CHECK_MESSAGE(shown, shown.problem);
        auto together = one_by_one;
        for (auto const& bucket : gradient_buckets(what)) {
            auto const& t = what.steps[bucket.steps[0]].step.deferred_transfers[0];
            together[static_cast<std::size_t>(t.kind)] -= bucket.steps.size() - 1;
            if (bucket.steps.size() == 1) continue;
            ++seen[std::string(name(t.kind)) + (is_one_by_one(t) ? ", one by one" : "")];
            for (auto n : bucket.steps)
                ++seen[what.steps[n].instruction.is<instruction::read>() ? "read" : "converted"];
        }
        CHECK(calls_by_collective(p, what, seed) == together);
    }
    for (char const* kind : {"all_reduce", "reduce_scatter", "reduce_scatter, one by one", "read", "converted"}) {
        CAPTURE(kind);
        CHECK((seen[kind] > 3 || test::sanitized)); // an eighth of the cases may have too few
    }
}
