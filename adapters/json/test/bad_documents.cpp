// SPDX-License-Identifier: BSL-1.0
#include "documents.hpp"

#include <heddle/json/cluster.hpp>
#include <heddle/json/fitted.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/samples.hpp>
#include <heddle/json/theory.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace heddle;

namespace {

/// Runs the reader of a kind of file.
void read(std::string const& kind, std::string const& text) {
    std::string const name = kind + ".json";
    if (kind == "model") static_cast<void>(json::parse_model(text, name));
    if (kind == "cluster") static_cast<void>(json::parse_cluster(text, name));
    if (kind == "theory") static_cast<void>(json::parse_theory(text, name));
    if (kind == "fitted") static_cast<void>(json::parse_fitted(text, name));
    if (kind == "samples") static_cast<void>(json::parse_samples(text, name));
}

std::string message_of(std::string const& kind, std::string const& text) {
    return test::message_of([&] { read(kind, text); });
}

/// What is said of the format's example with a change.
std::string message_of_change(std::string const& kind, std::string const& pointer, std::string const& value) {
    return message_of(kind, test::with_change(json::read_text("examples/formats/" + kind + ".json"), pointer, value));
}

struct change {
    std::string kind, pointer, value, message;
};

void check_all(std::vector<change> const& changes) {
    for (auto const& c : changes) {
        CAPTURE(c.pointer);
        CAPTURE(c.value);
        auto const message = message_of_change(c.kind, c.pointer, c.value);
        CAPTURE(message);
        CHECK(message.starts_with(c.kind + ".json"));
        CHECK_MESSAGE(message.find(c.message) != std::string::npos, c.message);
        CHECK(message.find('\n') == std::string::npos);
    }
}

} // namespace

TEST_CASE("format and version come together, of the right kind, and not newer than known") {
    for (char const* kind : {"model", "cluster", "theory", "fitted"}) {
        std::string const name = "heddle." + std::string(kind), file = std::string(kind) + ".json: ";
        CAPTURE(kind);
        CHECK(message_of_change(kind, "/version", "2") ==
              file + "is " + name + " version 2, expected " + name + " up to version 1");
        CHECK(message_of_change(kind, "/version", "") ==
              file + "has a 'format' but no 'version', expected both or neither");
        CHECK(message_of_change(kind, "/format", "") ==
              file + "has a 'version' but no 'format', expected both or neither");
        CHECK(message_of_change(kind, "/format", "\"heddle.plan\"") ==
              file + "format: is \"heddle.plan\", expected " + name + " up to version 1");
        CHECK(message_of_change(kind, "/format", "7") == file + "format: is 7, expected a string");
        CHECK(message_of_change(kind, "/version", "0").find("version: is 0, expected an integer from 1") !=
              std::string::npos);
        CHECK(message_of_change(kind, "/version", "\"1\"").find("version: is \"1\", expected an integer") !=
              std::string::npos);
        CHECK(message_of_change(kind, "/version", "1.5").find("version: is 1.5, expected an integer") !=
              std::string::npos);
    }
}

TEST_CASE("what is no JSON is refused with line and column") {
    struct {
        std::string text, message;
    } const cases[] = {
        {"", "line 1, column 1: syntax error"},
        {"{", "line 1, column 2: syntax error"},
        {"{\n  \"nodes\": [1,\n ]\n}", "line 3, column 2: syntax error"},
        {"{} {}", "line 1, column 4: syntax error"},
        {"nul", "line 1, column 4: syntax error"},
        {"{\"a\": 01}", "line 1, column 8: syntax error"},
        {"{\"a\": 'b'}", "line 1, column 7: syntax error"},
        {"{\"a\": NaN}", "line 1, column 7: syntax error"},
        {"{\"a\": 1e999}", "number overflow"},
        {"{\"a\": \"\xff\"}", "invalid string"},
        {"{\"a\": \"\\ud800\"}", "invalid string"},
        {"\xef\xbb\xbf[]", "is an array of 0, expected an object"},
        {"[]", "is an array of 0, expected an object"},
        {"null", "is null, expected an object"},
        {"\"text\"", "is \"text\", expected an object"},
        {"{\"a\": 1, \"a\": 2}", "an object has the field 'a' twice"},
        {"{\"x\": {\"b\": 1, \"c\": {}, \"b\": 2}}", "an object has the field 'b' twice"},
    };
    for (char const* kind : {"model", "cluster", "theory", "fitted"})
        for (auto const& c : cases) {
            CAPTURE(c.text);
            auto const message = message_of(kind, c.text);
            CAPTURE(message);
            CHECK(message.starts_with(kind + std::string(".json")));
            CHECK(message.find(c.message) != std::string::npos);
        }
}

