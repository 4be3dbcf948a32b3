// SPDX-License-Identifier: BSL-1.0
#include "documents.hpp"

#include <heddle/cluster/fit.hpp>
#include <heddle/cluster/presets.hpp>
#include <heddle/json/cluster.hpp>
#include <heddle/json/digest.hpp>
#include <heddle/json/document.hpp>
#include <heddle/json/fitted.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/names.hpp>
#include <heddle/json/samples.hpp>
#include <heddle/json/theory.hpp>
#include <heddle/json/trials.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/search/properties/property_set.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

using namespace heddle;

namespace {

std::vector<std::string> files_in(char const* folder) {
    std::vector<std::string> paths;
    for (auto const& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().string().find(".json") != std::string::npos) paths.push_back(entry.path().string());
    std::ranges::sort(paths);
    return paths;
}

std::string changed(char const* path, char const* pointer, nlohmann::json value) {
    auto root = nlohmann::json::parse(json::read_text(path));
    root[nlohmann::json::json_pointer(pointer)] = std::move(value);
    return root.dump();
}

} // namespace

TEST_CASE("every shipped model reads, without a warning and with the parameters it states") {
    auto const paths = files_in("examples/models");
    CHECK(paths.size() >= 7);
    for (auto const& path : paths) {
        CAPTURE(path);
        auto const model = json::read_model(path);
        CHECK(model.warnings.empty());
        CHECK(model.digest == json::digest(json::read_text(path)));
        auto const meta = nlohmann::json::parse(json::read_text(path)).at("meta");
        CHECK(model.name == meta.at("model").get<std::string>());
        extent parameters = 0;
        for (tensor_id t = 0; t < model.program.tensor_count(); ++t) {
            auto const& info = model.program.tensor(t);
            if (info.role == tensor_role::parameter) parameters += info.elements();
            if (info.role == tensor_role::input) CHECK(info.shape.front() == meta.at("global_batch").get<extent>());
        }
        CHECK(parameters == meta.at("n_params").get<extent>());
        auto const indexed = index_program(model.program);
        CHECK(indexed.tensors[indexed.loss].has_cotangent);
        // The batch passes from end to end: every operator on activations can be cut along something.
        for (auto const& op : indexed.operators)
            if (!op.work.is_view) CHECK_MESSAGE(!op.loops.empty(), op.name);
    }
}

TEST_CASE("the example of a model is read, with a user's rule, a frozen parameter and folded arguments") {
    auto const model = json::read_model("examples/formats/model.json");
    CHECK(model.name == "scaled");
    CHECK(model.warnings.empty());
    REQUIRE(model.program.operator_count() == 4);
    CHECK(model.program.kind(0) == "linear");
    CHECK(model.program.name(1) == "my_scale");
    CHECK(model.program.rule(1).terms.size() == 1);
    CHECK(model.program.tensor(model.program.operands(1)[1]).name == "scale");
    CHECK_FALSE(model.program.tensor(model.program.operands(1)[1]).trainable);
    CHECK(model.program.tensor(model.program.loss()).shape.empty());
    // Without the rule the operator is whole, with one warning.
    auto const unknown = json::parse_model(changed("examples/formats/model.json", "/rules", nlohmann::json::object()));
    REQUIRE(unknown.warnings.size() == 1);
    CHECK(unknown.warnings[0].find("'my.scale'") != std::string::npos);
    CHECK(unknown.warnings[0].find("under its name in the model's 'rules'") != std::string::npos);
    CHECK(index_program(unknown.program).operators[1].loops.empty());
    CHECK(index_program(model.program).operators[1].loops.size() == 2);
}

