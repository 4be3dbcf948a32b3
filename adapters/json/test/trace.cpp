// SPDX-License-Identifier: BSL-1.0
#include <heddle/json/trace.hpp>

#include <support/small_plan.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace heddle;

namespace {

std::int64_t nanoseconds(nlohmann::json const& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

/// The events of phase "X" of a trace.
std::vector<nlohmann::json> complete_events(std::string const& text) {
    std::vector<nlohmann::json> result;
    auto const trace = nlohmann::json::parse(text);
    for (auto const& e : trace.at("traceEvents"))
        if (e.at("ph") == "X") result.push_back(e);
    return result;
}

} // namespace

TEST_CASE("a trace has an event for every event of the timeline") {
    auto c = test::two_devices();
    c.machines = {{0, 1, 2}, {1, 1, 1}};
    auto beside = test::layers_plan();
    beside.provenance.training.overlaps_gradients = true;
    for (auto const& [p, cluster] : {std::pair(test::layers_plan(), test::two_devices()),
                                     {test::tiny_plan(), test::two_devices()},
                                     {test::layers_plan(c, {0.5, 0.25, 0.25}), c},
                                     {beside, test::two_devices()}}) {
        bool const overlaps = p.provenance.training.overlaps_gradients;
        auto const events = run_serial(p, cluster);
        auto const trace = complete_events(json::write_trace(p, events));
        REQUIRE(trace.size() == events.events.size());
        std::size_t const devices = p.devices.size();
        std::vector<double> expected(2 * devices); // each device's own line, then each one's gradients beside it
        std::vector<std::int64_t> sum(2 * devices), last(2 * devices);
        std::map<std::string, double> by_category, expected_by_category;
        for (std::size_t n = 0; n < trace.size(); ++n) {
            auto const& e = trace[n];
            auto const& t = events.events[n];
            auto const d = e.at("tid").get<std::size_t>();
            REQUIRE(d == t.device + (overlaps && t.when == timeline_event::phase::gradient ? devices : 0));
            CHECK(e.at("pid") == 0);
            std::int64_t const start = nanoseconds(e.at("ts")), duration = nanoseconds(e.at("dur"));
            CHECK(std::abs(static_cast<double>(start) - t.start * 1e9) <= 1);
            CHECK(std::abs(static_cast<double>(duration) - t.duration * 1e9) <= 1.001);
            CHECK(start >= last[d]); // events of one device are in order and do not overlap
            CHECK(duration >= 0);
            last[d] = start + duration;
            sum[d] += duration;
            expected[d] += t.duration;
            std::string const category = t.communicates()                          ? "communication"
                                         : t.when == timeline_event::phase::update ? "update"
                                                                                   : "compute";
            CHECK(e.at("cat") == category);
            CHECK(e.at("args").at("step") == t.step);
        }
        for (std::size_t d = 0; d < 2 * devices; ++d)
            CHECK(std::abs(static_cast<double>(sum[d]) - expected[d] * 1e9) <= static_cast<double>(trace.size()));
        CHECK(std::abs(static_cast<double>(std::ranges::max(last)) - events.total * 1e9) <= 1);
    }
}

TEST_CASE("what the devices of a slice communicate is told apart from what they compute") {
    auto const p = test::mesh_plan();
    auto c = test::two_devices();
    c.machines = {{0, 2, 2, true}};
    c.intra = c.inter = network_link{bytes_per_second(1e9), seconds(1e-5)};
    auto const run = run_serial(p, c);
    auto const model = cost_model(c, {{0, 1, 2}, {0, 1, 2}});
    std::vector<double> told(2), expected(2);
    for (auto const& e : run.events)
        if (e.is_inside) told[e.device] += e.duration;
    for (auto const& s : p.steps)
        for (auto const* list : {&s.step.inside_forward, &s.step.inside_backward, &s.step.inside_update})
            for (std::size_t d = 0; d < 2; ++d)
                expected[d] += model.time(*list, d, s.step.share.is_split() ? static_cast<double>(d + 1) / 3 : 1);
    for (std::size_t d = 0; d < 2; ++d) {
        CHECK(told[d] > 0);
        CHECK(told[d] == doctest::Approx(expected[d]).epsilon(1e-9));
    }
    std::set<std::string> names;
    for (auto const& e : complete_events(json::write_trace(p, run)))
        if (e.at("cat") == "communication") names.insert(e.at("name").get<std::string>());
    CHECK(names ==
          std::set<std::string>{"all_gather w", "all_reduce inside: convert loss", "reduce_scatter gradient of w"});
    CHECK(overlap_of(run, 0).communication >= told[0]);
}

TEST_CASE("events are named for people") {
    auto const p = test::layers_plan();
    auto const text = json::write_trace(p, run_serial(p, test::two_devices()));
    std::map<std::string, nlohmann::json> by_name;
    for (auto const& e : complete_events(text)) by_name[e.at("name").get<std::string>()] = e;
    for (std::string const name :
         {"linear_0", "linear_0 backward", "relu_2", "loss backward", "all_gather layers.0.weight",
          "reduce_scatter gradient of layers.0.weight", "all_reduce gradient of layers.1.weight", "all_gather relu_2",
          "reduce_scatter gradient of relu_2", "all_reduce loss", "update head.weight"}) {
        CAPTURE(name);
        CHECK(by_name.contains(name));
    }
    CHECK(by_name.at("all_gather layers.0.weight").at("args") ==
          nlohmann::json{{"step", 2}, {"bytes", 268435456}, {"from", "shard(0)"}, {"to", "replicated"}});
    CHECK(by_name.at("linear_0").at("args") ==
          nlohmann::json{{"step", 3}, {"operands", "shard(0), replicated"}, {"results", "shard(0)"}});
    CHECK(!by_name.contains("loss gradient"));
    std::map<int, std::string> threads;
    std::string process;
    auto const trace = nlohmann::json::parse(text);
    for (auto const& e : trace.at("traceEvents")) {
        if (e.at("name") == "thread_name") threads[e.at("tid").get<int>()] = e.at("args").at("name").get<std::string>();
        if (e.at("name") == "process_name") process = e.at("args").at("name").get<std::string>();
    }
    CHECK(threads == std::map<int, std::string>{{0, "0 fast"}, {1, "1 slow"}});
    CHECK(process == "layers on one fast, one slow");
    auto beside = p;
    beside.provenance.training.overlaps_gradients = true;
    CHECK(json::write_trace(beside, run_serial(beside, test::two_devices())).find("\"0 gradients\"") !=
          std::string::npos);
    beside.provenance.training.bucket = bytes(1e9);
    std::vector<nlohmann::json> reduced;
    for (auto const& e : complete_events(json::write_trace(beside, run_serial(beside, test::two_devices()))))
        if (e.at("tid") == 2 && e.at("name").get<std::string>().starts_with("all_reduce")) reduced.push_back(e);
    REQUIRE(reduced.size() == 1);
    CHECK(reduced[0].at("name") == "all_reduce gradient of layers.1.weight and 1 more");
    CHECK(reduced[0].at("args").at("bytes") == 2 * 268435456);
}

TEST_CASE("local work of conversions has names too") {
    auto p = test::tiny_plan();
    auto const names = [&](tensor_form from, tensor_form to) {
        p.steps[2].instruction = instruction::convert(1, from, to);
        timeline t;
        t.events = {{2, 0, timeline_event::phase::forward, {}, 0, 1},
                    {2, 0, timeline_event::phase::backward, {}, 1, 1}};
        std::string result;
        for (auto const& e : complete_events(json::write_trace(p, t)))
            result += (result.empty() ? "" : ", ") + e.at("name").get<std::string>();
        return result;
    };
    CHECK(names(tensor_form::replicated(), tensor_form::shard(1)) == "slice w, slice w backward");
    CHECK(names(tensor_form::replicated(), tensor_form::partial()) == "mask w, mask w backward");
    CHECK(names(tensor_form::replicated(), tensor_form::mirrored()) == "convert w, convert w backward");
}

TEST_CASE("any names and times give a trace that parses") {
    auto p = test::tiny_plan();
    for (auto& o : p.operators) o = "a \"b\" \\ \n \xff";
    for (auto& d : p.devices) d.type = "\t";
    auto events = run_serial(p, test::two_devices());
    events.events.push_back({0, 0, timeline_event::phase::forward, {}, 1e300, std::numeric_limits<double>::infinity()});
    events.events.push_back({0, 0, timeline_event::phase::forward, {}, 0, 1e-12});
    events.events.push_back({0, 0, timeline_event::phase::forward, {}, std::numeric_limits<double>::quiet_NaN(), 0});
    CHECK(complete_events(json::write_trace(p, events)).size() == events.events.size());
    CHECK(complete_events(json::write_trace(plan(), timeline())).empty());
}
