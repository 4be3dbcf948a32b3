// SPDX-License-Identifier: BSL-1.0
// Random programs of random forms on in-process ranks equal the single device: loss, every gradient, and bytes charged.
#include "kernels.hpp"

#include <heddle/execute/prove.hpp>
#include <heddle/plan/verify.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>

#include <map>
#include <string>

using namespace heddle;

TEST_CASE("random plans of random programs compute what the single device does") {
    std::map<std::string, int> seen;
    for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
        test::random_source random(seed);
        auto const p = test::random_program(random, {.least_operators = 2, .most_operators = 6});
        auto const indexed = index_program(p);
        auto const plan = test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 7)), random);
        std::string listing = test::describe(p);
        for (auto const& s : plan.steps) listing += "  " + test::describe(s.instruction) + '\n';
        CAPTURE(seed);
        CAPTURE(plan.devices.size());
        INFO(listing);
        auto const verified = verify(indexed, plan);
        INFO(verified.problem);
        REQUIRE(verified);
        for (auto const& s : plan.steps) {
            auto const& i = s.instruction;
            auto const word = [](form f) { return f.is_shard() ? std::string("shard") : to_string(f); };
            if (i.what == instruction::kind::read) ++seen["read " + word(i.to) + (i.from == i.to ? "" : ", state cut")];
            else if (i.what == instruction::kind::unshard) ++seen[std::string(i.is_resharded ? "twice" : "once") + " to " + word(i.to)];
            else if (i.what == instruction::kind::reshard) ++seen["reshard"];
            else if (i.what == instruction::kind::convert) ++seen[word(i.from) + " to " + word(i.to)];
            else ++seen[i.loop >= 0 ? "compute split" : "compute " + word(i.operands.empty() ? form::replicated() : i.operands[0])];
        }
        auto const shown = prove(p, plan, test::kernels(), {.seed = seed});
        CAPTURE(shown.worst_tensor);
        CAPTURE(shown.worst_error);
        CHECK_MESSAGE(shown, shown.problem);
    }
    // Every kind of read, of conversion and of computation has been there.
    for (auto const* kind : {"read replicated", "read mirrored", "read partial", "read shard", "partial to replicated", "partial to shard", "partial to mirrored",
                             "replicated to shard", "replicated to partial", "replicated to mirrored", "mirrored to replicated", "mirrored to shard",
                             "mirrored to partial", "shard to replicated", "shard to mirrored", "shard to shard", "compute split",
                             "compute replicated", "compute mirrored", "compute partial", "read replicated, state cut", "read mirrored, state cut",
                             "once to replicated", "once to mirrored", "twice to replicated", "twice to mirrored", "reshard"}) {
        CAPTURE(kind);
        CHECK(seen[kind] > 0);
    }
}
