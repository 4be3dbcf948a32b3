// SPDX-License-Identifier: BSL-1.0
// HiDup's setting of two machines of four V100 by our cost model: the plan in two micro-batches beside that of the whole batch with gradient
// overlap, as bandwidth falls (figure 8) and as the batch shrinks (figure 9a); how parameters are stored as it falls (figure 11), and how the
// gates are computed (figure 12). Of $HEDDLE_REFERENCE_DATA/models/hidup_bert_sgmoe_L4_d8.json.
#include <heddle/json/cluster.hpp>
#include <heddle/json/model.hpp>
#include <heddle/planner/device_types.hpp>
#include <heddle/planner/realise.hpp>
#include <heddle/planner/synthesis.hpp>
#include <heddle/theory/micro_batch.hpp>
#include <heddle/theory/view_conversions.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
namespace fs = std::filesystem;

cluster two_machines(double gigabits) {
    auto c = json::read_cluster(HEDDLE_EXAMPLES "/clusters/v100x4_nvlink.json");
    c.machines = {{0, 4, 2}};
    c.measured.clear();
    c.inter = network_link{bytes_per_second(gigabits / 8 * 1e9), seconds(20e-6)};
    return c;
}

struct found_plan {
    plan what;
    double gap = 0;
};

template <class Accumulator>
found_plan best_of(program const& whole, cluster const& c, training_options const& training) {
    auto const p = index_program(training.interleaves() ? micro_batch_of(whole, training.micro_batches) : whole);
    device_types const types(c);
    cost_model const model(c, types.classes);
    cut_space space(p, operator_kinds(p), training.interleaves() ? 16 : 1);
    if (training.interleaves()) space.divide_into_stages();
    space.restrict_to(converting_before_views(p, fastest_programs(p)));
    auto const graph = search::explore(space, 20'000);
    std::vector<step> steps;
    for (auto const& i : space.instructions()) steps.push_back(make_step(p, i, training));
    std::vector<double> const even(model.class_count(), 1.0 / model.ranks());
    priced_graph const priced(space, graph, steps, model, uniform_shares(even), training);
    synthesis_options const options{.engine = training.interleaves() ? search_engine::pareto_dp : search_engine::best_first, .beam = 100};
    auto const found = synthesise<Accumulator>(priced, options);
    if (!found.path) throw input_error("plan", "no program fits");
    return {realise(*found.path, space, steps, c, types.per_device({even}), training).first, 1 - found.lower_bound / found.cost.seconds};
}

void run(program const& p, cluster const& c, double bandwidth, long batch) {
    auto const turns = best_of<duplex>(p, c, {.micro_batches = 2}), whole = best_of<overlapped>(p, c, {.overlaps_gradients = true});
    int replicated = 0, sharded = 0, gates = 0, whole_gates = 0;
    for (auto const& s : turns.what.steps) {
        auto const& i = s.instruction;
        if (i.what == instruction::kind::read && turns.what.tensors[i.tensor].role == tensor_role::parameter) (i.from.is_shard() ? sharded : replicated)++;
        if (i.what != instruction::kind::compute || !p.kind(i.op).ends_with("top_2_gating")) continue;
        ++gates;
        whole_gates += i.loop < 0;
    }
    std::printf("%8.0f %6ld %12.2f %7.2f %12.2f %7.2f %11d %8d %4d of %d\n", bandwidth, batch, 1e3 * turns.what.cost(), 100 * turns.gap, 1e3 * whole.what.cost(), 100 * whole.gap, replicated,
                sharded, whole_gates, gates);
}

} // namespace

int main() {
    char const* const data = std::getenv("HEDDLE_REFERENCE_DATA");
    fs::path const file = fs::path(data ? data : "") / "models" / "hidup_bert_sgmoe_L4_d8.json";
    if (!data || !fs::exists(file)) {
        std::puts("HEDDLE_REFERENCE_DATA is not set, or has no HiDup models: skipped");
        return 0;
    }
    auto const model = json::read_model(file);
    std::printf("%8s %6s %12s %7s %12s %7s %11s %8s %s\n", "Gbit/s", "batch", "in turn, ms", "gap %", "whole, ms", "gap %", "replicated", "sharded", "gates on all devices");
    for (double bandwidth : {400, 200, 100, 50, 30, 20, 10, 5}) run(model.program, two_machines(bandwidth), bandwidth, 256);
    for (long batch : {512, 256, 128, 64, 32, 16}) run(with_batch_size(model.program, batch), two_machines(100), 100, batch);
}