TEST_CASE("deep nesting and long texts are refused, not died of") {
    for (char const* kind : {"model", "cluster", "theory", "fitted"}) {
        std::string const deep(200000, '[');
        CHECK(message_of(kind, deep).find("is nested more than 64 deep") != std::string::npos);
        std::string objects = "{\"meta\":";
        for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
        CHECK(message_of(kind, objects).find("is nested more than 64 deep") != std::string::npos);
        CHECK(message_of(kind, "{\"format\": \"" + std::string(1000000, 'x') + "\", \"version\": 1}").size() < 300);
        CHECK(message_of(kind, "{\"" + std::string(1000000, 'x')).size() < 400);
        CHECK(message_of(kind, "{\"format\": \"a\\nb\", \"version\": 1}").find('\n') == std::string::npos);
    }
}

TEST_CASE("models with bad nodes are refused by place") {
    check_all({
        {"model", "/nodes", "", "lacks the field 'nodes'"},
        {"model", "/nodes", "{}", "nodes: is an object, expected an array"},
        {"model", "/nodes", "[]", "nodes: is an array of 0, expected at least one node"},
        {"model", "/nodes/3", "7", "nodes[3]: is 7, expected an object"},
        {"model", "/nodes/3/id", "7", "nodes[3].id: is 7, expected the node's position, 3"},
        {"model", "/nodes/3/id", "-1", "nodes[3].id: is -1, expected an integer from 0"},
        {"model", "/nodes/3/id", "", "nodes[3]: lacks the field 'id'"},
        {"model", "/nodes/3", "", "nodes[3].id: is 4, expected the node's position, 3"},
        {"model", "/nodes/3/name", "\"x\"", "nodes[3].name: is \"x\", expected a name that no other node has"},
        {"model", "/nodes/3/name", "\"\"", "nodes[3].name: is \"\", expected a name"},
        {"model", "/nodes/8/name", "\"x\"", "nodes[8].name: is \"x\", expected a name that no other node has"},
        {"model", "/nodes/3/op", "\"call_module\"", "nodes[3].op: is \"call_module\", expected placeholder"},
        {"model", "/nodes/3/op", "\"output\"", "nodes[3].op: is \"output\" before the last node"},
        {"model", "/nodes/8/op", "\"placeholder\"",
         "nodes[8].op: is \"placeholder\", expected \"output\" for the last node"},
        {"model", "/nodes/3/target", "null", "nodes[3].target: is null, expected a string"},
        {"model", "/nodes/1/target", "\"x\"",
         "nodes[1].target: is \"x\", expected a name that no other input, parameter or buffer has"},
        {"model", "/nodes/2/target", "\"y\"",
         "nodes[2].target: is \"y\", expected a name that no other input, parameter or buffer has"},
        {"model", "/nodes/0/inputs", "[0]", "nodes[0].inputs: is an array of 1, expected none for a placeholder"},
        {"model", "/nodes/3/inputs", "[0,3]", "nodes[3].inputs[1]: is 3, expected an integer below 3"},
        {"model", "/nodes/3/inputs", "[0,-2]", "nodes[3].inputs[1]: is -2, expected an integer below 3"},
        {"model", "/nodes/3/inputs", "[0,\"2\"]", "nodes[3].inputs[1]: is \"2\", expected an integer below 3"},
        {"model", "/nodes/3/inputs", "[0]", "nodes[3].inputs: are not the nodes among args and kwargs"},
        {"model", "/nodes/3/inputs", "[0,2,2]", "nodes[3].inputs: are not the nodes among args and kwargs"},
        {"model", "/nodes/2/requires_grad", "1", "nodes[2].requires_grad: is 1, expected true or false"},
        {"model", "/nodes/2/out/dtype", "\"int64\"", "nodes[2]: is a trained parameter of an integer type"},
        {"model", "/nodes/8/inputs", "[]", "nodes[8].inputs: is an array of 0, expected the loss"},
        {"model", "/nodes/8/inputs", "[6]",
         "nodes[8].inputs[0]: is 6, expected a node that yields a tensor of shape []"},
        {"model", "/nodes/2/requires_grad", "false", "nodes[8]: loss 'nll_loss': depends on no trained parameter"},
    });
}

