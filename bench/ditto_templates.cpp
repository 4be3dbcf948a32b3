// SPDX-License-Identifier: BSL-1.0
// Plans pipeline templates for Ditto's clusters (GPT-2 XL, Fig. 8) by the exact planner and by fold + recover, under
// Ditto's objective as its code has it and under 1F1B. `loss` is by how many percent fold + recover is above the
// optimum, and `error` by how many the optimum differs from the one that the reference data states. Then shows where
// the exact planner stops being practical, by types of devices, machines and layers; fold + recover in copies for a
// thousand machines, with its bound; and a look-up in a library. The first part needs the folder in the environment
// variable HEDDLE_REFERENCE_DATA.
#include <heddle/pipeline/greedy_recovery.hpp>
#include <heddle/pipeline/template_library.hpp>
#include <heddle/planner/ditto.hpp>

#include <benchmark/benchmark.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>

namespace {

using namespace heddle;

nlohmann::json read(std::string const& path) {
    std::ifstream in(path);
    if (!in) throw std::runtime_error(path + ": cannot be read");
    return nlohmann::json::parse(in);
}

/// A profile measured on one type of device, on the machines of a cluster; all-reduces take no time.
template_problem problem_of(nlohmann::json const& profile, nlohmann::json const& clusters,
                            nlohmann::json const& variant, std::string const& cluster) {
    template_problem p;
    p.micro_batches = clusters.at("num_microbatches");
    auto const& layers = profile.at("layers");
    for (auto const& l : layers)
        p.memory.push_back(
            {bytes(l.at("param_bytes")), bytes(l.at("activation_bytes")), bytes(l.at("activation_bytes"))});
    auto const& factors = variant.at("factors");
    double const measured = factors.at(clusters.at("profiled_device").get<std::string>());
    for (auto const& m : variant.at("clusters").at(cluster)) {
        auto& t = p.types.emplace_back();
        t.name = m.at("device");
        t.machines = m.at("nodes");
        t.devices_per_machine = m.at("gpus_per_node");
        double const slower = measured / factors.at(t.name).get<double>();
        for (auto const& l : layers) {
            t.times.forward.emplace_back(slower * l.at("forward_ms").get<double>() * 1e-3);
            t.times.backward.emplace_back(slower * l.at("backward_ms").get<double>() * 1e-3);
        }
        for (std::size_t g = 2; g <= t.devices_per_machine; ++g) t.all_reduce[g].assign(p.layer_count(), seconds(0));
    }
    return p;
}

template <pipeline_schedule Schedule>
void exact(benchmark::State& state, template_problem const& p, Schedule const& schedule, double expected_ms) {
    pipeline_template found;
    for (auto _ : state) found = plan_template(p, {}, schedule);
    if (found.status != search::status::optimal) return state.SkipWithError("not proven optimal");
    if (expected_ms > 0) state.counters["error"] = std::abs(found.cost->total.value * 1e3 / expected_ms - 1);
    state.counters["seconds"] = found.cost->total.value;
    state.counters["subsets"] = static_cast<double>(found.statistics.states);
    state.counters["intervals"] = static_cast<double>(found.statistics.intervals);
    state.counters["cells"] = static_cast<double>(found.statistics.cells);
}

template <pipeline_schedule Schedule>
void recovered(benchmark::State& state, template_problem const& p, Schedule const& schedule) {
    pipeline_template found;
    for (auto _ : state) found = recover(p, fold(p), {}, schedule);
    if (!found.cost) return state.SkipWithError("nothing found");
    state.counters["seconds"] = found.cost->total.value;
    state.counters["loss"] = 100 * (found.cost->total / plan_template(p, {}, schedule).cost->total - 1);
    state.counters["gap"] = 100 * *found.gap();
}

template <pipeline_schedule Schedule>
void greedy(benchmark::State& state, template_problem const& p, Schedule const& schedule) {
    pipeline_template found;
    for (auto _ : state) found = recover_greedily(p, fold(p), {}, schedule);
    if (!found.cost) return state.SetLabel(found.reason);
    state.counters["loss"] = 100 * (found.cost->total / plan_template(p, {}, schedule).cost->total - 1);
}

/// Makes equal blocks whose measured times differ by some percent; type t is about t + 1 times as fast as the first.
template_problem made(std::size_t types, std::size_t machines_per_type, std::size_t devices, std::size_t layers,
                      std::int64_t micro_batches) {
    std::mt19937_64 engine(types * 1000 + layers);
    auto const unit = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
    template_problem p;
    p.micro_batches = micro_batches;
    p.memory.assign(layers, {bytes(2e8), bytes(1e7), bytes(4e6)});
    std::vector<double> block;
    for (std::size_t l = 0; l < layers; ++l) block.push_back(0.01 * (1 + 0.1 * unit()));
    for (std::size_t n = 0; n < types; ++n) {
        auto& t = p.types.emplace_back();
        t.name = "type " + std::to_string(n);
        t.machines = machines_per_type;
        t.devices_per_machine = devices;
        double const speed = static_cast<double>(n + 1) + 0.3 * unit();
        for (double const b : block) {
            t.times.forward.emplace_back(b / speed);
            t.times.backward.emplace_back(2 * b / speed);
        }
        for (std::size_t g = 2; g <= devices; ++g)
            t.all_reduce[g].assign(layers, seconds(1e-4 * static_cast<double>(g)));
    }
    return p;
}

void copies(benchmark::State& state) {
    auto const p = made(5, 200, 2, 2048, 8192);
    replicated_template found;
    for (auto _ : state) found = plan_copies(p);
    if (!found.each.cost) return state.SkipWithError("nothing found");
    state.counters["copies"] = static_cast<double>(found.copies);
    state.counters["gap"] = 100 * (1 - found.lower_bound / found.each.cost->total);
}

void look_up(benchmark::State& state) {
    auto const p = made(3, 4, 1, 48, 32);
    template_library const library(p, 6, [](template_problem const& q) { return recover(q, fold(q)); });
    std::size_t pipelines = 0;
    for (auto _ : state) pipelines = library.find(std::vector<std::size_t>{4, 3, 4}).templates.size();
    state.counters["templates"] = static_cast<double>(library.templates().size());
    state.counters["pipelines"] = static_cast<double>(pipelines);
}

template <class Run>
void add(std::string const& name, Run run) {
    benchmark::RegisterBenchmark(name.c_str(), run)->Unit(benchmark::kMillisecond);
}

void add_clusters(std::string const& data) {
    auto const profile = read(data + "/ditto_gpt2xl_4090_profile.json"), clusters = read(data + "/ditto_clusters.json");
    auto const& variant = clusters.at("variants").at("paper_fig8");
    oobleck_estimate const as_coded{1};
    for (auto const& [name, unused] : variant.at("clusters").items()) {
        auto const p = std::make_shared<template_problem const>(problem_of(profile, clusters, variant, name));
        double const expected = variant.at("own_optimum_ms").value(name, 0.0);
        add("ditto/" + name + "/exact", [=](benchmark::State& s) { exact(s, *p, as_coded, expected); });
        add("ditto/" + name + "/recover", [=](benchmark::State& s) { recovered(s, *p, as_coded); });
        add("ditto/" + name + "/greedy", [=](benchmark::State& s) { greedy(s, *p, as_coded); });
        add("1f1b/" + name + "/exact", [=](benchmark::State& s) { exact(s, *p, one_f_one_b{}, 0); });
        add("1f1b/" + name + "/recover", [=](benchmark::State& s) { recovered(s, *p, one_f_one_b{}); });
    }
}

} // namespace

