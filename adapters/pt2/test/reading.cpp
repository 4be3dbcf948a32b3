// SPDX-License-Identifier: BSL-1.0
// Archives and graphs: what is read of them, and what is refused with its place.
#include "graphs.hpp"

#include <heddle/json/digest.hpp>
#include <heddle/json/names.hpp>
#include <heddle/pt2/all.hpp>
#include <support/errors.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace heddle;

namespace {

std::string refusal(std::string const& bytes) {
    return test::error_of<error>([&] { static_cast<void>(pt2::parse_model(bytes, "m.pt2")); });
}
std::string refusal(test::exported_graph& g) { return refusal(g.text()); }

std::string kinds_of(program const& p) {
    std::string kinds;
    for (operator_id o = 0; o < p.operator_count(); ++o) kinds += (o ? " " : "") + p.kind(o);
    return kinds;
}

/// A file that is gone when it is no longer used.
struct temporary_file {
    std::filesystem::path path;
    temporary_file(char const* name, std::string const& bytes)
        : path(std::filesystem::temp_directory_path() /
               (std::to_string(reinterpret_cast<std::uintptr_t>(this)) + name)) {
        std::ofstream(path, std::ios::binary) << bytes;
    }
    ~temporary_file() { std::filesystem::remove(path); }
};

} // namespace

TEST_CASE("a graph is read as it is, from an archive, compressed or not") {
    auto const text = test::small_network().text();
    auto const plain = pt2::parse_model(text, "dir/small.json");
    CHECK(plain.name == "small");
    CHECK(kinds_of(plain.program) == "linear relu linear cross_entropy");
    CHECK(plain.missing_rules.empty());
    CHECK(plain.program.name(0) == "layers.0.v0");
    CHECK(plain.program.name(1) == "layers.0.act.v1"); // the mark of a later call of the module goes
    CHECK(plain.program.tensor(0).name == "layers.0.weight");
    CHECK(plain.program.tensor(0).trainable);
    CHECK(plain.program.tensor(3).role == tensor_role::input);

    std::string const weights(1000, 'w');
    for (bool const compressed : {false, true})
        for (std::string const folder : {"small/", "", "a/b/"}) {
            CAPTURE(folder);
            auto const bytes = test::archive_of({{folder + "data/weights/weight_0", weights},
                                                 {folder + "models/model.json", text},
                                                 {folder + "archive_version", "0"}},
                                                compressed);
            auto const read = pt2::parse_model(bytes, "small.pt2");
            CHECK(read.digest == plain.digest);
            CHECK(kinds_of(read.program) == kinds_of(plain.program));
        }
    auto const named = test::archive_of({{"m/models/other.json", text}});
    CHECK(pt2::parse_model(named, "m").digest == plain.digest);

    temporary_file const stored("small.pt2", test::archive_of({{"s/models/model.json", text}}));
    CHECK(pt2::read_model(stored.path).digest == plain.digest);
    temporary_file const packed("small.pt2.gz", "");
    json::write_file_atomically(packed.path, test::archive_of({{"s/models/model.json", text}}));
    CHECK(pt2::read_model(packed.path).digest == plain.digest);
    json::write_file_atomically(packed.path, text);
    CHECK(pt2::read_model(packed.path).digest == plain.digest);
    CHECK(pt2::read_model("examples/formats/model.json").digest ==
          json::read_model("examples/formats/model.json").digest);
    CHECK_THROWS_AS(static_cast<void>(pt2::read_model("nowhere.pt2")), file_error);
}

TEST_CASE("nothing of an archive is read but its graph") {
    std::string const weights(1000, 'w');
    auto bytes =
        test::archive_of({{"m/data/weights/weight_0", weights}, {"m/models/model.json", test::small_network().text()}});
    bytes[bytes.find(weights) + 500] = '!'; // its sum is wrong now
    CHECK(pt2::parse_model(bytes, "m").missing_rules.empty());
}

TEST_CASE("other archives are refused by name") {
    using entries = std::vector<std::pair<std::string, std::string>>;
    auto const said = [](entries const& e) { return refusal(test::archive_of(e)); };
    CHECK(said({{"m/serialized_exported_program.json", "{}"}})
              .starts_with("m.pt2: is of the layout of PyTorch 2.1 to 2.7"));
    CHECK(said({{"serialized_exported_program.json", "{}"}}).find("2.1 to 2.7") != std::string::npos);
    CHECK(said({{"m/data.pkl", "."}, {"m/code/__torch__.py", ""}, {"m/constants.pkl", "."}}).find("TorchScript") !=
          std::string::npos);
    CHECK(said({{"m/data.pkl", "."}, {"m/data/0", "."}}).find("weights alone") != std::string::npos);
    CHECK(said({{"a.txt", "."}}).find("no entry models/model.json") != std::string::npos);
    CHECK(said({{"a/models/x.json", "{}"}, {"a/models/y.json", "{}"}}).find("has 2 graphs") != std::string::npos);
    CHECK(said({{"m/models/model.json", "{"}}).starts_with("m.pt2, line 1"));
    CHECK(said({{"m/models/model.json", "{\"a\": 1}"}}).find("lacks the field 'nodes'") != std::string::npos);
}

