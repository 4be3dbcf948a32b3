// SPDX-License-Identifier: BSL-1.0
#include "documents.hpp"

#include <heddle/json/templates.hpp>

#include <heddle/pipeline/template.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace heddle;

namespace {

std::string templates_example() { return test::example_of("docs/reference/templates.md"); }

/// What is said of the example with a change.
std::string said_of_templates(std::string const& pointer, std::string const& value) {
    return test::message_of(
        [&] { (void)json::parse_template_problem(test::with_change(templates_example(), pointer, value), "t.json"); });
}

} // namespace

TEST_CASE("a template problem is read as the page says") {
    auto const p = json::parse_template_problem(templates_example());
    CHECK(p.micro_batches == 8);
    CHECK(p.split == machine_split::halves);
    REQUIRE(p.layer_count() == 4);
    CHECK(p.memory[0].kept == bytes(4e9));
    CHECK(p.memory[1].saved == bytes(5e8));
    CHECK(p.memory[3].input == bytes(1e8));
    REQUIRE(p.types.size() == 2);
    CHECK(p.types[0].machines == 2);
    CHECK(p.types[0].devices_per_machine == 1);
    CHECK(p.types[1].name == "new");
    CHECK(p.types[1].memory_limit == bytes(24e9));
    CHECK(p.types[1].device_count() == 2);
    CHECK(p.types[1].times.backward[2] == seconds(0.04));
    CHECK(p.types[1].all_reduce.at(2)[1] == seconds(0.002));
    CHECK(plan_template(p).status == search::status::optimal);
}

TEST_CASE("a wrong template problem is refused with its place") {
    struct {
        std::string pointer, value, message;
    } const cases[] = {
        {"/micro_batches", "", "t.json: lacks the field 'micro_batches'"},
        {"/micro_batches", "0", "t.json: micro_batches: is 0, expected an integer from 1 to"},
        {"/split", "\"thirds\"", "t.json: split: is \"thirds\", expected one of"},
        {"/layers", "[]", "forward: is an array of 4, expected one time for each of 0 layers"},
        {"/layers/1/kept", "-1", "t.json: layers[1].kept: is -1, expected a number that is not negative"},
        {"/layers/1/keep", "1", "t.json: layers[1]: has the unknown field 'keep'"},
        {"/device_types/0/forward/2", "",
         "t.json: device_types[0].forward: is an array of 3, expected one time for each of 4 layers"},
        {"/device_types/0/backward/2", "\"x\"", "t.json: device_types[0].backward[2]: is \"x\", expected a number"},
        {"/device_types/0/memory", "0", "t.json: device_types[0].memory: is 0, expected a number greater than 0"},
        {"/device_types/0/name", "\"new\"",
         "t.json: device_types[1].name: is \"new\", expected a name that no other device type has"},
        {"/device_types/0/forward", "", "t.json: device_types[0]: lacks the field 'forward'"},
        {"/device_types/1/all_reduce", "", "type 'new': no all-reduce times for 2 devices, which a stage may have"},
        {"/device_types/1/all_reduce/two", "[]",
         "t.json: device_types[1].all_reduce.two: is no table of a number of devices"},
        {"/machines/0/type", "\"none\"", "t.json: machines[0].type: is \"none\", expected the name of a device type"},
        {"/machines/0/type", "\"new\"",
         "t.json: machines[1].type: is \"new\", expected a device type that has no machines yet"},
        {"/machines", "[]", "no machines with devices, expected one at least"},
        {"/version", "2", "t.json: is heddle.templates version 2, expected heddle.templates up to version 1"},
    };
    for (auto const& c : cases) {
        CAPTURE(c.pointer);
        auto const message = said_of_templates(c.pointer, c.value);
        CAPTURE(message);
        CHECK_MESSAGE(message.find(c.message) != std::string::npos, c.message);
    }
}
