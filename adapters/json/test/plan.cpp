// SPDX-License-Identifier: BSL-1.0
#include "documents.hpp"
#include "mutations.hpp"

#include <heddle/json/document.hpp>
#include <heddle/json/plan.hpp>
#include <heddle/json/trace.hpp>
#include <heddle/plan/table.hpp>

#include <support/small_plan.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

using namespace heddle;

namespace {

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

void check_same_bits(memory_terms const& a, memory_terms const& b) {
    CHECK(same_bits(a.parameters, b.parameters));
    CHECK(same_bits(a.gradients, b.gradients));
    CHECK(same_bits(a.optimizer, b.optimizer));
    CHECK(same_bits(a.inputs, b.inputs));
    CHECK(same_bits(a.activations, b.activations));
    CHECK(same_bits(a.communication, b.communication));
}

std::string table_of(plan const& p) {
    std::ostringstream out;
    print(out, p);
    return out.str();
}

/// Stands for: the field is not there.
nlohmann::json const removed = "<removed>";

/// One change to a document.
struct plan_change {
    char const* pointer;
    nlohmann::json value;
    char const* message;
};

std::string message_after(nlohmann::json document, std::string const& pointer, nlohmann::json const& value) {
    nlohmann::json::json_pointer const place(pointer);
    if (value != removed) document[place] = value;
    else if (auto& parent = document[place.parent_pointer()]; parent.is_array()) parent.erase(std::stoul(place.back()));
    else parent.erase(place.back());
    try {
        static_cast<void>(json::parse_plan(document.dump(), "p.json"));
    } catch (input_error const& e) { return e.what(); }
    return "";
}

/// Two devices that compute in every element type.
cluster versatile_devices() {
    auto c = test::two_devices();
    for (auto& type : c.types)
        for (std::size_t e = 0; e < element_type_count; ++e)
            type.rates[static_cast<element_type>(e)] = {flops_per_second(1e12)};
    return c;
}

/// A plan whose every step has every field.
plan odd_plan() {
    plan p = test::tiny_plan();
    p.provenance = {"hap \"quoted\"", "model\n", "a", "cluster \xc3\xa4", "b", "9.9.9", {}};
    p.provenance.training.optimizer_bytes_per_element = 0.1;
    p.provenance.training.bucket = bytes(12345.5);
    p.status = search::status::limit;
    p.which_limit = search::limit_kind::stopped;
    p.reason = "why not";
    p.warnings = {"one", "two"};
    p.statistics = {std::size_t{1} << 53, 2, 3, 4, 5, 6, 0.1 + 0.2};
    p.tensors[1].trainable = false;
    double x = 1.0 / 3;
    auto const next = [&] { return x = x * 1.7 + 1e-17; };
    for (auto& s : p.steps) {
        s.step.category = operator_class::attention;
        s.step.type = element_type::bfloat16;
        s.step.forward = {flops(next()), bytes(next()), bytes(next()), false};
        s.step.backward = {flops(0), bytes(0), bytes(0), true};
        s.step.forward_transfers = {{collective::all_to_all, bytes(next()), {0, 0}, {1, 1}, {}},
                                    {collective::all_gather, bytes(next()), {0, 0}, {}, uneven::padded}};
        s.step.backward_transfers = {{collective::broadcast, bytes(next()), {}, {1, 1}, {}}};
        s.step.deferred_transfers = {{collective::reduce_scatter, bytes(0), {}, {1, 1}, uneven::grouped}};
        s.step.deferred = {flops(next()), bytes(next()), bytes(0), true};
        s.step.update = {bytes(next()), bytes(next())};
        s.step.stored = {bytes(1e300), bytes(5e-324)};
        s.step.saved = {bytes(0), bytes(9007199254740993.0)};
        s.saved = {{0, tensor_form::shard(0)},
                   {1, tensor_form::partial()},
                   {2, tensor_form::mirrored()},
                   {3, tensor_form::replicated()}};
    }
    p.time.compute = -0.0;
    p.memory[0].inputs = std::numeric_limits<double>::denorm_min();
    p.lower_bound = 0;
    p.ratios = {{0.1 + 0.2, 0.7}};
    p.trajectory.push_back({"nowhere", {}, {}});
    return p;
}

} // namespace