TEST_CASE("models with bad shapes and types are refused by place") {
    check_all({
        {"model", "/nodes/3/out", "", "nodes[3]: lacks the field 'out'"},
        {"model", "/nodes/3/out/kind", "\"dict\"", "nodes[3].out.kind: is \"dict\", expected \"tensor\", \"tuple\""},
        {"model", "/nodes/2/out/kind", "\"size\"",
         "nodes[2].out.kind: is \"size\", expected \"tensor\" for a parameter"},
        {"model", "/nodes/0/out/shape/1", "0",
         "nodes[0].out.shape[1]: is 0, expected an integer from 1 to 1099511627776"},
        {"model", "/nodes/0/out/shape/1", "-4", "nodes[0].out.shape[1]: is -4, expected an integer from 1"},
        {"model", "/nodes/0/out/shape/1", "4.0", "nodes[0].out.shape[1]: is 4.0, expected an integer from 1"},
        {"model", "/nodes/0/out/shape/1", "1099511627777",
         "nodes[0].out.shape[1]: is 1099511627777, expected an integer from 1"},
        {"model", "/nodes/0/out/shape/1", "18446744073709551615",
         "nodes[0].out.shape[1]: is 18446744073709551615, expected an integer"},
        {"model", "/nodes/0/out/shape/1", "1e300", "nodes[0].out.shape[1]: is 1e+300, expected an integer"},
        {"model", "/nodes/0/out/shape", "[1099511627776,1099511627776]",
         "nodes[0].out.shape: is the shape of more than 2^50 elements"},
        {"model", "/nodes/0/out/shape", "8", "nodes[0].out.shape: is 8, expected an array"},
        {"model", "/nodes/0/out/shape",
         "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
         "1,1,1,1,1,1,1,1,1,1,1]",
         "nodes[0].out.shape: is an array of 65, expected at most 64 extents"},
        {"model", "/nodes/0/out/dtype", "\"float31\"",
         "nodes[0].out.dtype: is \"float31\", expected one of float16, bfloat16, float32"},
        {"model", "/nodes/3/out/shape", "[8,4]",
         "nodes[3]: operator 'linear', result 0: has shape [8, 4], its operands and arguments give [8, 3]"},
        {"model", "/nodes/3/out/shape", "[8]",
         "nodes[3]: operator 'linear', result 0: has shape [8], its operands and arguments give [8, 3]"},
        {"model", "/nodes/2/out/shape", "[3,5]", "nodes[3]: operator 'linear': operand 1, dimension 1: extent 5"},
        {"model", "/nodes/6/out/shape", "[8,4]",
         "nodes[6]: operator 'log_softmax', result 0: has shape [8, 4], its operands and arguments give [8, 3]"},
        {"model", "/nodes/7/out/shape", "[1]",
         "nodes[7]: operator 'nll_loss', result 0: has shape [1], its operands and arguments give []"},
        {"model", "/nodes/1/out/shape", "[7]",
         "nodes[7]: operator 'nll_loss', argument 'target': has shape [7], expected [8]"},
    });
}

TEST_CASE("models with bad arguments and rules are refused by place") {
    check_all({
        {"model", "/nodes/3/kwargs/input", "{\"node\":9}",
         "nodes[3].kwargs.input.node: is 9, expected the id of an earlier node"},
        {"model", "/nodes/3/kwargs/input", "{\"node\":3}",
         "nodes[3].kwargs.input.node: is 3, expected the id of an earlier node"},
        {"model", "/nodes/3/kwargs/input", "{\"node\":\"x\"}",
         "nodes[3].kwargs.input.node: is \"x\", expected an integer"},
        {"model", "/nodes/3/kwargs/input", "{\"nodes\":0}",
         "nodes[3].kwargs.input: is an object, expected {\"node\": id}"},
        {"model", "/nodes/3/kwargs/extra", "{\"slice\":[0,1]}",
         "nodes[3].kwargs.extra.slice: is an array of 2, expected [start, stop, step]"},
        {"model", "/nodes/3/kwargs/extra", "{\"slice\":[0,1,\"a\"]}",
         "nodes[3].kwargs.extra.slice[2]: is \"a\", expected an integer"},
        {"model", "/nodes/3/kwargs/extra", "{\"float\":\"infinity\"}",
         "nodes[3].kwargs.extra.float: is \"infinity\", expected \"inf\""},
        {"model", "/nodes/3/kwargs/extra", "12345678901234567890",
         "nodes[3].kwargs.extra: is 12345678901234567890, expected an integer"},
        {"model", "/nodes/3/args", "{}", "nodes[3].args: is an object, expected an array"},
        {"model", "/nodes/3/kwargs", "[]", "nodes[3].kwargs: is an array of 0, expected an object"},
        {"model", "/nodes/6/kwargs/dim", "2",
         "nodes[6]: operator 'log_softmax', argument 'dim': is 2, expected a dimension of a tensor of 2"},
        {"model", "/nodes/6/kwargs/dim", "\"c\"",
         "nodes[6]: operator 'log_softmax', argument 'dim': expected an integer"},
        {"model", "/nodes/6/args", "[5]", "nodes[6].inputs: are not the nodes"},
        {"model", "/nodes/7/kwargs/reduction", "3",
         "nodes[7]: operator 'nll_loss', argument 'reduction': expected a string"},
        {"model", "/rules/my.scale", "\"(b d), (d) -> (b\"",
         "rules['my.scale']: index rule '(b d), (d) -> (b', character 17: expected an index name"},
        {"model", "/rules/my.scale", "\"(b d) -> (b d)\"",
         "nodes[5]: operator 'my_scale': the rule has 1 operands, 2 were given"},
        {"model", "/rules/my.scale", "\"(b d), (b) -> (b d)\"",
         "nodes[5]: operator 'my_scale': operand 1, dimension 0: extent 3, the rule expects 8"},
        {"model", "/rules/my.scale", "[]", "rules['my.scale']: is an array of 0, expected a string"},
        {"model", "/rules", "[]", "rules: is an array of 0, expected an object"},
    });
}

