// SPDX-License-Identifier: BSL-1.0
// Pipelines on in-process ranks compute what a single device does.
#include "kernels.hpp"
#include "support/block_programs.hpp"
#include "support/cases.hpp"
#include "support/pipelines.hpp"
#include "support/random_programs.hpp"

#include <heddle/execute/prove_pipeline.hpp>

#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace heddle;
using test::pipeline_of;

std::string said_of(program const& p, pipeline_plan const& plan) {
    try {
        (void)prove(p, plan, test::kernels());
    } catch (input_error const& e) { return e.what(); }
    return "nothing thrown";
}

} // namespace

TEST_CASE("random programs in random stages, micro-batches and copies have the single device's loss and gradients") {
    int run = 0, refused = 0, several_stages = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(400u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::random_program(random, {.least_operators = 4, .most_operators = 14});
        CAPTURE(test::describe(p));
        std::vector<std::size_t> cuts{0};
        for (std::size_t o = 1; o < p.operator_count(); ++o)
            if (random.chance(0.3)) cuts.push_back(o);
        cuts.push_back(p.operator_count());
        auto const copies = static_cast<std::size_t>(random.between(1, 3));
        auto const micro_batches = random.between(1, 5);
        CAPTURE(copies);
        CAPTURE(micro_batches);
        auto const plan = pipeline_of(p, cuts, copies, micro_batches);
        try {
            auto const found = random.chance(0.8) ? prove(p, plan, test::kernels(), {.seed = seed})
                                                  : prove(p, plan, test::kernels(), {.seed = seed}, gpipe{});
            CHECK_MESSAGE(found, found.problem);
            ++run;
            several_stages += plan.stages.size() > 2;
        } catch (input_error const& e) {
            CHECK(std::string(e.what()).find("cannot run in micro-batches") != std::string::npos);
            ++refused;
        }
    }
    MESSAGE(run, " run, ", several_stages, " of them in more than two stages; ", refused, " refused");
    CHECK(run > test::cases(200));
    CHECK(several_stages > test::cases(100));
}

TEST_CASE("every cut of a program with skips over several layers, into two stages and copies, computes what the "
          "program does") {
    auto const p = test::residual_blocks(6, 4, 2, true);
    for (std::size_t cut = 1; cut < p.operator_count(); ++cut) {
        CAPTURE(cut);
        auto const found = prove(p, pipeline_of(p, {0, cut, p.operator_count()}, 2, 3, 1), test::kernels());
        CHECK_MESSAGE(found, found.problem);
    }
}

TEST_CASE("a stage for each operator computes what the program does, with fewer and more micro-batches than stages") {
    auto const p = test::residual_blocks(7, 4, 1);
    std::vector<std::size_t> cuts(p.operator_count() + 1);
    std::iota(cuts.begin(), cuts.end(), std::size_t{0});
    for (std::int64_t micro_batches : {1, 2, 4, 7}) {
        auto const found = prove(p, pipeline_of(p, cuts, 2, micro_batches), test::kernels());
        CHECK_MESSAGE(found, found.problem);
    }
}

TEST_CASE("a mean over the batch is the whole batch's, and a parameter that several stages use gets all its gradient") {
    program_builder b;
    auto const w = b.parameter("w", {5, 5});
    auto const target = b.input("target", {6}, element_type::int64);
    char const* const linear = "(b k), (n k) -> (b n); 0*1";
    auto const x = b.apply("linear", linear, {b.apply("linear", linear, {b.input("x", {6, 5}), w}), w});
    operator_options loss{.category = operator_class::reduction};
    loss.saved_operands = {0, 1};
    loss.attributes = {{"mean", {1}}};
    auto const p = b.finish(b.apply("cross_entropy", "(a ~~c), (_) -> ()", {x, target}, loss));
    for (auto const& cuts : {std::vector<std::size_t>{0, 3}, {0, 1, 3}, {0, 1, 2, 3}}) {
        auto const found = prove(p, pipeline_of(p, cuts, 2, 3, 1), test::kernels());
        CHECK_MESSAGE(found, found.problem);
    }
}

TEST_CASE("a term without a batch is added once, and a loss without one is the loss") {
    program_builder b;
    auto const w = b.parameter("w", {3, 3});
    auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {b.input("x", {4, 3}), w});
    auto const data = b.apply("sum", "(a b) -> (); 0", {y});
    auto const decay = b.apply("sum", "(a b) -> (); 0", {b.apply("mul", "(a b), (a b) -> (a b); 0*1", {w, w})});
    auto const both = b.finish(b.apply("add", "(), () -> (); 0 + 1", {data, decay}));
    auto const found = prove(both, pipeline_of(both, {0, 2, 5}, 2, 2), test::kernels());
    CHECK_MESSAGE(found, found.problem);
}

TEST_CASE("what cannot run is refused by name") {
    auto const p = test::residual_blocks(6, 4, 1);
    CHECK(said_of(p, {}) == "pipeline plan, stages: there are none");
    auto grouped = pipeline_of(p, {0, 7}, 1, 1);
    grouped.devices.push_back({"any", 0, bytes(0), bytes(1)});
    grouped.stages[0].devices[0].push_back(1);
    CHECK(said_of(p, grouped) == "pipeline plan, groups of 2: there is no plan of the model on them");
    CHECK(said_of(p, pipeline_of(p, {0, 7}, 1, 2, 2)) ==
          "pipeline plan, micro-batches: 2 of 2, expected enough for a copy's 6 samples");
    CHECK(said_of(p, pipeline_of(p, {0, 7}, 1, 3, 3)) ==
          "pipeline plan, micro-batches: 3 of 3, expected no more than a copy's 6 samples need");
    CHECK(said_of(p, pipeline_of(p, {0, 7}, 1, 1, 7)) ==
          "pipeline plan, micro-batches: of 7 samples, a copy of the model has 6");
    CHECK(said_of(p, pipeline_of(p, {0, 7}, 1, std::int64_t{1} << 40)) ==
          "pipeline plan, micro-batches: 1099511627776, expected at most 1048576");
    auto other = pipeline_of(p, {0, 7}, 1, 1);
    other.global_batch = 8;
    CHECK(said_of(p, other) == "pipeline plan, global batch: 8 samples, the model's batch has 6");
    CHECK(said_of(test::residual_blocks(6, 4, 2), pipeline_of(p, {0, 7}, 1, 1)) ==
          "pipeline plan, layers: of 7 operators, expected those of the model, 11");

    program_builder b;
    auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {b.input("x", {4, 3}), b.parameter("w", {3, 3})},
                           {.name = "y"});
    auto const norm = b.apply("softmax_over_batch", "(!b n) -> (!b n)", {y}, {.name = "norm"});
    auto const whole = b.finish(b.apply("sum", "(a b) -> (); 0", {norm}));
    CHECK(said_of(whole, pipeline_of(whole, {0, 3}, 1, 2)) ==
          "operator 'norm': needs the whole batch, so the program cannot run in micro-batches");
}