TEST_CASE("each target without a rule has one warning; a rule may name a variant of the library's") {
    char const* const text = R"({"rules":{RULES},"nodes":[
        {"id":0,"name":"x","op":"placeholder","target":"x","inputs":[],"out":{"kind":"tensor","shape":[4,6],"dtype":"float32"}},
        {"id":1,"name":"w","op":"parameter","target":"w","inputs":[],"out":{"kind":"tensor","shape":[4,6],"dtype":"float32"}},
        {"id":2,"name":"a","op":"call_function","target":"my.magic","inputs":[0,1],"args":[{"node":0},{"node":1}],"out":{"kind":"tensor","shape":[4,6],"dtype":"float32"}},
        {"id":3,"name":"b","op":"call_function","target":"my.magic","inputs":[2,1],"args":[{"node":2},{"node":1}],"out":{"kind":"tensor","shape":[4,6],"dtype":"float32"}},
        {"id":4,"name":"n","op":"call_function","target":"torch.nn.functional.batch_norm","inputs":[3],"args":[{"node":3},null,null],"kwargs":{"training":true},"out":{"kind":"tensor","shape":[4,6],"dtype":"float32"}},
        {"id":5,"name":"loss","op":"call_method","target":"sum","inputs":[4],"args":[{"node":4}],"out":{"kind":"tensor","shape":[],"dtype":"float32"}},
        {"id":6,"name":"output","op":"output","target":"output","inputs":[5],"args":[{"node":5}],"out":{}}]})";
    auto const with_rules = [&](std::string const& rules) {
        std::string filled = text;
        return json::parse_model(filled.replace(filled.find("RULES"), 5, rules), "magic.json");
    };
    auto const batch_statistics = [](program const& p) {
        int sum = 0;
        auto const indexed = index_program(p);
        for (auto const& loop : indexed.operators[2].loops) sum += loop.forward_statistics;
        return sum;
    };
    auto const unknown = with_rules("");
    REQUIRE(unknown.warnings.size() == 1);
    CHECK(unknown.warnings[0].find("'my.magic'") != std::string::npos);
    CHECK(batch_statistics(unknown.program) == 2);
    auto const known =
        with_rules(R"("my.magic":"(b d), (b d) -> (b d); 0*1","torch.nn.functional.batch_norm":"per_shard")");
    CHECK(known.warnings.empty());
    auto const indexed = index_program(known.program);
    for (std::size_t o = 0; o < 3; ++o) CHECK(indexed.operators[o].loops.size() == 2);
    CHECK(batch_statistics(known.program) == 0);
    CHECK_THROWS_AS(with_rules(R"("torch.nn.functional.batch_norm":"per_shards")"), input_error);
}

TEST_CASE("several nodes of one buffer have names of their own") {
    auto const with_buffer = [](std::string const& target, std::string const& op, std::string const& shape) {
        return R"({"nodes":[
            {"id":0,"name":"w","op":"parameter","target":"w","inputs":[],"out":{"kind":"tensor","shape":[4,6],"dtype":"float32"}},
            {"id":1,"name":"first","op":"buffer","target":"mask","inputs":[],"out":{"kind":"tensor","shape":[4,6],"dtype":"float32"}},
            {"id":2,"name":"a","op":"call_function","target":"torch.mul","inputs":[0,1],"args":[{"node":0},{"node":1}],"out":{"kind":"tensor","shape":[4,6],"dtype":"float32"}},
            {"id":3,"name":"mask_1","op":")" +
               op + R"(","target":")" + target + R"(","inputs":[],"out":{"kind":"tensor","shape":)" + shape +
               R"(,"dtype":"float32"}},
            {"id":4,"name":"b","op":"call_function","target":"torch.mul","inputs":[2,3],"args":[{"node":2},{"node":3}],"out":{"kind":"tensor","shape":[4,6],"dtype":"float32"}},
            {"id":5,"name":"loss","op":"call_method","target":"sum","inputs":[4],"args":[{"node":4}],"out":{"kind":"tensor","shape":[],"dtype":"float32"}},
            {"id":6,"name":"output","op":"output","target":"output","inputs":[5],"args":[{"node":5}],"out":{}}]})";
    };
    auto const p = json::parse_model(with_buffer("mask", "buffer", "[4,6]")).program;
    CHECK(p.tensor(p.operands(0)[1]).name == "mask");
    CHECK(p.tensor(p.operands(1)[1]).name == "mask_1");
    auto const check_refused = [&](std::string const& target, std::string const& op, std::string const& shape) {
        CHECK(test::message_of([&] { static_cast<void>(json::parse_model(with_buffer(target, op, shape))); }) ==
              "model: nodes[3].target: is \"" + target +
                  "\", expected a name that no other input, parameter or buffer has");
    };
    check_refused("mask", "buffer", "[6]");
    check_refused("mask", "placeholder", "[4,6]");
    check_refused("mask", "parameter", "[4,6]");
    check_refused("w", "buffer", "[4,6]");
}

