// SPDX-License-Identifier: BSL-1.0
// Device types of cluster files: what starts from a preset, efficiencies by size.
#include "documents.hpp"

#include <heddle/cluster/presets.hpp>
#include <heddle/json/cluster.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace heddle;

namespace {

std::string const preset_file = "examples/formats/preset_cluster.json";

std::string preset_message(std::string const& pointer, std::string const& value) {
    return test::message_of([&] {
        static_cast<void>(
            json::parse_cluster(test::with_change(json::read_text(preset_file), pointer, value), "c.json"));
    });
}

/// A cluster of one device of a type.
cluster one_device_of(std::string const& type) {
    return json::parse_cluster(R"({"format": "heddle.cluster", "version": 1, "device_types": [)" + type +
                               R"(], "machines": [{"type": "V100"}]})");
}

} // namespace

TEST_CASE("a device type may be a preset") {
    for (auto const& peaks : presets::all) {
        CAPTURE(peaks.name);
        auto const name = std::string(peaks.name);
        auto const c = json::parse_cluster(R"({"device_types": [{"preset": ")" + name +
                                           R"("}], "machines": [{"type": ")" + name + R"("}]})");
        cluster expected;
        expected.types = {presets::make(peaks)};
        expected.machines = {{}};
        CHECK(json::to_text(c) == json::to_text(expected));
        CHECK(json::to_text(json::parse_cluster(json::to_text(c))) == json::to_text(c));
    }
}

TEST_CASE("the example in the format reference is the one read here") {
    CHECK(json::read_text("docs/reference/formats.md").find("```json\n" + json::read_text(preset_file) + "```\n") !=
          std::string::npos);
}

TEST_CASE("what a device type says replaces that part of its preset alone") {
    auto const c = json::read_cluster(preset_file);
    auto const whole = *presets::find("A100");
    auto const& half = c.types.at(1);
    CHECK(half.name == "half an A100");
    CHECK(half.memory == bytes(40e9));
    CHECK(half.bandwidth == whole.bandwidth);
    CHECK(half.overhead == whole.overhead);
    auto const& table = half.rates.at(element_type::float32);
    CHECK(table.fallback == flops_per_second(8.7e12));
    CHECK(table.of(operator_class::matmul).rate == flops_per_second(8.7e12));
    CHECK(table.of(operator_class::matmul).overhead == presets::reached.matmul_overhead);
    CHECK(table.of(operator_class::normalisation).rate ==
          whole.rates.at(element_type::float32).of(operator_class::normalisation).rate);
    CHECK(half.rates.at(element_type::float64).fallback == flops_per_second(4.3e12));
    CHECK(half.rates.at(element_type::float16).fallback == whole.rates.at(element_type::float16).fallback);

    // A number in place of an object replaces all of it.
    auto const plain =
        one_device_of(R"({"preset": "V100", "rates": {"float32": 1e12, "float16": {"matmul": 2e12}}})").types.at(0);
    CHECK(plain.rates.at(element_type::float32).by_class.empty());
    CHECK_FALSE(plain.rates.at(element_type::float16).of(operator_class::matmul).overhead);
    CHECK(one_device_of(R"({"preset": "V100", "overhead": 0, "bandwidth": 5})").types.at(0).overhead == seconds(0));
    CHECK(one_device_of(R"({"preset": "V100", "bandwidth": 5})").types.at(0).bandwidth == bytes_per_second(5));
}

TEST_CASE("an efficiency by size is read and written") {
    auto const c = one_device_of(
        R"({"preset": "V100", "rates": {"float32": {"matmul": {"efficiency": {"scale": 1e9}}, "attention": {"efficiency": {"scale": 2e9, "least": 0.25}}}}})");
    auto const& table = c.types.at(0).rates.at(element_type::float32);
    CHECK(table.of(operator_class::matmul).efficiency == saturation{flops(1e9), 0});
    CHECK(table.of(operator_class::matmul).overhead == presets::reached.matmul_overhead);
    CHECK(table.of(operator_class::attention).efficiency == saturation{flops(2e9), 0.25});
    auto const again = json::parse_cluster(json::to_text(c));
    CHECK(json::to_text(again) == json::to_text(c));
    CHECK(again.types.at(0).rates.at(element_type::float32).of(operator_class::attention).efficiency ==
          saturation{flops(2e9), 0.25});
}

TEST_CASE("presets that do not exist, and what a preset cannot give, are refused") {
    CHECK(preset_message("/device_types/0/preset", "\"T5\"") ==
          "c.json: device_types[0].preset: is \"T5\", expected a preset: V100, P100, T4, A100, RTX 4090, H100");
    CHECK(preset_message("/device_types/0/preset", "4")
              .starts_with("c.json: device_types[0].preset: is 4, expected a string"));
    CHECK(preset_message("/device_types/0/preset", "").starts_with("c.json: device_types[0]: lacks the field 'name'"));
    CHECK(preset_message("/device_types/1/preset", "")
              .starts_with("c.json: device_types[1]: lacks the field 'bandwidth'"));
    CHECK(preset_message("/device_types/1", R"({"preset": "T4"})")
              .starts_with("c.json: device_types[1]: is an object, expected a name that no other device type has"));
    CHECK(preset_message("/device_types/1/rates/bfloat16", R"({"default": 0})")
              .starts_with("c.json: device_types[1].rates.bfloat16.default: is 0, expected a number greater"));
    CHECK(preset_message("/device_types/0/rates", R"({"bfloat16": {"matmul": 1}})")
              .starts_with("c.json: device_types[0].rates.bfloat16: lacks the field 'default'"));
    CHECK(preset_message("/device_types/0/rates", "{}") == "nothing thrown");
    CHECK(preset_message("/device_types/0/presets", "\"T4\"")
              .starts_with("c.json: device_types[0]: has the unknown field 'presets'"));
}
