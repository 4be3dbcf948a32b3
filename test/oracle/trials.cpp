// SPDX-License-Identifier: BSL-1.0
// Plans that are tried on a cluster that is not as its file says: the one that took least is taken, and the times tell
// what the cluster is like.
#include "support/cases.hpp"
#include "support/errors.hpp"
#include "support/random_programs.hpp"

#include <heddle/plan/calibrate_cluster.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/planner/joint.hpp>
#if __has_include(<heddle/clp/ratio_solver.hpp>)
#include <heddle/clp/ratio_solver.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;

/// Four equal layers on two machines of two devices, of two types.
program four_layers() {
    program_builder b;
    auto x = b.input("x", {64, 512});
    for (int n = 0; n < 4; ++n) {
        auto const w = b.parameter("layers." + std::to_string(n) + ".weight", {512, 512});
        x = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, {.category = operator_class::matmul});
    }
    return b.finish(b.apply("sum", "(b n) -> (); 0", {x}, {.category = operator_class::reduction}));
}

cluster two_machines() {
    cluster c;
    c.name = "two machines";
    c.types = {{"fast", bytes(1e9), bytes_per_second(1e10), seconds(2e-6), {}},
               {"slow", bytes(1e9), bytes_per_second(5e9), seconds(4e-6), {}}};
    c.types[0].rates[element_type::float32] = rate_table(flops_per_second(4e10));
    c.types[1].rates[element_type::float32] = rate_table(flops_per_second(2e10));
    c.machines = {{0, 2, 1}, {1, 2, 1}};
    c.intra = network_link{bytes_per_second(4e9), seconds(5e-6)};
    c.inter = network_link{bytes_per_second(1e9), seconds(2e-5)};
    return c;
}

/// The cluster as it is, where its file is off by up to a factor each way.
cluster off(cluster c, random_source& random, double most) {
    auto const factor = [&] { return random.log_between(1 / most, most); };
    for (auto& type : c.types) {
        double const speed = factor();
        type.bandwidth = type.bandwidth * speed;
        for (auto& [element, rates] : type.rates) rates.fallback = rates.fallback * speed;
    }
    c.intra->bandwidth = c.intra->bandwidth * factor();
    c.inter->bandwidth = c.inter->bandwidth * factor();
    return c;
}

seconds time_on(cluster const& c, staged_plan const& p) { return evaluate(p, c).time.total(); }

double mean_error(cluster const& c, cluster const& real, std::vector<staged_plan> const& plans) {
    double sum = 0;
    for (auto const& p : plans) sum += std::abs(time_on(c, p) / time_on(real, p) - 1);
    return sum / static_cast<double>(plans.size());
}

} // namespace

TEST_CASE("of plans that are tried the one that took least is taken") {
    auto const p = four_layers();
    auto const c = two_machines();
    joint_options options;
    options.trials = 3;
    options.try_out = [](std::string const&, staged_plan const&) { return std::optional<seconds>(); };
    auto const predicted = find_plan(p, c, clp::ratio_solver{}, options);
    CHECK(predicted.cost() == find_plan(p, c, clp::ratio_solver{}).cost());
    int others = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(8); ++seed) {
        CAPTURE(seed);
        random_source random(seed);
        auto const real = off(c, random, 8);
        std::vector<staged_plan> tried;
        std::vector<std::string> families;
        options.try_out = [&](std::string const& family, staged_plan const& plan) -> std::optional<seconds> {
            tried.push_back(plan);
            families.push_back(family);
            auto const checked = verify_figures(plan, c);
            CHECK_MESSAGE(checked, checked.problem);
            CHECK((plan.status == search::status::feasible || plan.status == search::status::optimal));
            if (tried.size() == 2) return std::nullopt; // it failed
            return time_on(real, plan);
        };
        auto const found = find_plan(p, c, clp::ratio_solver{}, options);
        REQUIRE(tried.size() == 3);
        CHECK(tried[0].cost() == predicted.cost());
        for (std::size_t n = 1; n < tried.size(); ++n) {
            CHECK(tried[n].cost() > tried[n - 1].cost());
            CHECK(families[n] != families[n - 1]);
        }
        CHECK(time_on(real, found) == std::min(time_on(real, tried[0]), time_on(real, tried[2])));
        CHECK(found.lower_bound <= predicted.cost() * (1 + 1e-9));
        auto const checked = verify_figures(found, c);
        CHECK_MESSAGE(checked, checked.problem);
        others += found.cost() > predicted.cost();
    }
    CHECK((others > 0 || test::sanitized));
}

