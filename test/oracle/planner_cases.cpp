// SPDX-License-Identifier: BSL-1.0
// Programs and clusters on which planners have failed.
#include <heddle/clp/all.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/heddle.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/synthesis/baselines.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/synthesis/relaxation_bounds.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/theory/cut_space.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace {

using namespace heddle;

cluster two_devices(double first_memory, double second_memory) {
    cluster c;
    for (double memory : {first_memory, second_memory})
        c.types.push_back({"of " + std::to_string(memory),
                           bytes(memory),
                           bytes_per_second(600e9),
                           seconds(0),
                           {{element_type::float32, {flops_per_second(8e12)}}}});
    c.machines = {{0, 1, 1}, {1, 1, 1}};
    c.inter = network_link{bytes_per_second(3e9), seconds(2e-5)};
    return c;
}

/// Makes eight layers whose weights and activations are of one size, wide enough that neither fits whole on a device of
/// little memory.
program wide_layers() {
    program_builder b;
    auto h = b.input("x", {16384, 4096});
    for (int l = 0; l < 8; ++l) {
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, b.parameter("w" + std::to_string(l), {4096, 4096})},
                    {.category = operator_class::matmul});
        h = b.apply("relu", "(b n) -> (b n)", {h}, {.saved_results = {0}});
    }
    return b.finish(b.apply("sum", "(b n) -> (); 0", {h}));
}

std::size_t count(plan const& p, auto const& holds) {
    return static_cast<std::size_t>(
        std::ranges::count_if(p.steps, [&](auto const& s) { return holds(s.instruction); }));
}

} // namespace

TEST_CASE("one parameter as two operands is read once") {
    program_builder b;
    auto const w = b.parameter("w", {4096, 4096});
    auto const p =
        b.finish(b.apply("sum", "(i j) -> (); 0", {b.apply("gram", "(i !k), (j !k) -> (i j); 0*1", {w, w})}));
    auto const made = plan_hap(p, two_devices(16e9, 16e9), clp::ratio_solver{});
    REQUIRE(made.exists());
    auto const checked = verify(p, made);
    INFO(checked.problem);
    CHECK(checked);
}

TEST_CASE("a device too small for its part gets none") {
    program_builder b;
    auto h = b.input("x", {65536, 1024});
    for (int l = 0; l < 20; ++l) {
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, b.parameter("w" + std::to_string(l), {1024, 1024})},
                    {.category = operator_class::matmul});
        h = b.apply("relu", "(b n) -> (b n)", {h}, {.saved_results = {0}});
    }
    auto const p = b.finish(b.apply("sum", "(b n) -> (); 0", {h}));
    auto const made = plan_hap(p, two_devices(16e9, 0.2e9), clp::ratio_solver{});
    INFO(made.reason);
    REQUIRE(made.exists());
    CHECK(verify(p, made));
    CHECK(made.memory[1].total() <= 0.2e9);
}

TEST_CASE("an operator of many parameters is planned without trying all ways to bring them") {
    program_builder b;
    std::vector<tensor_id> parts;
    std::string rule, terms;
    for (int n = 0; n < 40; ++n) {
        parts.push_back(b.parameter("w" + std::to_string(n), {8, 8}));
        rule += n ? ", (i j)" : "(i j)";
        terms += (n ? " + " : "") + std::to_string(n);
    }
    auto const p =
        b.finish(b.apply("sum", "(i j) -> (); 0", {b.apply("add_all", rule + " -> (i j); " + terms, parts)}));
    auto const made = plan_hap(p, two_devices(16e9, 16e9), clp::ratio_solver{});
    REQUIRE(made.exists());
    CHECK(verify(p, made));
    CHECK_FALSE(made.warnings.empty()); // and it says that it did not try them all
}