TEST_CASE("models with bad tuples and items are refused by place") {
    auto const with_chunk = [](std::string const& out, std::string const& taken, std::string const& index) {
        return R"({"nodes":[{"id":0,"name":"w","op":"parameter","target":"w","inputs":[],"out":{"kind":"tensor","shape":[4,2],"dtype":"float32"}},)"
               R"({"id":1,"name":"two","op":"call_method","target":"chunk","inputs":[0],"args":[{"node":0},2,1],"out":)" +
               out + "}," +
               R"({"id":2,"name":"one","op":"call_function","target":"operator.getitem","inputs":[1],"args":[{"node":1},)" +
               index + R"(],"out":)" + taken + "}," +
               R"({"id":3,"name":"loss","op":"call_method","target":"sum","inputs":[2],"args":[{"node":2}],"out":{"kind":"tensor","shape":[],"dtype":"float32"}},)"
               R"({"id":4,"name":"output","op":"output","target":"output","inputs":[3],"args":[{"node":3}]}]})";
    };
    std::string const column = R"({"kind":"tensor","shape":[4,1],"dtype":"float32"})",
                      two = R"({"kind":"tuple","items":[)" + column + "," + column + "]}";
    CHECK(message_of("model", with_chunk(two, column, "1")) == "nothing thrown");
    CHECK(
        message_of("model", with_chunk(two, column, "2")).find("nodes[2]: takes an item that its tuple of 2 has not") !=
        std::string::npos);
    CHECK(message_of("model", with_chunk(two, column, "null"))
              .find("nodes[2]: takes an item that its tuple of 2 has not") != std::string::npos);
    CHECK(message_of("model", with_chunk(two, R"({"kind":"tensor","shape":[4],"dtype":"float32"})", "0"))
              .find("nodes[2].out: is not the item") != std::string::npos);
    CHECK(message_of("model", with_chunk(two, R"({"kind":"tensor","shape":[4,1],"dtype":"float16"})", "0"))
              .find("nodes[2].out: is not the item") != std::string::npos);
    CHECK(message_of("model",
                     with_chunk(R"({"kind":"tuple","items":[{"kind":"value","value":{"node":0}}]})", column, "0"))
              .find("items[0].value: names a node") != std::string::npos);
    CHECK(message_of("model", with_chunk(R"({"kind":"tuple"})", column, "0"))
              .find("nodes[1].out: lacks the field 'items'") != std::string::npos);
    CHECK(message_of("model", with_chunk(R"({"kind":"size","value":4})", column, "0"))
              .find("nodes[1].out.value: is 4, expected an array") != std::string::npos);
    // A node that yields a value is no loss.
    CHECK(
        message_of(
            "model",
            R"({"nodes":[{"id":0,"name":"v","op":"call_function","target":"f","inputs":[],"out":{"kind":"value","value":1}},
                                           {"id":1,"name":"output","op":"output","target":"output","inputs":[0],"args":[{"node":0}]}]})")
            .find("expected a node that yields a tensor") != std::string::npos);
}

