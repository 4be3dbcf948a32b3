// SPDX-License-Identifier: BSL-1.0
#include "documents.hpp"

#include <heddle/json/layer_profile.hpp>
#include <heddle/planner/amp.hpp>

#include <doctest/doctest.h>

#include <string>

namespace {

using namespace heddle;

std::string profile_example() { return test::example_of("docs/reference/layer_profiles.md"); }

/// What is said of the example with a change.
std::string said_of_profile(std::string const& pointer, std::string const& value) {
    return test::message_of(
        [&] { (void)json::parse_layer_profile(test::with_change(profile_example(), pointer, value), "it"); });
}

} // namespace

TEST_CASE("the example of a layer profile is read; a number is all split or all whole") {
    auto const p = json::parse_layer_profile(profile_example());
    CHECK(p.name == "four blocks");
    CHECK(p.global_batch == 16);
    REQUIRE(p.layers.size() == 6);
    CHECK(p.layers[1].gradients.split == bytes(5e7));
    CHECK(p.layers[1].gradients.whole == bytes(0));
    CHECK(p.layers[1].saved.whole == bytes(1e7));
    CHECK(p.layers[1].saved.split == bytes(1e8));
    CHECK(p.layers[1].input.whole == bytes(2e6));
    REQUIRE(p.shared.size() == 1);
    CHECK(p.shared[0].layers == std::vector<std::size_t>{0, 5});
    CHECK(p.shared[0].gradients.split == bytes(2e8));
    CHECK(p.machines.size() == 3);
    CHECK(p.machines[2].type == 1);
    CHECK(p.usable_degrees() == std::vector<std::size_t>{1, 2});
    CHECK(p.types[0].profiles.at(2).scale == 1);
    CHECK(plan_amp(p).best == 0);
}

TEST_CASE("a layer profile written and read again is the same") {
    auto p = json::parse_layer_profile(profile_example());
    p.types[0].profiles.at(1).scale = 1.25;
    auto const text = json::to_text(p);
    CHECK(json::to_text(json::parse_layer_profile(text)) == text);
    p.types[0].profiles.at(1).fixed.assign(p.layer_count(), seconds(1e-3));
    CHECK(json::parse_layer_profile(json::to_text(p)).types[0].profiles.at(1).fixed == p.types[0].profiles.at(1).fixed);
    p.types[0].profiles.at(1).fixed.clear();
    p.types[0].profiles.at(2).launches.assign(p.layer_count(), {seconds(1e-3), seconds(2e-3)});
    p.types[0].profiles.at(2).forward = 0.25;
    p.types[0].profiles.at(2).sizes[4] = p.types[0].profiles.at(2).layers;
    p.sends_block = true;
    auto const queued = json::parse_layer_profile(json::to_text(p));
    CHECK(queued.sends_block);
    CHECK(queued.types[0].profiles.at(2).sizes == p.types[0].profiles.at(2).sizes);
    CHECK(json::to_text(queued) == json::to_text(p));
    CHECK(plan_amp(queued).record[0].cost.total == plan_amp(p).record[0].cost.total);
    p.sends_block = false;
    p.bandwidths.assign(p.device_count(), std::vector<bytes_per_second>(p.device_count(), bytes_per_second(1e9)));
    auto const again = json::parse_layer_profile(json::to_text(p));
    CHECK(again.bandwidths == p.bandwidths);
    CHECK(plan_amp(again).record[0].cost.total == plan_amp(p).record[0].cost.total);
}

TEST_CASE("bad layer profiles are refused by place") {
    CHECK(said_of_profile("/global_batch", "0") ==
          "it: global_batch: is 0, expected an integer from 1 to 1099511627776");
    CHECK(said_of_profile("/layers", "") == "it: lacks the field 'layers'");
    CHECK(said_of_profile("/layers/1/savd", "1") == "it: layers[1]: has the unknown field 'savd'");
    CHECK(said_of_profile("/layers/1/kept", "-1") ==
          "it: layers[1].kept: is -1, expected a number that is not negative");
    CHECK(said_of_profile("/shared/0/layers", "[0, 6]") ==
          "it: shared[0].layers[1]: is 6, expected an integer from 0 to 5");
    CHECK(said_of_profile("/shared/0/layers", "[5]") ==
          "it: shared parameter 0, layers: expected two at least, rising, below 6");
    CHECK(said_of_profile("/shared/0/gradients", "3e8") ==
          "it: layer 0, gradients: less than those of its shared parameters, expected them to be part");
    CHECK(said_of_profile("/device_types/0/profiles/1/degree", "1") ==
          "it: device_types[0].profiles[1].degree: is 1, expected a degree that no other profile of this type has");
    CHECK(said_of_profile("/device_types/0/profiles/1/layers", "[1]") ==
          "it: device type 'fast', tensor degree 2: 1 layers, expected 6");
    CHECK(said_of_profile("/device_types/0/profiles/1/fixed", "[1]") ==
          "it: device type 'fast', tensor degree 2, fixed: 1 layers, expected 6, or none");
    CHECK(said_of_profile("/device_types/0/profiles/1/launches", R"([{"forward": 1, "backward": 1}])") ==
          "it: device type 'fast', tensor degree 2, launches: 1 layers, expected 6, or none");
    CHECK(said_of_profile("/device_types/0/profiles/1/forward", "2") ==
          "it: device type 'fast', tensor degree 2, forward: 2.000000, expected a part, from 0 to 1");
    CHECK(said_of_profile("/device_types/0/profiles/1/sizes", R"([{"micro_batch": 2, "layers": [1]}])") ==
          "it: device type 'fast', tensor degree 2, micro-batches of 2: 1 layers, expected 6");
    CHECK(said_of_profile("/device_types/1/name", "\"fast\"") ==
          "it: device_types[1].name: is \"fast\", expected a name that no other device type has");
    CHECK(said_of_profile("/machines/0/type", "\"none\"") ==
          "it: machines[0].type: is \"none\", expected the name of a device type");
    CHECK(said_of_profile("/machines/0/outside", "") ==
          "it: machine 0, outside, bandwidth: 0.000000, expected positive bytes per second");
    CHECK(said_of_profile("/bandwidths", "[[0, 1], [2, 0]]") == "it: bandwidths: 2 rows, expected one per device, 6");
    CHECK(said_of_profile("/version", "2").find("expected heddle.layer_profile up to version 1") != std::string::npos);
}
