// SPDX-License-Identifier: BSL-1.0
// Plans of one planner for all: what they cost, what their files say, and that their stages compute what the program
// does.
#include "kernels.hpp"
#include "support/block_programs.hpp"
#include "support/cases.hpp"
#include "support/random_programs.hpp"

#include <heddle/clp/ratio_solver.hpp>
#include <heddle/execute/prove_stages.hpp>
#include <heddle/plan/staged_run.hpp>
#include <heddle/plan/staged_terms.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/planner/hidup.hpp>
#include <heddle/planner/joint.hpp>
#include <heddle/synthesis/pipeline_bound.hpp>
#include <heddle/synthesis/work_bound.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace {

using namespace heddle;

/// Machines of two devices, a slow one and a fast one; the network between them is slow.
cluster slow_network(bool are_unlike, double memory = 1e9) {
    cluster c;
    c.name = "slow network";
    for (double const speed : {1e6, 2e6})
        c.types.push_back({speed > 1e6 ? "fast" : "slow",
                           bytes(memory),
                           bytes_per_second(1e8),
                           seconds(1e-6),
                           {{element_type::float32, {flops_per_second(speed)}}}});
    c.machines = {{.type = 0, .devices = 2}, {.type = are_unlike ? std::size_t{1} : std::size_t{0}, .devices = 2}};
    c.intra = network_link{bytes_per_second(1e7), seconds(1e-6)};
    c.inter = network_link{bytes_per_second(5e4), seconds(1e-5)};
    return c;
}

/// The cluster with just so much of its memory that a plan fits.
cluster as_large_as(cluster c, staged_plan const& p) {
    double most = 0;
    for (auto const& s : p.stages)
        for (std::size_t d = 0; d < s.plan.devices.size(); ++d)
            most = std::max(most, s.plan.memory[d].total() / s.plan.devices[d].memory_limit.value);
    for (auto& type : c.types) type.memory = bytes(type.memory.value * most * (1 + 1e-9));
    return c;
}

/// Stages of some layers each, on some devices each that follow those of the stage before.
pipeline_draft random_draft(test::random_source& random, std::size_t layers, std::size_t devices) {
    pipeline_draft draft;
    draft.micro_batches = std::vector<std::int64_t>{1, 2, 3, 4}[random.below(4)];
    std::size_t device = 0;
    for (std::size_t first = 0; first < layers;) {
        stage_draft stage;
        stage.first = first;
        // The last stage has all layers that are left, and a device at least is left for each stage to come.
        bool const is_last = device + 1 == devices || random.chance(0.3);
        stage.end =
            is_last ? layers : first + static_cast<std::size_t>(random.between(1, static_cast<int>(layers - first)));
        std::size_t const left = devices - device - (stage.end < layers ? 1 : 0);
        auto const count = static_cast<std::size_t>(random.between(1, static_cast<int>(left)));
        for (std::size_t n = 0; n < count; ++n) stage.devices.push_back(device++);
        bool const pairs = stage.devices.front() % 2 == 0 && count % 2 == 0;
        stage.tensor = pairs && count > 2 && random.chance(0.7) ? 2 : 1;
        first = stage.end;
        draft.stages.push_back(std::move(stage));
    }
    return draft;
}

/// Tells whether stages on both of two machines have all of their devices.
bool is_machine_by_machine(staged_plan const& p, cluster const& c) {
    auto const on_first = static_cast<std::size_t>(c.machines[0].devices);
    return std::ranges::all_of(p.stages, [&](planned_stage const& s) {
        bool const is_on_both = s.devices.front() < on_first && s.devices.back() >= on_first;
        return !is_on_both || s.devices.size() == c.devices().size();
    });
}

/// Two linear operators, the cheap operators between and behind them, and what is between normalised over the batch if
/// so asked.
program two_linears(bool is_normalised, bool input_is_differentiated = false) {
    program_builder b;
    char const* const linear = "(b k), (n k) -> (b n); 0*1";
    auto const x = b.input("x", {16, 16}, element_type::float32, input_is_differentiated);
    auto const y =
        b.apply("linear", linear, {x, b.parameter("first.weight", {16, 16})}, {.category = operator_class::matmul});
    auto const z = b.apply(is_normalised ? "norm" : "tanh", is_normalised ? "(~b n) -> (b n)" : "(b n) -> (b n)", {y},
                           {.name = "norm", .category = operator_class::elementwise});
    auto const out =
        b.apply("linear", linear, {z, b.parameter("second.weight", {16, 16})}, {.category = operator_class::matmul});
    return b.finish(b.apply("sum", "(b n) -> (); 0", {out}, {.category = operator_class::reduction}));
}