TEST_CASE("references to long lists are counted with what they hold") {
    auto const list = [](std::size_t size, std::string const& item) {
        std::string text = "[" + item;
        for (std::size_t i = 1; i < size; ++i) text += "," + item;
        return text + "]";
    };
    auto const with_list = [&](std::string const& value, std::size_t references) {
        return R"({"nodes":[{"id":0,"name":"v","op":"call_function","target":"f","inputs":[],"out":{"kind":"value","value":)" +
               value + "}}," +
               R"({"id":1,"name":"w","op":"parameter","target":"w","inputs":[],"out":{"kind":"tensor","shape":[],"dtype":"float32"}},)" +
               R"({"id":2,"name":"y","op":"call_function","target":"torch.relu","inputs":[1)" +
               (references ? "," + list(references, "0").substr(1, 2 * references - 1) : "") +
               R"(],"args":[{"node":1}],"kwargs":{"many":)" + (references ? list(references, R"({"node":0})") : "[]") +
               R"(},"out":{"kind":"tensor","shape":[],"dtype":"float32"}},)" +
               R"({"id":3,"name":"output","op":"output","target":"output","inputs":[2],"args":[{"node":2}]}]})";
    };
    CHECK(message_of("model", with_list(list(4096, "0"), 0)) == "nothing thrown");
    CHECK(message_of("model", with_list("[" + list(4096, "0") + "]", 0)).find("nodes[0].out.value: ") !=
          std::string::npos); // nested ones are counted
    CHECK(message_of("model", with_list(list(4000, "0"), 16)) == "nothing thrown");
    CHECK(message_of("model", with_list(list(4000, "0"), 17))
              .find("nodes[2].kwargs.many[16].node: is one of more than 65536 items") != std::string::npos);
}

