// SPDX-License-Identifier: BSL-1.0
#include "emulation.hpp"

#include <heddle/execute/in_process.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/program/operators.hpp>
#include <support/literals.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

using namespace heddle;
using namespace heddle::test;

namespace {

/// Tokens, some experts and their loss.
struct routed {
    program whole;
    indexed_program indexed;
    operator_id op = 0;
};

routed routed_program(extent tokens, extent choices, extent count, bool gated, bool biased) {
    program_builder b;
    auto const x = b.parameter("x", {tokens, 3}), w = b.parameter("w", {tokens, choices});
    auto const ids = b.input("ids", {tokens, choices}, element_type::int64);
    auto const up = b.parameter("up", {count, 3, gated ? 10 : 5}), down = b.parameter("down", {count, 5, 4});
    traced_call call{"experts",
                     "heddle.routed_experts",
                     {T(x), T(ids), T(w), T(up), T(down)},
                     {{"gated", flag(gated)}},
                     {x, ids, w, up, down},
                     {{{tokens, 4}, element_type::float32}}};
    if (biased)
        for (auto const& [name, width] : {std::pair("up_bias", gated ? 10 : 5), std::pair("down_bias", 4)}) {
            call.operands.push_back(b.parameter(name, {count, width}));
            call.keywords[name] = T(call.operands.back());
        }
    auto const y = add_call(b, call).results[0];
    auto const z = b.input("z", {tokens, 4});
    auto p = b.finish(b.apply("einsum", "(t d), (t d) -> (); 0*1", {y, z}));
    auto indexed = index_program(p);
    return {std::move(p), std::move(indexed)};
}

} // namespace

TEST_CASE("tokens that are sent to their experts come back as the single device has them") {
    std::map<std::string, int> seen;
    for (std::uint64_t seed = 1; seed <= 120; ++seed) {
        CAPTURE(seed);
        random_source random(seed);
        extent const tokens = random.between(2, 9), choices = random.between(1, 3), count = random.between(2, 6);
        auto const made = routed_program(tokens, choices, count, random.chance(0.5), random.chance(0.5));
        auto const& p = made.indexed;
        std::vector<instruction::compute> ways;
        for (auto const& i : computations(p, 0))
            if (i.loop >= 0 && p.operators[0].loops[static_cast<std::size_t>(i.loop)].exchanges()) ways.push_back(i);
        REQUIRE(ways.size() == 1);
        auto const& way = ways[0];
        auto const shards = [&](std::size_t k) { return way.operands[k]; };
        std::vector<instruction> steps;
        for (std::size_t k = 0; k < p.operators[0].operands.size(); ++k)
            steps.push_back(instruction::read(p.operators[0].operands[k], shards(k)));
        steps.push_back(way);
        auto const z = p.operators[1].operands[1];
        steps.push_back(instruction::read(z, tensor_form::shard(0)));
        steps.push_back(instruction::compute{1, {way.results[0], tensor_form::shard(0)}, {tensor_form::partial()}, 0});
        auto const ranks = static_cast<std::size_t>(random.between(1, 5));
        auto const plan = plan_of(p, steps, {std::vector<double>(ranks, 1.0 / static_cast<double>(ranks))},
                                  [&](atom_class const& cut) {
                                      std::vector<extent> counts(ranks);
                                      for (extent n = 0; n < cut.atoms; ++n) ++counts[random.below(ranks)];
                                      return counts;
                                  });
        REQUIRE(plan.cuts.size() == 2); // tokens, and experts
        for (auto const& cut : plan.cuts)
            if (std::ranges::find(cut.counts, 0) != cut.counts.end()) ++seen["empty"];
        auto const verified = verify(p, plan);
        CHECK_MESSAGE(verified, verified.problem);
        auto const shown = emulate(made.whole, plan, seed);
        CHECK_MESSAGE(shown, shown.problem);
        CHECK(shown.worst_error <= 1e-12);
        if (ranks > 1) CHECK(shown.executed[static_cast<std::size_t>(collective::all_to_all)] > bytes(0));
    }
    CHECK(seen["empty"] > 20);
}