TEST_CASE("sizes, values, tuples and their items are folded") {
    char const* const text = R"({"nodes":[
        {"id":0,"name":"x","op":"placeholder","target":"x","inputs":[],"out":{"kind":"tensor","shape":[4,6],"dtype":"float32"}},
        {"id":1,"name":"w","op":"parameter","target":"w","inputs":[],"out":{"kind":"tensor","shape":[4,6],"dtype":"float32"}},
        {"id":2,"name":"shape","op":"call_function","target":"getattr","inputs":[0],"args":[{"node":0},"shape"],"out":{"kind":"size","value":[4,6]}},
        {"id":3,"name":"rows","op":"call_function","target":"operator.getitem","inputs":[2],"args":[{"node":2},0],"out":{"kind":"value","value":4}},
        {"id":4,"name":"y","op":"call_function","target":"operator.mul","inputs":[0,1],"args":[{"node":0},{"node":1}],"out":{"kind":"tensor","shape":[4,6],"dtype":"float32"}},
        {"id":5,"name":"view","op":"call_method","target":"view","inputs":[4,3],"args":[{"node":4},{"node":3},2,3],"out":{"kind":"tensor","shape":[4,2,3],"dtype":"float32"}},
        {"id":6,"name":"two","op":"call_method","target":"chunk","inputs":[5],"args":[{"node":5},2],"kwargs":{"dim":1},
         "out":{"kind":"tuple","items":[{"kind":"tensor","shape":[4,1,3],"dtype":"float32"},{"kind":"value","value":{"float":"-inf"}},{"kind":"tensor","shape":[4,1,3],"dtype":"float32"}]}},
        {"id":7,"name":"second","op":"call_function","target":"operator.getitem","inputs":[6],"args":[{"node":6},-1],"out":{"kind":"tensor","shape":[4,1,3],"dtype":"float32"}},
        {"id":8,"name":"some","op":"call_function","target":"operator.getitem","inputs":[7,3],"args":[{"node":7},[{"slice":[0,{"node":3},null]},{"ellipsis":true}]],"out":{"kind":"tensor","shape":[4,1,3],"dtype":"float32"}},
        {"id":9,"name":"loss","op":"call_method","target":"sum","inputs":[8],"args":[{"node":8}],"out":{"kind":"tensor","shape":[],"dtype":"float32"}},
        {"id":10,"name":"output","op":"output","target":"output","inputs":[9],"args":[{"node":9}],"out":{}}]})";
    auto const model = json::parse_model(text, "folded.json");
    CHECK(model.name == "folded");
    CHECK(model.warnings.empty());
    REQUIRE(model.program.operator_count() == 5);
    CHECK(model.program.kind(2) == "chunk");
    CHECK(model.program.operands(3)[0] == model.program.results(2)[1]);
}

TEST_CASE("every cluster reads") {
    auto const paths = files_in("examples/clusters");
    CHECK(paths.size() >= 4);
    for (auto const& path : paths) {
        CAPTURE(path);
        auto const c = json::read_cluster(path);
        CHECK(!c.devices().empty());
        CHECK(!c.name.empty());
    }
}

TEST_CASE("the example of a cluster is read") {
    auto const c = json::read_cluster("examples/formats/cluster.json");
    CHECK(c.name == "two big, one small");
    CHECK(c.devices() == std::vector<std::size_t>{0, 0, 1});
    CHECK(c.types[0].memory.value == 32e9);
    CHECK(c.types[0].overhead.value == 5e-6);
    CHECK(c.types[1].overhead.value == 0);
    CHECK(c.types[0].rates.at(element_type::float32).at(operator_class::matmul).value == 13e12);
    CHECK(c.types[0].rates.at(element_type::float32).at(operator_class::attention).value == 10e12);
    CHECK(c.types[0].rates.at(element_type::float16).at(operator_class::matmul).value == 60e12);
    REQUIRE(c.intra.has_value());
    REQUIRE(c.inter.has_value());
    CHECK(c.intra->bandwidth.value == 12e9);
    CHECK(c.inter->latency.value == 50e-6);
    CHECK(c.measured.size() == 2);
    CHECK(c.measured.at(collective::all_reduce).pieces.size() == 1);
    CHECK(c.measured.at(collective::all_gather).pieces.at(1).slope.value == 5.3e-10);
}