TEST_CASE("bad clusters are refused by place") {
    check_all({
        {"cluster", "/device_types", "", "lacks the field 'device_types'"},
        {"cluster", "/device_types", "[]", "device_types: is an array of 0, expected at least one device type"},
        {"cluster", "/device_types/0/memory", "-5", "device_types[0].memory: is -5, expected a number greater than 0"},
        {"cluster", "/device_types/0/memory", "0", "device_types[0].memory: is 0, expected a number greater than 0"},
        {"cluster", "/device_types/0/memory", "\"32 GB\"", "device_types[0].memory: is \"32 GB\", expected a number"},
        {"cluster", "/device_types/0/memory", "", "device_types[0]: lacks the field 'memory'"},
        {"cluster", "/device_types/0/bandwidth", "-1e9",
         "device_types[0].bandwidth: is -1000000000.0, expected a number greater than 0"},
        {"cluster", "/device_types/0/overhead", "-1e-9",
         "device_types[0].overhead: is -1e-09, expected a number that is not negative"},
        {"cluster", "/device_types/0/name", "\"\"", "device_types[0].name: is \"\", expected a name"},
        {"cluster", "/device_types/1/name", "\"big\"",
         "device_types[1].name: is \"big\", expected a name that no other device type has"},
        {"cluster", "/device_types/0/memroy", "1", "device_types[0]: has the unknown field 'memroy'"},
        {"cluster", "/device_types/0/rates", "{}",
         "device_types[0].rates: is an object, expected the rate of at least one element type"},
        {"cluster", "/device_types/0/rates", "5e12", "device_types[0].rates: is 5000000000000.0, expected an object"},
        {"cluster", "/device_types/0/rates/fp16", "1",
         "device_types[0].rates.fp16: is no element type, expected one of float16"},
        {"cluster", "/device_types/0/rates/float16", "0",
         "device_types[0].rates.float16: is 0, expected a number greater than 0"},
        {"cluster", "/device_types/0/rates/float32/default", "",
         "device_types[0].rates.float32: lacks the field 'default'"},
        {"cluster", "/device_types/0/rates/float32/gemm", "1",
         "device_types[0].rates.float32.gemm: is no operator class, expected default, operators or one of matmul"},
        {"cluster", "/device_types/0/rates/float32/operators", R"({"gelu": {"sideways": 1}})",
         "device_types[0].rates.float32.operators.gelu: has the unknown field 'sideways'"},
        {"cluster", "/device_types/0/rates/float32/operators", R"({"gelu": {"forward": {"bandwidth": 0}}})",
         "device_types[0].rates.float32.operators.gelu.forward.bandwidth: is 0, expected a number"},
        {"cluster", "/device_types/0/rates/float32/matmul", "null",
         "device_types[0].rates.float32.matmul: is null, expected a number"},
        {"cluster", "/device_types/0/rates/float32/matmul", "{\"rate\":0}",
         "device_types[0].rates.float32.matmul.rate: is 0, expected a number greater than 0"},
        {"cluster", "/device_types/0/rates/float32/matmul", "{\"bandwidth\":-1}",
         "device_types[0].rates.float32.matmul.bandwidth: is -1"},
        {"cluster", "/device_types/0/rates/float32/matmul", "{\"overhead\":\"1 us\"}",
         "device_types[0].rates.float32.matmul.overhead: is \"1 us\""},
        {"cluster", "/device_types/0/rates/float32/matmul", "{\"efficiency\":0.5}",
         "device_types[0].rates.float32.matmul.efficiency: is 0.5, expected an object"},
        {"cluster", "/device_types/0/rates/float32/matmul", "{\"efficiency\":{\"least\":0.5}}",
         "device_types[0].rates.float32.matmul.efficiency: lacks the field 'scale'"},
        {"cluster", "/device_types/0/rates/float32/matmul", "{\"efficiency\":{\"scale\":0}}",
         "efficiency.scale: is 0, expected a number greater than 0"},
        {"cluster", "/device_types/0/rates/float32/matmul", "{\"efficiency\":{\"scale\":1,\"least\":1}}",
         "efficiency.least: is 1, expected a part less than 1"},
        {"cluster", "/device_types/0/rates/float32/matmul", "{\"efficiency\":{\"scale\":1,\"most\":1}}",
         "efficiency: has the unknown field 'most'"},
        {"cluster", "/device_types/0/rates/float32/matmul", "{\"speed\":1}",
         "device_types[0].rates.float32.matmul: has the unknown field 'speed'"},
        {"cluster", "/machines", "[]", "machines: is an array of 0, expected at least one machine"},
        {"cluster", "/machines/0/type", "\"huge\"",
         "machines[0].type: is \"huge\", expected the name of a device type"},
        {"cluster", "/machines/0/type", "0", "machines[0].type: is 0, expected a string"},
        {"cluster", "/machines/0/devices", "0", "machines[0].devices: is 0, expected an integer from 1 to 65536"},
        {"cluster", "/machines/0/devices", "2.5", "machines[0].devices: is 2.5, expected an integer from 1 to 65536"},
        {"cluster", "/machines/0/count", "100000", "machines[0].count: is 100000, expected an integer from 1 to 65536"},
        {"cluster", "/machines/0/count", "40000", "machines[0]: makes more than 65536 devices"},
        {"cluster", "/links", "{}", "links, intra: missing, but the machines need it"},
        {"cluster", "/links/inter", "", "links, inter: missing, but the machines need it"},
        {"cluster", "/links/inter/bandwidth", "-1", "links.inter.bandwidth: is -1, expected a number greater than 0"},
        {"cluster", "/links/inter/latency", "", "links.inter: lacks the field 'latency'"},
        {"cluster", "/links/inter/latencies", "1", "links.inter: has the unknown field 'latencies'"},
        {"cluster", "/links/nvlink", "{}", "links: has the unknown field 'nvlink'"},
        {"cluster", "/collectives/gather", "{}", "collectives.gather: is no collective, expected one of all_reduce"},
        {"cluster", "/collectives/all_reduce/latency", "-1",
         "collectives.all_reduce.latency: is -1, expected a number that is not negative"},
        {"cluster", "/collectives/all_reduce/slope", "1", "collectives.all_reduce: has the unknown field 'slope'"},
        {"cluster", "/collectives/all_gather/pieces", "[]",
         "collectives.all_gather.pieces: is an array of 0, expected at least one piece"},
        {"cluster", "/collectives/all_gather/pieces/1/seconds_per_byte", "",
         "collectives.all_gather.pieces[1]: lacks the field 'seconds_per_byte'"},
        {"cluster", "/collectives_inside", R"({"devices": 1, "collectives": {}})",
         "collectives_inside.devices: is 1, expected an integer from 2"},
        {"cluster", "/collectives_inside", R"({"devices": 2})",
         "collectives_inside: is an object, expected collectives"},
        {"cluster", "/collectives_inside", R"({"devices": 2, "collectives": {"ring": {}}})",
         "collectives_inside.collectives.ring: is no collective"},
        {"cluster", "/collectives_inside", R"({"ranks": 2})", "collectives_inside: has the unknown field 'ranks'"},
        {"cluster", "/collectives_across", R"({"devices": 2})", "collectives_across: has the unknown field 'devices'"},
        {"cluster", "/collectives_across", R"({"machines": 1, "collectives": {}})",
         "collectives_across.machines: is 1, expected an integer from 2"},
        {"cluster", "/collectives/all_gather/latency", "1", "collectives.all_gather: has the unknown field 'latency'"},
        {"cluster", "/comment", "\"hm\"", "has the unknown field 'comment'"},
        {"cluster", "/name", "[1]", "name: is an array of 1, expected a string"},
    });
    CHECK(message_of_change("cluster", "/x-comment", "\"hm\"") == "nothing thrown");
    CHECK(message_of_change("cluster", "/collectives/x-note", "1") == "nothing thrown");
}

