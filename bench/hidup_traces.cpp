// SPDX-License-Identifier: BSL-1.0
// Compares predicted with measured iterations of the mixture of experts traced on 4 x V100-SXM2-32GB
// ($HEDDLE_REFERENCE_DATA/hidup_traces). HiDup's own run ("ours") is predicted as micro-batches in turn with experts in
// parallel and matrices gathered, as its collectives show; PyTorch's data parallelism ("ddp") with gradient overlap;
// both with stochastic gradient descent without momentum, as their kernels show. Rates, overheads and the two
// collectives of examples/clusters/v100x4_nvlink.json are fitted to the kernels and NCCL calls of the same traces
// (fit_traces.cpp); by how much kernels are slower beside collectives, to interference.csv; by how much collectives are
// slower beside kernels, and how long they wait for other ranks, to collective_calls.csv. Nothing is fitted to
// iterations. How the traced systems run a plan is in simulation_options and training_options; the evidence for it is
// in docs/explanation/hidup_figures.md.
#include "strategy_search.hpp"
#include "table_file.hpp"

#include <heddle/json/cluster.hpp>
#include <heddle/json/model.hpp>
#include <heddle/plan/simulate.hpp>
#include <heddle/synthesis/baselines.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
namespace fs = std::filesystem;
using bench::read_table;

/// The seconds of computation by kind of operator, those of the whole iteration, those in which either is busy, and the
/// part of the shorter that is beside the other.
struct iteration {
    double products = 0, normalisations = 0, other = 0, wall = 0, compute = 0, communication = 0, ratio = 0;
};

iteration measured(fs::path const& folder, std::string const& system) {
    iteration sum;
    double count = 0;
    for (auto const& r : read_table(folder / "iterations.csv")) {
        if (r.at("system") != system) continue;
        ++count;
        sum.wall += std::stod(r.at("wall_us")), sum.compute += std::stod(r.at("comp_busy_us")),
            sum.communication += std::stod(r.at("comm_busy_us"));
        sum.ratio += std::stod(r.at("overlap_ratio_interval"));
    }
    std::map<std::string, std::string> names;
    for (auto const& r : read_table(folder / "names.csv")) names[r.at("name_id")] = r.at("name");
    auto const contains = [](std::string const& name, std::initializer_list<char const*> words) {
        return std::ranges::any_of(words, [&](char const* w) { return name.find(w) != std::string::npos; });
    };
    for (auto const& r : read_table(folder / ("timeline_1x4_" + system + ".csv"))) {
        if (r.at("kind") != "comp") continue;
        auto const& name = names[r.at("name_id")];
        (contains(name, {"gemm"}) ? sum.products
         : contains(name, {"LayerNorm", "Moments", "GammaBeta", "InternalGradients", "FusedParams", "softmax"})
             ? sum.normalisations
             : sum.other) += std::stod(r.at("dur_us")) * 1e-6;
    }
    for (double* x : {&sum.wall, &sum.compute, &sum.communication}) *x *= 1e-6 / count;
    sum.ratio /= count;
    return sum;
}

/// Returns the mean factor by which kernels beside collectives take longer than alone, weighted by their time alone.
double interference(fs::path const& folder, std::string const& system) {
    double alone = 0, beside = 0;
    for (auto const& r : read_table(folder / "interference.csv")) {
        if (r.at("system") != system || r.at("ratio_comm").empty()) continue;
        double const times = std::stod(r.at("n_with_comm")), mean = std::stod(r.at("mean_alone_us"));
        alone += times * mean;
        beside += times * mean * std::stod(r.at("ratio_comm"));
    }
    return alone > 0 ? beside / alone : 1;
}

