// SPDX-License-Identifier: BSL-1.0
// Times the assignment of layers to stages at three sizes: random layers, and blocks as in GPT-2 between an embedding
// and a head; on devices of one type and of three; under Oobleck's estimate too. AMP's recurrence runs at the smallest
// size only; there both must cost the same. The counters are thresholds and cells of the search.
#include "../test/support/amp_recurrence.hpp"

#include <heddle/pipeline/layer_assignment.hpp>

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>

namespace {

using namespace heddle;

struct instance {
    std::size_t layers, devices;
    std::int64_t micro_batches;
    bool random, mixed;

    [[nodiscard]] std::string name() const {
        return std::string(random ? "random" : "gpt2") + (mixed ? "/three_types" : "/one_type") + "/L" +
               std::to_string(layers) + "/k" + std::to_string(devices) + "/m" + std::to_string(micro_batches);
    }
};

layer_assignment_problem make(instance const& i) {
    std::mt19937_64 engine(i.layers);
    auto const unit = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
    layer_assignment_problem p;
    for (int t = 0; t < (i.mixed ? 3 : 1); ++t) {
        auto& on = p.times.emplace_back();
        for (std::size_t l = 0; l < i.layers; ++l) {
            // The measured times of equal blocks differ by a few percent.
            double const block = l == 0              ? 0.06
                                 : l == 1            ? 0.02
                                 : l + 3 >= i.layers ? 0.7 * static_cast<double>(l + 3 - i.layers)
                                                     : 1 + 0.03 * unit();
            seconds const forward(0.01 * (i.random ? unit() : block) * (1 + 0.7 * t));
            on.forward.push_back(forward);
            on.backward.push_back(2 * forward);
        }
    }
    for (std::size_t l = 0; l < i.layers; ++l)
        p.memory.push_back({bytes(2e8), bytes(1e8), bytes(i.random ? 8e6 * unit() : 4e6)});
    for (std::size_t d = 0; d < i.devices; ++d) p.devices.push_back({engine() % p.times.size(), bytes(1e12)});
    for (std::size_t d = 1; d < i.devices; ++d)
        p.links.push_back({bytes_per_second(1e9 * (0.3 + unit())), seconds(1e-5)});
    p.micro_batches = i.micro_batches;
    return p;
}

search::partition_problem as_partition(layer_assignment_problem const& p) {
    search::partition_problem out;
    out.largest_weight = p.micro_batches - 1;
    for (std::size_t t = 0; t < p.times.size(); ++t) {
        auto& row = out.sizes.emplace_back();
        for (std::size_t l = 0; l < p.layer_count(); ++l) row.push_back(p.time_on(t, l).value);
    }
    for (std::size_t d = 0; d < p.devices.size(); ++d) {
        out.kinds.push_back(p.devices[d].type);
        if (d + 1 == p.devices.size()) continue;
        auto& row = out.cut_costs.emplace_back();
        for (std::size_t l = 0; l < p.layer_count(); ++l) row.push_back(p.boundary(d, l).value);
    }
    return out;
}

template <pipeline_schedule Schedule>
void assign(benchmark::State& state, instance const& i, Schedule const& schedule) {
    auto const p = make(i);
    layer_assignment found;
    for (auto _ : state) found = assign_layers(p, {}, schedule);
    if (found.status != search::status::optimal) state.SkipWithError("not proven optimal");
    state.counters["thresholds"] = static_cast<double>(found.statistics.thresholds);
    state.counters["cells"] = static_cast<double>(found.statistics.cells);
}

void recurrence(benchmark::State& state, instance const& i) {
    auto const p = make(i);
    auto const same = as_partition(p);
    double cost = 0;
    for (auto _ : state) cost = test::amp_recurrence(same);
    if (std::abs(cost / assign_layers(p).cost->total.value - 1) > 1e-12) state.SkipWithError("the two differ");
}

} // namespace

int main(int argc, char** argv) {
    for (bool random : {true, false})
        for (bool mixed : {false, true})
            for (auto [layers, devices] : {std::pair<std::size_t, std::size_t>{30, 8}, {102, 16}, {1006, 64}})
                for (std::int64_t m : {4, 32, 256}) {
                    instance const i{layers, devices, m, random, mixed};
                    benchmark::RegisterBenchmark(i.name().c_str(), [i](benchmark::State& state) {
                        assign(state, i, one_f_one_b{});
                    })->Unit(benchmark::kMicrosecond);
                    if (m == 256)
                        benchmark::RegisterBenchmark(("oobleck/" + i.name()).c_str(), [i](benchmark::State& state) {
                            assign(state, i, oobleck_estimate{});
                        })->Unit(benchmark::kMicrosecond);
                    if (layers == 30 && m == 32)
                        benchmark::RegisterBenchmark(("amp_recurrence/" + i.name()).c_str(),
                                                     [i](benchmark::State& state) { recurrence(state, i); })
                            ->Unit(benchmark::kMicrosecond);
                }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