/// Both halves of `two_linears`, each on a machine.
pipeline_draft halves(std::int64_t micro_batches) { return {{{0, 1, {0, 1}}, {1, 2, {2, 3}}}, micro_batches}; }
program_layers const layers_of_halves{{0, 2, 4}, {"first", "second"}};

} // namespace

TEST_CASE("micro-batches of which none computes what the batch does are refused") {
    auto const c = slow_network(true);
    auto const p = two_linears(true);
    CHECK(plan_draft(p, layers_of_halves, c, halves(1), clp::ratio_solver{}).exists());
    CHECK_FALSE(plan_draft(p, layers_of_halves, c, halves(2), clp::ratio_solver{}).exists());
    auto const planned = plan_draft(two_linears(false), layers_of_halves, c, halves(2), clp::ratio_solver{});
    REQUIRE(planned.reason == "");
    CHECK(verify(two_linears(false), planned).problem == "");
    CHECK(verify(p, planned).problem == "micro-batches do not compute 'norm' of the whole batch");
}

TEST_CASE("a program's own input may be differentiated") {
    auto const c = slow_network(true);
    auto const p = two_linears(false, true), without = two_linears(false);
    auto const plan = plan_draft(p, layers_of_halves, c, halves(2), clp::ratio_solver{});
    REQUIRE(plan.reason == "");
    CHECK(verify(p, plan).problem == "");
    CHECK(verify_figures(plan, c).problem == "");
    CHECK(plan.stages[0].boundary == seconds(0));
    CHECK(plan.stages[1].boundary ==
          plan_draft(without, layers_of_halves, c, halves(2), clp::ratio_solver{}).stages[1].boundary);
    CHECK(find_plan(p, c, clp::ratio_solver{}).exists());
    auto const whole = plan_draft(p, layers_of_halves, c, halves(1), clp::ratio_solver{});
    REQUIRE(whole.reason == "");
    CHECK(prove(p, whole, eigen_kernels<double>()).problem == "");
    CHECK_THROWS_AS((void)prove(p, plan, eigen_kernels<double>()), input_error); // its gradient is in parts
    auto const in_one = plan_hap(p, c, clp::ratio_solver{});
    REQUIRE(in_one.exists());
    CHECK(prove(p, in_one, eigen_kernels<double>()).problem == "");
}

TEST_CASE(
    "passes of micro-batches run in turn, each once what it needs is there, and take at most what the plan says") {
    using kind = staged_event::kind;
    for (bool const are_unlike : {false, true})
        for (bool const sends_beside : {false, true})
            for (int const m : {1, 2, 4, 8, 16}) {
                CAPTURE(are_unlike);
                CAPTURE(sends_beside);
                CAPTURE(m);
                auto const c = slow_network(are_unlike);
                auto const plan = plan_draft(two_linears(false), layers_of_halves, c, halves(m), clp::ratio_solver{},
                                             {.sends_beside = sends_beside});
                REQUIRE(plan.reason == "");
                auto const run = simulate(plan, c);
                CHECK(run.total <= plan.cost() * (1 + 1e-9));
                auto const end_of = [&](std::size_t s) {
                    return plan.stages[s].plan.time.update + plan.stages[s].plan.time.parameter_communication;
                };
                if (m == 1 && end_of(0) >= end_of(1)) CHECK(run.total == doctest::Approx(plan.cost()).epsilon(1e-9));
                double longest = 0;
                for (std::size_t s = 0; s < 2; ++s) {
                    auto const& t = plan.stages[s].plan.time;
                    double busy = 0, until = 0, sent = 0;
                    for (auto const& e : run.events) {
                        if (e.stage != s) continue;
                        if (e.what == kind::send) sent += e.duration;
                        if (sends_beside && e.what == kind::send) continue;
                        CHECK(e.start >= until - 1e-12);
                        until = e.start + e.duration;
                        busy += e.duration;
                    }
                    CHECK(until <= run.total);
                    double const passes = m * (t.compute + t.forward_communication + t.backward_communication),
                                 end = m * (t.gradient_communication + t.update + t.parameter_communication),
                                 passed = m * plan.stages[1].boundary.value;
                    CHECK(busy == doctest::Approx(passes + end + (sends_beside ? 0 : passed)));
                    CHECK(sent <= passed);
                    longest = std::max(longest, busy);
                }
                CHECK(run.total >= longest * (1 - 1e-12));
                for (auto const& e : run.events) { // what comes from the other stage has been sent
                    bool const waits =
                        (e.what == kind::forward && e.stage == 1) || (e.what == kind::backward && e.stage == 0);
                    if (!waits) continue;
                    CHECK(std::ranges::any_of(run.events, [&](auto const& sent) {
                        return sent.what == kind::send && sent.stage == 1 - e.stage &&
                               sent.micro_batch == e.micro_batch && sent.start + sent.duration <= e.start;
                    }));
                }
            }
}