TEST_CASE("the stages of ZeRO have their memory and bytes") {
    auto const p = index_program(wide_layers());
    auto const c = two_devices(16e9, 16e9);
    auto const model = per_device_model(c, element_type::float32);
    std::vector const even{0.5, 0.5};
    // In units of the weights of one layer: value, gradient and two numbers of state. The first layer's backward pass
    // does not read its weight.
    struct expectation {
        parameter_storage storage;
        double values, gradients, state, passing, reduced, scattered, gathered;
    };
    using enum parameter_storage;
    for (auto const& e : {expectation{replicated, 8, 8, 16, 1, 8, 0, 0},
                          {sharded_state, 8, 8, 8, 1, 0, 8, 8},
                          {sharded_gradients, 4 + 7, 4, 8, 2, 0, 8, 8},
                          {sharded, 4, 4, 8, 2, 0, 8, 8 + 7}}) {
        CAPTURE(static_cast<int>(e.storage));
        cut_space space(p);
        space.restrict_to(data_parallel(p, e.storage));
        auto const graph = search::explore(space);
        std::vector<step_work> steps;
        for (auto const& i : space.instructions()) steps.push_back(make_step(p, i, {}));
        auto const bounds = improve_bounds(priced_graph(space, graph, steps, model, integral_shares(p, even)), 6);
        REQUIRE(bounds.path);
        auto const [made, cost] = realise(*bounds.path, space, steps, c, {even}, {});
        auto const checked = verify(p, made);
        CHECK_MESSAGE(checked, checked.problem);
        double const weight = 4096.0 * 4096 * 4;
        for (auto const& m : cost.memory) {
            CHECK(m.parameters == e.values * weight);
            CHECK(m.gradients == e.gradients * weight);
            CHECK(m.optimizer == e.state * weight);
            CHECK(m.communication == e.passing * weight);
            for (std::size_t k = 0; k < 2; ++k) CHECK(cost.memory[k].total() == doctest::Approx(bounds.cost.memory[k]));
        }
        auto const charged = charged_traffic(made);
        auto const of = [&](collective kind) { return charged[static_cast<std::size_t>(kind)].total().value; };
        CHECK(of(collective::all_reduce) == e.reduced * weight);
        CHECK(of(collective::reduce_scatter) == e.scattered * weight);
        CHECK(of(collective::all_gather) == e.gathered * weight);
    }
}

TEST_CASE("parameters are gathered twice where nothing else fits, and not where memory is loose") {
    auto const p = wide_layers();
    auto const at = [&](double memory) {
        auto const made = plan_hap(p, two_devices(memory, memory), clp::ratio_solver{});
        if (made.exists()) {
            auto const checked = verify(p, made);
            CHECK_MESSAGE(checked, checked.problem);
        }
        return made;
    };
    auto const unshards = [](instruction const& i) { return i.is<instruction::unshard>(); };
    auto const loose = at(8e9), tight = at(2.6e9);
    CHECK(loose.status == search::status::optimal);
    CHECK(count(loose, unshards) == 0);
    REQUIRE(tight.exists());
    CHECK(count(tight, [](instruction const& i) {
              auto const* const unshard = i.as<instruction::unshard>();
              return unshard && unshard->is_resharded;
          }) == 7);
    CHECK(tight.memory[0].total() <= 2.6e9);

    // Without these nothing fits.
    auto const indexed = index_program(p);
    auto const c = two_devices(2.6e9, 2.6e9);
    auto const model = per_device_model(c, element_type::float32);
    cut_space space(indexed);
    space.restrict_to([&](instruction const& i) { return !unshards(i); });
    auto const graph = search::explore(space);
    std::vector<step_work> steps;
    for (auto const& i : space.instructions()) steps.push_back(make_step(indexed, i, {}));
    CHECK(synthesise(priced_graph(space, graph, steps, model, integral_shares(indexed, {0.5, 0.5})), {}).status ==
          search::status::infeasible);

    double before = std::numeric_limits<double>::infinity();
    for (double memory : {2.5e9, 2.6e9, 2.7e9, 2.8e9, 3.0e9, 3.2e9, 8e9}) {
        auto const made = at(memory);
        CAPTURE(memory);
        for (auto const* name : {"DP-EV", "DP-CP", "ZeRO-1", "ZeRO-2", "fully sharded"})
            CHECK(made.baselines.contains(name));
        if (!made.exists()) continue;
        CHECK(made.cost() <= before);
        CHECK(made.lower_bound <= made.cost());
        before = made.cost();
    }
    auto const between = at(2.8e9).baselines;
    CHECK_FALSE(between.at("ZeRO-2"));
    CHECK(between.at("fully sharded"));
}