TEST_CASE("times of plans tell what a cluster is like, also for plans that were not run") {
    auto const p = four_layers();
    auto const c = two_machines();
    std::vector<staged_plan> plans;
    joint_options options;
    options.trials = 20;
    options.try_out = [&](std::string const&, staged_plan const& plan) {
        plans.push_back(plan);
        return std::optional<seconds>();
    };
    static_cast<void>(find_plan(p, c, clp::ratio_solver{}, options));
    REQUIRE(plans.size() >= 5);
    double before = 0, after = 0;
    constexpr int cases = test::cases(20);
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        CAPTURE(seed);
        random_source random(seed);
        auto const real = off(c, random, 2.5);
        std::vector<measured_plan> run;
        for (auto const& plan : plans) run.push_back({plan, time_on(real, plan)});
        auto const all = calibrate(c, run);
        CHECK(mean_error(all.cluster, real, plans) < 0.02);
        for (std::size_t n = 0; n < plans.size(); ++n)
            CHECK(all.predicted[n].value == doctest::Approx(time_on(all.cluster, plans[n]).value));
        for (auto const& [name, f] : all.factors) {
            CHECK(f.low() <= f.value);
            CHECK(f.value <= f.high());
        }
        std::vector<staged_plan> const left_out{run.back().plan};
        run.pop_back();
        before += mean_error(c, real, left_out);
        after += mean_error(calibrate(c, run).cluster, real, left_out);
    }
    MESSAGE("plans left out: off by " << 100 * before / cases << " % before, " << 100 * after / cases << " % after");
    CHECK(after < 0.3 * before);
}

TEST_CASE("what was run on one type of devices says nothing of the other") {
    auto const p = four_layers();
    auto const c = two_machines();
    std::vector<std::size_t> const first{0, 1};
    auto const part = cluster_of(c, first, std::vector<int>{1, 1});
    auto const on_first = staged(plan_hap(p, part, clp::ratio_solver{}), c, first);
    std::vector<measured_plan> const run{{on_first, seconds(1.5 * on_first.cost())}};
    auto const found = calibrate(c, run);
    CHECK(found.factors.contains("fast, speed"));
    CHECK_FALSE(found.factors.contains("slow, speed"));
    CHECK_FALSE(found.factors.at("links between").is_determined());
    CHECK(found.factors.at("links between").value == doctest::Approx(1).epsilon(1e-3));
    CHECK(found.cluster.types[1].bandwidth == c.types[1].bandwidth);
    CHECK(found.predicted[0].value == doctest::Approx(run[0].time.value).epsilon(0.02));
    CHECK(calibrate(c, {}).cluster.inter->bandwidth == c.inter->bandwidth);
}

TEST_CASE("plans of other clusters and times that are none are refused") {
    auto const p = four_layers();
    auto const c = two_machines();
    auto const plan = staged(plan_hap(p, c, clp::ratio_solver{}), c);
    auto const refused = [&](cluster const& on, double time) {
        std::vector<measured_plan> const run{{plan, seconds(time)}};
        return test::error_of([&] { static_cast<void>(calibrate(on, run)); });
    };
    CHECK(refused(c, 0) == "trial 0: 0.000000 s, expected a positive time");
    CHECK(refused(c, std::numeric_limits<double>::quiet_NaN()).find("expected a positive time") != std::string::npos);
    auto larger = c;
    larger.machines[0].count = 2;
    CHECK(refused(larger, 1) == "trial 0: is of 4 devices, expected a plan for 6");
}

#endif
