// SPDX-License-Identifier: BSL-1.0
#include <heddle/clp/all.hpp>
#include <heddle/heddle.hpp>
#include <heddle/html/all.hpp>
#include <heddle/json/all.hpp>
#include <heddle/json/detail/plan_writer.hpp>
#include <heddle/synthesis/global_bound.hpp>
#include <support/small_plan.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace heddle;

namespace {

nlohmann::json data_of(std::string const& page) {
    std::string const begin = R"(id="data">)";
    auto const at = page.find(begin) + begin.size();
    return nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
}

program perceptron(int layers) {
    program_builder b;
    auto h = b.input("x", {4096, 1024});
    for (int n = 0; n < layers; ++n) {
        auto const w = b.parameter("layers." + std::to_string(n) + ".weight", {1024, 1024});
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, w}, {.category = operator_class::matmul});
        h = b.apply("relu", "(b n) -> (b n)", {h}, {.saved_results = {0}});
    }
    return b.finish(b.apply("sum", "(b n) -> (); 0", {h}));
}

std::string page_of(program const& model, plan const& p, cluster const& c) {
    return html::plan_page(p, index_program(model), p.exists() ? run_serial(p, c) : timeline());
}

} // namespace

TEST_CASE("the page of a plan carries the plan's numbers") {
    auto const c = test::two_devices();
    auto const model = perceptron(3);
    for (bool const overlaps : {false, true}) {
        CAPTURE(overlaps);
        auto const p = plan_hap(model, c, clp::ratio_solver{}, {.training = {.overlaps_gradients = overlaps}});
        REQUIRE(p.exists());
        auto const shown = data_of(page_of(model, p, c));
        CHECK(shown["seconds"] == p.cost());
        CHECK(shown["lowerBound"] == p.lower_bound);
        CHECK(shown["globalLowerBound"] == *p.global_lower_bound);
        CHECK(shown["status"] == std::string(name(p.status)));
        CHECK(shown["space"] == p.space);
        double total = 0;
        for (auto const& term : shown["time"]) total += term.get<double>();
        CHECK(total == doctest::Approx(p.cost()).epsilon(1e-12));
        std::size_t families = 0;
        for (auto const& family : shown["families"]) {
            auto const& of = family[2] == "" ? p.baselines : p.other_baselines;
            auto const& s = of.at(family[0].get<std::string>());
            CHECK(family[1].is_null() == !s.has_value());
            if (s) CHECK(family[1] == *s);
            ++families;
        }
        CHECK(families == p.baselines.size() + p.other_baselines.size());
        REQUIRE(shown["devices"].size() == 2);
        for (std::size_t d = 0; d < 2; ++d) {
            CHECK(shown["devices"][d]["ratios"][0] == p.ratios[0][d]);
            CHECK(shown["devices"][d]["limit"] == p.devices[d].memory_limit.value);
            double memory = 0;
            for (auto const& kind : shown["devices"][d]["memory"]) memory += kind.get<double>();
            CHECK(memory == doctest::Approx(p.memory[d].total()).epsilon(1e-12));
        }
        CHECK(shown["parameters"].size() == 3);
        CHECK(shown["parameters"][1][0] == "layers.1.weight");
        CHECK(shown["parameters"][1][1] == "1024 x 1024");
        for (auto const& row : shown["operators"])
            if (auto const name = row[0].get<std::string>(); name.starts_with("relu")) CHECK(row[1] == "0 (4096)");
            else if (name.starts_with("sum")) CHECK(row[1] == "0 (4096) of operand 1");
        std::int64_t last = 0;
        for (auto const& lane : shown["timeline"]["lanes"])
            for (auto const& e : lane["events"]) {
                CHECK(e[0].get<std::size_t>() < shown["timeline"]["labels"].size());
                last = std::max(last, e[1].get<std::int64_t>() + e[2].get<std::int64_t>());
            }
        CHECK(last == doctest::Approx(p.cost() * 1e9).epsilon(1e-6));
        CHECK(shown["timeline"]["total"] == std::llround(p.cost() * 1e9));
    }
}

TEST_CASE("the page of a plan of stages has the devices, parameters and passes of each") {
    auto const c = test::two_devices();
    auto const model = perceptron(2);
    pipeline_draft const draft{{{0, 1, {0}}, {1, 2, {1}}}, 4};
    auto p = plan_draft(model, program_layers{{0, 2, 5}, {"first", "second"}}, c, draft, clp::ratio_solver{});
    REQUIRE(p.exists());
    p.families["pipeline"].cost = p.cost();
    p.families["one axis"].reason = "none fits into memory";
    auto const shown = data_of(html::plan_page(p, model, c));
    CHECK(shown["seconds"] == p.cost());
    double total = 0;
    for (auto const& term : shown["time"]) total += term.get<double>();
    CHECK(total == doctest::Approx(p.cost()).epsilon(1e-12));
    CHECK(shown["families"].size() == 2);
    CHECK(shown["words"][4].get<std::string>().ends_with(" % of its memory; there is too little for one axis."));
    CHECK(shown["best"].is_null());
    REQUIRE(shown["stages"].size() == 2);
    REQUIRE(shown["devices"].size() == 2);
    REQUIRE(shown["parameters"].size() == 2);
    for (std::size_t s = 0; s < 2; ++s) {
        CHECK(shown["stages"][s][6] == p.stages[s].boundary.value);
        CHECK(shown["devices"][s]["numbers"] == std::to_string(s));
        CHECK(shown["parameters"][s].back() == s);
        double const passes = shown["stages"][s][4].get<double>() + shown["stages"][s][5].get<double>();
        auto const& t = p.stages[s].plan.time;
        CHECK(passes == doctest::Approx(t.compute + t.forward_communication + t.backward_communication));
    }
    REQUIRE(shown["timeline"]["lanes"].size() == 2);
    CHECK(shown["timeline"]["total"] == std::llround(simulate(p, c).total * 1e9));
    std::size_t passes = 0;
    for (auto const& e : shown["timeline"]["lanes"][1]["events"])
        passes += shown["timeline"]["labels"][e[0].get<std::size_t>()][1] == "forward" ? 1 : 0;
    CHECK(passes == 4);
}

