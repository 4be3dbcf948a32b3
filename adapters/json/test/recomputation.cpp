// SPDX-License-Identifier: BSL-1.0
// Plans that make values again for the backward pass: written and read back, and read from files of older versions.
#include <heddle/json/detail/plan_reader.hpp>
#include <heddle/json/detail/plan_writer.hpp>
#include <heddle/json/plan.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/theory/recomputation.hpp>

#include <support/block_programs.hpp>
#include <support/random_plans.hpp>
#include <support/small_plan.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

using namespace heddle;

namespace {

/// A plan of blocks on two devices.
plan blocks(recomputation how, int in_flight) {
    auto indexed = index_program(test::residual_blocks(16, 8, 4));
    recompute(indexed, how, in_flight);
    indexed.counted_of_regions.clear();
    test::random_source random(3);
    auto p = test::random_plan(indexed, 2, random);
    p.provenance.training.recomputes = how;
    p.provenance.training.in_flight = p.provenance.training.accumulated = in_flight;
    for (auto& s : p.steps) s.step = make_step(indexed, s.instruction, p.provenance.training);
    auto const cost = evaluate(p, test::two_devices());
    p.time = cost.time;
    p.memory = cost.memory;
    p.status = search::status::feasible;
    return p;
}

plan read_stage(std::string const& text) {
    return json::detail::plan_reader(json::document("plan", text, "plan", 3)).read();
}

std::string with(std::string text, std::string const& from, std::string const& to) {
    auto const at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

} // namespace

TEST_CASE("regions are written and read back") {
    auto const p = blocks(recomputation::full, 1);
    REQUIRE(std::ranges::any_of(p.steps, [](plan_step const& s) { return s.step.runs_again; }));
    auto const text = json::write_plan(p);
    CHECK(text.find("\"version\": 3") != std::string::npos);
    auto const again = json::parse_plan(text);
    CHECK(again.provenance.training == p.provenance.training);
    for (std::size_t t = 0; t < p.tensors.size(); ++t) CHECK(again.tensors[t].region == p.tensors[t].region);
    for (std::size_t n = 0; n < p.steps.size(); ++n) CHECK(again.steps[n].step == p.steps[n].step);
    CHECK(json::write_plan(again) == text);
    CHECK(evaluate(again, test::two_devices()).time.total() == p.cost());
    auto const refused = [&](std::string const& from, std::string const& to, char const* why) {
        CHECK_THROWS_WITH_AS(static_cast<void>(json::parse_plan(with(text, from, to))), doctest::Contains(why),
                             input_error);
    };
    refused("\"version\": 3", "\"version\": 1", "not of version 3");
    refused("\"version\": 3", "\"version\": 4", "version");
    refused(R"("recomputes":"full")", R"("recomputes":"none")", "nothing is recomputed");
    refused("\"region\":", "\"region\":-2,\"was\":", "region");
    refused("\"region\":", "\"region\":1.5,\"was\":", "region");
}

TEST_CASE("where a file is of version 2 all values of a stage that recomputes are of one region") {
    auto const p = blocks(recomputation::none, 2);
    auto text = with(json::write_plan(p), R"("in_flight":2)", R"("in_flight":2,"recomputes":true)");
    auto again = read_stage(text);
    CHECK(again.provenance.training.recomputes == recomputation::full);
    for (auto const& t : again.tensors)
        CHECK(t.region == (t.role == tensor_role::value ? region_number{0} : no_region));
    auto const model = test::residual_blocks(16, 8, 4);
    CHECK(verify(model, again).problem == "");
    CHECK(evaluate(again, test::two_devices()).time.compute > p.time.compute);
    CHECK(read_stage(with(text, R"("recomputes":true)", R"("recomputes":false)")).provenance.training.recomputes ==
          recomputation::none);
    CHECK_THROWS_AS((void)read_stage(with(text, R"("recomputes":true)", R"("recomputes":"twice")")), input_error);
    CHECK_THROWS_AS((void)read_stage(with(text, R"("recomputes":true)", R"("recomputes":7)")), input_error);
}
