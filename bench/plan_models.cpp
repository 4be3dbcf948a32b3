// SPDX-License-Identifier: BSL-1.0
// Times whole planning runs without reading: the shipped models on the shipped cluster of 2 V100 and 6 P100 and, if
// $HEDDLE_REFERENCE_DATA is set, the models there; and the shipped models on 8 device groups of 8, and on one device of
// each. Every plan is verified. The counters are seconds per iteration of the plan, the proven gap in percent, and the
// speed-up over the best data-parallel baseline.
#include <heddle/benchmark/all.hpp>
#include <heddle/clp/all.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
namespace fs = std::filesystem;

void run(benchmark::State& state, fs::path const& path, cluster const& c) {
    auto const model = json::read_model(path);
    plan result;
    for (auto _ : state) result = plan_hap(model.program, c, clp::ratio_solver{});
    if (!bench::report(state, result)) return;
    if (auto const checked = verify(model.program, result); !checked) {
        state.SkipWithError(checked.problem.c_str());
        return;
    }
    double best = 0;
    for (auto const* name : {"DP-EV", "DP-CP"})
        if (auto const cost = result.baselines.at(name); cost && (best == 0 || *cost < best)) best = *cost;
    state.counters["speedup"] = best / result.cost();
}

} // namespace

int main(int argc, char** argv) {
    fs::path const examples = HEDDLE_EXAMPLES;
    auto const c = json::read_cluster(examples / "clusters" / "v100x2_p100x6.json"),
               groups = json::read_cluster(examples / "clusters" / "v100_p100_8x8.json");
    cluster firsts = groups;
    for (auto& m : firsts.machines) m.devices = 1;
    std::vector<fs::path> models;
    auto const add = [&](fs::path const& folder) {
        if (!fs::is_directory(folder)) return;
        for (auto const& entry : fs::directory_iterator(folder))
            if (auto const name = entry.path().string(); name.ends_with(".json.gz") || name.ends_with(".json"))
                models.push_back(entry.path());
    };
    add(examples / "models");
    auto const shipped = models;
    if (char const* const data = std::getenv("HEDDLE_REFERENCE_DATA")) add(fs::path(data) / "models");
    std::ranges::sort(models);
    for (auto const& file : models) {
        std::string const name = file.filename().string();
        benchmark::RegisterBenchmark(name.c_str(), [file, c](benchmark::State& state) {
            run(state, file, c);
        })->Unit(benchmark::kMillisecond);
    }
    for (auto const& file : shipped)
        for (auto const& [name, machines] : {std::pair("/8 groups of 8", groups), {"/8 devices", firsts}})
            benchmark::RegisterBenchmark((file.filename().string() + name).c_str(), [file, machines](
                                                                                        benchmark::State& state) {
                run(state, file, machines);
            })->Unit(benchmark::kMillisecond);
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