TEST_CASE("devices that no stage has are a line of the timeline too") {
    auto const c = test::two_devices();
    auto const model = perceptron(2);
    pipeline_draft const draft{{{0, 2, {0}}}, 2};
    auto const p = plan_draft(model, program_layers{{0, 2, 5}, {"first", "second"}}, c, draft, clp::ratio_solver{});
    REQUIRE(p.exists());
    auto const lanes = data_of(html::plan_page(p, model, c))["timeline"]["lanes"];
    REQUIRE(lanes.size() == 2);
    CHECK(lanes[1] ==
          nlohmann::json{{"name", "left out: 1 x " + c.types[1].name}, {"events", nlohmann::json::array()}});
}

TEST_CASE("the page of a plan of one stage has its timeline by device, and the families beside it") {
    auto const c = test::two_devices();
    auto const model = perceptron(2);
    auto only = plan_hidup(model, c, clp::ratio_solver{});
    REQUIRE(only.exists());
    auto const turned = simulate(only, c);
    auto p = staged(only, c);
    REQUIRE(p.is_plain());
    p.families["turns"].cost = p.cost();
    p.families["one axis"].cost = 2 * p.cost();
    auto const shown = data_of(html::plan_page(p, model, c));
    CHECK(shown["seconds"] == p.cost());
    CHECK(!shown.contains("stages"));
    CHECK(shown["best"] == nlohmann::json{{"name", "one axis"}, {"seconds", 2 * p.cost()}});
    CHECK(shown["timeline"]["total"] == std::llround(turned.total * 1e9));
    std::size_t events = 0;
    for (auto const& lane : shown["timeline"]["lanes"]) events += lane["events"].size();
    CHECK(events == turned.events.size());
    std::string all;
    for (auto const& word : shown["words"]) all += word.get<std::string>() + '\n';
    for (auto const* said : {"in turn: 2 micro-batches", "Most time goes to", " % of its memory.",
                             "The best of another family is one axis, which takes 2.00 times as long."})
        CHECK_MESSAGE(all.find(said) != std::string::npos, said);
}

TEST_CASE("no name ends the data of a page, and it asks for nothing from elsewhere") {
    auto const c = test::two_devices();
    auto const model = perceptron(1);
    auto p = plan_hap(model, c, clp::ratio_solver{});
    std::string const name = "</script><b>\"\\\xff";
    p.provenance.model = name;
    auto const page = page_of(model, p, c);
    CHECK(page.find("</script><b>") == std::string::npos);
    CHECK(data_of(page)["title"].get<std::string>().starts_with("</script><b>\"\\"));
    for (auto const* elsewhere : {"http:", "https:", "src=", "@import", "url("})
        CHECK(page.find(elsewhere) == std::string::npos);
}

TEST_CASE("a page says that there is no plan, and why") {
    auto c = test::two_devices();
    for (auto& type : c.types) type.memory = bytes(1);
    auto const model = perceptron(1);
    auto const p = plan_hap(model, c, clp::ratio_solver{});
    REQUIRE_FALSE(p.exists());
    auto const shown = data_of(page_of(model, p, c));
    CHECK(shown["exists"] == false);
    CHECK(shown["words"][0].get<std::string>().find(p.reason) != std::string::npos);
    CHECK(shown["status"] == "infeasible");

    staged_plan stages;
    stages.status = search::status::infeasible;
    stages.reason = "too large";
    stages.families["one axis"].reason = "too large";
    stages.families["turns"].reason = "one sample";
    auto const words = data_of(html::plan_page(stages, model, c))["words"];
    CHECK(words == nlohmann::json{"There is no plan: too large", "one axis: too large.", "turns: one sample."});
}

TEST_CASE("the page of a thousand operators is less than a megabyte, on devices of which no two are alike") {
    cluster c = test::two_devices();
    auto const type = c.types[0];
    c.types.clear();
    c.machines.clear();
    for (int n = 0; n < 16; ++n) {
        c.types.push_back(type);
        c.types.back().name = "device of kind " + std::to_string(n);
        c.machines.push_back({static_cast<std::uint16_t>(n), 1, 1});
    }
    auto const model = perceptron(500);
    auto const indexed = index_program(model);
    test::plan_writer writer(indexed);
    for (tensor_id t = 0; t < indexed.tensors.size(); ++t)
        if (indexed.tensors[t].is_source()) writer.read(t, tensor_form::replicated());
    for (operator_id o = 0; o < indexed.operators.size(); ++o)
        writer.compute(o, -1, form_list(indexed.operators[o].operands.size(), tensor_form::replicated()),
                       form_list(indexed.operators[o].results.size(), tensor_form::replicated()));
    auto const p = writer.finish(c, std::vector<double>(16, 1.0 / 16));
    auto const page = page_of(model, p, c);
    MESSAGE(page.size() << " bytes");
    CHECK(page.size() < 1'000'000);
    CHECK(data_of(page)["operators"].size() >= 1000);
}