TEST_CASE("stages that hold each other up take longer than the slowest, and those that do not as long as it") {
    auto const run = [](std::vector<stage_times> const& stages, int m) {
        double sum = 0, slowest = 0;
        for (std::size_t s = 0; s < stages.size(); ++s) {
            auto const& t = stages[s];
            double const own = t.forward + t.backward, before = t.values + t.cotangents,
                         after = s + 1 < stages.size() ? stages[s + 1].values + stages[s + 1].cotangents : 0;
            sum += own + before, slowest = std::max(slowest, own + before + after);
        }
        return std::pair(run_stages(stages, stages.size(), m, 0, false).total, sum + (m - 1) * slowest);
    };
    auto const [two, formula_of_two] = run({{1, 2, 0, 0}, {1, 2, 1, 1}}, 8);
    CHECK(two == formula_of_two);
    auto const [free, formula_of_free] = run({{1, 2}, {1, 2}, {1, 2}}, 8); // nothing is sent
    CHECK(free == formula_of_free);
    // The stage in the middle waits for a neighbour that is sending to another or computes.
    auto const [three, formula_of_three] = run({{1, 2, 0, 0}, {1, 1, 2, 1}, {2, 3, 1, 1}}, 4);
    CHECK(formula_of_three == 36);
    CHECK(three == 40);
}

TEST_CASE("the iteration of one stage and one micro-batch takes what the plan takes") {
    auto const c = slow_network(true);
    auto const p = two_linears(false);
    auto const plan = staged(plan_hap(p, c, clp::ratio_solver{}), c);
    REQUIRE(plan.exists());
    CHECK(simulate(plan, c).total == doctest::Approx(plan.cost()).epsilon(1e-9));
}

TEST_CASE("that no family has a plan proves nothing") {
    auto const plan = find_plan(two_linears(false), slow_network(true, 100), clp::ratio_solver{});
    CHECK_FALSE(plan.exists());
    CHECK(plan.status == search::status::limit);
    CHECK(plan.which_limit == search::limit_kind::width);
    CHECK(plan.reason != "");
}

TEST_CASE("a draft of which a stage cannot be cut out has no plan and a reason") {
    auto const no_devices = [](stage_draft& d) { d.devices.clear(); };
    auto const unknown_device = [](stage_draft& d) { d.devices = {2, 4}; };
    auto const unknown_layer = [](stage_draft& d) { d.end = 3; };
    auto const unequal_groups = [](stage_draft& d) { d.tensor = 3; };
    for (void (*spoil)(stage_draft&) : {+no_devices, +unknown_device, +unknown_layer, +unequal_groups}) {
        auto draft = halves(1);
        spoil(draft.stages[1]);
        auto const plan =
            plan_draft(two_linears(false), layers_of_halves, slow_network(true), draft, clp::ratio_solver{});
        CHECK_FALSE(plan.exists());
        CHECK(plan.reason.find("stage 1: expected devices of the cluster") != std::string::npos);
    }
}