int main(int argc, char** argv) {
    if (char const* data = std::getenv("HEDDLE_REFERENCE_DATA"); data && *data)
        add_clusters(std::string(data) + "/ditto");
    else std::fprintf(stderr, "HEDDLE_REFERENCE_DATA is not set: Ditto's clusters are left out\n");
    for (std::size_t types = 1; types <= 7; ++types)
        add("figure/types/" + std::to_string(types),
            [=](benchmark::State& s) { exact(s, made(types, 2, 2, 128, 64), one_f_one_b{}, 0); });
    for (std::size_t machines : {1u, 2u, 4u, 8u, 16u, 32u})
        add("figure/machines_of_3_types/" + std::to_string(machines),
            [=](benchmark::State& s) { exact(s, made(3, machines, 2, 128, 256), one_f_one_b{}, 0); });
    for (std::size_t layers : {32u, 64u, 128u, 256u, 512u}) {
        add("figure/layers/" + std::to_string(layers),
            [=](benchmark::State& s) { exact(s, made(3, 3, 2, layers, 64), one_f_one_b{}, 0); });
        add("figure/layers/" + std::to_string(layers) + "/ditto",
            [=](benchmark::State& s) { exact(s, made(3, 3, 2, layers, 64), oobleck_estimate{1}, 0); });
    }
    add("thousand_machines/copies", copies);
    add("library/look_up", look_up);
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
