// SPDX-License-Identifier: BSL-1.0
// Stages that pass their devices in rounds: what they take, what they hold, and that a planner divides them.
#include "kernels.hpp"

#include <heddle/clp/ratio_solver.hpp>
#include <heddle/execute/prove_stages.hpp>
#include <heddle/json/staged_plan.hpp>
#include <heddle/json/trace.hpp>
#include <heddle/plan/staged_run.hpp>
#include <heddle/plan/staged_table.hpp>
#include <heddle/plan/staged_terms.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/planner/joint.hpp>
#include <heddle/synthesis/draft_pipelines.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;

constexpr std::size_t chain_length = 8;

/// So many linear operators after each other, and their sum.
program chain_program() {
    program_builder b;
    auto x = b.input("x", {16, 16});
    for (std::size_t n = 0; n < chain_length; ++n)
        x = b.apply("linear", "(b k), (n k) -> (b n); 0*1",
                    {x, b.parameter("layers." + std::to_string(n) + ".weight", {16, 16})},
                    {.category = operator_class::matmul});
    return b.finish(b.apply("sum", "(b n) -> (); 0", {x}, {.category = operator_class::reduction}));
}

/// A layer for each linear operator.
program_layers chain_layers() {
    program_layers layers{{0}, {}};
    for (operator_id n = 1; n <= chain_length; ++n) {
        layers.cuts.push_back(n == chain_length ? n + 1 : n);
        layers.names.push_back(std::to_string(n));
    }
    return layers;
}

/// Two machines of two devices.
cluster chain_cluster(double memory = 1e9) {
    cluster c;
    c.name = "two machines";
    c.types = {{"device",
                bytes(memory),
                bytes_per_second(1e8),
                seconds(1e-6),
                {{element_type::float32, {flops_per_second(1e6)}}}}};
    c.machines = {{.type = 0, .devices = 2, .count = 2}};
    c.intra = c.inter = network_link{bytes_per_second(1e9), seconds(1e-7)};
    return c;
}

pipeline_draft chain_halves(std::int64_t micro_batches) { return {{{0, 4, {0, 1}}, {4, 8, {2, 3}}}, micro_batches}; }
std::vector<double> const chain_times(chain_length, 1.0);

staged_plan chain_planned(std::size_t rounds, cluster const& c, joint_options const& options = {}) {
    return plan_draft(chain_program(), chain_layers(), c, *in_rounds(chain_halves(4), rounds, chain_times),
                      clp::ratio_solver{}, options);
}

} // namespace

TEST_CASE(
    "equal stages in v rounds wait a v-th of what they do in one, with as many micro-batches or groups of a few more") {
    for (std::size_t k : {2u, 3u, 4u})
        for (std::size_t v : {1u, 2u, 4u})
            for (int m : {4, 6, 8, 12, 16}) {
                if (!one_f_one_b{v}.can_run({k, m})) continue;
                CAPTURE(k);
                CAPTURE(v);
                CAPTURE(m);
                std::vector<stage_times> const stages(k * v, {1, 2});
                double const slots = static_cast<double>(v) * m + static_cast<double>(k - 1);
                CHECK(run_stages(stages, k, m, 0, true).total == doctest::Approx(3 * slots));
                CHECK(run_stages(stages, k, m, 0, false).total == doctest::Approx(3 * slots));
            }
}

TEST_CASE("in rounds every layer has one stage, all devices have as many, and about as much of it as before") {
    std::vector<double> const layers{0.2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3};
    pipeline_draft const once{{{0, 4, {0}}, {4, 8, {1}}, {8, 11, {2}}}, 6};
    for (std::size_t rounds = 1; rounds <= 3; ++rounds) {
        auto const draft = in_rounds(once, rounds, layers);
        REQUIRE(draft);
        REQUIRE(draft->stages.size() == 3 * rounds);
        CHECK(draft->places() == 3);
        std::vector<double> work(3), before{3.2, 4, 5};
        std::size_t next = 0;
        for (std::size_t s = 0; s < draft->stages.size(); ++s) {
            auto const& stage = draft->stages[s];
            CHECK(stage.first == next);
            CHECK(stage.end > stage.first);
            CHECK(stage.devices == once.stages[s % 3].devices);
            for (auto l = stage.first; l < stage.end; ++l) work[s % 3] += layers[l];
            next = stage.end;
        }
        CHECK(next == layers.size());
        for (std::size_t d = 0; d < 3; ++d) CHECK(std::abs(work[d] - before[d]) <= 1);
    }
    CHECK_FALSE(in_rounds(once, 4, layers));
}

