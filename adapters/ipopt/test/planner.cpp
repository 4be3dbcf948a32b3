// SPDX-License-Identifier: BSL-1.0
// The HAP planner on clusters whose efficiency depends on the size of kernels: Ipopt follows the curves, and CLP does
// where they are convex.
#if __has_include(<heddle/clp/ratio_solver.hpp>)
#include <heddle/clp/ratio_solver.hpp>
#include <heddle/ipopt/all.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/synthesis/global_bound.hpp>
#include <support/cases.hpp>
#include <support/random_programs.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace {

using namespace heddle;

/// Solves by CLP without curves or with convex ones, or by Ipopt; it is one type, so that the planner is compiled once.
struct any_solver {
    enum class kind { of_lines, of_convex, of_all } what; // the curves it takes

    [[nodiscard]] ratio_solution solve(ratio_problem const& p, std::vector<double> const& start) const {
        return what == kind::of_all ? by_ipopt.solve(p, start) : by_clp.solve(p, start);
    }
    [[nodiscard]] ratio_solution solve(ratio_problem const& p) const { return solve(p, p.preferred); }
    [[nodiscard]] bool solves(ratio_problem const& p) const {
        return what == kind::of_all      ? by_ipopt.solves(p)
               : what == kind::of_convex ? by_clp.solves(p)
                                         : by_clp.solves(p) && !p.has_curves();
    }

    clp::ratio_solver by_clp{};
    ipopt::ratio_solver by_ipopt{};
};

plan planned(any_solver::kind what, program const& p, cluster const& c) { return plan_hap(p, c, any_solver{what}); }
using enum any_solver::kind;

/// A product of 2 GFLOP on a batch of 256, and its sum.
program one_product() {
    program_builder b;
    auto const y =
        b.apply("linear", "(b k), (n k) -> (b n); 0*1", {b.input("x", {256, 2000}), b.parameter("w", {2000, 2000})},
                {.category = operator_class::matmul});
    return b.finish(b.apply("sum", "(b n) -> (); 0", {y}));
}

/// A fast device that reaches little of its rate with half of the product, and one half as fast that always reaches it.
cluster fast_and_steady(double least) {
    cluster c;
    for (auto const& [name, rate] : {std::pair("fast", 2e12), {"steady", 1e12}})
        c.types.push_back({name,
                           bytes(32e9),
                           bytes_per_second(1e15),
                           seconds(0),
                           {{element_type::float32, {flops_per_second(rate)}}}});
    c.types[0].rates[element_type::float32].by_class[operator_class::matmul].efficiency = saturation{flops(1e9), least};
    c.machines = {{0, 1, 1}, {1, 1, 1}};
    c.inter = network_link{bytes_per_second(1e12), seconds(0)};
    validate(c);
    return c;
}

/// Returns the least cost met while programs and ratios alternate, with the ratios found by curves or by lines; what is
/// tried after that may meet the same.
double least_cost(plan const& p, bool by_curves) {
    double result = std::numeric_limits<double>::infinity();
    for (auto const& point : p.trajectory) {
        bool const is_curved = point.origin.find(", curved, round") != std::string::npos;
        bool const is_plain =
            point.origin.starts_with("even, round") || point.origin.starts_with("compute-proportional, round");
        if (point.cost && (by_curves ? is_curved : is_plain)) result = std::min(result, *point.cost);
    }
    return result;
}

/// The problem of a plan's program at one class per type, with curves and with lines.
std::pair<ratio_problem, ratio_problem> problems_of(plan const& p, cost_model const& model) {
    program_steps program;
    for (auto const& s : p.steps) program.steps.push_back(s.step);
    auto const preferred = compute_proportional(model, element_type::float32);
    return {make_ratio_problem(program, model, preferred, {.follows_curves = true}),
            make_ratio_problem(program, model, preferred)};
}

} // namespace

TEST_CASE("where efficiency is curved, a planner that follows the curve finds strictly faster ratios") {
    auto const p = one_product();
    for (double least : {0.05, 0.2}) {
        CAPTURE(least);
        auto const c = fast_and_steady(least);
        auto const linear = planned(of_lines, p, c), curved = planned(of_all, p, c),
                   convex_only = planned(of_convex, p, c);
        CHECK(least_cost(curved, true) < 0.98 * least_cost(curved, false));
        CHECK(curved.cost() <= linear.cost());
        CHECK(convex_only.cost() == linear.cost()); // CLP takes no curve that is not convex
        // No integral shares of this program are better, except for what rounds the curve off.
        double best = std::numeric_limits<double>::infinity();
        auto changed = curved;
        REQUIRE(changed.cuts.size() == 1);
        for (extent mine = 0; mine <= changed.cuts[0].atoms; ++mine) {
            changed.cuts[0].counts = {mine, changed.cuts[0].atoms - mine};
            best = std::min(best, evaluate(changed, c).time.total());
        }
        CHECK(curved.cost() <= best * (1 + 2e-3));
        CHECK(curved.lower_bound <= best * (1 + 1e-9));
        CHECK(curved.global_lower_bound.value() <= best * (1 + 1e-9));
    }
}

TEST_CASE("a convex curve is followed by both solvers alike") {
    auto const p = one_product();
    auto const c = fast_and_steady(0);
    auto const by_clp = planned(of_convex, p, c), by_ipopt = planned(of_all, p, c), linear = planned(of_lines, p, c);
    CHECK(by_clp.cost() == doctest::Approx(by_ipopt.cost()).epsilon(1e-3));
    CHECK(by_clp.cost() <= linear.cost());
    CHECK(by_ipopt.cost() <= linear.cost());
}

TEST_CASE("curves never make a plan worse, its bounds hold, and its ratios are those of a grid") {
    int grids = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(24u); ++seed) {
        test::random_source random(seed + 77000);
        auto const made = test::random_program(random);
        bool const two = random.chance(0.5);
        auto c = test::random_cluster(random, {.most_types = two ? 2 : 3, .most_devices = two ? 2 : 8});
        test::add_efficiencies(random, c);
        CAPTURE(seed);
        INFO(test::describe(made) << test::describe(c));
        auto const linear = planned(of_lines, made, c), curved = planned(of_all, made, c);
        REQUIRE(linear.exists());
        REQUIRE(curved.exists());
        CHECK(curved.cost() <= linear.cost() * (1 + 1e-12));
        for (auto const* p : {&linear, &curved}) {
            CHECK(evaluate(*p, c).time.total() == p->cost());
            CHECK(p->lower_bound <= p->cost() * (1 + 1e-12));
            CHECK(p->global_lower_bound.value() <= std::min(linear.cost(), curved.cost()) * (1 + 1e-9));
        }
        auto const model = per_device_model(c, element_type::float32);
        if (model.ranks() != 2) continue;
        ++grids;
        auto const [problem, lines] = problems_of(curved, model);
        auto const found = ipopt::ratio_solver().solve(problem);
        REQUIRE(found.feasible);
        double best = std::numeric_limits<double>::infinity(), above = 0;
        for (int n = 0; n <= 1000; ++n) {
            std::vector<double> const ratios{n / 1000.0, 1 - n / 1000.0};
            double const exact = problem.objective(ratios);
            above = std::max(above, lines.objective(ratios) / exact - 1);
            if (problem.fits(ratios)) best = std::min(best, exact);
        }
        CHECK(above <= 1e-9);
        CHECK(found.objective <= best * (1 + 1e-6));
    }
    CHECK((grids > 5 || test::sanitized));
}
#endif
