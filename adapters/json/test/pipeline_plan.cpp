// SPDX-License-Identifier: BSL-1.0
#include "documents.hpp"
#include "grouped_pipeline.hpp"

#include <heddle/json/pipeline_plan.hpp>
#include <heddle/json/plan.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <string>

namespace {

using namespace heddle;

std::string pipeline_example() { return test::example_of("docs/reference/pipeline_plans.md"); }

/// What is said of the example with a change.
std::string said_of_pipeline(std::string const& pointer, std::string const& value) {
    return test::message_of(
        [&] { (void)json::parse_pipeline_plan(test::with_change(pipeline_example(), pointer, value), "it"); });
}

} // namespace

TEST_CASE("the example of a pipeline plan is read") {
    auto const p = json::parse_pipeline_plan(pipeline_example());
    CHECK(p.status == search::status::feasible);
    CHECK(p.cost() == doctest::Approx(0.42));
    CHECK(p.copies() == 2);
    CHECK(p.layers[1].name == "block.0");
    CHECK(p.operator_count() == 23);
    CHECK(p.devices[0].memory_limit == bytes(16e9));
    CHECK(p.devices[2].memory_limit.value == std::numeric_limits<double>::infinity());
    CHECK(p.stages[1].devices == std::vector<std::vector<std::size_t>>{{2}, {3}});
    CHECK(p.stages[1].boundary == seconds(0.005));
    CHECK(p.baselines.at("data parallel") == std::nullopt);
    CHECK(p.baselines.at("Megatron, equal layers") == 0.5);
    CHECK(p.statistics.at("placements") == 30);
    CHECK(p.provenance.cluster == "two machines");
}

TEST_CASE("a pipeline plan written and read again is the same") {
    auto p = json::parse_pipeline_plan(pipeline_example());
    p.time.pipeline = seconds(0.1 + 0.2);
    p.lower_bound = 0.1;
    auto const text = json::write_pipeline_plan(p);
    auto const again = json::parse_pipeline_plan(text);
    CHECK(json::write_pipeline_plan(again) == text);
    CHECK(again.time.pipeline == p.time.pipeline);

    p.space = "pipelines";
    p.seconds = 3;
    auto const timeless = json::write_pipeline_plan(p, {.times = false});
    p.seconds = 7;
    CHECK(json::write_pipeline_plan(p, {.times = false}) == timeless);
    CHECK(timeless.find("\"seconds\"") == std::string::npos);
    CHECK(json::plan_summary(p, {.times = false}).find("\"seconds\"") == std::string::npos);
    CHECK(json::parse_pipeline_plan(timeless).seconds == 0);
    CHECK(json::parse_pipeline_plan(timeless).space == "pipelines");

    pipeline_plan none;
    none.status = search::status::infeasible;
    none.reason = "too large";
    auto const read = json::parse_pipeline_plan(json::write_pipeline_plan(none));
    CHECK_FALSE(read.exists());
    CHECK(read.reason == "too large");
    CHECK(json::plan_summary(none).find("\"cost\":null") != std::string::npos);
    none.bubble = std::numeric_limits<double>::quiet_NaN();
    CHECK_THROWS_AS((void)json::write_pipeline_plan(none), input_error);
}

TEST_CASE("tensor groups, the optimiser's time and another schedule are kept") {
    auto p = json::parse_pipeline_plan(test::grouped_pipeline());
    CHECK(p.groups.at(2).devices.size() == 2);
    p.time.update = seconds(0.25);
    p.schedule = "oobleck";
    p.more_slots = -3;
    auto const text = json::write_pipeline_plan(p);
    CHECK(json::write_pipeline_plan(p, {.times = false}).find("\"seconds\"") == std::string::npos); // of groups neither
    auto const again = json::parse_pipeline_plan(text);
    CHECK(json::write_pipeline_plan(again) == text);
    CHECK(again.time.update == seconds(0.25));
    CHECK(again.schedule == "oobleck");
    CHECK(again.more_slots == -3);
    CHECK(json::write_plan(again.groups.at(2)) == json::write_plan(p.groups.at(2)));

    auto const said = [](std::string const& pointer, std::string const& value) {
        return test::message_of([&] {
            (void)json::parse_pipeline_plan(test::with_change(test::grouped_pipeline(), pointer, value), "it");
        });
    };
    CHECK(said("/groups/two", "{}") == "it: groups.two: is called 'two', expected a number of devices, two at least");
    CHECK(said("/groups/1", "{}") == "it: groups.1: is called '1', expected a number of devices, two at least");
    CHECK(said("/groups/2/format", "\"heddle.cluster\"")
              .find("groups.2.format: is \"heddle.cluster\", expected heddle.plan") != std::string::npos);
    CHECK(said("/groups/2/steps", "[]") != "");
    CHECK(said("/groups/3", json::write_plan(p.groups.at(2))).find("groups.3.devices") != std::string::npos);
}

TEST_CASE("bad pipeline plans are refused by place") {
    CHECK(said_of_pipeline("/stages/1/first", "2") ==
          "it: stage 1: has the layers 2 to before 4, expected those from 3 on");
    CHECK(said_of_pipeline("/stages/1/end", "5") ==
          "it: stage 1: has the layers 3 to before 5, expected those from 3 on");
    CHECK(said_of_pipeline("/stages/1", "") == "it: stages: they hold 3 layers, expected all 4");
    CHECK(said_of_pipeline("/stages/0/devices/1/0", "4") ==
          "it: stages[0].devices[1][0]: is 4, expected an integer below 4");
    CHECK(said_of_pipeline("/stages/0/devices/1/0", "0") ==
          "it: stage 0: device 0 has a place already, expected one place for each");
    CHECK(said_of_pipeline("/stages/0/devices/1", "[1, 1]") ==
          "it: stage 0: tensor groups of different sizes, expected as many devices in every copy, one at least");
    CHECK(said_of_pipeline("/stages/1/devices/1", "") ==
          "it: stage 1: 1 copies, expected as many as the first stage has, one at least");
    CHECK(said_of_pipeline("/devices/0/memory", "17e9") ==
          "it: device 0: holds 17000000000.000000 bytes, expected at most its 16000000000.000000");
    CHECK(said_of_pipeline("/cost", "0.5") == "it: cost: is 0.5, expected the sum of time, 0.42000000000000004");
    CHECK(said_of_pipeline("/lower_bound", "0.5") == "it: lower_bound: is 0.5, expected at most the cost");
    CHECK(said_of_pipeline("/status", "\"infeasible\"") ==
          "it: status: promises that there is no plan, but there are stages");
    CHECK(said_of_pipeline("/stages", "[]") == "it: cost: is 0.42, expected null, since there are no stages");
    CHECK(said_of_pipeline("/layers/0/operators", "") ==
          "it: layers: some have a number of operators and some have none");
    CHECK(said_of_pipeline("/micro_batches", "0") ==
          "it: micro_batches: is 0, expected an integer from 1 to 9007199254740992");
    CHECK(said_of_pipeline("/stages/0/tme", "1") == "it: stages[0]: has the unknown field 'tme'");
    CHECK(said_of_pipeline("/version", "2").find("expected heddle.pipeline_plan up to version 1") != std::string::npos);
}