TEST_CASE("a plan that is written and read costs the same, bit for bit") {
    auto const c = versatile_devices();
    for (auto const& p : {test::layers_plan(), test::tiny_plan(), test::zero_plan(), odd_plan()}) {
        auto const text = json::write_plan(p);
        CAPTURE(text);
        auto const q = json::parse_plan(text);
        CHECK(json::write_plan(q) == text);
        CHECK(json::plan_summary(q) == json::plan_summary(p));
        CHECK(table_of(q) == table_of(p));
        auto const before = evaluate(p, c), after = evaluate(q, c);
        CHECK(same_bits(before.time.compute, after.time.compute));
        CHECK(same_bits(before.time.forward_communication, after.time.forward_communication));
        CHECK(same_bits(before.time.backward_communication, after.time.backward_communication));
        CHECK(same_bits(before.time.gradient_communication, after.time.gradient_communication));
        CHECK(same_bits(before.time.update, after.time.update));
        CHECK(same_bits(before.time.parameter_communication, after.time.parameter_communication));
        CHECK(same_bits(before.time.compute_inside, after.time.compute_inside));
        CHECK(same_bits(before.time.update_inside, after.time.update_inside));
        REQUIRE(after.memory.size() == before.memory.size());
        for (std::size_t d = 0; d < before.memory.size(); ++d) {
            check_same_bits(before.memory[d], after.memory[d]);
            check_same_bits(p.memory[d], q.memory[d]);
            CHECK(same_bits(p.ratios[0][d], q.ratios[0][d]));
            CHECK(q.devices[d].type == p.devices[d].type);
        }
        CHECK(same_bits(p.cost(), q.cost()));
        CHECK(same_bits(p.lower_bound, q.lower_bound));
        CHECK(p.global_lower_bound == q.global_lower_bound);
        CHECK(same_bits(p.statistics.seconds, q.statistics.seconds));
        CHECK(q.baselines == p.baselines);
        CHECK(q.other_baselines == p.other_baselines);
        CHECK(q.warnings == p.warnings);
        CHECK(q.operators == p.operators);
        CHECK(q.reason == p.reason);
        CHECK(q.status == p.status);
        CHECK(q.which_limit == p.which_limit);
        CHECK(q.provenance.training == p.provenance.training);
        CHECK(q.provenance.cluster == p.provenance.cluster);
        REQUIRE(q.steps.size() == p.steps.size());
        for (std::size_t n = 0; n < p.steps.size(); ++n) {
            CHECK(q.steps[n].instruction == p.steps[n].instruction);
            CHECK(q.steps[n].saved == p.steps[n].saved);
            CHECK(q.steps[n].step.share == p.steps[n].step.share);
            CHECK(q.steps[n].step.update_transfers == p.steps[n].step.update_transfers);
            CHECK(q.steps[n].step.transient == p.steps[n].step.transient);
            CHECK(q.steps[n].step.deferred == p.steps[n].step.deferred);
            CHECK(same_bits(q.steps[n].step.forward.operations.value, p.steps[n].step.forward.operations.value));
            CHECK(same_bits(q.steps[n].step.stored.split.value, p.steps[n].step.stored.split.value));
            CHECK(q.steps[n].step.forward.launches == p.steps[n].step.forward.launches);
        }
    }
}

TEST_CASE("a share that axes inside cut has a third number, of version 5") {
    auto p = test::mesh_plan();
    REQUIRE(p.steps[0].step.share.is_split());
    p.steps[0].step.share.inside = 2;
    auto const text = json::write_plan(p);
    CHECK(text.find("\"version\": 5,") != std::string::npos);
    auto const q = json::parse_plan(text);
    CHECK(q.steps[0].step.share == p.steps[0].step.share);
    CHECK(json::write_plan(q) == text);
    auto const good = nlohmann::json::parse(text);
    for (auto const& [place, value, message] : std::vector<plan_change>{
             {"/version", 2, "steps[0].share: is an array of 3, expected 2, a tensor and one of its factors"},
             {"/steps/0/share/2", 1, "steps[0].share[2]: is 1, expected an integer from 2 to 2"},
             {"/steps/0/share/2", 3, "steps[0].share[2]: is 3, expected an integer from 2 to 2"}}) {
        std::string const actual = message_after(good, place, value);
        CAPTURE(actual);
        CHECK(actual.find(message) != std::string::npos);
    }
}

