// SPDX-License-Identifier: BSL-1.0
// Stages of pipelines in which parts of a micro-batch take turns: what they take, and that a planner finds them.
#include "kernels.hpp"

#include <heddle/clp/ratio_solver.hpp>
#include <heddle/execute/prove_pieces.hpp>
#include <heddle/execute/prove_stages.hpp>
#include <heddle/json/staged_plan.hpp>
#include <heddle/json/trace.hpp>
#include <heddle/plan/staged_run.hpp>
#include <heddle/plan/staged_table.hpp>
#include <heddle/plan/staged_terms.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/planner/joint.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace heddle;

/// Linear operators of large weights after each other, which are best cut, with the first one's result added to the
/// last one's, which does not pass in rounds; and the sum.
program wide_program() {
    program_builder b;
    auto x = b.input("x", {8, 64});
    tensor_id first = 0;
    for (int n = 0; n < 8; ++n) {
        x = b.apply("linear", "(b k), (n k) -> (b n); 0*1",
                    {x, b.parameter("layers." + std::to_string(n) + ".weight", {64, 64})},
                    {.category = operator_class::matmul});
        if (n == 0) first = x;
    }
    x = b.apply("add", "(b k), (b k) -> (b k); 0 + 1", {x, first}, {.category = operator_class::elementwise});
    return b.finish(b.apply("sum", "(b n) -> (); 0", {x}, {.category = operator_class::reduction}));
}

/// Two machines of two devices, on slow links.
cluster slow_cluster() {
    cluster c;
    c.name = "two machines";
    c.types = {{"device",
                bytes(1e9),
                bytes_per_second(1e8),
                seconds(1e-6),
                {{element_type::float32, {flops_per_second(1e6)}}}}};
    c.machines = {{.type = 0, .devices = 2, .count = 2}};
    c.intra = network_link{bytes_per_second(5e4), seconds(1e-5)};
    c.inter = network_link{bytes_per_second(2e4), seconds(1e-5)};
    return c;
}

/// The best plan, which has turns in its stages.
staged_plan const& wide_planned() {
    static auto const found = [] {
        joint_options options;
        options.sends_beside = true;
        return find_plan(wide_program(), slow_cluster(), clp::ratio_solver{}, options);
    }();
    return found;
}

bool takes_turns(planned_stage const& s) { return s.turns() > 1; }

} // namespace

TEST_CASE("find_plan has parts of micro-batches take turns in stages that communicate much") {
    auto const c = slow_cluster();
    auto const p = wide_program();
    auto const& found = wide_planned();
    REQUIRE(found.exists());
    REQUIRE(found.stages.size() > 1);
    CHECK(std::ranges::any_of(found.stages, takes_turns));
    CHECK(found.families.at("turning stages").cost == found.cost());
    CHECK(found.cost() < 0.95 * *found.families.at("pipeline").cost);
    CHECK(found.space.ends_with("without turns in their stages"));
    CHECK(found.status == search::status::feasible);
    CHECK(verify(p, found).problem == "");
    CHECK(verify_figures(found, c).problem == "");
    CHECK(prove(p, found, test::kernels()).problem == "");
    auto const terms = terms_of(found, c);
    CHECK(terms.total().value == doctest::Approx(found.cost()).epsilon(1e-9));
    CHECK(simulate(found, c).total <= found.cost() * (1 + 1e-9));
    std::ostringstream report;
    print(report, found);
    CAPTURE(report.str());
    CHECK(report.str().find("parts of a") != std::string::npos);
}

TEST_CASE("plans whose stages take turns are written and read back, and traced") {
    auto const& plan = wide_planned();
    auto const text = json::write_plan(plan);
    auto const read = json::parse_staged_plan(text, "plan");
    CHECK(json::write_plan(read) == text);
    CHECK(std::ranges::equal(read.stages, plan.stages, {}, &planned_stage::turns, &planned_stage::turns));
    CHECK(verify(wide_program(), read).problem == "");
    CHECK(verify_figures(read, slow_cluster()).problem == "");
    CHECK(json::write_trace(plan, simulate(plan, slow_cluster())).find("forward 1") != std::string::npos);
}

