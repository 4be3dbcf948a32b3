// SPDX-License-Identifier: BSL-1.0
// Programs that are cut anywhere, whose parts run as random programs on ranks of their own, compute what the single
// device computes from the whole batch; damaged ones do not.
#include "kernels.hpp"

#include <heddle/execute/prove_stages.hpp>
#include <heddle/execute/shrink_stages.hpp>
#include <heddle/execute/stage_rank.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <support/cases.hpp>
#include <support/catalogue_programs.hpp>
#include <support/random_stages.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace heddle;

namespace {

/// Two linear operators with one weight.
program tied_linears() {
    program_builder b;
    char const* const linear = "(b k), (n k) -> (b n); 0*1";
    auto const w = b.parameter("w", {8, 8});
    auto const y = b.apply("linear", linear, {b.input("x", {8, 8}), w}, {.category = operator_class::matmul});
    auto const z = b.apply("tanh", "(b n) -> (b n)", {y}, {.category = operator_class::elementwise});
    auto const out = b.apply("linear", linear, {z, w}, {.category = operator_class::matmul});
    // So that no two rows weigh the same.
    auto const weighed = b.apply("mul", "(b n), (b n) -> (b n); 0*1", {out, b.input("y", {8, 8})},
                                 {.category = operator_class::elementwise});
    return b.finish(b.apply("sum", "(b n) -> (); 0", {weighed}, {.category = operator_class::reduction}));
}

bool uses_twice(program const& p) {
    auto const indexed = index_program(p);
    return std::ranges::any_of(indexed.tensors,
                               [](auto const& t) { return t.is_parameter() && t.consumers.size() > 1; });
}

/// Returns the largest error of gradients when each rank has the links that `damage` leaves, relative to the largest
/// gradient. All stages are lines.
template <class Damage>
double error_with(program const& p, staged_plan const& what, Damage const& damage) {
    staged_layout const layout(p, what);
    auto const sources = random_sources<double>(p, 1);
    auto const expected = run_on_random_sources(p, sources, test::kernels(), 1);
    double worst = 0, largest = 0;
    std::mutex lock;
    run_ranks(layout.ranks(), [&](in_process_communicator& world) {
        auto const stage = layout.stages_of(world.rank()).front();
        auto group = world.group(layout.ranks_of(stage));
        auto links = layout.links_of(stage, world.rank());
        damage(links);
        stage_rank<dense_tensor<double>, in_process_communicator> here(layout.program_of(stage), std::move(links),
                                                                       world, group);
        interpreter rank(p, layout.indexed(stage), here, test::kernels(), 1);
        auto const mine = rank.run(rank.place(sources));
        source_values<double> wanted;
        for (auto const& [t, gradient] : expected.gradients) wanted.emplace(t, gradient.second);
        auto const parts = rank.place(wanted);
        std::scoped_lock const guard(lock);
        for (auto const& [t, gradient] : mine.gradients)
            for (extent n = 0; n < gradient.second.elements(); ++n) {
                worst = std::max(worst, std::abs(gradient.second[n] - parts.at(t)[n]));
                largest = std::max(largest, std::abs(parts.at(t)[n]));
            }
    });
    return worst / largest;
}

} // namespace

TEST_CASE("random stages on lines, meshes and device groups compute what the single device does, shrunk too") {
    unsigned run = 0, smaller = 0, several = 0, meshes = 0, groups = 0, micro_batches = 0, single_samples = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(1500u); ++seed) {
        test::random_source random(seed + 300'000);
        CAPTURE(seed);
        auto const grown = test::find_catalogue_program(random, random.between(2, 5));
        if (!grown) continue;
        auto const& p = *grown;
        auto const what = test::random_stages(p, 8, random);
        if (!what) continue;
        INFO(test::describe(p));
        CAPTURE(what->micro_batches);
        REQUIRE(verify(p, *what).problem == "");
        auto const shown = prove(p, *what, test::kernels(), {.seed = seed});
        if (std::abs(shown.expected_loss) < 1e-15) continue; // all is zero but for rounding
        CHECK(shown.problem == "");
        ++run;
        if (run % 2 == 0) {
            auto const small = shrink(p, *what);
            REQUIRE(verify(small.program, small.plan).problem == "");
            CHECK(small.plan.stages.size() == what->stages.size());
            bool const single = batch_size_of(index_program(p)) == what->micro_batches;
            CHECK(small.plan.micro_batches ==
                  std::min(what->micro_batches, std::max(single ? 3 : 2, static_cast<int>(what->stages.size()) + 1)));
            auto const whole = size_of_execution(p, *what), less = size_of_execution(small.program, small.plan);
            CHECK(less.memory <= whole.memory);
            smaller += less.work < whole.work;
            CHECK(prove(small.program, small.plan, test::kernels(), {.seed = seed}).problem == "");
        }
        several += what->stages.size() > 1;
        micro_batches += what->micro_batches > 1;
        single_samples += what->micro_batches > 1 && batch_size_of(index_program(p)) == what->micro_batches;
        meshes += std::ranges::any_of(what->stages, [](auto const& s) { return s.plan.is_on_mesh(); });
        groups += std::ranges::any_of(what->stages, [](auto const& s) { return s.plan.has_groups(); });
    }
    MESSAGE(run << " run, " << smaller << " of the shrunk smaller, " << several << " of several stages, "
                << micro_batches << " in micro-batches, " << meshes << " on meshes, " << groups << " in device groups, "
                << single_samples << " of single samples");
    CHECK(several > test::cases(100u));
    CHECK(smaller > test::cases(20u));
    CHECK(meshes > test::cases(20u));
    CHECK(groups > test::cases(10u));
    CHECK(micro_batches > test::cases(20u));
}