TEST_CASE("a plan on a mesh is written and read") {
    auto const p = test::mesh_plan();
    auto const text = json::write_plan(p);
    CAPTURE(text);
    auto const q = json::parse_plan(text);
    CHECK(json::write_plan(q) == text);
    CHECK(q.mesh() == p.mesh());
    CHECK(q.inner_ratios == p.inner_ratios);
    CHECK(q.devices[1].name() == "2 x fast");
    REQUIRE(q.steps.size() == p.steps.size());
    for (std::size_t n = 0; n < p.steps.size(); ++n) {
        CHECK(q.steps[n].on_mesh() == p.steps[n].on_mesh());
        CHECK(q.steps[n].saved == p.steps[n].saved);
    }
    REQUIRE(q.cuts.size() == p.cuts.size());
    for (std::size_t c = 0; c < p.cuts.size(); ++c) CHECK(q.cuts[c].inside == p.cuts[c].inside);
    // Readers of one axis alone refuse it, and read what they understand.
    CHECK(text.find("\"version\": 2,") != std::string::npos);
    CHECK(json::write_plan(test::tiny_plan()).find("\"version\": 1,") != std::string::npos);
    auto const good = nlohmann::json::parse(text);
    std::vector<plan_change> const changes{
        {"/version", 1, "version: is 1, expected 2, since there is a mesh"},
        {"/mesh", {2}, "mesh: is an array of 1, expected the sizes of 2 to 4 axes, outermost first"},
        {"/mesh", {3, 2}, "mesh[0]: is 3, expected the number of devices, 2"},
        {"/mesh", {2, 0}, "mesh[1]: is 0, expected an integer from 1 to 65536"},
        {"/mesh", {2, 1024, 65}, "mesh[2]: is 65, expected an integer from 1 to 64"},
        {"/mesh", removed, "version: is 2, expected 1 without a mesh"},
        {"/group_sizes", {2, 2}, "group_sizes: is there, but a plan on a mesh has no groups"},
        {"/inner_ratios", removed, "lacks the field 'inner_ratios'"},
        {"/inner_ratios/0", {1}, "inner_ratios[0]: is an array of 1, expected 2, one per device"},
        {"/inner_ratios/0", {0.5, 0.6}, "inner_ratios[0]: sums to 1.1, expected 1"},
        {"/cuts/0/inside", removed, "cuts[0]: lacks the field 'inside'"},
        {"/cuts/0/inside/0/0", removed, "cuts[0].inside[0]: does not say how 2 atoms are divided"},
        {"/cuts/0/inside/0/0/1", {1, 0}, "cuts[0].inside[0][0][1]: sum to 1, expected those, 2"},
        {"/cuts/0/inside/0/0/0", 4, "cuts[0].inside[0][0][1]: sum to 2, expected those, 4"},
        {"/cuts/0/inside/0/1", {2, {1, 1}}, "cuts[0].inside[0][1]: says a second time how 2 atoms are divided"},
        {"/steps/0/inside", removed, "steps[0]: lacks the field 'inside'"},
        {"/steps/0/inside", nlohmann::json::array(),
         "steps[0].inside: is an array of 0, expected 1, one per inner axis"},
        {"/steps/0/inside/0/tensor", 1, "steps[0].inside[0]: does something else than the outermost axis"},
        {"/steps/2/inside/0/operator", 1, "steps[2].inside[0]: does something else than the outermost axis"},
        {"/steps/0/inside/0/to", "shard(7)", "steps[0].inside[0].to: is \"shard(7)\", expected a factor below 2"},
        {"/steps/2/saved_tensors/0",
         {0, "replicated"},
         "steps[2].saved_tensors[0]: is an array of 2, expected 3, a tensor and its form on each axis"},
        {"/pipeline", nlohmann::json::array(), "pipeline: is there, but this is not a plan of one stage"},
    };
    for (auto const& [pointer, value, message] : changes) {
        std::string const actual = message_after(good, pointer, value);
        CAPTURE(pointer);
        CAPTURE(actual);
        CHECK(actual.find(message) != std::string::npos);
    }
    test::check_mutations(15, 1000, text, true, [](std::string const& t) {
        static_cast<void>(json::write_plan(json::parse_plan(t, "fuzzed")));
    });
}

TEST_CASE("a plan is read that was timed by an accumulator that is not here") {
    auto p = test::layers_plan();
    p.provenance.training.accumulator.name = "mine";
    auto const q = json::parse_plan(json::write_plan(p));
    CHECK(q.provenance.training == p.provenance.training);
    CHECK(json::write_plan(q) == json::write_plan(p));
    CHECK_THROWS_WITH_AS(static_cast<void>(evaluate(q, versatile_devices())),
                         doctest::Contains("the accumulator 'mine'"), input_error);
    CHECK(json::write_plan(test::layers_plan()).find("accumulator") == std::string::npos);
}

