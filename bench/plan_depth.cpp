// SPDX-License-Identifier: BSL-1.0
// Times whole planning runs of vision transformers with 12 to 1200 equal layers on the shipped cluster of 2 V100 and 6
// P100: with room for the deepest, and with so little memory that only programs of shards fit, with gradients reduced
// after or beside the backward pass. Every plan is verified. The counters are seconds per iteration of the plan, the
// proven gap in percent, and seconds of planning per layer, which stay the same if planning is linear.
#include <heddle/benchmark/all.hpp>
#include <heddle/clp/all.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>

#include "layers.hpp"

#include <benchmark/benchmark.h>

namespace {

using namespace heddle;

/// Plans this many layers with this many bytes of memory per layer and device.
void run(benchmark::State& state, double memory_per_layer, bool overlaps_gradients) {
    program const model = bench::layer_builder({}).build(static_cast<int>(state.range(0)));
    auto c = json::read_cluster(HEDDLE_EXAMPLES "/clusters/v100x2_p100x6.json");
    for (auto& type : c.types) type.memory = bytes(memory_per_layer * static_cast<double>(state.range(0)));
    hap_options options;
    options.training.overlaps_gradients = overlaps_gradients;
    plan result;
    for (auto _ : state) result = plan_hap(model, c, clp::ratio_solver{}, options);
    if (!bench::report(state, result)) return;
    if (auto const checked = verify(model, result); !checked) {
        state.SkipWithError(checked.problem.c_str());
        return;
    }
    state.counters["per_layer"] = benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)),
                                                     benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
void depths(benchmark::internal::Benchmark* b) {
    b->Arg(12)->Arg(24)->Arg(48)->Arg(96)->Arg(300)->Arg(1200)->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(run, room, 1e9, false)->Name("layers")->Apply(depths);
BENCHMARK_CAPTURE(run, tight, 0.13e9, false)->Name("layers, little memory")->Apply(depths);
BENCHMARK_CAPTURE(run, tight_overlap, 0.13e9, true)
    ->Name("layers, little memory, gradient overlap")
    ->Arg(12)
    ->Arg(24)
    ->Unit(benchmark::kMillisecond);

} // namespace

BENCHMARK_MAIN();