TEST_CASE("a value that skips a stage is handed on by it") {
    program_builder b;
    char const* const linear = "(b k), (n k) -> (b n); 0*1";
    operator_options const matmul{.category = operator_class::matmul};
    auto const x = b.input("x", {16, 16});
    auto const weight = [&](char const* name) { return b.parameter(name, {16, 16}); };
    auto const skips = b.apply("linear", linear, {x, weight("skip.weight")}, matmul);
    auto const y = b.apply("linear", linear, {x, weight("first.weight")}, matmul);
    auto const z = b.apply("linear", linear, {y, weight("second.weight")}, matmul);
    auto const sum =
        b.apply("add", "(b n), (b n) -> (b n); 0 + 1", {z, skips}, {.category = operator_class::elementwise});
    auto const p = b.finish(b.apply("sum", "(b n) -> (); 0", {sum}, {.category = operator_class::reduction}));
    auto c = slow_network(false);
    c.machines = {{.type = 0, .devices = 1}, {.type = 1, .devices = 1}, {.type = 0, .devices = 1}};
    c.intra.reset();
    pipeline_draft const draft{{{0, 1, {0}}, {1, 2, {1}}, {2, 3, {2}}}, 1};
    auto const plan = plan_draft(p, program_layers{{0, 2, 3, 5}, {"a", "b", "c"}}, c, draft, clp::ratio_solver{});
    REQUIRE(plan.reason == "");
    double const once = (c.inter->latency + bytes(16 * 16 * 4) / c.inter->bandwidth).value;
    for (std::size_t s : {1u, 2u}) CHECK(plan.stages[s].boundary.value == doctest::Approx(4 * once));
    CHECK(verify(p, plan).problem == "");
    CHECK(verify_figures(plan, c).problem == "");
    // The stage between holds it.
    double const needs = plan.stages[1].plan.memory[0].total();
    c.types[1].memory = bytes(needs + 16 * 16 * 4);
    CHECK(evaluate(plan, c).fits);
    c.types[1].memory = bytes(needs + 16 * 16 * 4 - 1);
    CHECK_FALSE(evaluate(plan, c).fits);
}

TEST_CASE("a device sends all that those of its machine want of it") {
    auto c = slow_network(false);
    c.machines = {{.type = 0, .devices = 4}};
    pipeline_draft const draft{{{0, 1, {0}}, {1, 2, {1, 2, 3}}}, 1};
    auto const plan = plan_draft(two_linears(false), layers_of_halves, c, draft, clp::ratio_solver{});
    REQUIRE(plan.reason == "");
    double const once = (c.intra->latency + bytes(16 * 16 * 4) / c.intra->bandwidth).value;
    CHECK(plan.stages[1].boundary.value >= 2 * once * (1 - 1e-12));
}

TEST_CASE("a bound of work counts no additions of cotangents") {
    auto const product = [](bool is_tied) {
        program_builder b;
        char const* const linear = "(b k), (n k) -> (b n); 0*1";
        operator_options const matmul{.category = operator_class::matmul};
        auto const weight = b.parameter("weight", {16, 16});
        auto const y = b.apply("linear", linear, {b.input("x", {16, 16}), weight}, matmul);
        auto const z = b.apply("linear", linear, {y, is_tied ? weight : b.parameter("other", {16, 16})}, matmul);
        return b.finish(b.apply("sum", "(b n) -> (); 0", {z}, {.category = operator_class::reduction}));
    };
    auto const c = slow_network(true);
    auto const bound = work_bound(index_program(product(false)), c);
    CHECK(bound > seconds(0));
    CHECK(work_bound(index_program(product(true)), c) == bound);
}

TEST_CASE("a bound of passes leaves out gradients that a micro-batch's factors give in the end") {
    search::deadline const until;
    auto const c = slow_network(false);
    int deferred = 0;
    for (std::int64_t const m : {1, 4})
        for (int const width : {4, 8, 12}) {
            auto const p = test::residual_blocks(12, width, 2, false);
            auto const layers = repeated_layers(index_program(p));
            auto const plan = plan_draft(p, layers, c, {{{.first = 0, .end = layers.size(), .devices = {0}}}, m},
                                         clp::ratio_solver{});
            REQUIRE(plan.reason == "");
            auto const& t = plan.stages.front().plan.time;
            double const passes =
                static_cast<double>(m) * (t.compute + t.forward_communication + t.backward_communication);
            joint_options const options;
            stage_bounds stages(p, c, layers, options.stage, until);
            REQUIRE(stages.exist());
            stage_devices const one{{1}, 1};
            CAPTURE(m);
            CAPTURE(width);
            CHECK(stages.least(one, m)[0].back() <= plan.cost() * (1 + 1e-9));
            CHECK(stages.least_of_passes(one, m)[0].back() <= passes * (1 + 1e-9));
            deferred += std::ranges::any_of(plan.stages.front().plan.steps,
                                            [](auto const& s) { return s.step.deferred.launches; });
        }
    CHECK(deferred > 0);
}

