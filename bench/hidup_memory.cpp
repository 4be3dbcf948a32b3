// SPDX-License-Identifier: BSL-1.0
// HiDup's table 3: gigabytes at the peak on each of four V100, with Adam, 8 layers and 32 sequences per device. It uses
// $HEDDLE_REFERENCE_DATA/models/hidup_{bert_sgmoe,vit_switch}_L4_d8.json, with their layers repeated and the table's
// experts. Sparsely gated models have two places per token where switch models have one, so each is made of the other
// by halving or doubling the experts' capacity.
#include "deeper_model.hpp"
#include "hidup_setting.hpp"
#include "strategy_search.hpp"

#include <heddle/json/cluster.hpp>
#include <heddle/synthesis/baselines.hpp>
#include <heddle/theory/rescale.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using bench::strategy_search;

/// Returns the factors of one dimension of the tensors whose names have this part, or of what gates make.
std::vector<cut_factor> factors_of(indexed_program const& p, std::string const& part, std::uint16_t dimension) {
    std::vector<cut_factor> all;
    for (tensor_id t = 0; t < p.tensors.size(); ++t)
        for (std::size_t f = 0; f < p.tensors[t].factors.size(); ++f)
            if (p.tensors[t].info.name.find(part) != std::string::npos &&
                p.tensors[t].factors[f].dimension == dimension)
                all.push_back({t, static_cast<factor_number>(f)});
    return all;
}

/// Makes the program for four devices: half the batch, and half the experts, each with twice the capacity, times what
/// is asked for.
program setting(std::filesystem::path const& file, extent numerator, extent denominator) {
    auto p = with_batch_size(bench::deeper_model(file, 2, 8).program, 128);
    auto experts = factors_of(index_program(p), ".w1", 0);
    for (auto f : factors_of(index_program(p), "gate_weight", 1)) experts.push_back(f);
    p = rescaled(p, experts, 1, 2);
    std::vector<cut_factor> places; // of what gates make: batch, sequence, expert, place
    auto const indexed = index_program(p);
    for (operator_id o = 0; o < p.operator_count(); ++o) {
        if (!p.kind(o).ends_with("gating")) continue;
        for (tensor_id t : indexed.operators[o].results)
            for (std::size_t f = 0; f < indexed.tensors[t].factors.size(); ++f)
                if (indexed.tensors[t].factors[f].dimension == 3) places.push_back({t, static_cast<factor_number>(f)});
    }
    return rescaled(p, places, 2 * numerator, denominator);
}

double gigabytes(plan const& p) {
    double most = 0;
    for (auto const& m : p.memory) most = std::max(most, m.total());
    return most * 1e-9;
}

} // namespace

int main() {
    auto const models = bench::hidup_models({"hidup_bert_sgmoe_L4_d8.json", "hidup_vit_switch_L4_d8.json"});
    if (!models) return 0;
    auto const bert = *models / "hidup_bert_sgmoe_L4_d8.json", vit = *models / "hidup_vit_switch_L4_d8.json";
    auto const c = json::read_cluster(HEDDLE_EXAMPLES "/clusters/v100x4_nvlink.json");
    using enum parameter_storage;
    auto const data_parallel_in = [](parameter_storage s) {
        return [s](indexed_program const& p) { return data_parallel(p, s); };
    };
    auto const experts_in = [](parameter_storage s) {
        return [s](indexed_program const& p) { return expert_parallel(p, s); };
    };
    training_options const whole{.overlaps_gradients = true},
        copied{.overlaps_gradients = true, .copies_gradients = true}, turns{.micro_batches = 2};
    struct model {
        char const* name;
        program made;
        std::array<double, 5> published;
    };
    std::vector<model> const all{{"B-SGMoE", setting(bert, 1, 1), {6.77, 9.87, 8.98, 7.63, 8.09}},
                                 {"B-Switch", setting(bert, 1, 2), {6.34, 9.44, 8.55, 7.30, 7.80}},
                                 {"V-SGMoE", setting(vit, 2, 1), {2.79, 4.92, 4.21, 2.78, 2.53}},
                                 {"V-Switch", setting(vit, 1, 1), {2.60, 4.68, 3.97, 2.63, 2.52}}};
    std::printf("%-9s %-36s %8s %10s %12s %12s %8s\n", "model", "strategy", "ours", "published", "parameters",
                "activations", "ms");
    for (auto const& [title, made, published] : all) {
        auto const line = [&, name = title](char const* what, plan const& found, double theirs) {
            auto const& m = found.memory.front();
            std::printf("%-9s %-36s %8.2f %10.2f %12.2f %12.2f %8.1f\n", name, what, gigabytes(found), theirs,
                        1e-9 * (m.parameters + m.gradients + m.optimizer), 1e-9 * m.activations, 1e3 * found.cost());
        };
        line("HiDup", strategy_search(made, c, turns, bench::fastest_in_turn).best<duplex>().what, published[0]);
        line("HiDup, experts and large in shards",
             strategy_search(made, c, turns, experts_in(sharded_gradients)).best<duplex>().what, published[0]);
        line("DDP", strategy_search(made, c, copied, data_parallel_in(replicated)).best<overlapped>().what,
             published[1]);
        line("Horovod: DDP without copies",
             strategy_search(made, c, whole, data_parallel_in(replicated)).best<overlapped>().what, published[2]);
        line("FastMoE: experts in parallel",
             strategy_search(made, c, whole, experts_in(replicated)).best<overlapped>().what, published[3]);
        line("DeepSpeed: experts in parallel, ZeRO",
             strategy_search(made, c, whole, experts_in(sharded_gradients)).best<overlapped>().what, published[4]);
    }
}
