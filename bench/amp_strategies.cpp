// SPDX-License-Identifier: BSL-1.0
// Times whole optimisations of pipeline, data and tensor parallelism: GPT-2 blocks between an embedding and a head on
// machines of one type and of two. Every result is evaluated again. The counters are shapes, placements, the time of an
// iteration planned, and how far it is above its bound.
#include <heddle/planner/amp.hpp>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

namespace {

using namespace heddle;

struct instance {
    std::size_t machines, devices, blocks;
    std::int64_t batch;
    std::size_t types;

    [[nodiscard]] std::string name() const {
        return std::to_string(machines) + "x" + std::to_string(devices) + "/L" + std::to_string(blocks) + "/batch" +
               std::to_string(batch) + "/types" + std::to_string(types);
    }
};

strategy_problem make(instance const& i) {
    strategy_problem p;
    p.global_batch = i.batch;
    double const parameters = 12.6e6, vocabulary = 53.5e6;
    auto const layer = [&](double count, double saved) {
        p.layers.push_back({"",
                            {bytes(0), bytes(4 * count)},
                            {bytes(0), bytes(20 * count)},
                            {bytes(1e7), bytes(saved)},
                            {bytes(4.2e6), bytes(0)}});
    };
    layer(vocabulary, 0);
    for (std::size_t l = 0; l < i.blocks; ++l) layer(parameters, 1.04e8);
    layer(vocabulary, 5.3e8);
    for (std::size_t t = 0; t < i.types; ++t) {
        auto& type = p.types.emplace_back(profiled_type{"type " + std::to_string(t), bytes(16e9), seconds(0.004), {}});
        for (std::size_t degree = 1; degree <= i.devices; degree *= 2)
            for (std::size_t l = 0; l < p.layer_count(); ++l) {
                bool const block = l > 0 && l <= i.blocks;
                double const alone = block ? 0.015 + 0.0001 * static_cast<double>(l % 7) : l == 0 ? 0.001 : 0.013;
                double const shared =
                    alone * (1 + 0.5 * static_cast<double>(t)) * (0.3 + 0.7 / static_cast<double>(degree));
                type.profiles[degree].layers.emplace_back(shared);
            }
    }
    for (std::size_t m = 0; m < i.machines; ++m)
        p.machines.push_back({m * i.types / i.machines,
                              i.devices,
                              {bytes_per_second(2e10), seconds(5e-6)},
                              {bytes_per_second(3e9), seconds(2e-5)}});
    return p;
}

void plan_instance(benchmark::State& state, instance const& i) {
    auto const p = make(i);
    amp_result found;
    for (auto _ : state) found = plan_amp(p);
    if (found.record.empty()) return state.SkipWithError(found.reason.c_str());
    auto const& best = found.record.front();
    if (evaluate(p, best.plan).total != best.cost.total || !best.cost.fits())
        return state.SkipWithError("evaluated again, it is another");
    state.counters["shapes"] = static_cast<double>(found.statistics.shapes);
    state.counters["placements"] = static_cast<double>(found.statistics.placements);
    state.counters["iteration_s"] = best.cost.total.value;
    state.counters["gap_%"] = 100 * (best.cost.total / found.lower_bound - 1);
}

} // namespace

int main(int argc, char** argv) {
    for (std::size_t types : {1u, 2u})
        for (auto const& [machines, devices, blocks, batch] :
             {std::tuple<std::size_t, std::size_t, std::size_t, std::int64_t>{2, 2, 24, 32},
              {4, 4, 24, 32},
              {8, 8, 24, 32},
              {16, 16, 24, 32},
              {3, 6, 24, 20},
              {128, 8, 96, 1024}}) {
            instance const i{machines, devices, blocks, batch, types};
            benchmark::RegisterBenchmark(i.name().c_str(), [i](benchmark::State& state) {
                plan_instance(state, i);
            })->Unit(benchmark::kMillisecond);
        }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
