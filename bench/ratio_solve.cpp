// SPDX-License-Identifier: BSL-1.0
// One solve of sharding ratios on 8 and 64 devices, each of a type of its own: the stages of planned programs (the shipped models and,
// where $HEDDLE_REFERENCE_DATA is set, the models there) and random ones. The plan is made once, on 2 V100 and 6 P100, and not timed.
// Counters: stages, and distinct ones of them.
#include <heddle/clp/all.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace heddle;
namespace fs = std::filesystem;

/// `size` machines of one device each, all different: rates over a range of ten, bandwidths over one of four.
cluster unequal_cluster(int size) {
    std::mt19937_64 random(7);
    auto const between = [&](double low, double high) { return low * std::pow(high / low, static_cast<double>(random() >> 11) * 0x1p-53); };
    cluster c;
    c.name = "unequal";
    for (int n = 0; n < size; ++n) {
        device_type type{"type " + std::to_string(n), bytes(64e9), bytes_per_second(between(400e9, 1600e9)), seconds(between(2e-6, 8e-6)), {}};
        type.rates[element_type::float32].fallback = flops_per_second(between(2e12, 20e12));
        c.types.push_back(type);
        c.machines.push_back({static_cast<std::size_t>(n), 1, 1});
    }
    c.inter = network_link{bytes_per_second(1.3e9), seconds(50e-6)};
    validate(c);
    return c;
}

ratio_problem problem_of(std::vector<step> const& steps, std::vector<holding> const& saved, int devices) {
    auto const c = unequal_cluster(devices);
    std::vector<device_class> classes;
    for (std::size_t t = 0; t < c.types.size(); ++t) classes.push_back({t, 1});
    cost_model const model(c, classes);
    return make_ratio_problem(steps, saved, model, compute_proportional(model, element_type::float32));
}

/// The steps of a plan, made once.
struct planned {
    std::vector<step> steps;
    std::vector<holding> saved;
};
planned const& plan_of(fs::path const& model, fs::path const& on) {
    static std::map<fs::path, planned> known;
    auto const [at, is_new] = known.try_emplace(model);
    if (!is_new) return at->second;
    auto const p = find_plan(json::read_model(model).program, json::read_cluster(on), clp::ratio_solver{});
    for (auto const& s : p.steps) {
        at->second.steps.push_back(s.step);
        for (auto const& [t, f] : s.saved) at->second.saved.push_back(f.is_shard() ? holding{bytes(0), p.tensors[t].size()} : holding{p.tensors[t].size(), bytes(0)});
    }
    return at->second;
}

/// Stages that have nothing in common: the hardest case.
ratio_problem random_problem(int stages, int types) {
    std::mt19937_64 random(static_cast<std::uint64_t>(stages + types));
    auto const unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    ratio_problem p;
    p.counts.assign(static_cast<std::size_t>(types), 1);
    double sum = 0;
    for (int t = 0; t < types; ++t) sum += p.preferred.emplace_back(0.1 + unit());
    for (auto& r : p.preferred) r /= sum;
    for (int s = 0; s < stages; ++s) {
        auto& stage = p.stages.emplace_back();
        double const size = std::pow(100, unit());
        for (int t = 0; t < types; ++t)
            stage.push_back({{0.01 * size * unit(), size * (0.5 + unit()) / (p.preferred[static_cast<std::size_t>(t)] * types)}, {}});
    }
    for (int s = 0; s < stages; ++s) p.transfers.push_back({{0.1, 10 * unit()}});
    return p;
}

void report(benchmark::State& state, ratio_problem const& p) {
    state.counters["stages"] = static_cast<double>(p.stages.size());
}

void solve_cold(benchmark::State& state, ratio_problem const& p) {
    ratio_solution found;
    for (auto _ : state) found = clp::ratio_solver().solve(p);
    if (!found.feasible) state.SkipWithError("infeasible");
    report(state, p);
}

} // namespace

int main(int argc, char** argv) {
    fs::path const examples = HEDDLE_EXAMPLES;
    auto const on = examples / "clusters" / "v100x2_p100x6.json";
    std::vector<fs::path> models;
    auto const add = [&](fs::path const& folder) {
        if (!fs::is_directory(folder)) return;
        for (auto const& entry : fs::directory_iterator(folder))
            if (entry.path().extension() == ".gz" || entry.path().extension() == ".json") models.push_back(entry.path());
    };
    add(examples / "models");
    if (char const* const data = std::getenv("HEDDLE_REFERENCE_DATA")) add(fs::path(data) / "models");
    std::ranges::sort(models);
    for (int const devices : {8, 64}) {
        auto const ending = "/" + std::to_string(devices);
        for (auto const& file : models)
            benchmark::RegisterBenchmark((file.filename().string() + ending).c_str(), [=](benchmark::State& state) {
                auto const& made = plan_of(file, on);
                solve_cold(state, problem_of(made.steps, made.saved, devices));
            })->Unit(benchmark::kMillisecond);
        for (int const stages : {30, 100, 300})
            benchmark::RegisterBenchmark(("random_" + std::to_string(stages) + ending).c_str(), [=](benchmark::State& state) {
                solve_cold(state, random_problem(stages, devices));
            })->Unit(benchmark::kMillisecond);
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