TEST_CASE("what is gathered once for several micro-batches is held, and its gradients are added up as they wait") {
    for (bool const is_saved : {false, true}) {
        program_builder b;
        auto const x = b.input("x", {16, 16}), w = b.parameter("w", {16, 16});
        auto const y =
            b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w},
                    {.category = operator_class::matmul,
                     .saved_operands = is_saved ? std::vector<std::uint8_t>{0, 1} : std::vector<std::uint8_t>{0}});
        auto const p = index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {y})));
        bytes const size = p.tensors[w].info.size();
        instruction const gather = instruction::convert(w, tensor_form::shard(0), tensor_form::replicated());
        auto const once = make_step(p, gather, {}), step = make_step(p, gather, {.accumulated = 5, .in_flight = 2});
        CHECK(once.stored == holding{});
        CHECK(step.stored.whole == (is_saved ? bytes(0) : size)); // what an operator saves is counted there
        CHECK(step.saved.whole == size);                          // the gradient
        CHECK(step.update.whole == 3 * 4.0 * size);
        CHECK(step.forward_transfers.empty());
        CHECK(step.update_transfers.size() == 1);
    }
}

TEST_CASE("sufficient factors of all micro-batches wait for the end") {
    program_builder b;
    auto const x = b.input("x", {16, 8}), w = b.parameter("w", {4, 8});
    auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, {.category = operator_class::matmul});
    auto const p = index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {y})));
    auto const& loops = p.operators[0].loops;
    auto const loop = std::ranges::find_if(loops, [](auto const& l) { return l.operands[1] == no_factor; });
    instruction::compute const compute{0,
                                       {tensor_form::shard(loop->operands[0]), tensor_form::mirrored()},
                                       {tensor_form::shard(loop->results[0])},
                                       static_cast<std::int16_t>(loop - loops.begin())};
    // Of the one in flight x is counted where it is saved; its cotangent, and both of the other three, are here.
    CHECK(make_step(p, compute, {}).saved.split == bytes(16 * 4 * 4));
    CHECK(make_step(p, compute, {.accumulated = 4}).saved.split == 4 * bytes(16 * 4 * 4) + 3 * bytes(16 * 8 * 4));
}

TEST_CASE("stages that are alike are planned once, whatever is in flight") {
    program_builder b;
    auto x = b.input("x", {16, 16});
    for (char const* name : {"first", "second", "third", "fourth"})
        x = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, b.parameter(name + std::string(".weight"), {16, 16})},
                    {.category = operator_class::matmul});
    auto const p = b.finish(b.apply("sum", "(b n) -> (); 0", {x}, {.category = operator_class::reduction}));
    auto c = slow_network(false);
    c.machines[0].count = 4;
    c.machines.pop_back();
    program_layers const layers{{0, 1, 2, 3, 5}, {"first", "second", "third", "fourth"}};
    pipeline_draft const draft{{{0, 1, {0, 1}}, {1, 2, {2, 3}}, {2, 3, {4, 5}}, {3, 4, {6, 7}}}, 4};
    clp::ratio_solver solver;
    auto planners = detail::stage_planners_by(solver);
    int calls = 0;
    planners.one_axis = [&calls, inner = planners.one_axis](auto const&... given) {
        ++calls;
        return inner(given...);
    };
    auto const planned = [&] {
        calls = 0;
        auto result = detail::plan_draft(p, layers, c, draft, planners, {});
        REQUIRE(result.reason == "");
        CHECK(verify(p, result).problem == "");
        CHECK(verify_figures(result, c).problem == "");
        return result;
    };
    auto const roomy = planned();
    CHECK(calls == 3);
    // Where four in flight do not fit as one does, that stage is planned anew.
    c.types[0].memory = bytes(roomy.stages[0].plan.memory[0].total() - 1);
    CHECK(planned().stages[3].plan.cost() == roomy.stages[3].plan.cost());
    CHECK(calls == 4);
}

