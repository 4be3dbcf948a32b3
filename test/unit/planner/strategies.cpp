// SPDX-License-Identifier: BSL-1.0
// Well-known strategies as plans of their own.
#include <heddle/clp/all.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/mesh.hpp>
#include <heddle/planner/strategies.hpp>
#include <heddle/program/program.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

using namespace heddle;

namespace {

program two_layers() {
    program_builder b;
    auto h = b.input("x", {4096, 512});
    for (auto const* name : {"w0", "w1"})
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, b.parameter(name, {512, 512})},
                    {.category = operator_class::matmul});
    return b.finish(b.apply("sum", "(b n) -> (); 0", {h}));
}

cluster two_machines_of_two(double slower) {
    cluster c;
    for (double const speed : {1.0, slower})
        c.types.push_back({"of speed " + std::to_string(speed),
                           bytes(16e9),
                           bytes_per_second(5e11),
                           seconds(5e-6),
                           {{element_type::float32, {flops_per_second(1e13 * speed)}}}});
    c.machines = {{0, 2, 1}, {1, 2, 1}};
    c.intra = c.inter = network_link{bytes_per_second(1e10), seconds(1e-5)};
    return c;
}

} // namespace

TEST_CASE("strategies are planned at even shares, cost what baselines do, and are verified") {
    auto const model = two_layers();
    for (double const slower : {1.0, 0.5}) {
        CAPTURE(slower);
        auto const c = two_machines_of_two(slower);
        auto const priced = plan_hap(model, c, clp::ratio_solver{}).baselines;
        auto const on_mesh = plan_mesh(model, c, mesh({2, 2}), clp::ratio_solver{}).baselines;
        auto const found = plan_strategies(model, c);
        std::set<std::string> names;
        for (auto const& s : found) {
            CAPTURE(s.name);
            names.insert(s.name);
            auto const verified = verify(model, s.plan);
            CHECK_MESSAGE(verified, verified.problem);
            for (auto const& row : s.plan.ratios) CHECK(row == std::vector<double>(row.size(), row.front()));
            CHECK(s.plan.lower_bound > 0);
            CHECK(s.plan.lower_bound <= s.plan.cost());
            auto const at = s.name.find(" on 2 x 2");
            auto const& costs = at == s.name.npos ? priced : on_mesh;
            REQUIRE(costs.contains(s.name.substr(0, at)));
            if (slower == 1)
                CHECK(s.plan.cost() == doctest::Approx(costs.at(s.name.substr(0, at)).value()).epsilon(1e-6));
        }
        CHECK(std::ranges::is_sorted(found, {}, [](planned_strategy const& s) { return s.plan.cost(); }));
        for (auto const* name :
             {"DP-EV", "ZeRO-1", "ZeRO-2", "fully sharded", "tensor parallel", "data x tensor on 2 x 2"})
            CHECK_MESSAGE(names.contains(name), name);
    }
}

TEST_CASE("a strategy that does not fit is left out") {
    auto c = two_machines_of_two(1);
    for (auto& type : c.types) type.memory = bytes(1);
    CHECK(plan_strategies(two_layers(), c).empty());
}
