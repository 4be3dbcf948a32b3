// SPDX-License-Identifier: BSL-1.0
// Plans of micro-batches that take turns: written and read back, traced.
#include <heddle/json/plan.hpp>
#include <heddle/json/trace.hpp>
#include <heddle/plan/simulate.hpp>

#include <support/small_plan.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <string>

using namespace heddle;

namespace {

/// One product and its sum for each of two halves; the second operator begins a stage.
plan halves() {
    program_builder b;
    auto const x = b.input("x", {6, 4});
    auto const w = b.parameter("w", {2, 4});
    auto const y =
        b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, {.name = "linear", .category = operator_class::matmul});
    auto const indexed = index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {y}, {.name = "loss"})));
    auto p = test::tiny_plan();
    p.provenance.training = {.micro_batches = 2, .turn = seconds(1e-6)};
    p.stages = {0, 4};
    for (auto& s : p.steps) s.step = make_step(indexed, s.instruction, p.provenance.training);
    auto const cost = evaluate(p, test::two_devices());
    p.time = cost.time;
    p.memory = cost.memory;
    p.lower_bound = p.cost() / 2;
    p.baselines.clear();
    return p;
}

} // namespace

TEST_CASE("a schedule is written and read back") {
    auto const p = halves();
    auto const text = json::write_plan(p);
    auto const again = json::parse_plan(text);
    CHECK(again.provenance.training == p.provenance.training);
    CHECK(again.stages == p.stages);
    for (std::size_t n = 0; n < p.steps.size(); ++n) CHECK(again.steps[n].step == p.steps[n].step);
    CHECK(json::write_plan(again) == text);
    CHECK(evaluate(again, test::two_devices()).time.total() == p.cost());
    auto const refused = [&](std::string const& from, std::string const& to, char const* why) {
        auto changed = text;
        auto const at = changed.find(from);
        REQUIRE(at != std::string::npos);
        changed.replace(at, from.size(), to);
        CHECK_THROWS_WITH_AS(static_cast<void>(json::parse_plan(changed)), doctest::Contains(why), input_error);
    };
    refused(R"("kind":"duplex")", R"("kind":"triplex")", "schedule.kind");
    refused(R"("micro_batches":2)", R"("micro_batches":1)", "schedule.micro_batches");
    refused(R"("stages":[0,4])", R"("stages":[4,0])", "schedule.stages[1]");
    refused(R"("stages":[0,4])", R"("stages":[0,40])", "schedule.stages[1]");
}

TEST_CASE("a trace shows work and network of each device on lines of their own, and the micro-batch") {
    auto const p = halves();
    auto const trace = json::write_trace(p, simulate(p, test::two_devices()));
    CHECK(trace.find("\"0 network\"") != std::string::npos);
    CHECK(trace.find("\"1 network\"") != std::string::npos);
    int work = 0, transfers = 0, second = 0;
    auto const parsed = nlohmann::json::parse(trace);
    for (auto const& e : parsed.at("traceEvents")) {
        if (e.at("ph") != "X") continue;
        bool const is_transfer = e.at("cat") == "communication";
        CHECK((e.at("tid").get<std::size_t>() >= p.devices.size()) == is_transfer);
        (is_transfer ? transfers : work)++;
        second += e.at("args").value("micro_batch", 0) == 1;
    }
    CHECK(work > 4);
    CHECK(transfers > 0);
    CHECK(second > 0);
}