TEST_CASE("bad theories are refused by place") {
    check_all({
        {"theory", "/triples", R"([{"add": [4], "cost": 1e308}, {"add": [4], "cost": 1e308}])",
         "triples[1].cost: is 1e+308, expected costs whose sum is a number"},
        {"theory", "/properties", "", "lacks the field 'properties'"},
        {"theory", "/properties", "5", "properties: is 5, expected an array"},
        {"theory", "/properties/1", "5", "properties[1]: is 5, expected a string"},
        {"theory", "/properties", "[]", "initial[0]: is 0, expected an integer below 0"},
        {"theory", "/initial", "", "lacks the field 'initial'"},
        {"theory", "/initial", "[5]", "initial[0]: is 5, expected an integer below 5"},
        {"theory", "/initial", "[0,-1]", "initial[1]: is -1, expected an integer below 5"},
        {"theory", "/initial", "[0,1,0]", "initial: has property 0 twice"},
        {"theory", "/initial", "[0.5]", "initial[0]: is 0.5, expected an integer below 5"},
        {"theory", "/goal", "5", "goal: is 5, expected an integer from 0 to 4"},
        {"theory", "/goal", "[4]", "goal: is an array of 1, expected an integer"},
        {"theory", "/goal", "", "lacks the field 'goal'"},
        {"theory", "/triples", "{}", "triples: is an object, expected an array"},
        {"theory", "/triples/1", "[]", "triples[1]: is an array of 0, expected an object"},
        {"theory", "/triples/1/add", "", "triples[1]: lacks the field 'add'"},
        {"theory", "/triples/1/cost", "", "triples[1]: lacks the field 'cost'"},
        {"theory", "/triples/1/cost", "-1e-9", "triples[1].cost: is -1e-09, expected a number that is not negative"},
        {"theory", "/triples/1/cost", "\"free\"", "triples[1].cost: is \"free\", expected a number"},
        {"theory", "/triples/1/pre", "[0,9]", "triples[1].pre[1]: is 9, expected an integer below 5"},
        {"theory", "/triples/1/pre", "[0,0]", "triples[1].pre: has property 0 twice"},
        {"theory", "/triples/1/pre", "[]",
         "triples[1].remove: is an array of 1, expected some of the properties in pre"},
        {"theory", "/triples/1/remove", "[2]",
         "triples[1].remove: is an array of 1, expected some of the properties in pre"},
        {"theory", "/triples/0/add", "[0]", "triples[0].add: has property 0, which a triple removes"},
        {"theory", "/triples/1/text", "1", "triples[1].text: is 1, expected a string"},
        {"theory", "/program", "[0,4]", "program[1]: is 4, expected an integer below 4"},
        {"theory", "/program", "\"0\"", "program: is \"0\", expected an array"},
    });
}

TEST_CASE("bad fitted models are refused by place") {
    check_all({
        {"fitted", "/ranks", "", "lacks the field 'ranks'"},
        {"fitted", "/ranks", "0", "ranks: is 0, expected an integer from 1 to 65536"},
        {"fitted", "/collectives", "[]", "collectives: is an array of 0, expected an object"},
        {"fitted", "/collectives/scan", "{}", "collectives.scan: is no collective"},
        {"fitted", "/collectives/all_reduce", "{}", "collectives.all_reduce: lacks the field 'latency'"},
        {"fitted", "/collectives/all_reduce", "1", "collectives.all_reduce: is 1, expected an object"},
        {"fitted", "/collectives/all_gather/pieces/0/latency", "-1", "collectives.all_gather.pieces[0].latency: is -1"},
        {"fitted", "/rates", "[]", "rates: is an array of 0, expected an object"},
        {"fitted", "/rates/big", "1", "rates.big: is 1, expected an object"},
        {"fitted", "/rates/big/float8", "{}", "rates.big.float8: is no element type"},
        {"fitted", "/rates/big/float32/conv", "1", "rates.big.float32.conv: is no operator class"},
        {"fitted", "/rates/big/float32/matmul/overhead", "-1",
         "rates.big.float32.matmul.overhead: is -1, expected a number that is not negative"},
        {"fitted", "/rates/big/float32/matmul", "0",
         "rates.big.float32.matmul: is 0, expected a number greater than 0"},
    });
}

