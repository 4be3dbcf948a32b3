// SPDX-License-Identifier: BSL-1.0
// Plans that make values again for the backward pass compute what a single device does, and hold what is priced.
#include <heddle/clp/all.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/prove_stages.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/figures.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/joint.hpp>
#include <heddle/planner/mesh.hpp>
#include <heddle/theory/batch.hpp>
#include <heddle/theory/recomputation.hpp>
#include <support/block_programs.hpp>
#include <support/cases.hpp>
#include <support/catalogue_programs.hpp>
#include <support/random_mesh_programs.hpp>
#include <support/random_plans.hpp>
#include <support/random_programs.hpp>

#include "emulation.hpp"
#include "kernels.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;

recomputation random_recomputation(test::random_source& random) {
    return random.chance(0.5) ? recomputation::full : recomputation::selective;
}

/// Returns how many values of a program are made again.
int made_again(indexed_program const& p) {
    return static_cast<int>(std::ranges::count_if(p.tensors, [](auto const& t) { return t.region != no_region; }));
}

/// What a program holds, by definition, where regions begin at these operators.
double held_between(indexed_program const& p, std::vector<operator_id> const& begins, int in_flight) {
    auto const region_of = [&](operator_id o) { return std::ranges::upper_bound(begins, o) - begins.begin(); };
    std::vector<bool> is_saved(p.tensors.size());
    for (auto const& op : p.operators) {
        for (auto k : op.work.saved_operands) is_saved[op.operands[k]] = true;
        for (auto k : op.work.saved_results) is_saved[op.results[k]] = true;
    }
    double kept = 0;
    std::vector<double> inside(begins.size() + 1);
    for (operator_id o = 0; o < p.operators.size(); ++o) {
        auto const& op = p.operators[o];
        auto const mine = region_of(o);
        inside[static_cast<std::size_t>(mine)] += op.work.extra_saved.value;
        bool const passes = std::ranges::any_of(op.results, [&](tensor_id t) {
            return std::ranges::any_of(p.tensors[t].consumers, [&](operator_id c) { return region_of(c) != mine; });
        });
        for (auto t : op.results)
            if (passes) kept += p.tensors[t].info.size().value;
            else if (is_saved[t]) inside[static_cast<std::size_t>(mine)] += p.tensors[t].info.size().value;
    }
    return in_flight * kept + std::ranges::max(inside);
}

} // namespace

TEST_CASE("regions hold little more than the best of all ways to cut a program") {
    int several = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(200u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const made = test::random_program(random, {.least_operators = 3, .most_operators = 10});
        auto p = index_program(made);
        int const in_flight = random.between(1, 4);
        recompute(p, recomputation::full, in_flight);
        auto const count = p.operators.size();
        double least = std::numeric_limits<double>::infinity();
        for (std::uint32_t cuts = 0; cuts < 1u << (count - 1); ++cuts) {
            std::vector<operator_id> begins;
            for (operator_id o = 1; o < count; ++o)
                if (cuts >> (o - 1) & 1) begins.push_back(o);
            least = std::min(least, held_between(p, begins, in_flight));
        }
        // What is found is seen in where regions change.
        double found = 0;
        std::vector<double> inside(count);
        std::vector<bool> is_saved(p.tensors.size());
        for (operator_id o = 0; o < count; ++o) {
            auto const& op = p.operators[o];
            for (auto k : op.work.saved_operands) is_saved[op.operands[k]] = true;
            for (auto k : op.work.saved_results) is_saved[op.results[k]] = true;
        }
        for (auto const& op : p.operators) {
            for (auto t : op.results) {
                auto const& tensor = p.tensors[t];
                if (tensor.region == no_region) found += in_flight * tensor.info.size().value;
                else if (is_saved[t]) inside[static_cast<std::size_t>(tensor.region)] += tensor.info.size().value;
            }
            if (auto const r = p.tensors[op.results[0]].region; r != no_region)
                inside[static_cast<std::size_t>(r)] += op.work.extra_saved.value;
        }
        found += std::ranges::max(inside);
        CHECK(found <= least / 0.8 * (1 + 1e-9));
        several += std::ranges::any_of(p.tensors, [](auto const& t) { return t.region > 0; });
    }
    CHECK((several > 20 || test::sanitized));
}