TEST_CASE("what takes turns in a stage is refused where it cannot") {
    auto const problem_of = [](auto const& damage) {
        auto damaged = wide_planned();
        auto& stage = *std::ranges::find_if(damaged.stages, takes_turns);
        damage(damaged, stage.plan.provenance.training);
        return verify(wide_program(), damaged).problem;
    };
    using training = training_options&;
    CHECK(problem_of([](staged_plan&, training t) {
              t.micro_batches = 3;
          }).find("that take turns, expected a number") != std::string::npos);
    CHECK(problem_of([](staged_plan&, training t) { t.micro_batches = 1; }) != "");
    CHECK(problem_of([](staged_plan& x, training) { x.micro_batches *= 2; }) != "");
    CHECK(problem_of([](staged_plan&, training t) { t.in_flight += 1; }).find("in flight") != std::string::npos);
    CHECK(problem_of([](staged_plan& x, training) {
              x.micro_batches = 1;
              for (auto& s : x.stages)
                  s.plan.provenance.training.accumulated = s.plan.provenance.training.in_flight = 1;
          }).find("expected several micro-batches") != std::string::npos);
}

TEST_CASE("what recomputes activations takes no turns") {
    joint_options options;
    options.sends_beside = true;
    options.stage.training.recomputes = recomputation::full;
    auto const found = find_plan(wide_program(), slow_cluster(), clp::ratio_solver{}, options);
    REQUIRE(found.exists());
    CHECK(std::ranges::none_of(found.stages, takes_turns));
    CHECK(verify(wide_program(), found).problem == "");
}

TEST_CASE("stages in turns run in pieces, too") {
    auto const shown = prove_in_pieces(wide_program(), wide_planned(), test::kernels());
    CHECK(shown.shown.problem == "");
    CHECK(shown.shown.is_equal);
    CHECK(shown.pieces > 0);
    CHECK(shown.share() > 0.5);
}

TEST_CASE("in a pipeline, forward and backward pass do not meet, and gradients are reduced behind them") {
    auto const c = slow_cluster();
    for (auto const& s : wide_planned().stages) {
        if (!takes_turns(s)) continue;
        auto const on = cluster_of(c, s);
        auto const& plan = s.plan;
        auto const priced = evaluate(plan, on);
        std::vector<step_cost> prices;
        auto const [alike, model, shares] = plan_devices(plan, on);
        for (auto const& step : plan.steps) prices.push_back(model.price(step.step, shares));
        duplex const clock(model.class_count(), plan.provenance.training);
        auto const begins = detail::stage_begins(clock, prices, plan.stages);
        auto const part = [&](bool forward) {
            auto left = prices;
            for (auto& step : left) {
                step.deferred = step.refresh = 0;
                std::ranges::fill(step.update, 0.0);
                if (forward) step.backward_transfer = 0, std::ranges::fill(step.backward, 0.0);
                else step.forward_transfer = 0, std::ranges::fill(step.forward, 0.0);
            }
            return total_time<duplex>(model.class_count(), plan.provenance.training, left, begins);
        };
        auto const& t = priced.time;
        double const passes = t.compute + t.forward_communication + t.backward_communication;
        CHECK(passes == doctest::Approx(part(true) + part(false)).epsilon(1e-9));
        // What it would take if nothing ran beside anything is more.
        auto one_by_one = plan;
        one_by_one.provenance.training.micro_batches = 1;
        auto const in_turn = evaluate(one_by_one, on).time;
        double const serially = 2 * (in_turn.compute + in_turn.forward_communication + in_turn.backward_communication);
        CHECK(passes < serially);
        CHECK(passes >= 2 * in_turn.compute * (1 - 1e-9));
        CHECK(t.gradient_communication == doctest::Approx(in_turn.gradient_communication).epsilon(1e-9));
    }
}