TEST_CASE("a stage that does not fit recomputes its activations, and computes what the program does") {
    auto const p = test::residual_blocks(16, 8, 4);
    auto const layers = repeated_layers(index_program(p));
    auto c = slow_network(true);
    c.machines = {{.type = 0, .devices = 1}, {.type = 1, .devices = 1, .count = 2}};
    pipeline_draft const draft{{{0, 2, {0}}, {2, 4, {1}}, {4, layers.size(), {2}}}, 4};
    auto const planned = [&] {
        auto plan = plan_draft(p, layers, c, draft, clp::ratio_solver{});
        REQUIRE(plan.reason == "");
        CHECK(verify(p, plan).problem == "");
        CHECK(verify_figures(plan, c).problem == "");
        auto const found = prove(p, plan, test::kernels());
        CHECK(found.problem == "");
        CHECK(found.worst_error <= 1e-12);
        return plan;
    };
    auto const recomputes = [](planned_stage const& s) {
        return s.plan.provenance.training.recomputes != recomputation::none;
    };
    auto const roomy = planned();
    CHECK(std::ranges::none_of(roomy.stages, recomputes));
    auto const& before = roomy.stages[0].plan;
    auto tight = roomy; // at first gradients are made from less
    while (!recomputes(tight.stages[0])) {
        c.types[0].memory = bytes(tight.stages[0].plan.memory[0].total() - 1);
        tight = planned();
    }
    CHECK_FALSE(recomputes(tight.stages[2]));
    auto const& after = tight.stages[0].plan;
    CHECK(after.memory[0].total() < before.memory[0].total());
    // Of a forward pass and a backward pass that is twice as long, four thirds are left, but for cheap kernels.
    CHECK(after.time.compute == doctest::Approx(4.0 / 3 * before.time.compute).epsilon(0.05));
    CHECK(tight.cost() > roomy.cost());
    auto forged = tight;
    forged.stages[0].plan.provenance.training.recomputes = recomputation::none;
    CHECK_FALSE(verify(p, forged));
}

TEST_CASE("what cannot be true of stages is refused") {
    auto c = slow_network(true);
    auto const p = two_linears(false);
    auto const plan = plan_draft(p, layers_of_halves, c, halves(2), clp::ratio_solver{});
    REQUIRE(plan.reason == "");
    CHECK(verify_figures(plan, c).problem == "");
    auto other = plan;
    other.lower_bound = 2 * plan.cost();
    CHECK_FALSE(verify_figures(other, c));
    other = plan;
    other.status = search::status::infeasible;
    CHECK_FALSE(verify_figures(other, c));
    other = plan;
    other.families["cheaper"].cost = plan.cost() / 2;
    CHECK_FALSE(verify_figures(other, c));
    other = plan;
    other.stages[0].plan.provenance.training.overlaps_gradients = true;
    CHECK(verify(p, other).problem.find("overlaps gradients") != std::string::npos);
    auto whole = plan_draft(p, layers_of_halves, c, {{{0, 2, {0, 1, 2, 3}}}, 1}, clp::ratio_solver{});
    REQUIRE(whole.reason == "");
    CHECK(verify(p, whole).problem == "");
    whole.stages[0].plan.provenance.training.in_flight = 2;
    CHECK_FALSE(verify(p, whole));
    for (int const devices : {-1, 1 << 30}) {
        c.machines[0].devices = devices;
        CHECK_THROWS_AS((void)find_plan(p, c, clp::ratio_solver{}), input_error);
        CHECK_THROWS_AS((void)evaluate(plan, c), input_error);
    }
}

TEST_CASE("stages on unlike devices with uneven shares compute what the program does") {
    auto const p = test::residual_blocks(16, 16, 8, true);
    int pipelines = 0;
    for (bool const are_unlike : {false, true}) {
        auto const c = slow_network(are_unlike);
        auto const plan = find_plan(p, c, clp::ratio_solver{});
        REQUIRE(plan.exists());
        CAPTURE(plan.stages.size());
        CAPTURE(plan.micro_batches);
        CHECK(verify(p, plan).problem == "");
        CHECK(verify_figures(plan, c).problem == "");
        CHECK(work_bound(index_program(p), c).value <= plan.cost());
        for (auto const& [name, f] : plan.families) {
            INFO(name << ' ' << f.reason);
            if (f.cost) CHECK(plan.cost() <= *f.cost);
        }
        auto const found = prove(p, plan, test::kernels());
        CHECK(found.problem == "");
        CHECK(found.worst_error <= 1e-12);
        pipelines += plan.stages.size() > 1;
    }
    CHECK(pipelines > 0);
}