TEST_CASE("random plans that make values again compute what the single device does, and carry what they charge") {
    int again = 0, tried = 0, grouped = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(400u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed + 31'000);
        auto const p = test::catalogue_program(random, random.between(2, 6));
        auto indexed = index_program(p);
        auto const how = random_recomputation(random);
        recompute(indexed, how, 1);
        indexed.counted_of_regions.clear();
        plan what;
        training_options training;
        training.recomputes = how;
        switch (random.below(3)) {
        case 0:
            what =
                plan_on_mesh(indexed, test::random_mesh_program(indexed, test::random_mesh(random), random), training);
            break;
        case 1:
            split_inside(indexed);
            what = test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 3)), random);
            for (auto& d : what.devices) d.group_size = random.between(1, 3);
            for (auto& s : what.steps) s.step = make_step(indexed, s.instruction, training);
            grouped += what.has_groups();
            break;
        default: what = test::random_plan(indexed, static_cast<std::size_t>(random.between(2, 4)), random);
        }
        what.provenance.training = training;
        auto const moved = random.chance(0.5) ? uneven::padded : uneven::grouped; // when it runs again as before
        for (auto& s : what.steps)
            for_each_transfer(s.step, [&](transfer& t) {
                if (has_grouped_kind(t.kind)) t.how = moved;
            });
        auto const checked = verify(indexed, what);
        CHECK(checked.problem == "");
        if (test::is_unstable(p, seed)) continue; // rounding decides what it computes
        auto const found = prove(p, what, test::kernels());
        CHECK(found.problem == "");
        ++tried;
        again += std::ranges::any_of(what.steps, [](plan_step const& s) { return s.step.runs_again; });
    }
    CHECK((tried > 200 || test::sanitized));
    CHECK((again > 100 || test::sanitized));
    CHECK((grouped > 50 || test::sanitized));
}

TEST_CASE("plans that are not made again together are refused") {
    auto const p = test::residual_blocks(16, 8, 4);
    auto indexed = index_program(p);
    recompute(indexed, recomputation::full, 1);
    indexed.counted_of_regions.clear();
    REQUIRE(made_again(indexed) > 4);
    test::random_source random(7);
    auto const good = [&] {
        auto what = test::random_plan(indexed, 2, random);
        what.provenance.training.recomputes = recomputation::full;
        return what;
    }();
    REQUIRE(verify(p, good).problem == "");
    auto other = good;
    other.provenance.training.recomputes = recomputation::none;
    CHECK(verify(p, other).problem.find("recomputes none") != std::string::npos);
    other = good;
    auto const again = std::ranges::find_if(other.tensors, [](auto const& t) { return t.region == 1; });
    REQUIRE(again != other.tensors.end());
    again->region = 0;
    CHECK_FALSE(verify(p, other));
    other = good;
    other.tensors[0].region = 0; // a source
    CHECK(verify(p, other).problem.find("no value that can be made again") != std::string::npos);
    other = good;
    for (auto& s : other.steps) s.step.runs_again = false;
    CHECK(verify(p, other).problem.find("work") != std::string::npos);
}

TEST_CASE("what does not fit is planned with activations that are made again") {
    for (bool const has_machines : {false, true}) {
        if (has_machines && test::sanitized) break; // it takes long
        CAPTURE(has_machines);
        auto const p = test::residual_blocks(512, 8, 4);
        cluster c;
        c.types = {{"slow", bytes(1e9), bytes_per_second(1e6), seconds(0.05), {}},
                   {"fast", bytes(1e9), bytes_per_second(2e6), seconds(0.05), {}}};
        for (auto& type : c.types)
            type.rates[element_type::float32].fallback = flops_per_second(1e6 + 1e6 * (&type != &c.types[0]));
        c.machines = {{.type = 0, .devices = has_machines ? 2 : 1, .count = 1},
                      {.type = 1, .devices = has_machines ? 2 : 1, .count = 1}};
        c.intra = c.inter = network_link{bytes_per_second(1e6), seconds(1e-4)};
        validate(c);
        joint_options options;
        auto const roomy = find_plan(p, c, clp::ratio_solver{}, options);
        REQUIRE(roomy.exists());
        double used = 0;
        for (auto const& s : roomy.stages)
            for (auto const& m : s.plan.memory) used = std::max(used, m.total());
        double cost = 0;
        int recomputed = 0;
        for (double part = 1; part > 0.1; part *= 0.5) {
            CAPTURE(part);
            for (auto& type : c.types) type.memory = bytes(part * used);
            auto const plan = find_plan(p, c, clp::ratio_solver{}, options);
            options.recomputes = false;
            auto const without = find_plan(p, c, clp::ratio_solver{}, options);
            options.recomputes = true;
            if (without.exists()) {
                REQUIRE(plan.exists());
                CHECK(plan.cost() <= without.cost() * (1 + 1e-9));
            }
            if (!plan.exists()) break;
            CHECK(verify(p, plan).problem == "");
            CHECK(verify_figures(plan, c).problem == "");
            auto const found = prove(p, plan, test::kernels());
            CHECK(found.problem == "");
            CHECK(found.worst_error <= 1e-12);
            cost = plan.cost();
            recomputed += plan.stages[0].plan.provenance.training.recomputes != recomputation::none;
        }
        CHECK(cost > 0);
        CHECK(recomputed > 0);
    }
}