/// Returns the factor by which collectives of one kind and size take longer beside kernels than alone, as a mean over
/// calls weighted by their time alone. Both times include the wait of calls for other ranks.
double collective_interference(fs::path const& folder, std::string const& system) {
    struct times {
        double alone = 0, beside = 0, alone_count = 0, beside_count = 0;
    };
    std::map<std::pair<std::string, std::string>, times> by_size;
    for (auto const& r : read_table(folder / "collective_calls.csv")) {
        if (r.at("system") != system || r.at("tensor_bytes").empty()) continue; // sizes unknown
        auto& t = by_size[{r.at("phase") + r.at("collective"), r.at("tensor_bytes")}];
        double const duration = std::stod(r.at("dur_us"));
        bool const is_beside = std::stod(r.at("overlapped_compute_us")) > duration / 2;
        (is_beside ? t.beside : t.alone) += duration, ++(is_beside ? t.beside_count : t.alone_count);
    }
    double alone = 0, beside = 0;
    for (auto const& [size, t] : by_size) {
        if (t.alone_count == 0 || t.beside_count == 0) continue;
        alone += t.beside_count * t.alone / t.alone_count;
        beside += t.beside;
    }
    return alone > 0 ? beside / alone : 1;
}

/// Returns the seconds that a collective waits for other ranks: the average by which calls of known size take longer
/// alone than the fastest call of their kind and size.
double wait_for_ranks(fs::path const& folder, std::string const& system) {
    struct calls {
        double sum = 0, count = 0, least = std::numeric_limits<double>::infinity();
    };
    std::map<std::pair<std::string, std::string>, calls> alone;
    for (auto const& r : read_table(folder / "collective_calls.csv")) {
        double const duration = std::stod(r.at("dur_us"));
        if (r.at("system") != system || r.at("tensor_bytes").empty() ||
            std::stod(r.at("overlapped_compute_us")) > duration / 2)
            continue;
        auto& c = alone[{r.at("collective"), r.at("tensor_bytes")}];
        c.sum += duration, ++c.count, c.least = std::min(c.least, duration);
    }
    double waits = 0, count = 0;
    for (auto const& [size, c] : alone) waits += c.sum - c.count * c.least, count += c.count;
    return count > 0 ? waits / count * 1e-6 : 0;
}

/// Allows experts in parallel, large matrices that are stored in shards and gathered once, and everything else on all
/// devices.
instruction_filter as_traced(indexed_program const& p) {
    auto const whole = expert_parallel(p, parameter_storage::replicated),
               gathered = expert_parallel(p, parameter_storage::sharded_gradients);
    return {[&p, whole, gathered](instruction const& i) {
                auto const* const change = i.change();
                bool const is_large = change && p.tensors[change->tensor].is_parameter() &&
                                      p.tensors[change->tensor].info.size() > bytes(1e6);
                return is_large ? gathered(i) : whole(i);
            },
            whole.mark};
}

/// Makes a stage begin with what it communicates, which is where a parameter is gathered or its gradient reduced: these
/// are HiDup's stages, as the traces have them.
void begin_stages_at_parameters(plan& p) {
    p.stages.clear();
    bool computed = false;
    for (std::size_t n = 0; n < p.steps.size(); ++n) {
        auto const& s = p.steps[n].step;
        bool const communicates = s.once && !(s.forward_transfers.empty() && s.deferred_transfers.empty());
        if (computed && communicates) p.stages.push_back(n);
        computed = (computed && !communicates) || (!s.once && s.forward.launches);
    }
}