TEST_CASE("the example of a theory is read; its known program reaches the goal at the cost stated") {
    auto const t = json::read_theory("examples/formats/theory.json");
    CHECK(t.properties.size() == 5);
    CHECK(t.goal == std::vector<std::uint32_t>{4});
    CHECK(t.texts[3] == "all_gather y");
    REQUIRE(t.program.has_value());
    search::property_set held(t.properties.size());
    for (auto id : t.initial) held.insert(id);
    double cost = 0;
    for (auto a : *t.program) {
        for (auto id : t.actions[a].pre) CHECK(held.contains(id));
        for (auto id : t.actions[a].remove) held.erase(id);
        for (auto id : t.actions[a].add) held.insert(id);
        cost += t.costs[a];
    }
    CHECK(held.contains(t.goal.front()));
    CHECK(cost == doctest::Approx(1.49e-4));
}

TEST_CASE("properties of a triple are sorted") {
    auto const t = json::parse_theory(changed("examples/formats/theory.json", "/triples/3/pre", {3, 1}));
    CHECK(t.actions[3].pre == std::vector<std::uint32_t>{1, 3});
}

TEST_CASE("a list of plans is read as it was written") {
    std::vector<json::trial> const written{{"a.json", "one axis", seconds(0.1), {}},
                                           {"b.json", "", seconds(1e-9), seconds(2)}};
    auto const read = json::parse_trials(json::to_text(written));
    REQUIRE(read.size() == 2);
    CHECK(read[0].plan == "a.json");
    CHECK_FALSE(read[0].measured);
    CHECK(read[1].measured == seconds(2));
    auto const other = json::parse_trials("\xef\xbb\xbfseconds, plan \r\n# one\r\n\r\n 0.5 ,\tfolder/a b.json\r\n");
    REQUIRE(other.size() == 1);
    CHECK(other[0].plan == "folder/a b.json");
    CHECK(other[0].measured == seconds(0.5));
}

TEST_CASE("a list of plans takes a time, and is the same else") {
    std::string const list =
        "\xef\xbb\xbf# two\nseconds, plan ,\xc3\xa9t\xc3\xa9\r\n 0.5 ,a.json,1\r\n\r\n \t,b.json,2";
    CHECK(json::with_time(list, 0, seconds(0.25)) ==
          "\xef\xbb\xbf# two\nseconds, plan ,\xc3\xa9t\xc3\xa9\r\n 0.25 ,a.json,1\r\n\r\n \t,b.json,2");
    auto const both = json::parse_trials(json::with_time(list, 1, seconds(1e-7)));
    REQUIRE(both.size() == 2);
    CHECK(both[0].measured == seconds(0.5));
    CHECK(both[1].measured == seconds(1e-7));
    CHECK(json::parse_trials(json::with_time("plan,seconds\na.json,", 0, seconds(3)))[0].measured == seconds(3));
    CHECK_THROWS_WITH_AS((void)json::with_time("plan,seconds\na.json", 0, seconds(3), "run.csv"),
                         doctest::Contains("run.csv, line 2"), input_error);
}

TEST_CASE("the example of samples is read") {
    auto const samples = json::read_samples("examples/formats/samples.csv");
    REQUIRE(samples.size() == 16);
    CHECK(std::get<collective>(samples[0].what) == collective::all_reduce);
    CHECK(samples[0].ranks == 2);
    CHECK(samples[0].size.value == 1048576);
    CHECK(samples[0].time.value == 0.00102);
    CHECK(std::get<operator_class>(samples[15].what) == operator_class::elementwise);
    CHECK(samples[15].device == "small");
    CHECK(samples[15].work.value == 1048576);
    CHECK(samples[15].type == element_type::float32);
    // Windows line ends, a missing last line end, comments in between, an empty dtype.
    CHECK(
        json::parse_samples(
            "# x\r\nwhat,device,ranks,dtype,flops,bytes,seconds\r\n\r\nall_gather,,4,,,1e3,2\r\n#\nother,d,,int8,,0,1")
            .size() == 2);
    CHECK(json::parse_samples("what,device,ranks,dtype,flops,bytes,seconds\n").empty());
}