TEST_CASE("a truncated, damaged or too large archive is one error") {
    auto const whole = test::archive_of({{"m/models/model.json", test::small_network().text()}});
    for (std::size_t size = 4; size < whole.size(); size += 97)
        CHECK(refusal(whole.substr(0, size)).starts_with("m.pt2: "));
    auto damaged = whole;
    damaged[damaged.find("schema_version")] = 'S';
    CHECK(refusal(damaged).starts_with("m.pt2: m/models/model.json: cannot be read: "));
    auto const bomb = test::archive_of({{"m/models/model.json", std::string(1 << 20, ' ')}}, true);
    CHECK(bomb.size() < 10'000);
    CHECK(test::error_of<error>([&] { static_cast<void>(pt2::graph_of_archive(bomb, "m.pt2", 1 << 19)); }) ==
          "m.pt2: m/models/model.json: holds 1048576 bytes, expected at most 524288");
}

TEST_CASE("what a graph cannot be is refused with its place") {
    auto g = test::small_network();
    for (int const major : {7, 9}) {
        g.root()["schema_version"]["major"] = major;
        CHECK(refusal(g).starts_with("m.pt2: schema_version.major: is " + std::to_string(major) + ", expected 8"));
    }
    g.root()["schema_version"] = {{"major", 8}, {"minor", 99}, {"later", true}};
    g.root()["later"] = 1;
    CHECK(refusal(g) == "nothing thrown");
    auto& graph = g.root()["graph_module"]["graph"];
    graph["tensor_values"]["v0"]["sizes"][0] = {{"as_expr", {{"expr_str", "s0"}}}};
    CHECK(refusal(g).find("is symbolic, expected a number: export with fixed sizes") != std::string::npos);
    graph["tensor_values"]["v0"]["sizes"][0] = {{"as_int", 7}};
    CHECK(refusal(g).starts_with("m.pt2: graph_module.graph.nodes[0]: operator 'layers.0.v0'"));
    graph["tensor_values"].erase("v0");
    CHECK(refusal(g).find("names 'v0', of which tensor_values has nothing") != std::string::npos);

    auto without = test::small_network();
    without.root()["graph_module"]["signature"]["output_specs"] = nlohmann::json::array();
    CHECK(refusal(without).find("have no output that is a scalar of a floating-point type, the loss") !=
          std::string::npos);
    auto const unknown = [](std::string const& line) {
        test::exported_graph made;
        made.parameter("f(2,3)", "x");
        made.output(made.node(line)[0]);
        return refusal(made);
    };
    CHECK(unknown("aten.relu.default self=%nothing -> f()").find("expected the name of an earlier tensor") !=
          std::string::npos);
    CHECK(unknown("aten.sum.default self=%p_x dim=5 -> f()")
              .starts_with("m.pt2: graph_module.graph.nodes[0]: operator 'v0'"));
}

TEST_CASE("every committed graph is read without a warning, and no operator of it falls back") {
    std::size_t graphs = 0;
    for (char const* folder : {"examples/models", "bench/todays_models"})
        for (auto const& entry : std::filesystem::directory_iterator(folder)) {
            if (!entry.path().string().ends_with(".pt2.gz")) continue;
            CAPTURE(entry.path());
            auto const model = pt2::read_model(entry.path());
            CHECK(model.missing_rules.empty());
            CHECK(model.warnings.empty());
            ++graphs;
        }
    CHECK(graphs >= 30);
}

TEST_CASE("tensors without elements are no part of what they are joined with") {
    test::exported_graph g;
    auto const x = g.parameter("f(2,3,8)");
    auto const turned = g.node("aten.slice.Tensor self=%" + x + " dim=2 start=0 end=8 -> f(2,3,8)")[0];
    auto const kept = g.node("aten.slice.Tensor self=%" + x + " dim=2 start=8 end=16 -> f(2,3,0)")[0];
    auto const scaled = g.node("aten.mul.Tensor self=%" + kept + " other=2 -> f(2,3,0)")[0];
    auto const same = g.node("aten.cat.default tensors=[%" + turned + ",%" + scaled + "] dim=-1 -> f(2,3,8)")[0];
    auto const joined =
        g.node("aten.cat.default tensors=[%" + same + ",%" + kept + ",%" + turned + "] dim=-1 -> f(2,3,16)")[0];
    g.output(g.node("aten.sum.default self=%" + joined + " -> f()")[0]);
    auto const model = pt2::parse_model(g.text());
    CHECK(kinds_of(model.program) == "cat sum");
    CHECK(model.program.operands(0).size() == 2);
    CHECK(model.missing_rules.empty());

    test::exported_graph of_nothing;
    auto const y = of_nothing.parameter("f(2,0)"), z = of_nothing.parameter("f(0,3)");
    auto const product = of_nothing.node("aten.mm.default self=%" + y + " mat2=%" + z + " -> f(2,3)")[0];
    of_nothing.output(of_nothing.node("aten.sum.default self=%" + product + " -> f()")[0]);
    CHECK(refusal(of_nothing).find("is a tensor without elements") != std::string::npos);
}

TEST_CASE("an operator without a rule is named in one warning") {
    test::exported_graph g;
    auto const x = g.parameter("f(2,3)");
    auto const y = g.node("mine.twist.default self=%" + x + " by=2 -> f(2,3)")[0];
    auto const z = g.node("mine.twist.default self=%" + y + " by=3 -> f(2,3)")[0];
    g.output(g.node("aten.sum.default self=%" + z + " -> f()")[0]);
    auto const model = pt2::parse_model(g.text());
    REQUIRE(model.missing_rules.size() == 1);
    CHECK(model.missing_rules[0].target == "mine.twist");
    CHECK(model.missing_rules[0].calls == 2);
    CHECK(model.warnings.size() == 1);
    CHECK(pt2::parse_model(g.text(), "m", {{"mine.twist", "(a b) -> (a b)"}}).missing_rules.empty());
}
