// SPDX-License-Identifier: BSL-1.0
// A program type that can do what the concepts ask and nothing else, through every planner, verifier and executor.
#include "kernels.hpp"
#include "support/block_programs.hpp"

#include <heddle/clp/all.hpp>
#include <heddle/execute/prove_pipeline.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/amp.hpp>
#include <heddle/planner/ditto.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/hidup.hpp>
#include <heddle/synthesis/price_pipeline.hpp>

#include <doctest/doctest.h>

#include <forward_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace foreign {

/// No default, no copy, no members.
class archetype {
public:
    explicit archetype(heddle::program p) : inner_(std::make_unique<heddle::program>(std::move(p))) {}
    archetype(archetype const&) = delete;

private:
    friend struct heddle::program_access<archetype>;
    std::unique_ptr<heddle::program> inner_;
};

} // namespace foreign

template <>
struct heddle::program_access<foreign::archetype> {
    using graph = foreign::archetype;
    static short tensor_count(graph const& g) { return static_cast<short>(g.inner_->tensor_count()); }
    static short operator_count(graph const& g) { return static_cast<short>(g.inner_->operator_count()); }
    static tensor_info tensor(graph const& g, tensor_id t) { return g.inner_->tensor(t); }
    static char const* name(graph const& g, operator_id o) { return g.inner_->name(o).c_str(); }
    static std::forward_list<tensor_id> operands(graph const& g, operator_id o) {
        return listed(g.inner_->operands(o));
    }
    static std::forward_list<tensor_id> results(graph const& g, operator_id o) { return listed(g.inner_->results(o)); }
    static index_rule rule(graph const& g, operator_id o) { return g.inner_->rule(o); }
    static operator_work work(graph const& g, operator_id o) { return g.inner_->work(o); }
    static tensor_id loss(graph const& g) { return g.inner_->loss(); }
    // For `prove` alone:
    static char const* kind(graph const& g, operator_id o) { return g.inner_->kind(o).c_str(); }
    static operator_attributes attributes(graph const& g, operator_id o) { return g.inner_->attributes(o); }

private:
    static std::forward_list<tensor_id> listed(auto const& tensors) { return {tensors.begin(), tensors.end()}; }
};

namespace {

using namespace heddle;
using foreign::archetype;

static_assert(runnable_program<archetype>);
static_assert(!std::is_copy_constructible_v<archetype>);

cluster two_of_two() {
    cluster c;
    c.name = "two of two";
    c.types = {
        {"slow", bytes(1e9), bytes_per_second(1e8), seconds(1e-6), {{element_type::float32, {flops_per_second(1e6)}}}},
        {"fast", bytes(1e9), bytes_per_second(1e8), seconds(1e-6), {{element_type::float32, {flops_per_second(2e6)}}}}};
    c.machines = {{.type = 0, .devices = 2}, {.type = 1, .devices = 2}};
    c.intra = network_link{bytes_per_second(1e8), seconds(1e-6)};
    c.inter = network_link{bytes_per_second(1e6), seconds(1e-6)};
    return c;
}

program archetype_blocks() { return test::residual_blocks(8, 6, 6, true); }

} // namespace

TEST_CASE("an archetype of a program is planned by hap and hidup as a program of ours, verified and proved") {
    auto const ours = archetype_blocks();
    archetype const theirs(archetype_blocks());
    auto const c = two_of_two();
    auto const plans_of = [&](auto const& p) {
        return std::pair(plan_hap(p, c, clp::ratio_solver{}), plan_hidup(p, c, clp::ratio_solver{}));
    };
    auto const [plan, turns] = plans_of(theirs);
    auto const [our_plan, our_turns] = plans_of(ours);
    REQUIRE(plan.exists());
    REQUIRE(turns.exists());
    CHECK(plan.cost() == our_plan.cost());
    CHECK(turns.cost() == our_turns.cost());
    for (auto const* made : {&plan, &turns}) {
        auto const verified = verify(theirs, *made);
        CHECK_MESSAGE(verified, verified.problem);
        auto const proved = prove(theirs, *made, test::kernels());
        CHECK_MESSAGE(proved, proved.problem);
    }
}

TEST_CASE("an archetype of a program is planned by amp and ditto as a program of ours, verified, priced and proved") {
    auto const ours = archetype_blocks();
    archetype const theirs(archetype_blocks());
    auto const c = two_of_two();
    auto const layers = repeated_layers(index_program(theirs));
    auto const strategies = make_strategy_problem(theirs, layers, c);
    CHECK(strategies.global_batch == 8);
    CHECK(make_template_problem(theirs, layers, c, 2, 4).device_count() == 4);
    auto const check = [&](pipeline_plan const& plan, pipeline_plan const& our_plan) {
        REQUIRE(plan.exists());
        CHECK(plan.cost() == our_plan.cost());
        auto const verified = verify(theirs, plan);
        CHECK_MESSAGE(verified, verified.problem);
        CHECK(difference(plan, priced(theirs, plan, c)).empty());
        auto const proved = prove(theirs, plan, test::kernels());
        CHECK_MESSAGE(proved, proved.problem);
    };
    check(plan_amp(theirs, layers, c), plan_amp(ours, layers, c));
    check(plan_ditto(theirs, layers, c), plan_ditto(ours, layers, c));
}

TEST_CASE("a copy of a program of another type is the program") {
    auto const ours = archetype_blocks();
    archetype const theirs(archetype_blocks());
    auto const own = program_of(theirs);
    REQUIRE(own.operator_count() == ours.operator_count());
    for (operator_id o = 0; o < own.operator_count(); ++o) {
        CHECK(own.kind(o) == ours.kind(o));
        CHECK(own.attributes(o) == ours.attributes(o));
        CHECK(own.name(o) == ours.name(o));
    }
    CHECK(own.loss() == ours.loss());
    CHECK(&program_of(ours) == &ours);
}