TEST_CASE("bounds know which layers devices cannot hold, and are below plans that just fit") {
    int bounded = 0, raised = 0, excluded = 0;
    search::deadline const until;
    joint_options const options;
    for (std::uint64_t seed = 1; seed <= test::cases(40u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed + 80'000);
        auto const p = test::residual_blocks(12, 32, random.between(2, 4), false);
        auto const indexed = index_program(p);
        auto const layers = repeated_layers(indexed);
        auto const c = slow_network(random.chance(0.5));
        auto const plan = plan_draft(p, layers, c, random_draft(random, layers.size(), 4), clp::ratio_solver{});
        REQUIRE(plan.reason == "");
        auto const tight = as_large_as(c, plan);
        stage_bounds roomy_stages(p, c, layers, options.stage, until), stages(p, tight, layers, options.stage, until);
        pipeline_bounds roomy(indexed, c, layers, roomy_stages, false), bounds(indexed, tight, layers, stages, false);
        double const least = bounds.least(2 * plan.cost()), least_if_roomy = roomy.least(2 * plan.cost());
        CHECK(least >= least_if_roomy);
        raised += least > least_if_roomy;
        std::vector<int> one(machine_kinds(c).size());
        one[0] = 1;
        excluded += std::isinf(stages.least({one, 1}, 1)[0].back());
        CHECK(std::isfinite(roomy_stages.least({one, 1}, 1)[0].back()));
        if (!is_machine_by_machine(plan, c)) continue;
        CHECK(least <= plan.cost() * (1 + 1e-9));
        ++bounded;
    }
    CHECK((bounded >= 10 || test::sanitized));
    CHECK((raised > 0 || test::sanitized));
    CHECK(excluded >= test::cases(10)); // of the whole program on one device
}

TEST_CASE("a layer needs no gradient of what it uses without one") {
    program_builder b;
    char const* const linear = "(b k), (n k) -> (b n); 0*1";
    operator_options const matmul{.category = operator_class::matmul};
    auto const weight = b.parameter("weight", {16, 16}),
               frozen = b.parameter("frozen", {16, 16}, element_type::float32, false);
    auto x = b.apply("linear", linear, {b.input("x", {16, 16}), weight}, matmul);
    x = b.apply("linear", linear, {x, b.parameter("other", {16, 16})}, matmul);
    auto const fixed = b.apply("detach", "(n k) -> (n k); 0", {weight}, {.is_view = true, .stops_gradient = true});
    x = b.apply("linear", linear, {b.apply("linear", linear, {x, fixed}, matmul), frozen}, matmul);
    auto const p = b.finish(b.apply("sum", "(b n) -> (); 0", {x}, {.category = operator_class::reduction}));
    program_layers const layers{{0, 1, static_cast<operator_id>(index_program(p).operators.size())}, {"first", "rest"}};
    double const copy = 16 * 16 * 4; // of "other" with a gradient and two numbers of state, of "frozen" one
    search::deadline const until;
    joint_options const options;
    for (double const copies : {4.9, 5.1}) {
        CAPTURE(copies);
        auto const c = slow_network(false, copies * copy);
        stage_bounds stages(p, c, layers, options.stage, until);
        auto const on_one = stages.least({{1}, 1}, 1);
        CHECK(std::isfinite(on_one[0][0]));
        CHECK(std::isinf(on_one[0][1]));
        CHECK(std::isfinite(on_one[1][0]) == (copies > 5));
    }
}

TEST_CASE("turns are bounded where devices may hold all that is saved") {
    auto const p = test::residual_blocks(12, 16, 2, false);
    auto const layers = repeated_layers(index_program(p));
    search::deadline const until;
    joint_options const options;
    stage_devices const all{{2}};
    auto c = slow_network(false);
    auto const turns = plan_hidup(p, c, clp::ratio_solver{}, {.compares = false});
    REQUIRE(turns.exists());
    double held = 0; // on all devices, buffers and inputs aside
    for (auto const& m : turns.memory) held += m.parameters + m.gradients + m.optimizer + m.activations;
    for (double const part : {1.0, 0.2}) {
        CAPTURE(part);
        for (auto& type : c.types) type.memory = bytes(part * held / 4);
        stage_bounds stages(p, c, layers, options.stage, until);
        double const least = stages.most_in_turns(all, std::numeric_limits<double>::infinity()).first;
        CHECK(std::isinf(least) == (part < 1));
        CHECK(std::isinf(stages.least_in_turns(all, 0.5)) == (part < 1));
        if (part == 1) CHECK(least <= turns.cost() * (1 + 1e-9));
    }
}

TEST_CASE("stages of any layers on any devices compute what the program does, at the price of their plans") {
    int meshes = 0, uneven = 0, skips = 0, several = 0, idle = 0, bounded = 0, above_work = 0, held = 0, recomputed = 0;
    search::deadline const until;
    for (std::uint64_t seed = 1; seed <= test::cases(40u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed + 70'000);
        int const blocks = random.between(2, 4);
        bool const has_skips = random.chance(0.5);
        auto const p = test::residual_blocks(12, 4 * random.between(1, 3), blocks, has_skips);
        auto const layers = repeated_layers(index_program(p));
        auto c = slow_network(random.chance(0.5));
        for (auto& m : c.machines) m.devices = 2 * random.between(1, 2);
        auto const draft = random_draft(random, layers.size(), c.devices().size());
        joint_options options;
        options.sends_beside = random.chance(0.3);
        auto plan = plan_draft(p, layers, c, draft, clp::ratio_solver{}, options);
        REQUIRE(plan.reason == "");
        for (std::size_t s = 0; s < plan.stages.size() && (plan.stages.size() > 1 || plan.micro_batches > 1); ++s)
            if (random.chance(0.3)) {
                auto& stage = plan.stages[s].plan;
                stage = detail::with_in_flight(stage, index_program(parts_of(p, plan)[s].program),
                                               stage.provenance.training.in_flight,
                                               random.chance(0.5) ? recomputation::full : recomputation::selective);
                ++recomputed;
            }
        price(plan, c);
        CHECK(verify(p, plan).problem == "");
        CHECK(verify_figures(plan, c).problem == "");
        auto const indexed = index_program(p);
        double const work = work_bound(indexed, c).value;
        CHECK(work <= plan.cost());
        if (is_machine_by_machine(plan, c)) {
            stage_bounds stages(p, c, layers, options.stage, until);
            REQUIRE(stages.exist());
            pipeline_bounds bounds(indexed, c, layers, stages, options.sends_beside);
            double const bound = bounds.least(2 * plan.cost());
            CHECK(bound <= plan.cost() * (1 + 1e-9));
            above_work += bound > 1.1 * work;
            ++bounded;
        }
        double const run = simulate(plan, c).total;
        CHECK(run <= plan.cost() * (1 + 1e-9));
        held += plan.stages.size() > 2 && run == doctest::Approx(plan.cost()).epsilon(1e-9);
        auto const terms = terms_of(plan, c);
        CHECK(terms.total().value == doctest::Approx(plan.cost()).epsilon(1e-9));
        CHECK(terms.compute > seconds(0));
        CHECK(terms.inner >= seconds(0));
        CHECK(terms.used <= terms.limit);
        idle += terms.idle > seconds(0) && terms.sends > seconds(0);
        auto const found = prove(p, plan, test::kernels());
        CHECK(found.problem == "");
        CHECK(found.worst_error <= 1e-12);
        several += plan.stages.size() > 1;
        skips += has_skips && plan.stages.size() > 2;
        for (auto const& s : plan.stages) {
            meshes += s.plan.is_on_mesh();
            uneven += std::ranges::any_of(s.plan.cuts, [](atom_class const& cut) {
                return std::ranges::any_of(cut.counts, [&](extent n) { return n != cut.counts.front(); });
            });
        }
        // Sends beside computation take no longer than sends that block.
        auto other = plan;
        other.sends_beside = true;
        CHECK(evaluate(other, c).time.total().value <= plan.cost() * (1 + 1e-12));
        // What is said of a stage is checked.
        other = plan;
        other.stages.front().plan.provenance.training.in_flight += 1;
        if (other.stages.size() > 1 || other.micro_batches > 1) CHECK_FALSE(verify(p, other));
        other = plan;
        other.time.pipeline *= 1.001;
        CHECK_FALSE(verify_figures(other, c));
    }
    CHECK((several >= 20 || test::sanitized));
    CHECK((idle >= 10 || test::sanitized));
    CHECK((held > 0 || test::sanitized));
    CHECK(recomputed >= test::cases(10));
    CHECK((bounded >= 10 || test::sanitized));
    CHECK((above_work >= 5 || test::sanitized));
    CHECK((skips >= 3 || test::sanitized)); // a quarter of the cases may have none
    CHECK((meshes > 0 || test::sanitized));
    CHECK(uneven >= test::cases(5));
}