TEST_CASE("bad samples are refused by line and column") {
    std::string const header = "what,device,ranks,dtype,flops,bytes,seconds\n",
                      wide = "what,device,ranks,dtype,flops,bytes,seconds,operator,pass,bytes_beside,kernels_beside\n",
                      widest = wide.substr(0, wide.size() - 1) + ",axis\n";
    struct {
        std::string text, message;
    } const cases[] = {
        {"what,device,ranks,dtype,flops,bytes,seconds,operator\n", "line 1: is 'what,device"},
        {"what,device,ranks,dtype,flops,bytes,second\n", "line 1: is 'what,device"},
        {wide + "all_reduce,,2,,,1,1\n", "line 2: has another number of columns than 11"},
        {widest + "all_reduce,,2,,,1,1,,,,,machine\n", "line 2, axis: is 'machine', expected nothing or machines"},
        {widest + "all_reduce,,1,,,1,1,,,,,machines\n", "line 2, ranks: is '1', expected an integer from 2 to"},
        {widest + "matmul,big,,float32,1,1,1,,,,,machines\n", "line 2, axis: is 'machines', expected nothing for an"},
        {wide + "all_reduce,,2,,,1,1,add,,,\n", "line 2, operator: is 'add', expected nothing for a collective"},
        {wide + "matmul,big,,float32,1,1,1,linear,,,\n", "line 2, pass: is empty, expected forward or backward"},
        {wide + "matmul,big,,float32,1,1,1,,forward,,\n", "line 2, pass: is 'forward', expected nothing for"},
        {wide + "matmul,big,,float32,1,1,1,,,-1,\n", "line 2, bytes_beside: is '-1', expected a number that"},
        {wide + "matmul,big,,float32,1,1,1,,,1,1.5\n", "line 2, kernels_beside: is '1.5', expected an integer"},
        {"", "is empty, expected the header"},
        {"# nothing\n\n", "is empty, expected the header"},
        {"all_reduce,,2,,,1,1\n", "line 1: is 'all_reduce,,2,,,1,1', expected the header"},
        {"what, device,ranks,dtype,flops,bytes,seconds\n", "line 1: is 'what, device"},
        {header + "all_reduce,,2,,,1\n", "line 2: has another number of columns than 7"},
        {header + "all_reduce,,2,,,1,1,1\n", "line 2: has another number of columns than 7"},
        {header + "\n# x\ngather,,2,,,1,1\n", "line 4, what: is 'gather', expected one of all_reduce"},
        {header + ",,2,,,1,1\n", "line 2, what: is empty, expected one of"},
        {header + "all_reduce,big,2,,,1,1\n", "line 2, device: is 'big', expected nothing for a collective"},
        {header + "all_reduce,,,,,1,1\n", "line 2, ranks: is empty, expected an integer from 1 to 65536"},
        {header + "all_reduce,,0,,,1,1\n", "line 2, ranks: is '0', expected an integer"},
        {header + "all_reduce,,2.0,,,1,1\n", "line 2, ranks: is '2.0', expected an integer"},
        {header + "all_reduce,,99999999999,,,1,1\n", "line 2, ranks: is '99999999999', expected an integer"},
        {header + "all_reduce,,2,fp32,,1,1\n", "line 2, dtype: is 'fp32', expected one of float16"},
        {header + "all_reduce,,2,,5,1,1\n", "line 2, flops: is '5', expected nothing for a collective"},
        {header + "all_reduce,,2,,,,1\n", "line 2, bytes: is empty, expected a number that is not negative"},
        {header + "all_reduce,,2,,,-1,1\n", "line 2, bytes: is '-1', expected a number that is not negative"},
        {header + "all_reduce,,2,,,inf,1\n", "line 2, bytes: is 'inf', expected a number"},
        {header + "all_reduce,,2,,,1e999,1\n", "line 2, bytes: is '1e999', expected a number"},
        {header + "all_reduce,,2,,,1 MB,1\n", "line 2, bytes: is '1 MB', expected a number"},
        {header + "all_reduce,,2,,,1,0\n", "line 2, seconds: is '0', expected a number greater than 0"},
        {header + "all_reduce,,2,,,1,nan\n", "line 2, seconds: is 'nan', expected a number greater than 0"},
        {header + "matmul,,,float32,1,1,1\n", "line 2, device: is empty, expected the name of a device type"},
        {header + "matmul,big,2,float32,1,1,1\n", "line 2, ranks: is '2', expected nothing for an operator"},
        {header + "matmul,big,,,1,1,1\n", "line 2, dtype: is empty, expected the element type"},
        {header + "matmul,big,,float32,x,1,1\n", "line 2, flops: is 'x', expected a number"},
        {header + std::string(1000000, ','), "line 2: has another number of columns than 7"},
    };
    for (auto const& c : cases) {
        CAPTURE(c.message);
        auto const message = message_of("samples", c.text);
        CAPTURE(message);
        CHECK(message.starts_with("samples.json"));
        CHECK(message.find(c.message) != std::string::npos);
        CHECK(message.size() < 400);
    }
}
