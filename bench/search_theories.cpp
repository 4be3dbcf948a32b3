// SPDX-License-Identifier: BSL-1.0
// Best-first search on bare theories: every file of $HEDDLE_REFERENCE_DATA/theories, reading excluded.
// A search that misses the reference optimum, or HAP's cost where there is none, is reported as an error.
// Counters: expanded and generated labels, steps of the program, cost relative to the reference.
#include <heddle/json/all.hpp>
#include <heddle/search/best_first.hpp>
#include <heddle/search/properties/property_space.hpp>

#include <benchmark/benchmark.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace heddle;

void run(benchmark::State& state, std::filesystem::path const& path) {
    std::string const text = json::read_text(path);
    auto const task = json::parse_theory(text, path.string());
    auto const meta = nlohmann::json::parse(text).at("meta");
    auto const& known = meta.at("ref_optimum").is_null() ? meta.at("hap_cost") : meta.at("ref_optimum");
    search::result<std::uint32_t> result;
    for (auto _ : state) {
        search::property_task const problem(task.properties.size(), task.actions, task.initial, task.goal);
        search::additive_cost const costs(task.costs);
        search::landmark_bound bound(problem, costs, task.groups);
        search::property_space const space(problem, costs, std::move(bound));
        result = search::best_first(space, {.limits = {.labels = 1'000'000}});
    }
    if (result.status != search::status::optimal) state.SkipWithError("not proven optimal within the label limit");
    else if (*result.cost > known.get<double>() * (1 + 1e-9)) state.SkipWithError("dearer than the reference");
    state.counters["expanded"] = static_cast<double>(result.statistics.expanded);
    state.counters["generated"] = static_cast<double>(result.statistics.generated);
    state.counters["steps"] = static_cast<double>(result.actions.size());
    state.counters["expanded_per_step"] =
        static_cast<double>(result.statistics.expanded) /
        static_cast<double>(task.program ? task.program->size() : result.actions.size());
    state.counters["relative_cost"] = result.cost.value_or(0) / known.get<double>();
}

} // namespace

int main(int argc, char** argv) {
    char const* const data = std::getenv("HEDDLE_REFERENCE_DATA");
    auto const folder = std::filesystem::path(data ? data : "") / "theories";
    if (!data || !std::filesystem::is_directory(folder)) {
        std::cout << "skipped: HEDDLE_REFERENCE_DATA names no folder with theories/\n";
        return 0;
    }
    std::vector<std::filesystem::path> files;
    for (auto const& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().string().ends_with(".json.gz")) files.push_back(entry.path());
    std::ranges::sort(files);
    for (auto const& file : files)
        benchmark::RegisterBenchmark(file.stem().stem().string().c_str(), [file](benchmark::State& state) {
            run(state, file);
        })->Unit(benchmark::kMillisecond);
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