TEST_CASE("fitted models read and survive being written") {
    auto const fitted = json::read_fitted("examples/formats/fitted.json");
    CHECK(fitted.ranks == 2);
    auto const again = json::parse_fitted(json::to_text(fitted));
    CHECK(json::to_text(again) == json::to_text(fitted));
    CHECK(again.collectives.at(collective::all_gather).pieces.size() == 2);
    CHECK(
        again.speeds.at("small").at(element_type::float32).by_class.at(operator_class::elementwise).bandwidth->value ==
        doctest::Approx(397.6e9).epsilon(1e-3));
    auto const plain = json::parse_fitted(R"({"ranks": 1, "rates": {"big": {"float32": {"matmul": 2e12}}}})");
    auto const& matmul = plain.speeds.at("big").at(element_type::float32).by_class.at(operator_class::matmul);
    CHECK(matmul.rate == flops_per_second(2e12));
    CHECK(!matmul.overhead);
}

TEST_CASE("samples and speeds of kinds of operators survive being written") {
    std::string const columns = "what,device,ranks,dtype,flops,bytes,seconds,operator,pass,bytes_beside,kernels_beside";
    std::string const text = columns + ",axis\n"
                                       "all_reduce,,2,,,1024.0,1.0,,,,,\n"
                                       "matmul,big,,float32,1000.0,50.0,3.0,linear,forward,20.0,2,\n"
                                       "elementwise,big,,float32,8.0,8.0,2.0,gelu,backward,,,\n"
                                       "all_gather,,2,,,4096.0,3.0,,,,,machines\n";
    auto const samples = json::parse_samples(text);
    REQUIRE(samples.size() == 4);
    CHECK(!samples[0].is_across);
    CHECK(samples[3].is_across);
    CHECK(json::parse_samples(columns + "\nall_reduce,,2,,,1024,1,,,,\n").size() == 1); // without the last column
    CHECK(!samples[0].of);
    CHECK(samples[1].of == operator_pass{"linear", false});
    CHECK(samples[1].beside == bytes(20));
    CHECK(samples[1].kernels_beside == 2);
    CHECK(samples[2].of == operator_pass{"gelu", true});
    CHECK(json::to_text(samples) == text);
    auto unnamed = samples;
    unnamed[2].of->kind = "gelu, fast\n";
    CHECK(!json::parse_samples(json::to_text(unnamed))[2].of);

    auto const fitted = models_of(fit_samples(samples), 2);
    auto const again = json::parse_fitted(json::to_text(fitted));
    CHECK(json::to_text(again) == json::to_text(fitted));
    auto c = json::read_cluster("examples/formats/cluster.json");
    c.types[0].name = "big";
    put_into(c, again);
    auto const& known = c.types[0].rates.at(element_type::float32).by_operator;
    CHECK(known.size() == 2);
    CHECK(known.at({"gelu", true}).bandwidth->value == doctest::Approx(4));
    CHECK(!known.at({"gelu", true}).rate);
    c.types[0].rates.at(element_type::float32).by_operator.at({"gelu", true}).measured = {{flops(3), bytes(8), 1.25}};
    CHECK(json::to_text(json::parse_cluster(json::to_text(c))) == json::to_text(c));
    CHECK(json::to_text(c).find("\"factor\"") != std::string::npos);
}

TEST_CASE("the example of fitted models is what fitting makes of the example of samples") {
    auto const expected = json::read_fitted("examples/formats/fitted.json");
    auto const found = models_of(fit_samples(json::read_samples("examples/formats/samples.csv")), 2);
    CHECK(found.ranks == expected.ranks);
    REQUIRE(found.collectives.size() == expected.collectives.size());
    for (auto const& [kind, model] : expected.collectives) {
        auto const& pieces = found.collectives.at(kind).pieces;
        REQUIRE(pieces.size() == model.pieces.size());
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            CHECK(pieces[i].latency.value == doctest::Approx(model.pieces[i].latency.value).epsilon(1e-9));
            CHECK(pieces[i].slope.value == doctest::Approx(model.pieces[i].slope.value).epsilon(1e-9));
        }
    }
    REQUIRE((found.link && expected.link));
    CHECK(found.link->bandwidth.value == doctest::Approx(expected.link->bandwidth.value).epsilon(1e-9));
    CHECK(found.link->latency.value == doctest::Approx(expected.link->latency.value).epsilon(1e-9));
    auto const value = [](auto const& q) { return q ? q->value : -1; };
    REQUIRE(found.speeds.size() == expected.speeds.size());
    for (auto const& [device, by_type] : expected.speeds)
        for (auto const& [type, speeds] : by_type)
            for (auto const& [category, speed] : speeds.by_class) {
                class_speed const& mine = found.speeds.at(device).at(type).by_class.at(category);
                CHECK(value(mine.rate) == doctest::Approx(value(speed.rate)).epsilon(1e-9));
                CHECK(value(mine.bandwidth) == doctest::Approx(value(speed.bandwidth)).epsilon(1e-9));
                CHECK(value(mine.overhead) == doctest::Approx(value(speed.overhead)).epsilon(1e-9));
            }
}