TEST_CASE("plans without a program are written and read") {
    plan p;
    p.reason = "memory: device 0 would need 3 GB of 2 GB";
    CHECK(json::parse_plan(json::write_plan(p)).reason == p.reason);
    CHECK(json::write_plan(json::parse_plan(json::write_plan(p))) == json::write_plan(p));
    p.devices = {{"big", bytes(2e9)}, {"small", bytes(1e9)}};
    p.trajectory = {{"DP-EV", {{0.5, 0.5}}, {}}};
    p.baselines["DP-EV"] = std::nullopt;
    CHECK(json::write_plan(json::parse_plan(json::write_plan(p))) == json::write_plan(p));
    p.status = search::status::limit;
    p.which_limit = search::limit_kind::labels;
    auto const q = json::parse_plan(json::write_plan(p));
    CHECK(q.status == search::status::limit);
    CHECK(q.which_limit == search::limit_kind::labels);
    CHECK(!q.exists());
    CHECK(json::write_plan(q) == json::write_plan(p));
}

TEST_CASE("the example in the format reference is a plan of this library") {
    auto const text = json::read_text("examples/formats/plan.json");
    CHECK(json::write_plan(json::read_plan("examples/formats/plan.json")) == text);
    CHECK(json::write_plan(test::tiny_plan()) == text);
    auto const page = json::read_text("docs/reference/formats.md");
    CHECK(page.find("```json\n" + text + "```\n") != std::string::npos);
}

TEST_CASE("without times equal plans give equal text, which is read") {
    auto p = test::layers_plan();
    p.space = "one-axis programs";
    auto const text = json::write_plan(p, {.times = false}), summary = json::plan_summary(p, {.times = false});
    CHECK(text.find("\"seconds\"") == std::string::npos);
    CHECK(nlohmann::json::parse(summary).at("space") == "one-axis programs");
    p.statistics.seconds = 7;
    CHECK(json::write_plan(p, {.times = false}) == text);
    CHECK(json::plan_summary(p, {.times = false}) == summary);
    CHECK(json::write_plan(p) != text);
    auto const q = json::parse_plan(text);
    CHECK(q.statistics.seconds == 0);
    CHECK(q.space == p.space);
    CHECK(json::write_plan(q, {.times = false}) == text);
}

TEST_CASE("plan files may be compressed") {
    auto const path = std::filesystem::temp_directory_path() /
                      ("heddle_plan_test_" + std::to_string(std::random_device()()) + ".json.gz");
    auto const text = json::write_plan(test::layers_plan());
    json::write_file_atomically(path, text);
    CHECK(std::filesystem::file_size(path) < text.size() / 2);
    CHECK(json::write_plan(json::read_plan(path)) == text);
    std::filesystem::remove(path);
    CHECK_THROWS_AS(static_cast<void>(json::read_plan(path)), file_error);
}

TEST_CASE("a plan file has one line for each step") {
    auto const p = test::layers_plan();
    auto const text = json::write_plan(p);
    CHECK(text.ends_with("}\n"));
    std::istringstream lines(text);
    std::size_t count = 0;
    for (std::string line; std::getline(lines, line);) {
        CHECK(!line.ends_with(' '));
        if (line.starts_with("    {\"do\":")) ++count;
    }
    CHECK(count == p.steps.size());
}

TEST_CASE("a summary is one object on one line") {
    auto p = test::layers_plan();
    auto const text = json::plan_summary(p);
    CHECK(text.find('\n') == std::string::npos);
    auto const object = nlohmann::json::parse(text);
    CHECK(object.at("status") == "feasible");
    CHECK(!object.contains("which_limit"));
    CHECK(!object.contains("reason"));
    CHECK(!object.contains("space"));
    CHECK(object.at("cost") == p.cost());
    CHECK(object.at("lower_bound") == p.lower_bound);
    CHECK(object.at("expanded") == 12);
    CHECK(object.at("generated") == 345);
    CHECK(object.at("seconds") == 0.123456789);
    CHECK(object.at("warnings") == nlohmann::json{"made by hand"});
    CHECK(object.at("baselines").at("fully sharded").is_null());
    CHECK(object.at("baselines").at("DP-EV") == 1.5 * p.cost());
    CHECK(object.at("baselines").size() == 3);
    CHECK(object.at("other_baselines") == nlohmann::json{{"DP-CP, with gradient overlap", 0.75 * p.cost()}});
    CHECK(object.at("memory_bytes").at(1) == p.memory[1].total());
    CHECK(object.at("memory_limit_bytes") == nlohmann::json{32e9, 16e9});
    CHECK(!object.contains("steps"));
    p.steps.clear();
    p.status = search::status::limit;
    p.which_limit = search::limit_kind::time;
    auto const stopped = nlohmann::json::parse(json::plan_summary(p));
    CHECK(stopped.at("cost").is_null());
    CHECK(stopped.at("which_limit") == "time");
    p.status = search::status::infeasible;
    p.reason = "because";
    CHECK(nlohmann::json::parse(json::plan_summary(p)).at("reason") == "because");
}

