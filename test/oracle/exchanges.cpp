// SPDX-License-Identifier: BSL-1.0
// Experts that tokens are sent to: the search has them, no random program is faster than what it proves best, and what
// it finds computes what the single device does.
#include "support/random_plans.hpp"
#include "support/random_programs.hpp"

#include <heddle/cost/atoms.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/program/operators.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/theory/batch.hpp>
#include <heddle/theory/theory.hpp>
#include <support/literals.hpp>

#include <doctest/doctest.h>

#include <algorithm>

namespace {

using namespace heddle;
using namespace heddle::test;

/// Tokens through a layer, experts and perhaps another layer. Everything can be cut evenly on 2, 3 or 6 devices, so
/// that no way to store a parameter has larger shards than another.
program with_experts(random_source& random) {
    program_builder b;
    extent const tokens = 6 * random.between(1, 4), width = 6, count = 6, choices = random.between(1, 2),
                 hidden = 6 * random.between(1, 2);
    auto const x = b.input("x", {tokens, width}), ids = b.input("ids", {tokens, choices}, element_type::int64),
               weights = b.input("weights", {tokens, choices});
    operator_options const matmul{.category = operator_class::matmul};
    auto h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, b.parameter("w", {width, width})}, matmul);
    auto const up = b.parameter("up", {count, width, 2 * hidden}), down = b.parameter("down", {count, hidden, width});
    traced_call call{"experts",
                     "heddle.routed_experts",
                     {T(h), T(ids), T(weights), T(up), T(down)},
                     {{"gated", flag(true)}},
                     {h, ids, weights, up, down},
                     {{{tokens, width}, element_type::float32}}};
    h = add_call(b, call).results[0];
    if (random.chance(0.5))
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, b.parameter("v", {6, width})}, matmul);
    return b.finish(b.apply("sum", "(b n) -> (); 0", {h}, {.category = operator_class::reduction}));
}

bool sends_rows(indexed_program const& p, instruction const& i) {
    auto const* const compute = i.as<instruction::compute>();
    return compute && compute->loop >= 0 &&
           p.operators[compute->op].loops[static_cast<std::size_t>(compute->loop)].exchanges();
}

} // namespace

TEST_CASE("no program is faster than the one found, whether tokens are sent to experts or not") {
    int sent = 0, kept = 0, tried = 0, proven = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        random_source random(seed);
        auto const made = with_experts(random);
        auto const c = random_cluster(random, {.most_types = 2, .most_devices = 6});
        CAPTURE(seed);
        INFO(describe(made) << describe(c));
        auto const p = index_program(made);
        auto const model = per_device_model(c, element_type::float32);
        if (model.class_count() < 2 || 6 % model.class_count() != 0) continue;
        integral_shares const shares(
            p, std::vector<double>(model.class_count(), 1.0 / static_cast<double>(model.class_count())));
        training_options const training{.bucket = bytes(0)};
        cut_space space(p);
        auto const graph = search::explore(space);
        std::vector<step_work> steps;
        for (auto const& i : space.instructions()) steps.push_back(make_step(p, i, training));
        synthesis_options options;
        options.search.limits.labels = 20'000;
        auto const found = synthesise<serial>(priced_graph(space, graph, steps, model, shares, training), options);
        REQUIRE(found.path);
        proven += found.status == search::status::optimal;
        double const least = found.status == search::status::optimal ? found.cost.seconds : found.lower_bound;
        serial const time(model.class_count(), training);
        for (int n = 0; n < 200; ++n) {
            auto total = time.initial();
            auto const walk = theory_walk(p, random).instructions();
            for (auto const& i : walk) {
                auto step = make_step(p, i, training);
                time.extend(total, model.price(step, shares));
            }
            CHECK(time.total(total) >= least * (1 - 1e-9));
            tried += std::ranges::any_of(walk, [&](auto const& i) { return sends_rows(p, i); });
        }
        bool any = false;
        for (auto a : *found.path)
            for (auto i : space.moves()[a].instructions) any = any || sends_rows(p, space.instructions()[i]);
        ++(any ? sent : kept);
    }
    CHECK(proven > 10);
    CHECK(tried > 100);
    CHECK(sent > 3);
    CHECK(kept > 2);
}

TEST_CASE("an exchange is charged for as many rows at each expert") {
    program_builder b;
    auto const x = b.parameter("x", {12, 5}), ids = b.input("ids", {12, 2}, element_type::int64),
               weights = b.input("weights", {12, 2}), up = b.parameter("up", {4, 5, 6}),
               down = b.parameter("down", {4, 6, 7});
    traced_call call{"experts", "heddle.routed_experts",     {T(x), T(ids), T(weights), T(up), T(down)},
                     {},        {x, ids, weights, up, down}, {{{12, 7}, element_type::float32}}};
    auto const y = add_call(b, call).results[0];
    auto const p = index_program(b.finish(b.apply("sum", "(t d) -> (); 0", {y})));
    std::optional<instruction::compute> sends, whole;
    for (auto const& i : computations(p, 0))
        if (sends_rows(p, i)) sends = i;
        else if (i.loop < 0 && i.operands[0] == tensor_form::replicated()) whole = i;
    REQUIRE(sends);
    REQUIRE(whole);
    auto const step = make_step(p, *sends, {}), alone = make_step(p, *whole, {});
    share_ref const by_token{y, sends->results[0].factor()}, by_expert{down, sends->operands[4].factor()};
    CHECK(step.share == by_expert);
    double const there = 12 * 2 * 5 * 4, back = 12 * 2 * 7 * 4;
    CHECK(step.forward_transfers == transfer_list{{collective::all_to_all, bytes(4 * 8), {}, {}},
                                                  {collective::all_to_all, bytes(there), by_token, by_expert},
                                                  {collective::all_to_all, bytes(back), by_expert, by_token}});
    CHECK(step.backward_transfers == transfer_list{{collective::all_to_all, bytes(back), by_token, by_expert},
                                                   {collective::all_to_all, bytes(there), by_expert, by_token}});
    CHECK(step.forward.operations == alone.forward.operations);
    CHECK(step.saved.split == alone.saved.whole);
    CHECK(step.saved.split == bytes(12 * 2 * (5 + 6 + 6 + 7) * 4));
    CHECK(step.saved.whole == bytes(0));

    std::vector<instruction> const one{*sends};
    auto const classes = atom_classes(p, one);
    REQUIRE(classes.size() == 2); // tokens and experts are cut at points of their own
    CHECK(classes[0].atoms == 12);
    CHECK(classes[1].atoms == 4);
    CHECK(classes[1].members == std::vector<cut_factor>{{up, 0}, {down, 0}});

    auto grouped = p;
    split_inside(grouped);
    for (auto const& i : computations(grouped, 0)) CHECK_FALSE(sends_rows(grouped, i));
}
