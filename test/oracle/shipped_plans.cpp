// SPDX-License-Identifier: BSL-1.0
// Plans of the shipped models on random clusters are verified, within memory, and never dearer than a baseline.
#include <heddle/clp/all.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>
#include <heddle/synthesis/baselines.hpp>
#include <support/cases.hpp>
#include <support/random_programs.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

namespace {

using namespace heddle;

/// Makes 1 to 16 devices whose speeds, memories and links differ by up to two orders of magnitude.
cluster unequal_cluster(test::random_source& random) {
    cluster c;
    c.name = "random";
    int const types = random.between(1, 4);
    for (int t = 0; t < types; ++t)
        c.types.push_back({"type" + std::to_string(t),
                           bytes(random.log_between(2e9, 2e11)),
                           bytes_per_second(random.log_between(5e10, 3e12)),
                           seconds(random.log_between(1e-7, 1e-4)),
                           {{element_type::float32, {flops_per_second(random.log_between(1e12, 1e14))}}}});
    int left = random.between(1, 16);
    while (left > 0) {
        int const devices = random.between(1, left);
        int const each = devices % 2 == 0 && random.chance(0.5) ? 2 : 1;
        c.machines.push_back({random.below(c.types.size()), each, devices / each});
        left -= devices;
    }
    c.intra = network_link{bytes_per_second(random.log_between(1e9, 3e11)), seconds(random.log_between(1e-6, 1e-4))};
    c.inter = network_link{bytes_per_second(random.log_between(1e8, 1e11)), seconds(random.log_between(1e-6, 1e-3))};
    return c;
}

void check_plans(std::string const& name, int clusters) {
    auto const model = json::read_model("examples/models/" + name + ".json.gz");
    CHECK(model.warnings.empty());
    auto const indexed = index_program(model.program);
    for (int n = 0; n < test::cases(clusters); ++n) {
        auto const seed = static_cast<std::uint64_t>(1000 * name.size() + static_cast<std::size_t>(n));
        test::random_source random(seed);
        auto const c = unequal_cluster(random);
        CAPTURE(name);
        CAPTURE(seed);
        CAPTURE(c.devices().size());
        auto const p = plan_hap(model.program, c, clp::ratio_solver{});
        if (!p.exists()) {
            CHECK(p.status == search::status::infeasible);
            CHECK(p.reason.starts_with("memory: "));
            for (auto const& baseline : p.baselines) CHECK_FALSE(baseline.second);
            continue;
        }
        auto const checked = verify(indexed, p);
        INFO(checked.problem);
        CHECK(checked);
        auto const figures = verify_figures(p, c);
        INFO(figures.problem);
        CHECK(figures);
        auto const cost = evaluate(p, c);
        CHECK(cost.fits);
        CHECK(cost.time.total() == p.cost());
        CHECK(run_serial(p, c).total == doctest::Approx(p.cost()).epsilon(1e-9));
        CHECK(p.lower_bound <= p.cost());
        CHECK(p.lower_bound > 0);
        for (auto const& [baseline, seconds] : p.baselines) {
            CAPTURE(baseline);
            if (seconds) CHECK(p.cost() <= *seconds);
        }
        // A plan is the same after it was written and read.
        auto const again = json::parse_plan(json::write_plan(p));
        CHECK(verify(indexed, again));
        CHECK(evaluate(again, c).time.total() == p.cost());
    }
}

} // namespace

TEST_CASE("plans of small shipped models hold on unequal clusters") {
    check_plans("vit_2", 12);
    check_plans("vgg19", 12);
    check_plans("bert_moe_2", 8);
}

TEST_CASE("plans of large shipped models hold on unequal clusters") {
    check_plans("vit_12", 2);
    check_plans("bert_12", 2);
    check_plans("bert_moe_12", 2);
    check_plans("gpt2_12", 1);
}

TEST_CASE("plans of shipped models hold on the shipped cluster of 2 V100 and 6 P100") {
    auto const c = json::read_cluster("examples/clusters/v100x2_p100x6.json");
    SUBCASE("the vision transformer is planned with a gap of at most 10 %") {
        auto const p = plan_hap(json::read_model("examples/models/vit_12.json.gz").program, c, clp::ratio_solver{});
        CHECK(p.gap() <= 0.1);
    }
    SUBCASE("VGG19 is planned strictly cheaper than data parallelism") {
        auto const p = plan_hap(json::read_model("examples/models/vgg19.json.gz").program, c, clp::ratio_solver{});
        CHECK(p.cost() < 0.5 * p.baselines.at("DP-CP").value());
    }
    SUBCASE("the same input gives the same plan") {
        auto const model = json::read_model("examples/models/vit_2.json.gz").program;
        auto first = plan_hap(model, c, clp::ratio_solver{}), second = plan_hap(model, c, clp::ratio_solver{});
        first.statistics.seconds = second.statistics.seconds = 0;
        CHECK(json::write_plan(first) == json::write_plan(second));
    }
}

TEST_CASE("plans of all kinds of shipped models are priced from their files as planned, and none is dearer than a "
          "family's best") {
    int pipelines = 0;
    for (auto const& [name, on] : {std::pair("vgg19", "v100x8_p100x24"),
                                   {"vgg19", "v100x2_p100x6"},
                                   {"vit_2", "p100x4"},
                                   {"vit_2", "v100x4_nvlink"}}) {
        CAPTURE(name);
        CAPTURE(on);
        auto const model = json::read_model("examples/models/" + std::string(name) + ".json.gz").program;
        auto const c = json::read_cluster("examples/clusters/" + std::string(on) + ".json");
        auto const plan = find_plan(model, c, clp::ratio_solver{});
        REQUIRE(plan.exists());
        auto const text = json::write_plan(plan, {.times = false});
        auto const again = json::parse_staged_plan(text);
        CHECK(json::write_plan(again, {.times = false}) == text);
        CHECK(verify(model, again).problem == "");
        CHECK(verify_figures(again, c).problem == "");
        CHECK(std::abs(evaluate(again, c).time.total().value - plan.cost()) <= 1e-9 * plan.cost());
        CHECK(plan.lower_bound > 0);
        for (auto const& [family, found] : plan.families) {
            CAPTURE(family);
            if (found.cost) CHECK(plan.cost() <= *found.cost);
        }
        // The plan on one axis costs here what it does by itself.
        auto const alone = plan_hap(model, c, clp::ratio_solver{});
        CHECK(*plan.families.at("one axis").cost == doctest::Approx(alone.cost()).epsilon(1e-12));
        pipelines += plan.stages.size() > 1;
    }
    CHECK(pipelines > 0);
}
