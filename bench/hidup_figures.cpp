// SPDX-License-Identifier: BSL-1.0
// HiDup's setting of two machines of four V100 by our cost model: compares the plan in two micro-batches with that of
// the whole batch with gradient overlap, as bandwidth falls (figure 8) and as the batch shrinks (figure 9a); shows how
// parameters are stored as bandwidth falls (figure 11), and how the gates are computed (figure 12). It uses
// $HEDDLE_REFERENCE_DATA/models/hidup_bert_sgmoe_L4_d8.json.
#include "hidup_setting.hpp"
#include "strategy_search.hpp"

#include <heddle/json/model.hpp>
#include <heddle/theory/rescale.hpp>

#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;

void run(program const& p, cluster const& c, double bandwidth, long batch) {
    using bench::strategy_search;
    auto const turns = strategy_search(p, c, {.micro_batches = 2}, bench::fastest_in_turn).best<duplex>();
    auto const whole = strategy_search(p, c, {.overlaps_gradients = true}, bench::fastest).best<overlapped>();
    int replicated = 0, sharded = 0, gates = 0, whole_gates = 0;
    for (auto const& s : turns.what.steps) {
        auto const* const read = s.instruction.as<instruction::read>();
        if (read && turns.what.tensors[read->tensor].role == tensor_role::parameter)
            (read->from.is_shard() ? sharded : replicated)++;
        auto const* const compute = s.instruction.as<instruction::compute>();
        if (!compute || !p.kind(compute->op).ends_with("top_2_gating")) continue;
        ++gates;
        whole_gates += compute->loop < 0;
    }
    std::printf("%8.0f %6ld %12.2f %7.2f %12.2f %7.2f %11d %8d %4d of %d\n", bandwidth, batch, 1e3 * turns.what.cost(),
                100 * turns.gap, 1e3 * whole.what.cost(), 100 * whole.gap, replicated, sharded, whole_gates, gates);
}

} // namespace

int main() {
    constexpr char const* bert = "hidup_bert_sgmoe_L4_d8.json";
    auto const models = bench::hidup_models({bert});
    if (!models) return 0;
    auto const model = json::read_model(*models / bert);
    std::printf("%8s %6s %12s %7s %12s %7s %11s %8s %s\n", "Gbit/s", "batch", "in turn, ms", "gap %", "whole, ms",
                "gap %", "replicated", "sharded", "gates on all devices");
    for (double bandwidth : {400, 200, 100, 50, 30, 20, 10, 5})
        run(model.program, bench::two_machines(bandwidth), bandwidth, 256);
    for (long batch : {512, 256, 128, 64, 32, 16})
        run(with_batch_size(model.program, batch), bench::two_machines(100), 100, batch);
}