TEST_CASE("stages that pass their devices in rounds compute what the single device does, shrunk too") {
    unsigned run = 0, meshes = 0, groups = 0, tied = 0, refused = 0;
    std::map<std::pair<std::size_t, std::size_t>, unsigned> shapes; // by stages of a round, and rounds
    for (std::uint64_t seed = 1; seed <= test::cases(600u); ++seed) {
        test::random_source random(seed + 340'000);
        CAPTURE(seed);
        auto const p = test::random_chain(random);
        auto const what = test::random_stages(p, 8, random, static_cast<std::size_t>(random.between(2, 3)));
        if (!what) continue;
        INFO(test::describe(p));
        CAPTURE(what->micro_batches);
        auto const checked = verify(p, *what);
        if (!checked) {
            CHECK(checked.problem.find("with a stage of its devices") != std::string::npos);
            ++refused;
            continue;
        }
        CHECK(prove(p, *what, test::kernels(), {.seed = seed}).problem == "");
        ++run;
        ++shapes[{what->places(), what->rounds()}];
        meshes += std::ranges::any_of(what->stages, [](auto const& s) { return s.plan.is_on_mesh(); });
        groups += std::ranges::any_of(what->stages, [](auto const& s) { return s.plan.has_groups(); });
        tied += uses_twice(p);
        if (run % 3 != 0) continue;
        auto const small = shrink(p, *what);
        REQUIRE(verify(small.program, small.plan).problem == "");
        CHECK(small.plan.rounds() == what->rounds());
        CHECK(prove(small.program, small.plan, test::kernels(), {.seed = seed}).problem == "");
    }
    MESSAGE(run << " run, " << meshes << " on meshes, " << groups << " in device groups, " << tied
                << " with a weight of two stages, " << refused << " refused");
    CHECK(shapes.size() == 4);
    for (auto const& [shape, count] : shapes) CHECK(count > test::cases(10u));
    CHECK(meshes > test::cases(20u));
    CHECK(groups > test::cases(10u));
    CHECK(tied > test::cases(20u));
}

TEST_CASE("parts of a micro-batch take turns in some stages, which compute what the single device does, shrunk too") {
    unsigned run = 0, alike = 0, unlike = 0, several = 0, in_rounds = 0, shards = 0, resharded = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(2500u); ++seed) {
        test::random_source random(seed + 360'000);
        CAPTURE(seed);
        bool const is_chain = random.chance(0.3);
        auto const grown = is_chain ? std::optional(test::random_chain(random))
                                    : test::find_catalogue_program(random, random.between(2, 5));
        if (!grown) continue;
        auto const& p = *grown;
        auto const what = test::random_stages(p, 8, random, is_chain && random.chance(0.5) ? 2 : 1, true);
        if (!what || std::ranges::none_of(what->stages, [](auto const& s) { return s.turns() > 1; })) continue;
        INFO(test::describe(p));
        CAPTURE(what->micro_batches);
        auto const checked = verify(p, *what);
        if (!checked) {
            bool const is_known = checked.problem.find("of the whole batch") != std::string::npos ||
                                  checked.problem.find("with a stage of its devices") != std::string::npos;
            CHECK_MESSAGE(is_known, checked.problem);
            continue;
        }
        auto const shown = prove(p, *what, test::kernels(), {.seed = seed});
        if (std::abs(shown.expected_loss) < 1e-15) continue;
        CHECK(shown.problem == "");
        ++run;
        auto const turns = what->stages.front().turns();
        bool const is_one = std::ranges::all_of(what->stages, [&](auto const& s) { return s.turns() == turns; });
        alike += is_one && what->stages.size() > 1;
        unlike += !is_one;
        several += what->micro_batches > 1;
        in_rounds += what->rounds() > 1;
        for (auto const& s : what->stages) {
            shards += s.plan.devices.size() > 1 && s.turns() > 1;
            resharded += s.turns() > 1 && std::ranges::any_of(s.plan.steps, [](plan_step const& step) {
                             return step.instruction.is<instruction::reshard>();
                         });
        }
        if (run % 3 != 0) continue;
        auto const small = shrink(p, *what);
        REQUIRE(verify(small.program, small.plan).problem == "");
        CHECK(std::ranges::equal(small.plan.stages, what->stages, {}, &planned_stage::turns, &planned_stage::turns));
        CHECK(prove(small.program, small.plan, test::kernels(), {.seed = seed}).problem == "");
    }
    MESSAGE(run << " run, " << alike << " with as many turns in all stages, " << unlike << " with unlike, " << several
                << " in micro-batches, " << in_rounds << " in rounds, " << shards << " stages of several ranks, "
                << resharded << " reshard parameters");
    CHECK(alike > test::cases(20u));
    CHECK(unlike > test::cases(40u));
    CHECK(several > test::cases(40u));
    CHECK(in_rounds > test::cases(10u));
    CHECK(shards > test::cases(40u));
    CHECK(resharded > test::cases(10u));
}

TEST_CASE("what cannot pass in rounds is refused with the reason") {
    std::map<std::string, bool> found;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        test::random_source random(seed + 350'000);
        auto const p = test::random_chain(random);
        auto what = test::random_stages(p, 6, random, 2);
        if (!what || !verify(p, *what)) continue;
        auto const problem_of = [&](auto const& damage) {
            auto damaged = *what;
            damage(damaged);
            return verify(p, damaged).problem;
        };
        auto const places = what->places();
        auto const has = [](std::string const& text, char const* part) { return text.find(part) != std::string::npos; };
        found["held"] |=
            has(problem_of([](auto& x) { ++x.stages[0].plan.provenance.training.in_flight; }), "in flight");
        found["devices"] |=
            has(problem_of([&](auto& x) { x.stages[places + 1].devices.back() += 1; }), "expected the devices");
        found["same"] |= has(problem_of([&](auto& x) {
                                 for (auto& s : x.stages) s.devices = x.stages[0].devices;
                             }),
                             "is on the devices of the stage before");
        found["count"] |= has(problem_of([](auto& x) { --x.micro_batches; }), "expected a");
        found["ends"] |= has(problem_of([](auto& x) {
                                 x.stages[x.stages.size() - 2].end = x.stages.back().end;
                                 x.stages.pop_back();
                             }),
                             "within a round");
    }
    CHECK(found.size() == 5);
    for (auto const& [what, is_found] : found) {
        CAPTURE(what);
        CHECK(is_found);
    }
}

TEST_CASE("stages whose links are damaged compute something else") {
    auto const p = tied_linears();
    int tied = 0, exchanged = 0, caught = 0;
    for (std::uint64_t seed = 1; seed <= 600; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed + 330'000);
        auto const what = test::random_stages(p, 6, random);
        if (!what || what->stages.size() < 2) continue;
        auto const is_line = [](planned_stage const& s) { return !s.plan.is_on_mesh() && !s.plan.has_groups(); };
        if (!std::ranges::all_of(what->stages, is_line)) continue;
        bool is_tied = false, is_exchanged = false;
        CHECK(error_with(p, *what, [&](stage_links&) {}) < 1e-12);
        std::mutex lock;
        double const apart = error_with(p, *what, [&](stage_links& links) {
            std::scoped_lock const guard(lock);
            is_tied = is_tied || !links.shared.empty();
            links.shared.clear();
        });
        if (is_tied) CHECK(apart > 1e-3);
        // Two parts that a rank gets trade places.
        double const swapped = error_with(p, *what, [&](stage_links& links) {
            for (auto& [t, parts] : links.of(stage_links::way::values).received)
                if (parts.size() > 1 && parts[0].ranges[0].size() == 1 && parts[1].ranges[0].size() == 1 &&
                    parts[0].ranges[0][0].count == parts[1].ranges[0][0].count &&
                    parts[0].ranges[0] != parts[1].ranges[0]) {
                    std::swap(parts[0].ranges, parts[1].ranges);
                    std::scoped_lock const guard(lock);
                    is_exchanged = true;
                }
        });
        tied += is_tied;
        exchanged += is_exchanged;
        caught += is_exchanged && swapped > 1e-3;
    }
    MESSAGE(tied << " tied, " << exchanged << " exchanged, " << caught << " caught");
    CHECK(tied > 15);
    CHECK(caught > exchanged / 3); // some swap parts of a copy that nobody computes with
    CHECK(caught > 0);
}