/// Both systems end an iteration with a barrier, as the last kernels of their traces say: NCCL's is an all-reduce of
/// one byte, and may `wait` for the last rank.
iteration predicted(plan const& p, cluster const& c, timeline const& t, seconds wait = {}) {
    iteration result;
    auto const model = per_device_model(c, main_type(p));
    double const barrier = (model.model(collective::all_reduce).time(bytes(1)) + wait).value;
    for (auto const& e : t.events) {
        if (e.device != 0 || e.transfer || e.when == timeline_event::phase::update) continue;
        auto const& s = p.steps[e.step].step;
        bool const is_backward = e.when != timeline_event::phase::forward;
        auto const& work = s.work(is_backward);
        double const share = s.share.is_split() ? shares_of(p)(s.share)[0] : 1;
        double const beside = e.duration * model.beside(work, 0, s.type).at(share) /
                              model.time(work, 0, kernel_of(s, is_backward), s.share.is_split(), share);
        bool const is_product = s.category == operator_class::matmul || s.category == operator_class::attention;
        (is_product                                    ? result.products
         : s.category == operator_class::normalisation ? result.normalisations
                                                       : result.other) += e.duration - beside;
        (s.category == operator_class::normalisation ? result.normalisations : result.other) += beside;
    }
    auto both = overlap_of(t, 0);
    if (p.provenance.training.copies_gradients) // back, before the update: the traces count it with the collectives
        for (auto const& s : p.steps)
            if (!s.step.deferred_transfers.empty())
                both.communication += 2 * s.step.deferred_transfers[0].size.value / model.bandwidth(0);
    both.communication += barrier;
    result.wall = t.total + barrier;
    result.compute = both.compute, result.communication = both.communication, result.ratio = both.ratio();
    return result;
}

void print(char const* system, iteration const& p, iteration const& m) {
    auto const line = [&](char const* what, double a, double b) {
        std::printf("%-6s %-26s %12.2f %12.2f %+9.1f %%\n", system, what, a * 1e3, b * 1e3, 100 * (a / b - 1));
    };
    line("products", p.products, m.products);
    line("normalisations", p.normalisations, m.normalisations);
    line("other kernels", p.other, m.other);
    line("computation, busy", p.compute, m.compute);
    line("collectives, busy", p.communication, m.communication);
    line("iteration", p.wall, m.wall);
    std::printf("%-6s %-26s %10.1f %% %10.1f %% %+9.1f points\n", system, "overlap", 100 * p.ratio, 100 * m.ratio,
                100 * (p.ratio - m.ratio));
}

} // namespace

int main() {
    char const* const data = std::getenv("HEDDLE_REFERENCE_DATA");
    fs::path const folder = fs::path(data ? data : "") / "hidup_traces",
                   file = fs::path(data ? data : "") / "models" / "hidup_tracecfg_tmoe_L6_d4.json";
    if (!data || !fs::exists(folder / "iterations.csv") || !fs::exists(file)) {
        std::puts("HEDDLE_REFERENCE_DATA is not set, or has no hidup_traces: skipped");
        return 0;
    }
    auto const model = json::read_model(file);
    auto const c = json::read_cluster(HEDDLE_EXAMPLES "/clusters/v100x4_nvlink.json");
    std::printf("%-6s %-26s %12s %12s %11s\n", "system", "milliseconds", "predicted", "measured", "error");

    bench::strategy_search const turns(model.program, c, {.optimizer_bytes_per_element = 0, .micro_batches = 2},
                                       as_traced);
    auto ours = turns.best<duplex>().what;
    begin_stages_at_parameters(ours);
    double const slower = interference(folder, "ours"), slower_collectives = collective_interference(folder, "ours");
    seconds const wait(wait_for_ranks(folder, "ours"));
    simulation_options const as_run{.slower_work = slower,
                                    .slower_collectives = slower_collectives,
                                    .wait = wait,
                                    .copies_parts = true,
                                    .in_place = true,
                                    .between_kernels = true};
    print("ours", predicted(ours, c, simulate(ours, c, as_run), wait), measured(folder, "ours"));
    training_options const as_trained{
        .optimizer_bytes_per_element = 0, .overlaps_gradients = true, .copies_gradients = true};
    bench::strategy_search const whole(model.program, c, as_trained, [](indexed_program const& p) {
        return data_parallel(p, parameter_storage::replicated);
    });
    auto const ddp = whole.best<overlapped>().what;
    print("ddp", predicted(ddp, c, run_serial(ddp, c)), measured(folder, "ddp"));
    std::printf("kernels of ours beside collectives: %.3f times as long, collectives beside kernels: %.3f; a "
                "collective waits for %.0f us\n",
                slower, slower_collectives, wait.value * 1e6);
}
