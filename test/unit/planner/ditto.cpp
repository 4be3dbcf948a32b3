// SPDX-License-Identifier: BSL-1.0
#include <heddle/planner/ditto.hpp>

#include <support/cases.hpp>
#include <support/random_templates.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

using namespace heddle;
using test::random_source;
using test::random_template_problem;

TEST_CASE("bounds and gaps hold for recovered and exact templates, and for both within limits") {
    std::size_t recovered = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(200u); ++seed) {
        random_source random(seed);
        auto const p = random_template_problem(random, {.most_layers = 16, .most_machines = 5, .most_types = 3});
        CAPTURE(seed);
        INFO(test::text(p));
        auto const exact = plan_ditto(p, {.method = template_method::exact}).best;
        auto const quick = plan_ditto(p, {.method = template_method::recover});
        auto const both = plan_ditto(p);
        CHECK(both.best.status == exact.status);
        CHECK(both.best.cost.has_value() == exact.cost.has_value());
        if (quick.best.cost) REQUIRE(exact.cost);
        if (!exact.cost) continue;
        CHECK(both.best.cost->total.value == doctest::Approx(exact.cost->total.value).epsilon(1e-12));
        CHECK(*both.best.gap() == 0);
        CHECK(quick.best.lower_bound.value <= exact.cost->total.value * (1 + 1e-12));
        auto const stopped = plan_ditto(p, {.exact = {.limits = {.labels = 1}}}).best;
        CHECK(stopped.lower_bound.value <= exact.cost->total.value * (1 + 1e-12));
        if (!quick.best.cost) continue;
        ++recovered;
        CHECK(quick.recovered == quick.best.cost->total);
        CHECK(quick.best.cost->total.value >= exact.cost->total.value * (1 - 1e-12));
        CHECK(*quick.best.gap() >= 0);
        CHECK(cost_of(p, quick.best.stages).total == quick.best.cost->total);
        for (std::size_t s = 0; s < quick.best.stages.size(); ++s) {
            auto const& stage = quick.best.stages[s];
            CHECK(quick.best.cost->memory[s] <= p.types[stage.type].memory_limit * static_cast<double>(stage.devices));
        }
        REQUIRE(stopped.cost);
        CHECK(stopped.cost->total.value <= quick.best.cost->total.value * (1 + 1e-12));
    }
    CHECK(recovered > test::cases(100));
}

TEST_CASE("copies of a template share the micro-batches") {
    template_problem p;
    p.memory.assign(24, {bytes(1), bytes(1), bytes(1)});
    p.micro_batches = 1000;
    for (double const speed : {1.0, 2.0}) {
        auto& t = p.types.emplace_back();
        t.name = "x" + std::to_string(speed);
        t.times = {std::vector(24, seconds(1 / speed)), std::vector(24, seconds(2 / speed))};
        t.machines = speed > 1 ? 41 : 40;
    }
    auto const r = plan_copies(p, {.most_machines = 8});
    REQUIRE(r.each.cost);
    CHECK(r.copies == 40); // one machine of either type: the fewest stages
    CHECK(r.machines == std::vector<std::size_t>{1, 1});
    CHECK(r.idle == std::vector<std::size_t>{0, 1});
    // 40 * 1 + 41 * 2 shares of the work, 72 s of it per micro-batch
    CHECK(r.lower_bound.value == doctest::Approx(1000 * 72.0 / (40 + 82)));
    CHECK(r.each.cost->total >= r.lower_bound);
    CHECK(r.each.cost->total.value == doctest::Approx(24 * 24 + 2 * 24)); // 25 micro-batches, 24 s a stage
    auto const none = plan_copies(p, {.most_machines = 8}, oobleck_estimate{-2000});
    CHECK_FALSE(none.each.cost);
    CHECK(none.copies == 0);
    CHECK(none.each.reason == "the schedule can run on no number of copies");
}
