// SPDX-License-Identifier: BSL-1.0
#include "documents.hpp"

#include <heddle/json/cluster.hpp>
#include <heddle/json/document.hpp>
#include <heddle/json/plan.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/plan/table.hpp>

#include <support/device_groups.hpp>
#include <support/small_plan.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <sstream>
#include <string>
#include <vector>

using namespace heddle;

namespace {

std::string message_of_plan(nlohmann::json const& document) {
    return test::message_of([&] { (void)json::parse_plan(document.dump(), "p.json"); });
}

/// A random plan on groups, priced.
plan priced_plan(std::uint64_t seed) {
    auto made = test::random_grouped_case(seed);
    auto const cost = evaluate(made.plan, test::cluster_of(made.plan));
    made.plan.time = cost.time;
    made.plan.memory = cost.memory;
    made.plan.status = search::status::feasible;
    return made.plan;
}

} // namespace

TEST_CASE("a cluster says which machines are grouped") {
    std::string const text =
        R"({"format": "heddle.cluster", "version": 1, "device_types": [{"name": "a", "memory": 1e9, "bandwidth": 1e9, "rates": {"float32": 1e9}}],
        "machines": [{"type": "a", "devices": 4, "count": 2, "grouped": true, "network_cards": 2}, {"type": "a", "devices": 2}],
        "links": {"inter": {"bandwidth": 1e9, "latency": 1e-5}, "intra": {"bandwidth": 1e10, "latency": 1e-6}}})";
    auto const c = json::parse_cluster(text);
    CHECK(c.group_sizes() == std::vector<int>{4, 4, 1, 1});
    auto const again = json::parse_cluster(json::to_text(c));
    CHECK(again.group_sizes() == c.group_sizes());
    CHECK(again.machines[0].network_cards == 2);
    CHECK(network_cards(again) == 1); // the other machine's
    CHECK(json::to_text(again) == json::to_text(c));
    auto wrong = nlohmann::json::parse(text);
    wrong["machines"][0]["grouped"] = 1;
    CHECK_THROWS_WITH_AS((void)json::parse_cluster(wrong.dump(), "c.json"), doctest::Contains("machines[0].grouped"),
                         input_error);
    wrong = nlohmann::json::parse(text);
    wrong["machines"][0]["network_cards"] = 0;
    CHECK_THROWS_WITH_AS((void)json::parse_cluster(wrong.dump(), "c.json"),
                         doctest::Contains("machines[0].network_cards"), input_error);
    wrong = nlohmann::json::parse(text);
    wrong["links"].erase("intra");
    CHECK_THROWS_WITH_AS((void)json::parse_cluster(wrong.dump(), "c.json"), doctest::Contains("links, intra"),
                         input_error);
}

TEST_CASE("a plan on groups that is written and read costs the same, bit for bit") {
    for (std::uint64_t seed : {2u, 3u, 5u, 6u, 7u, 8u}) {
        CAPTURE(seed);
        auto const p = priced_plan(seed);
        auto const text = json::write_plan(p);
        auto const again = json::parse_plan(text);
        CHECK(json::write_plan(again) == text);
        CHECK(again.has_groups());
        for (std::size_t n = 0; n < p.steps.size(); ++n) CHECK(again.steps[n].step == p.steps[n].step);
        for (std::size_t t = 0; t < p.tensors.size(); ++t) CHECK(again.tensors[t].inside == p.tensors[t].inside);
        auto const c = test::cluster_of(p);
        CHECK(evaluate(again, c).time.total() == evaluate(p, c).time.total());
        CHECK(evaluate(again, c).memory[0].total() == evaluate(p, c).memory[0].total());
    }
    CHECK(json::write_plan(test::layers_plan()).find("inside") == std::string::npos);
    CHECK(json::write_plan(test::layers_plan()).find("group_sizes") == std::string::npos);
}

TEST_CASE("what is wrong with a plan's groups is said, and where") {
    auto const p = priced_plan(3);
    auto const good = nlohmann::json::parse(json::write_plan(p));
    REQUIRE(message_of_plan(good) == "nothing thrown");
    auto const contains = [](std::string const& text, std::string const& part) {
        return text.find(part) != std::string::npos;
    };
    auto const after = [&](std::string const& pointer, nlohmann::json const& value) {
        auto document = good;
        document[nlohmann::json::json_pointer(pointer)] = value;
        return message_of_plan(document);
    };
    CHECK(contains(after("/group_sizes", nlohmann::json::array({2, 2, 2, 2})), "group_sizes"));
    CHECK(contains(after("/group_sizes/0", 0), "group_sizes[0]"));
    CHECK(contains(after("/group_sizes/0", "two"), "group_sizes[0]"));
    std::optional<std::size_t> cut, parameter;
    for (std::size_t t = 0; t < p.tensors.size(); ++t)
        (p.tensors[t].inside != no_factor ? cut : p.tensors[t].role == tensor_role::parameter ? parameter : cut) = t;
    std::optional<std::size_t> inside_step, transfer_step;
    for (std::size_t n = 0; n < p.steps.size(); ++n) {
        if (!p.steps[n].step.inside_update.empty()) inside_step = n;
        if (!p.steps[n].step.update_transfers.empty() || !p.steps[n].step.forward_transfers.empty()) transfer_step = n;
    }
    REQUIRE((parameter && inside_step));
    auto const tensor = "/tensors/" + std::to_string(*parameter), step = "/steps/" + std::to_string(*inside_step);
    CHECK(contains(after(tensor + "/inside", 0), "every device of a group has a parameter whole"));
    CHECK(contains(after(step + "/inside_update/0/step", "sideways"), "inside_update[0].step"));
    CHECK(contains(after(step + "/inside_update/0/split", -1), "inside_update[0].split"));
    CHECK(contains(after(step + "/stored", {{"whole", 4}, {"whole_inside", 8}}), "at most 'whole'"));
    auto single = good;
    single.erase("group_sizes");
    for (auto const& t : p.tensors)
        if (t.inside != no_factor) {
            CHECK(contains(message_of_plan(single), "no device is a group"));
            break;
        }
}

TEST_CASE("the table names groups with their sizes") {
    auto p = priced_plan(3);
    p.devices[0].group_size = 3;
    std::ostringstream out;
    print(out, p);
    CHECK(out.str().find("3 x " + p.devices[0].type) != std::string::npos);
    CHECK(out.str().find("Devices and device groups") != std::string::npos);
}