TEST_CASE("clusters survive being written, with what operator classes reach") {
    for (auto const& path : files_in("examples/clusters")) {
        CAPTURE(path);
        auto const text = json::to_text(json::read_cluster(path));
        CHECK(json::to_text(json::parse_cluster(text)) == text);
    }
    auto c = json::read_cluster("examples/formats/cluster.json");
    put_into(c, json::read_fitted("examples/formats/fitted.json"));
    c.measured_inside = {4, {{collective::all_to_all, {{{seconds(1e-5), seconds_per_byte(2e-11)}}}}}};
    c.measured_across = {8, {{collective::all_reduce, {{{seconds(2e-5), seconds_per_byte(3e-11)}}}}}};
    auto const again = json::parse_cluster(json::to_text(c));
    CHECK(json::to_text(again) == json::to_text(c));
    CHECK(again.devices() == c.devices());
    CHECK(again.intra->bandwidth == c.intra->bandwidth);
    CHECK(again.inter->latency == c.inter->latency);
    CHECK(again.measured.at(collective::all_gather).pieces.at(1).slope.value == 5.3e-10);
    CHECK(again.measured_inside.devices == 4);
    CHECK(again.measured_inside.models.at(collective::all_to_all).pieces.at(0).slope.value == 2e-11);
    CHECK(again.measured_across.devices == 8);
    CHECK(again.measured_across.models.at(collective::all_reduce).pieces.at(0).slope.value == 3e-11);
    auto const matmul = again.types[0].rates.at(element_type::float32).of(operator_class::matmul);
    CHECK(matmul.rate->value == doctest::Approx(13.11e12).epsilon(1e-3));
    CHECK(matmul.overhead->value == doctest::Approx(6.939e-6).epsilon(1e-3));
    CHECK(!matmul.bandwidth);
    CHECK(again.types[0].rates.at(element_type::float32).at(operator_class::convolution).value == 12e12);
}

TEST_CASE("the cluster of measured V100s has the preset's device") {
    auto const c = json::read_cluster("examples/clusters/v100x4_nvlink.json");
    auto const preset = presets::make(presets::v100);
    auto const& type = c.types.at(0);
    CHECK(type.name == preset.name);
    CHECK(type.memory == preset.memory);
    CHECK(type.bandwidth.value == doctest::Approx(preset.bandwidth.value));
    CHECK(type.overhead == preset.overhead);
    REQUIRE(type.rates.size() == preset.rates.size());
    for (auto const& [element, table] : preset.rates)
        for (std::size_t o = 0; o < operator_class_count; ++o) {
            auto const category = static_cast<operator_class>(o);
            CHECK(type.rates.at(element).at(category).value == doctest::Approx(table.at(category).value));
            CHECK(type.rates.at(element).of(category).overhead == table.of(category).overhead);
        }
}

TEST_CASE("a file without format and version is of version 0, in which a cluster may have unknown fields") {
    for (char const* kind : {"model", "cluster", "theory", "fitted"}) {
        CAPTURE(kind);
        auto root = nlohmann::json::parse(json::read_text("examples/formats/" + std::string(kind) + ".json"));
        root.erase("format");
        root.erase("version");
        root["unknown"] = 1;
        std::string const text = root.dump(), name = kind;
        if (name == "model") CHECK(json::parse_model(text).warnings.empty());
        if (name == "cluster") CHECK(json::parse_cluster(text).devices().size() == 3);
        if (name == "theory") CHECK(json::parse_theory(text).actions.size() == 4);
        if (name == "fitted") CHECK(json::parse_fitted(text).ranks == 2);
    }
}