TEST_CASE("a plan in rounds takes less, and computes what the program does at the price that it says") {
    auto const c = chain_cluster();
    auto const p = chain_program();
    for (bool const sends_beside : {false, true}) {
        CAPTURE(sends_beside);
        auto const once = chain_planned(1, c, {.sends_beside = sends_beside}),
                   twice = chain_planned(2, c, {.sends_beside = sends_beside});
        REQUIRE(once.reason == "");
        REQUIRE(twice.reason == "");
        CHECK(twice.rounds() == 2);
        CHECK(twice.places() == 2);
        CHECK(twice.ranks() == std::vector<std::size_t>{0, 1, 2, 3});
        CHECK(twice.cost() < once.cost());
        CHECK(verify(p, twice).problem == "");
        CHECK(verify_figures(twice, c).problem == "");
        CHECK(prove(p, twice, test::kernels()).problem == "");
        auto const run = simulate(twice, c);
        CHECK(run.total <= twice.cost() * (1 + 1e-9));
        // Devices do one thing at a time, all stages' passes once.
        std::vector<double> end(2);
        std::vector<int> passes(4);
        for (auto const& e : run.events) {
            using kind = staged_event::kind;
            passes[e.stage] += e.what == kind::forward || e.what == kind::backward;
            if (sends_beside && e.what == kind::send) continue;
            CHECK(e.start >= end[e.stage % 2] - 1e-12);
            end[e.stage % 2] = e.start + e.duration;
        }
        CHECK(passes == std::vector<int>(4, 8));
        auto const terms = terms_of(twice, c);
        CHECK(terms.total().value == doctest::Approx(twice.cost()).epsilon(1e-9));
        CHECK(terms.idle.value >= 0);
        CHECK(terms.idle < terms_of(once, c).idle);
        // What devices hold is what both of their stages hold.
        auto const cost = evaluate(twice, c);
        for (std::size_t d = 0; d < 2; ++d)
            CHECK(cost.memory[0][d].value ==
                  doctest::Approx(twice.stages[0].plan.memory[d].total() + twice.stages[2].plan.memory[d].total()));
    }
}

TEST_CASE("stages that fit into memory one by one, and not together, make no plan that fits") {
    auto const roomy = chain_planned(2, chain_cluster());
    REQUIRE(roomy.exists());
    auto const held = evaluate(roomy, chain_cluster()).memory[0][0].value;
    auto const tight = chain_cluster(0.8 * held);
    CHECK_FALSE(evaluate(roomy, tight).fits);
    auto lying = roomy;
    for (auto& s : lying.stages)
        for (auto& d : s.plan.devices) d.memory_limit = bytes(0.8 * held);
    CHECK(verify_figures(lying).problem == "memory: the stages of some devices do not fit together");
    auto const found = chain_planned(2, tight);
    if (found.exists()) { // with less in each stage
        CHECK(evaluate(found, tight).fits);
        CHECK(verify_figures(found, tight).problem == "");
    }
    CHECK_FALSE(chain_planned(2, chain_cluster(0.2 * held)).exists());
}

TEST_CASE("what does not pass in rounds has no plan, and a reason") {
    auto const c = chain_cluster();
    auto const reason = [&](program const& p, pipeline_draft const& draft) {
        return plan_draft(p, chain_layers(), c, draft, clp::ratio_solver{}).reason;
    };
    auto draft = *in_rounds(chain_halves(4), 2, chain_times);
    for (std::int64_t const m : {1, 16}) {
        draft.micro_batches = m;
        CHECK((reason(chain_program(), draft) == "") == (m == 16));
    }
    draft.micro_batches = 4;
    draft.stages[2].end = 8;
    draft.stages.pop_back();
    CHECK(reason(chain_program(), draft).find("do not pass 3 stages on 2 sets of devices in rounds") !=
          std::string::npos);
    // The first layer's result is used by the last one too.
    program_builder b;
    auto x = b.input("x", {16, 16});
    tensor_id first = 0;
    for (std::size_t n = 0; n < chain_length; ++n) {
        if (n + 1 == chain_length)
            x = b.apply("add", "(b k), (b k) -> (b k); 0 + 1", {x, first}, {.category = operator_class::elementwise});
        else
            x = b.apply("linear", "(b k), (n k) -> (b n); 0*1",
                        {x, b.parameter("layers." + std::to_string(n) + ".weight", {16, 16})},
                        {.category = operator_class::matmul});
        if (n == 0) first = x;
    }
    auto const skips = b.finish(b.apply("sum", "(b n) -> (); 0", {x}, {.category = operator_class::reduction}));
    CHECK(reason(skips, chain_halves(4)) == "");
    CHECK(reason(skips, *in_rounds(chain_halves(4), 2, chain_times)).find("has values of the stage before alone") !=
          std::string::npos);
}