TEST_CASE("numbers that no file can hold are refused") {
    auto p = test::tiny_plan();
    p.time.update = std::numeric_limits<double>::quiet_NaN();
    CHECK_THROWS_WITH_AS(static_cast<void>(json::write_plan(p)),
                         "plan: has a number that is not finite, which no file can hold", input_error);
    p = test::tiny_plan();
    p.steps[0].step.stored.split = bytes(std::numeric_limits<double>::infinity());
    CHECK_THROWS_AS(static_cast<void>(json::write_plan(p)), input_error);
}

TEST_CASE("what is wrong with a plan is said, and where") {
    auto const good = nlohmann::json::parse(json::write_plan(test::layers_plan()));
    REQUIRE(message_after(good, "/meta", 1) == "");
    // Tensors: 0 x, 1 first weight, 4 second weight, 10 head's weight, 11 scores, 12 target, 13 loss.
    std::vector<plan_change> const changes{
        {"/format", "heddle.model", "p.json: format: is \"heddle.model\", expected heddle.plan up to version 5"},
        {"/version", 2, "p.json: version: is 2, expected 1 without a mesh"},
        {"/version", 6, "heddle.plan version 6"},
        {"/version", removed, "'format' but no 'version'"},
        {"/status", "fine", "status: is \"fine\", expected one of optimal, feasible, limit, infeasible"},
        {"/status", removed, "lacks the field 'status'"},
        {"/status", "limit", "lacks the field 'which_limit'"},
        {"/status", "infeasible", "lacks the field 'reason'"},
        {"/which_limit", "time", "which_limit: is there, but the status is not 'limit'"},
        {"/cost", nullptr, "cost: is null, expected a number"},
        {"/cost", 2.5, "cost: is 2.5, expected the sum of time, "},
        {"/cost", -1, "cost: is -1, expected a number that is not negative"},
        {"/lower_bound", 3, "lower_bound: is 3, expected at most the cost"},
        {"/global_lower_bound", 3, "global_lower_bound: is 3, expected at most lower_bound"},
        {"/lower_bound", "0", "lower_bound: is \"0\", expected a number"},
        {"/expanded", -1, "expanded: is -1, expected an integer from 0"},
        {"/generated", 1.5, "generated: is 1.5, expected an integer"},
        {"/seconds", -0.5, "seconds: is -0.5"},
        {"/warnings/0", 7, "warnings[0]: is 7, expected a string"},
        {"/baselines", nlohmann::json::array(), "baselines: is an array of 0, expected an object"},
        {"/baselines/DP-EV", "fast", "baselines.DP-EV: is \"fast\", expected a number"},
        {"/other_baselines", 1, "other_baselines: is 1, expected an object"},
        {"/other_baselines/x", -1, "other_baselines.x: is -1, expected a number that is not negative"},
        {"/time/compute", removed, "time: lacks the field 'compute'"},
        {"/time/update", 100, "expected the sum of time"},
        {"/provenance", removed, "lacks the field 'provenance'"},
        {"/provenance/planner", 3, "provenance.planner: is 3, expected a string"},
        {"/provenance/optimizer_bytes_per_element", -8, "provenance.optimizer_bytes_per_element: is -8"},
        {"/devices", nlohmann::json::array(), "memory_limit_bytes: is an array of 2, expected 0, one per device"},
        {"/devices/1", nullptr, "devices[1]: is null, expected a string"},
        {"/memory_limit_bytes/1", removed, "memory_limit_bytes: is an array of 1, expected 2, one per device"},
        {"/memory_limit_bytes/0", 0, "memory_limit_bytes[0]: is 0, expected a number greater than 0"},
        {"/memory_bytes/0", 1, "memory_bytes[0]: is 1, expected the sum of memory[0], "},
        {"/memory/1", removed, "memory: is an array of 1, expected 2, one per device"},
        {"/memory/1/gradients", removed, "memory[1]: lacks the field 'gradients'"},
        {"/ratios", {0.5, 0.6}, "ratios: sums to 1.1, expected 1"},
        {"/ratios", {1.5, -0.5}, "ratios[1]: is -0.5"},
        {"/ratios", {1}, "ratios: is an array of 1, expected 2, one per device"},
        {"/trajectory/0/ratios", {1}, "trajectory[0].ratios: is an array of 1, expected 2, one per device"},
        {"/trajectory/0/origin", removed, "trajectory[0]: lacks the field 'origin'"},
        {"/cuts/0/atoms", 0, "cuts[0].atoms: is 0, expected an integer from 1"},
        {"/cuts/0/counts", {3750, 2249}, "cuts[0].counts: sum to 5999, expected atoms, 6000"},
        {"/cuts/0/counts", {3750, 2251}, "cuts[0].counts: sum to more than atoms, 6000"},
        {"/cuts/0/counts", {-1, 6001}, "cuts[0].counts[0]: is -1, expected an integer from 0 to 6000"},
        {"/cuts/0/counts", {6000}, "cuts[0].counts: is an array of 1, expected 2, one per device"},
        {"/cuts/0/members/0", {99, 0}, "cuts[0].members[0][0]: is 99, expected an integer from 0 to 13"},
        {"/cuts/0/members/0", {0, 2}, "cuts[0].members[0][1]: is 2, expected an integer from 0 to 1"},
        {"/cuts/0/members/0", {13, 0}, "cuts[0].members[0]: names a factor of a tensor that has none"},
        {"/cuts/0/members/0", {0, 1}, "cuts[0].members[0]: has extent 8192, expected a multiple of atoms, 6000"},
        {"/cuts/0/members/1", {0, 0}, "cuts[0].members[1]: is cut a second time"},
        {"/cuts/0/members/0", {0}, "cuts[0].members[0]: is an array of 1, expected 2, a tensor and one of its factors"},
        {"/cuts/0", removed, "which is in no cut"},
        {"/tensors/0/dtype", "float", "tensors[0].dtype: is \"float\", expected one of float16"},
        {"/tensors/0/role", "weight",
         "tensors[0].role: is \"weight\", expected one of input, parameter, buffer, value"},
        {"/tensors/13/trainable", true,
         "tensors[13].trainable: is true, expected so of floating-point parameters and inputs alone"},
        {"/tensors/0/shape/0", 0, "tensors[0].shape[0]: is 0, expected an integer from 1"},
        {"/tensors/0/shape",
         {9007199254740992, 2},
         "tensors[0].shape: is an array of 2, expected at most 2^53 elements"},
        {"/tensors/0/factors/0", {2, 8192, 1}, "tensors[0].factors[0][0]: is 2, expected an integer from 0 to 1"},
        {"/tensors/0/factors/0", {0, 7000, 1}, "tensors[0].factors[0][1]: is 7000, expected an integer from 1 to 6000"},
        {"/tensors/0/factors/0", {0, 3000, 3}, "tensors[0].factors[0][2]: is 3, expected an integer from 1 to 2"},
        {"/tensors/0/factors/0", {0, 3001, 1}, "tensors[0].factors[0]: does not divide the dimension's extent, 6000"},
        {"/tensors/13/factors", {{0, 1, 1}}, "tensors[13].factors[0]: is there, but the tensor has no dimensions"},
        {"/operators/0", 1, "operators[0]: is 1, expected a string"},
        {"/operators", nlohmann::json::array(), "steps[3]: computes an operator, but there is none"},
        {"/tensors", nlohmann::json::array(), "names a tensor, but there is none"},
        {"/steps", nlohmann::json::array(), "expected null, since there are no steps"},
        {"/steps/0/do", "write", "steps[0].do: is \"write\", expected one of read, convert, compute"},
        {"/steps/0/tensor", 14, "steps[0].tensor: is 14, expected an integer from 0 to 13"},
        {"/steps/0/tensor", 2, "steps[0].tensor: is 2, expected an input, a parameter or a buffer"},
        {"/steps/0/to", "shard(2)", "steps[0].to: is \"shard(2)\", expected a factor below 2"},
        {"/steps/0/to", "shard(1)", "steps[0].to: is split along factor 1 of tensor 0, which is in no cut"},
        {"/steps/0/to", "shard(01)", "expected replicated, partial, mirrored or shard(factor)"},
        {"/steps/0/to", "shard(-1)", "expected replicated, partial, mirrored or shard(factor)"},
        {"/steps/0/to", "shard(65533)", "expected replicated, partial, mirrored or shard(factor)"},
        {"/steps/0/to", "split", "steps[0].to: is \"split\", expected replicated"},
        {"/steps/2/to", "partial", "steps[2].to: cannot be made from shard(0) in one step"},
        {"/steps/2/from", "replicated", "steps[2].to: cannot be made from replicated in one step"},
        {"/steps/2/from", removed, "steps[2]: lacks the field 'from'"},
        {"/steps/2/forward_transfers/0/collective", "gather",
         "steps[2].forward_transfers[0].collective: is \"gather\", expected one of all_reduce"},
        {"/steps/2/forward_transfers/0/bytes", removed, "steps[2].forward_transfers[0]: lacks the field 'bytes'"},
        {"/steps/2/forward_transfers/0/from", {1, 1}, "is split along factor 1 of tensor 1, which is in no cut"},
        {"/steps/2/forward_transfers/0/from", removed,
         "steps[2].forward_transfers[0]: lacks the field 'from', which says what"},
        {"/steps/2/forward_transfers/0/collective", "reduce_scatter",
         "steps[2].forward_transfers[0]: lacks the field 'to', which says what"},
        {"/steps/3/operator", 8, "steps[3].operator: is 8, expected an integer from 0 to 7"},
        {"/steps/3/operands/0", "shard(9)", "steps[3].operands[0]: is \"shard(9)\", expected a factor below 2"},
        {"/steps/3/results", removed, "steps[3]: lacks the field 'results'"},
        {"/steps/3/loop", -1, "steps[3].loop: is -1, expected an integer from 0"},
        {"/steps/3/class", "gemm", "steps[3].class: is \"gemm\", expected one of matmul"},
        {"/steps/3/share", {11, 0}, "steps[3].share: is split along factor 0 of tensor 11, which is in no cut"},
        {"/steps/3/forward/flops", -1, "steps[3].forward.flops: is -1"},
        {"/steps/3/forward/launches", 1, "steps[3].forward.launches: is 1, expected true or false"},
        {"/steps/3/saved", 5, "steps[3].saved: is 5, expected an object"},
        {"/steps/3/saved_tensors",
         {{1}},
         "steps[3].saved_tensors[0]: is an array of 1, expected 2, a tensor and its form"},
        {"/steps/0/stored/split", "much", "steps[0].stored.split: is \"much\", expected a number"},
        {"/steps", 3, "steps: is 3, expected an array"},
        {"", 3, "p.json: is 3, expected an object"},
    };
    CHECK(changes.size() >= 25);
    for (auto const& [pointer, value, message] : changes) {
        std::string const actual = message_after(good, pointer, value);
        CAPTURE(pointer);
        CAPTURE(actual);
        CHECK(actual.find(message) != std::string::npos);
    }
    auto integers = good;
    integers["tensors"][0]["dtype"] = "int64";
    CHECK(message_after(integers, "/steps/0/to", "partial") ==
          "p.json: steps[0].to: is \"partial\", expected another form, since the tensor is not floating-point");
    CHECK_THROWS_WITH_AS(static_cast<void>(json::parse_plan("{\"format\":", "p.json")),
                         doctest::Contains("p.json, line 1"), input_error);
    CHECK_THROWS_AS(static_cast<void>(json::parse_plan("{}", "p.json")), input_error);
}

