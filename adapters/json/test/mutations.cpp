// SPDX-License-Identifier: BSL-1.0
#include "mutations.hpp"
#include "grouped_pipeline.hpp"

#include <heddle/json/cluster.hpp>
#include <heddle/json/fitted.hpp>
#include <heddle/json/layer_profile.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/pipeline_plan.hpp>
#include <heddle/json/samples.hpp>
#include <heddle/json/templates.hpp>
#include <heddle/json/theory.hpp>
#include <heddle/json/trials.hpp>
#include <heddle/program/indexed_program.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace heddle;
using test::check_mutations;

TEST_CASE("mutated models read or are refused, and those that read can be indexed") {
    auto const read = [](std::string const& text) {
        static_cast<void>(index_program(json::parse_model(text, "fuzzed").program));
    };
    check_mutations(1, 2000, json::read_text("examples/formats/model.json"), true, read);
    check_mutations(2, 150, json::read_text("examples/models/bert_moe_2.json.gz"), true, read);
    check_mutations(3, 150, json::read_text("examples/models/vit_2.json.gz"), true, read);
}

TEST_CASE("mutated clusters read or are refused") {
    auto const read = [](std::string const& text) { validate(json::parse_cluster(text, "fuzzed")); };
    check_mutations(4, 2000, json::read_text("examples/formats/cluster.json"), true, read);
    check_mutations(14, 2000, json::read_text("examples/formats/preset_cluster.json"), true, read);
}

TEST_CASE("mutated theories read or are refused") {
    check_mutations(5, 2000, json::read_text("examples/formats/theory.json"), true,
                    [](std::string const& text) { static_cast<void>(json::parse_theory(text, "fuzzed")); });
}

TEST_CASE("mutated samples read or are refused") {
    check_mutations(6, 2000, json::read_text("examples/formats/samples.csv"), false,
                    [](std::string const& text) { static_cast<void>(json::parse_samples(text, "fuzzed")); });
}

TEST_CASE("mutated lists of plans read or are refused") {
    check_mutations(15, 2000,
                    "# tried\nplan,family,predicted,seconds\na.json,one axis,0.25,0.5\n\nb.json,turns,1e-3,\n", false,
                    [](std::string const& text) {
                        auto const list = json::parse_trials(text, "fuzzed");
                        if (!list.empty()) // what is refused with a time was not read before
                            CHECK(json::parse_trials(json::with_time(text, 0, seconds(2))).size() == list.size());
                    });
}

TEST_CASE("mutated fitted models read or are refused") {
    check_mutations(7, 2000, json::read_text("examples/formats/fitted.json"), true,
                    [](std::string const& text) { static_cast<void>(json::parse_fitted(text, "fuzzed")); });
}

TEST_CASE("mutated pipeline plans and profiles of layers read or are refused") {
    auto const example = [](char const* page) { return test::example_of(page); };
    auto const read_pipeline = [](std::string const& text) {
        auto const p = json::parse_pipeline_plan(text, "fuzzed");
        validate(p);
        static_cast<void>(json::write_pipeline_plan(p));
    };
    check_mutations(8, 2000, example("docs/reference/pipeline_plans.md"), true, read_pipeline);
    check_mutations(11, 500, test::grouped_pipeline(), true, read_pipeline);
    check_mutations(9, 2000, example("docs/reference/layer_profiles.md"), true,
                    [](std::string const& text) { validate(json::parse_layer_profile(text, "fuzzed")); });
    check_mutations(10, 2000, example("docs/reference/templates.md"), true,
                    [](std::string const& text) { static_cast<void>(json::parse_template_problem(text, "fuzzed")); });
}
