// SPDX-License-Identifier: BSL-1.0
// What readers refuse so that no file takes all memory, and names that no reader or terminal is to choke on.
#include "documents.hpp"

#include <heddle/json/all.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <random>
#include <string>

using namespace heddle;

namespace {

std::string repeated(std::string const& text, std::size_t count) {
    std::string result;
    for (std::size_t i = 0; i < count; ++i) result += text;
    return result;
}

std::string values_message(std::string const& text, std::size_t most) {
    return test::message_of([&] { json::detail::source const file("it", text, most); });
}

std::string cluster_message(std::string const& pointer, std::string const& value) {
    return test::message_of([&] {
        static_cast<void>(json::parse_cluster(
            test::with_change(json::read_text("examples/formats/cluster.json"), pointer, value), "c"));
    });
}

} // namespace

TEST_CASE("values are refused while they are read") {
    for (char const* item : {"[]", "{}", "0", "{\"\":0}", "\"\"", "\"some text of a certain length\"", "null"}) {
        CAPTURE(item);
        std::string const text = "[" + repeated(item + std::string(","), 1000) + "0]";
        CHECK(values_message(text, 8'000) == "it: has values of more than 8000 bytes in memory, expected fewer");
        CHECK(values_message(text, 200'000) == "nothing thrown");
        CHECK(values_message(text.substr(0, 4000) + "!", 2'000).find("has values of more than") !=
              std::string::npos); // before the end is seen
    }
    // Containers that are closed take no more than what they hold.
    CHECK(values_message("[" + repeated("[1,2,3,4],", 1000) + "0]", 100'000) == "nothing thrown");
}

TEST_CASE("a text or number that is too long is refused with its place") {
    std::string const at_most((1 << 20) - 2, '1');
    auto const message = [](std::string const& text) {
        return test::message_of([&] { json::detail::source const file("it", text); });
    };
    CHECK(message("{\"a\": \"" + at_most + "\"}") == "nothing thrown");
    CHECK(message("{\n\"a\": \"\\\"" + at_most + "1234\"}") ==
          "it, line 2, column 6: is longer than 1048576 bytes, expected a shorter text or number");
    CHECK(message("[1" + at_most + "1234]").find("is longer than 1048576 bytes") != std::string::npos);
    CHECK(message("\"" + repeated("\\\"", 1 << 20)).find("is longer than 1048576 bytes") != std::string::npos);
}

TEST_CASE("what readers make of few bytes is bounded") {
    // One list of texts, passed to call after call.
    std::string nodes =
        R"({"nodes":[{"id":0,"name":"v","op":"call_method","target":"v","inputs":[],"out":{"kind":"value","value":[)" +
        repeated("\"" + std::string(4000, 'x') + "\",", 1000) + R"("x"]}})";
    for (int i = 1; i < 40; ++i)
        nodes +=
            R"(,{"id":)" + std::to_string(i) + R"(,"name":"n)" + std::to_string(i) +
            R"(","op":"call_method","target":"f","inputs":[0],"args":[{"node":0}],"out":{"kind":"value","value":1}})";
    auto const message = test::message_of([&] { static_cast<void>(json::parse_model(nodes + "]}", "m")); });
    CHECK(message.find("is one of more than 65536 items among the arguments") != std::string::npos);

    auto const profile = test::example_of("docs/reference/layer_profiles.md");
    CHECK(test::message_of([&] {
              static_cast<void>(
                  json::parse_layer_profile(test::with_change(profile, "/machines/0/count", "65536"), "p"));
          }).find("makes more than 65536 devices") != std::string::npos);
    auto const templates = test::example_of("docs/reference/templates.md");
    auto many = test::with_change(templates, "/machines/0/count", "65536");
    CHECK(test::message_of([&] {
              static_cast<void>(
                  json::parse_template_problem(test::with_change(many, "/machines/0/devices", "65536"), "t"));
          }).find("t: machines[0]: makes more than 65536 devices") != std::string::npos);
    CHECK(test::message_of([&] {
              static_cast<void>(json::parse_samples("what,device,ranks,dtype,flops,bytes,seconds\n" +
                                                        repeated("all_reduce,,2,,,1,1\n", (1 << 20) + 1),
                                                    "s"));
          }).find("line 1048578: is one of more than 1048576 samples") != std::string::npos);
}

TEST_CASE("rates so small that times would be infinite are refused with their place") {
    for (char const* place : {"/device_types/0/bandwidth", "/links/inter/bandwidth", "/device_types/0/rates/float32"}) {
        CAPTURE(place);
        CHECK(cluster_message(place, "1e-320").find("is 1e-320, expected a rate of at least 1e-09") !=
              std::string::npos);
        CHECK(cluster_message(place, "1e-09") == "nothing thrown");
    }
    CHECK(cluster_message("/device_types/0/rates/float32", R"({"default": 1e12, "matmul": 1e-300})")
              .find("rates.float32.matmul: is 1e-300, expected a rate") != std::string::npos);
    auto c = json::parse_cluster(json::read_text("examples/formats/cluster.json"));
    c.types[0].rates.begin()->second.fallback = flops_per_second(1e-300);
    CHECK_THROWS_WITH_AS(validate(c), doctest::Contains("rates: expected flops per second, at least 1e-9"),
                         input_error);
}

TEST_CASE("names of other encodings or with control characters are refused or made printable") {
    auto const sample = [](std::string const& device) {
        return "what,device,ranks,dtype,flops,bytes,seconds\nmatmul," + device + ",,float32,1,1,1\n";
    };
    CHECK(test::message_of([&] { static_cast<void>(json::parse_samples(sample("V\xff"), "s")); }) ==
          "s: line 2, device: is 'V?', expected the name of a device type, in UTF-8");
    CHECK(json::parse_samples(sample("V\xc3\xa4")).front().device == "V\xc3\xa4");
    auto const model = json::parse_model(json::read_text("examples/formats/model.json"), "/folder/\xff\x1b[31m.json");
    CHECK(is_utf8(model.name));

    auto const rule = test::message_of([] {
        static_cast<void>(json::parse_model(test::with_change(json::read_text("examples/formats/model.json"),
                                                              "/rules/my.scale", R"x("(b d)\u0000, (d) -> (b d)")x"),
                                            "m"));
    });
    CHECK(rule == "m: rules['my.scale']: index rule '(b d)?, (d) -> (b d)', character 6: expected '->'");
    auto const format = test::message_of([] {
        static_cast<void>(json::parse_cluster(R"({"format": "\u001b[31m\u202e\u009b", "version": 1})", "c\x1b"));
    });
    CHECK(format == "c?: format: is \"\\u001b[31m??\", expected heddle.cluster up to version 1");
}
