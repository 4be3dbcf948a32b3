// SPDX-License-Identifier: BSL-1.0
// Planning by an accumulator of the user's own.
#include "support/cases.hpp"
#include "support/random_programs.hpp"

#include <heddle/clp/ratio_solver.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/figures.hpp>
#include <heddle/plan/table.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/hap_by_accumulator.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

namespace {

using namespace heddle;
using test::random_source;

/// Is `serial` by another name, with the bounds of its relaxations or without any.
template <relaxation_kind Kind>
struct renamed : serial {
    using serial::serial;
    static constexpr char const* name = "renamed";
    static constexpr auto relaxation = Kind;
};
/// Has the stages of `serial`, but every collective takes longer by a factor.
struct congested : serial {
    using serial::serial;
    static constexpr char const* name = "congested";
    void extend(label& l, step_cost s) const {
        for (double* seconds : {&s.forward_transfer, &s.backward_transfer, &s.deferred, &s.refresh}) *seconds *= 3;
        serial::extend(l, s);
    }
};

} // namespace

TEST_CASE_TEMPLATE("a program is planned by any accumulator", Accumulator, renamed<relaxation_kind::clocks>,
                   renamed<relaxation_kind::none>, congested) {
    clp::ratio_solver const solver;
    int optimal = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(40u); ++seed) {
        random_source random(seed + 910'000);
        auto const p = test::random_program(random, {.most_operators = 5, .most_extent = 6});
        auto const c = test::random_cluster(random, {.most_types = 2, .most_devices = 4});
        CAPTURE(seed);
        INFO(test::describe(p) << test::describe(c));
        auto const known = plan_hap(p, c, solver);
        auto const own = plan_hap<Accumulator>(p, c, solver);
        REQUIRE(known.exists());
        REQUIRE(own.exists());
        CHECK(own.provenance.training.accumulator.name == Accumulator::name);
        CHECK(verify(p, own).problem == "");
        CHECK(verify_figures(own, c).problem == "");
        CHECK(evaluate<Accumulator>(own, c).time.total() == doctest::Approx(own.cost()).epsilon(1e-12));
        CHECK(own.lower_bound <= own.cost() * (1 + 1e-9));
        // What either accumulator finds is a plan for the other too, and neither is far better.
        CHECK(own.cost() <= 1.1 * evaluate<Accumulator>(known, c).time.total());
        CHECK(evaluate(known, c).time.total() <= 1.1 * evaluate<serial>(own, c).time.total());
        if (known.global_lower_bound)
            CHECK(*known.global_lower_bound <= evaluate<serial>(own, c).time.total() * (1 + 1e-9));
        optimal += own.status == search::status::optimal;
    }
    MESSAGE(optimal << " optimal");
    CHECK(optimal >= test::cases(6));
}

TEST_CASE("a plan says which accumulator timed it, and is not priced without it") {
    random_source random(3);
    auto const p = test::random_program(random, {.most_operators = 5, .most_extent = 6});
    auto const c = test::random_cluster(random, {.most_types = 2, .most_devices = 4});
    auto own = plan_hap<congested>(p, c, clp::ratio_solver());
    REQUIRE(own.exists());
    std::ostringstream table;
    print(table, own);
    CHECK(table.str().find("congested") != std::string::npos);
    own.provenance.training.accumulator.total = nullptr; // as it is read from a file
    CHECK(verify(p, own).problem == "");
    CHECK(verify_figures(own).problem == "");
    CHECK(evaluate<congested>(own, c).time.total() == doctest::Approx(own.cost()).epsilon(1e-12));
    CHECK_THROWS_WITH_AS(static_cast<void>(evaluate(own, c)), doctest::Contains("the accumulator 'congested'"),
                         input_error);
}
