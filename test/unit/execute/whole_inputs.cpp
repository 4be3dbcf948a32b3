// SPDX-License-Identifier: BSL-1.0
// Decoders whose loss is a mean over labels that may be ignored run in micro-batches: random plans of stages and of
// turns compute what the single device computes from the whole batch.
#include "emulation.hpp"
#include "kernels.hpp"

#include <heddle/execute/prove_pieces.hpp>
#include <heddle/execute/prove_stages.hpp>
#include <heddle/execute/shrink.hpp>
#include <heddle/execute/shrink_stages.hpp>
#include <heddle/plan/as_planned.hpp>
#include <heddle/plan/verify.hpp>
#include <support/cases.hpp>
#include <support/decoder.hpp>
#include <support/interleaved_plans.hpp>
#include <support/random_stages.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

using namespace heddle;

TEST_CASE("stages of decoders divide a mean by the labels of the whole batch that count") {
    unsigned micro_batches = 0, several = 0, smaller = 0;
    extent shortest = 12;
    for (std::uint64_t seed = 1; seed <= test::cases(400u); ++seed) {
        test::random_source random(seed);
        CAPTURE(seed);
        auto const p = test::random_decoder(random);
        auto const what = test::random_stages(p, 8, random);
        if (!what) continue;
        CAPTURE(what->micro_batches);
        REQUIRE(verify(p, *what).problem == "");
        CHECK(prove(p, *what, test::kernels(), {.seed = seed}).problem == "");
        auto const small = shrink(p, *what);
        REQUIRE(verify(small.program, small.plan).problem == "");
        CHECK(prove(small.program, small.plan, test::kernels(), {.seed = seed}).problem == "");
        smaller += size_of_execution(small.program, small.plan).work < size_of_execution(p, *what).work;
        shortest = std::min(shortest, small.program.tensor(0).shape[1]);
        micro_batches += what->micro_batches > 1;
        several += what->stages.size() > 1;
    }
    MESSAGE(micro_batches << " in micro-batches, " << several << " of several stages, " << smaller << " shrunk");
    CHECK(micro_batches > test::cases(100u));
    CHECK(several > test::cases(100u));
    CHECK(smaller > test::cases(10u));
    CHECK(shortest <= 4);
}

TEST_CASE("decoders whose micro-batches take turns have the loss and the gradients of the whole batch") {
    int run = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(600u); ++seed) {
        test::random_source random(seed);
        CAPTURE(seed);
        auto const p = test::random_decoder(random);
        auto const turns = test::random_turns(p, random);
        if (!turns) continue;
        auto const& what = *turns;
        CAPTURE(what.provenance.training.micro_batches);
        INFO(test::describe(what));
        auto const verified = verify(p, what);
        REQUIRE_MESSAGE(verified, verified.problem);
        auto const shown = test::emulate(p, what, seed);
        CHECK_MESSAGE(shown, shown.problem);
        auto const small = shrink(p, what);
        CHECK(verify(small.program, small.plan).problem == "");
        auto const again = test::emulate(small.program, small.plan, seed);
        CHECK_MESSAGE(again, again.problem);
        ++run;
    }
    MESSAGE(run << " decoders of batches that can be divided");
    CHECK(run > test::cases(100));
}

TEST_CASE("plans that were made before inputs could be whole are of the program without them") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        test::random_source random(seed);
        CAPTURE(seed);
        auto const p = test::random_decoder(random), before = p.without_whole_inputs();
        for (tensor_id t = 0; t < before.tensor_count(); ++t) CHECK(before.tensor(t).whole_of.empty());
        for (auto const* of : {&p, &before}) {
            auto const what = test::random_plan(index_program(*of), 3, random);
            CHECK(verify(as_planned(p, what), what).problem == "");
        }
        CHECK(as_planned(p, test::random_plan(index_program(before), 3, random)).tensor_count() ==
              before.tensor_count());
    }
}

TEST_CASE("pieces of a decoder's stages that need no label are run, and the loss is told not to be") {
    auto const p = test::decoder({.batch = 8, .length = 4});
    std::size_t run = 0;
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        test::random_source random(seed);
        CAPTURE(seed);
        auto const what = test::random_stages(p, 4, random);
        if (!what || what->micro_batches == 1) continue;
        if (std::ranges::any_of(what->stages, [](auto const& s) { return s.plan.is_on_mesh(); })) continue;
        auto const shown = prove_in_pieces(p, *what, test::kernels());
        CHECK(shown.shown.problem == "");
        CHECK(shown.share() < 1);
        CHECK(std::ranges::any_of(shown.left, [](auto const& why) { return why.find("cross_entropy") != why.npos; }));
        ++run;
    }
    CHECK(run > 5);
}