TEST_CASE("what is wrong with parameters in shards is said, and where") {
    auto const good = nlohmann::json::parse(json::write_plan(test::zero_plan()));
    REQUIRE(message_after(good, "/meta", 1) == "");
    // Tensors: 0 x, 1 and 2 weights. Steps: 1 reads the first, its state in shards; 4 unshards the second, 6 reshards
    // it.
    std::vector<plan_change> const changes{
        {"/steps/1/from", "mirrored",
         "steps[1].from: is \"mirrored\", expected a shard, of a trained parameter that is read whole"},
        {"/steps/1/to", "shard(0)",
         "steps[1].from: is \"shard(0)\", expected a shard, of a trained parameter that is read whole"},
        {"/steps/1/tensor", 0, "expected a shard, of a trained parameter that is read whole"},
        {"/steps/1/update_transfers/0/bytes", -1, "steps[1].update_transfers[0].bytes: is -1"},
        {"/steps/4/tensor", 0, "steps[4].tensor: is 0, expected a parameter"},
        {"/steps/4/from", removed, "steps[4]: lacks the field 'from'"},
        {"/steps/4/from", "partial", "steps[4].from: is \"partial\", expected a shard"},
        {"/steps/4/to", "partial", "steps[4].to: cannot be made from shard(0) in one step"},
        {"/steps/4/resharded", 1, "steps[4].resharded: is 1, expected true or false"},
        {"/steps/4/transient", -1, "steps[4].transient: is -1"},
        {"/steps/6/to", "partial", "steps[6].to: is \"partial\", expected a shard"},
        {"/steps/6/from", "partial", "steps[6].from: is \"partial\", expected replicated or mirrored"},
    };
    for (auto const& [pointer, value, message] : changes) {
        CAPTURE(pointer);
        auto const said = message_after(good, pointer, value);
        CHECK_MESSAGE(said.find(message) != std::string::npos, said);
    }
}

