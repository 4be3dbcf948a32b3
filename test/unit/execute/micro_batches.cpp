// SPDX-License-Identifier: BSL-1.0
// Random plans whose micro-batches take turns compute what the single device computes from the whole batch, and carry
// what they charge.
#include "emulation.hpp"

#include <heddle/plan/verify.hpp>
#include <support/cases.hpp>
#include <support/catalogue_programs.hpp>
#include <support/interleaved_plans.hpp>

#include <doctest/doctest.h>

using namespace heddle;

TEST_CASE("micro-batches that take turns have the gradients of the whole batch") {
    int run = 0, unsharded = 0, factors = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(12'000u); ++seed) {
        test::random_source random(seed);
        CAPTURE(seed);
        auto const grown = test::find_catalogue_program(random, random.between(1, 5));
        if (!grown) continue;
        auto const& p = *grown;
        INFO(test::describe(p));
        auto const turns = test::random_turns(p, random);
        if (!turns) continue;
        auto const& what = *turns;
        CAPTURE(what.provenance.training.micro_batches);
        INFO(test::describe(what));
        auto const verified = verify(p, what);
        REQUIRE_MESSAGE(verified, verified.problem);
        auto const shown = test::emulate(p, what, seed);
        CHECK_MESSAGE(shown, shown.problem);
        ++run;
        for (auto const& s : what.steps) {
            unsharded += s.instruction.is<instruction::unshard>();
            auto const* const compute = s.instruction.as<instruction::compute>();
            factors += compute && gathers_factors(*compute);
        }
    }
    MESSAGE(run << " programs of batches that can be divided");
    CHECK(run > test::cases(200));
    CHECK((unsharded > 10 || test::sanitized));
    CHECK((factors > 5 || test::sanitized));
}