TEST_CASE("find_plan divides stages among rounds where these wait") {
    auto c = chain_cluster();
    c.inter = network_link{bytes_per_second(2e5), seconds(1e-5)};
    auto const p = chain_program();
    joint_options options;
    options.sends_beside = true;
    auto const found = find_plan(p, c, clp::ratio_solver{}, options);
    REQUIRE(found.exists());
    CHECK(found.rounds() > 1);
    CHECK(found.space.ends_with("in one round"));
    CHECK(found.status == search::status::feasible);
    CHECK(found.families.at("rounds").cost == found.cost());
    CHECK(verify(p, found).problem == "");
    CHECK(verify_figures(found, c).problem == "");
    CHECK(prove(p, found, test::kernels()).problem == "");
    std::ostringstream report;
    print(report, found);
    CHECK(report.str().find(" stages in " + std::to_string(found.rounds()) + " rounds") != std::string::npos);
}

TEST_CASE("what rounds are expected to take in turns is no number where too few micro-batches are left to pass") {
    auto const c = chain_cluster();
    auto const p = chain_program();
    auto const indexed = index_program(p);
    auto const plan = chain_planned(2, c); // of four micro-batches on two sets of devices
    REQUIRE(plan.reason == "");
    clp::ratio_solver solver;
    auto const planners = detail::stage_planners_by(solver);
    planning_options const options;
    search::deadline const until;
    detail::stage_planner stages(c, planners, options, until, false);
    detail::draft_planner drafts(p, indexed, c, stages, options.training, false);
    detail::turning_stages const turns(plan, c, drafts);
    CHECK(turns.expected() <= plan.cost() * (1 + 1e-9));
    CHECK(turns.expected(2) > turns.expected()); // as devices wait for larger ones
    CHECK(std::isinf(turns.expected(4)));
}

TEST_CASE("a draft is given up where a stage alone takes as long as another plan, and what stages took is known") {
    auto const c = chain_cluster();
    auto const p = chain_program();
    auto const indexed = index_program(p);
    clp::ratio_solver solver;
    auto const planners = detail::stage_planners_by(solver);
    planning_options const options;
    search::deadline const until;
    auto const draft = chain_halves(4);
    auto const planned = [&](double worth_below, std::size_t expected) {
        detail::stage_planner stages(c, planners, options, until, false);
        detail::draft_planner drafts(p, indexed, c, stages, options.training, false);
        auto const found = drafts.plan(draft, chain_layers(), detail::stage_effort::one_axis, worth_below);
        REQUIRE(drafts.planned().size() == expected);
        return std::pair(found, drafts.planned());
    };
    auto const [all, times] = planned(std::numeric_limits<double>::infinity(), 2);
    REQUIRE(all.exists());
    for (std::size_t s = 0; s < 2; ++s) {
        CHECK(times[s].stage == draft.stages[s]);
        CHECK(times[s].seconds == doctest::Approx(4 * all.stages[s].plan.cost()));
        CHECK(times[s].seconds <= all.cost());
    }
    CHECK(planned(all.cost() * 1.01, 2).first.cost() == all.cost());
    auto const given_up = planned(times[0].seconds, 1).first;
    CHECK_FALSE(given_up.exists());
    CHECK(given_up.lower_bound == times[0].seconds);
    CHECK(given_up.reason.find("as long as another plan") != std::string::npos);
}

TEST_CASE("files of plans in rounds are of version 4, and others are refused") {
    auto const c = chain_cluster();
    auto const plan = chain_planned(2, c);
    REQUIRE(plan.exists());
    auto const text = json::write_plan(plan);
    CHECK(text.find("\"version\": 4") != std::string::npos);
    auto const read = json::parse_staged_plan(text, "plan");
    CHECK(read.rounds() == 2);
    CHECK(json::write_plan(read) == text);
    CHECK(verify_figures(read, c).problem == "");
    auto const trace = json::write_trace(plan, simulate(plan, c));
    CHECK(trace.find("stages 0, 2: 2 x device") != std::string::npos);
    CHECK(trace.find("forward 3 of stage 2") != std::string::npos);
    auto const refused = [](staged_plan const& damaged) {
        try {
            (void)json::parse_staged_plan(json::write_plan(damaged), "plan");
        } catch (input_error const& e) { return std::string(e.what()); }
        return std::string();
    };
    auto other = plan;
    other.micro_batches = 9;
    CHECK(refused(other).find("do not make equal groups") != std::string::npos);
    other = plan;
    other.stages[3].devices = {1, 2};
    CHECK(refused(other).find("expected the devices and mesh of stage 1") != std::string::npos);
    other = plan;
    std::swap(other.stages[2].devices, other.stages[3].devices);
    CHECK(refused(other).find("device 2 does not exist, or has a place already") != std::string::npos);
}
