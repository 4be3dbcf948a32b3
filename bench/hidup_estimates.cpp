// SPDX-License-Identifier: BSL-1.0
// HiDup's table 5: shows how much worse plans are that are found with wrong estimates. Either every operator's time is
// off by a random factor of up to some per cent, and so are the times of collectives on every tensor, ten times over;
// or all communication is off by that much. Plans are for two micro-batches of BERT-SGMoE with 8 layers
// ($HEDDLE_REFERENCE_DATA/models/hidup_bert_sgmoe_L4_d8.json, with its layers repeated) on two machines of four V100 at
// 100 Gbit/s. Each is priced by the right estimates and divided by the plan that is found with these.
#include "deeper_model.hpp"
#include "hidup_setting.hpp"
#include "strategy_search.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <heddle/theory/batch.hpp>
#include <random>
#include <vector>

namespace {

using namespace heddle;

void scale(local_work& k, double by) {
    k.operations *= by;
    for (bytes* x : {&k.whole, &k.split, &k.whole_inside, &k.split_inside}) *x *= by;
    k.beside = by * k.beside;
}

/// Returns all steps with the times of one operator, or of collectives on one tensor, off by one factor.
std::vector<step_work> with_noise(bench::strategy_search const& s, double most, std::uint64_t seed) {
    std::mt19937_64 engine(seed);
    auto const draw = [&](std::size_t count) {
        std::vector<double> factors(count);
        for (auto& f : factors) f = 1 + most * (2 * static_cast<double>(engine() >> 11) * 0x1p-53 - 1);
        return factors;
    };
    auto const of_operators = draw(s.program().operators.size()), of_tensors = draw(s.program().tensors.size());
    auto steps = s.steps();
    for (std::size_t n = 0; n < steps.size(); ++n) {
        auto const& i = s.instructions()[n];
        auto const* const compute = i.as<instruction::compute>();
        double const by = compute ? of_operators[compute->op] : of_tensors[i.change()->tensor];
        for (auto* k : {&steps[n].forward, &steps[n].backward, &steps[n].deferred}) scale(*k, by);
        for_each_transfer(steps[n], [&](transfer& t) { t.size *= by; });
    }
    return steps;
}

cluster with_communication(cluster c, double by) {
    for (auto* link : {&c.intra, &c.inter})
        *link = network_link{bytes_per_second((*link)->bandwidth.value / by), (*link)->latency * by};
    return c;
}

} // namespace

int main() {
    constexpr char const* bert = "hidup_bert_sgmoe_L4_d8.json";
    auto const models = bench::hidup_models({bert});
    if (!models) return 0;
    bench::strategy_search const s(bench::deeper_model(*models / bert, 2, 8).program, bench::two_machines(100),
                                   {.micro_batches = 2}, bench::fastest_in_turn, false);
    auto const right = s.best<duplex>();
    std::printf("with right estimates: %.2f ms, gap %.1f %%\n%-20s %10s %10s %10s\n", 1e3 * right.what.cost(),
                100 * right.gap, "estimates", "relative", "worst", "published");
    auto const line = [](char const* what, double mean, double worst, double published) {
        std::printf("%-20s %8.1f %% %8.1f %% %8.1f %%\n", what, 100 * mean, 100 * worst, published);
    };
    for (auto const& [most, published] : {std::pair(0.2, 100.2), std::pair(0.5, 112.9)}) {
        constexpr std::uint64_t times = 10;
        double sum = 0, worst = 0;
        for (std::uint64_t seed = 1; seed <= times; ++seed) {
            double const relative =
                s.best<duplex>(with_noise(s, most, seed), s.devices()).what.cost() / right.what.cost();
            sum += relative;
            worst = std::max(worst, relative);
        }
        line(most < 0.3 ? "20 % at random" : "50 % at random", sum / times, worst, published);
    }
    struct shift {
        char const* what;
        double by, published;
    };
    for (auto const& [what, by, published] :
         {shift{"communication +20 %", 1.2, 100.0}, shift{"communication +50 %", 1.5, 100.0},
          shift{"communication -20 %", 0.8, 100.0}, shift{"communication -50 %", 0.5, 117.2}}) {
        double const relative =
            s.best<duplex>(s.steps(), with_communication(s.devices(), by)).what.cost() / right.what.cost();
        line(what, relative, relative, published);
    }
}