TEST_CASE("a plan file of version 0 is read") {
    auto root = nlohmann::json::parse(json::write_plan(test::tiny_plan()));
    root.erase("format");
    root.erase("version");
    CHECK(json::write_plan(json::parse_plan(root.dump())) == json::write_plan(test::tiny_plan()));
}

TEST_CASE("changed plans are refused with a message or are plans") {
    std::uint64_t const seed = 20261120;
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    auto const below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    std::vector<nlohmann::json> const strange{nullptr,
                                              true,
                                              -1,
                                              0,
                                              1,
                                              2,
                                              3,
                                              7,
                                              65536,
                                              9007199254740992,
                                              18446744073709551615u,
                                              -0.0,
                                              0.5,
                                              1e-320,
                                              1e308,
                                              "",
                                              "x",
                                              "partial",
                                              "shard(1)",
                                              "mirrored",
                                              "infeasible",
                                              "limit",
                                              nlohmann::json::array(),
                                              nlohmann::json::object(),
                                              {0, 0},
                                              {1, 1}};
    auto const c = versatile_devices();
    auto const document = [](plan const& p) { return nlohmann::json::parse(json::write_plan(p)); };
    auto const odd = document(odd_plan()), tiny = document(test::tiny_plan());
    std::size_t refused = 0, read = 0;
    for (int round = 0; round < 2000; ++round) {
        CAPTURE(round);
        auto root = round % 4 < 2 ? odd : tiny;
        std::string text;
        if (round % 2 == 0) {
            for (std::size_t n = 1 + below(3); n > 0; --n) {
                std::vector<nlohmann::json*> all;
                test::collect(root, all);
                auto& one = *all[below(all.size())];
                if (below(3) == 0) one = nlohmann::json(*all[below(all.size())]);
                else if (below(3) == 0 && one.is_array() && !one.empty()) one.erase(below(one.size()));
                else if (below(2) == 0 && one.is_object() && !one.empty())
                    one.erase(std::next(one.begin(), static_cast<std::ptrdiff_t>(below(one.size()))));
                else one = strange[below(strange.size())];
            }
            text = root.dump();
        } else {
            text = root.dump();
            for (std::size_t n = 1 + below(3); n > 0; --n) {
                std::size_t const at = below(text.size()), length = std::min(text.size() - at, 1 + below(8));
                switch (below(4)) {
                case 0: text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ (1u << below(8))); break;
                case 1: text.erase(at, length); break;
                case 2: text.insert(at, text.substr(below(text.size()), length)); break;
                default: text[at] = "0123456789-+.eE{}[]\",:"[below(22)]; break;
                }
            }
        }
        CAPTURE(text);
        std::optional<plan> p;
        try {
            p = json::parse_plan(text);
        } catch (error const& e) {
            ++refused;
            CHECK(std::string(e.what()).find('\n') == std::string::npos);
            continue;
        }
        ++read;
        auto const written = json::write_plan(*p);
        CHECK(json::write_plan(json::parse_plan(written)) == written);
        CHECK(table_of(*p).size() > 0);
        if (!p->exists()) continue;
        auto const cost = evaluate(*p, c);
        CHECK(cost.memory.size() == 2);
        CHECK(nlohmann::json::accept(json::write_trace(*p, run_serial(*p, c))));
    }
    MESSAGE("seed " << seed << ": " << refused << " refused, " << read << " read");
    CHECK(refused > 500);
    CHECK(read > 50);
}
