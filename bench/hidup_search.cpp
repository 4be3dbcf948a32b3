// SPDX-License-Identifier: BSL-1.0
// Times HiDup's strategy search: shipped and reference transformers with mixtures of experts
// ($HEDDLE_REFERENCE_DATA/models/hidup_*), and BERT-SGMoE with more and more layers, in two micro-batches, on 4 to 1024
// equal devices, over all orders of operators. Prints the CPU milliseconds of each part of one search, the program's
// seconds, and its proven gap; then those of the whole planner, which also proves its plan, but does not plan the whole
// batch beside it. Reading is not timed.
#include "deeper_model.hpp"

#include <heddle/clp/all.hpp>
#include <heddle/cost/duplex.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/json/cluster.hpp>
#include <heddle/json/model.hpp>
#include <heddle/planner/hidup.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/relaxation_bounds.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/micro_batch.hpp>
#include <heddle/theory/rescale.hpp>
#include <heddle/theory/view_conversions.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using namespace heddle;
namespace fs = std::filesystem;

double milliseconds() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void run(std::string const& name, program const& whole, cluster const& c) {
    double const begin = milliseconds();
    training_options const training{.micro_batches = 2};
    auto const p = index_program(micro_batch_of(whole, training.micro_batches));
    device_types const types(c);
    cost_model const model(c, types.classes, element_type::float32, training.bucket);
    cut_space space(p, operator_kinds(p), hidup_options{}.planning.cuts);
    space.divide_into_stages();
    space.restrict_to(converting_before_views(p, fastest_programs(p, best_gather::before_use)));
    auto const graph = search::explore(space, 20'000);
    double const explored = milliseconds();
    std::vector<step_work> steps;
    for (auto const& i : space.instructions()) steps.push_back(make_step(p, i, training));
    share_vector const even(model.class_count(), 1.0 / model.ranks());
    priced_graph const priced(space, graph, steps, model, uniform_shares(even), training);
    double const priced_at = milliseconds();
    auto const bounds = improve_bounds<duplex>(priced, 20);
    double const bounded = milliseconds();
    auto const found = synthesise<duplex>(priced, {.engine = search_engine::pareto_dp, .beam = 30, .search = {}});
    double const done = milliseconds();
    double const first_bounds = bounded - priced_at; // synthesise makes them again
    double const before = milliseconds();
    static_cast<void>(plan_hidup(whole, c, clp::ratio_solver{}, {.compares = false}));
    double const planned = milliseconds() - before;
    std::printf("%-28s %5d %5zu %8.1f %8.1f %8.1f %8.1f %8.1f %10.5f %7.3f %9zu %10.1f\n", name.c_str(), model.ranks(),
                p.operators.size(), explored - begin, priced_at - explored, first_bounds,
                std::max(0.0, done - bounded - first_bounds), done - begin - first_bounds, found.cost.seconds,
                100 * (1 - found.lower_bound / found.cost.seconds), found.statistics.kept, planned);
}

} // namespace

int main() {
    fs::path const examples = HEDDLE_EXAMPLES;
    auto c = json::read_cluster(examples / "clusters" / "v100x4_nvlink.json");
    for (auto& type : c.types) type.memory = bytes(1e15); // time alone
    std::printf("%-28s %5s %5s %8s %8s %8s %8s %8s %10s %7s %9s %10s\n", "model", "GPUs", "ops", "explore", "price",
                "bounds", "search", "total ms", "plan s", "gap %", "kept", "planner ms");
    std::vector<fs::path> models{examples / "models" / "bert_moe_2.json.gz",
                                 examples / "models" / "bert_moe_12.json.gz"};
    if (char const* const data = std::getenv("HEDDLE_REFERENCE_DATA");
        data && fs::is_directory(fs::path(data) / "models"))
        for (auto const& entry : fs::directory_iterator(fs::path(data) / "models"))
            if (entry.path().filename().string().starts_with("hidup_")) models.push_back(entry.path());
    std::ranges::sort(models);
    for (auto const& file : models) {
        auto const model = json::read_model(file);
        run(model.name, model.program, c);
    }
    if (char const* const data = std::getenv("HEDDLE_REFERENCE_DATA")) {
        auto const bert = fs::path(data) / "models" / "hidup_bert_sgmoe_L4_d8.json";
        auto nodes = c;
        nodes.inter = network_link{bytes_per_second(1.2e9), seconds(50e-6)};
        for (int layers : {4, 8, 24, 48, 96})
            if (fs::exists(bert))
                run("BERT-SGMoE, " + std::to_string(layers) + " layers", bench::deeper_model(bert, 2, layers).program,
                    c);
        nodes.measured.clear();
        for (int machines : {1, 16, 256}) {
            nodes.machines = {{0, 4, machines}};
            if (fs::exists(bert))
                run("8 layers, 10 Gbit/s", with_batch_size(bench::deeper_model(bert, 2, 8).program, 32 * 4 * machines),
                    nodes);
        }
    }
    auto const deep = json::read_model(examples / "models" / "bert_moe_12.json.gz");
    c.inter = network_link{bytes_per_second(1.2e9), seconds(50e-6)};
    c.measured.clear();
    for (int machines : {1, 16, 256}) {
        c.machines = {{0, 4, machines}};
        run("bert_moe_12, 10 Gbit/s", with_batch_size(deep.program, 32 * 4 * machines), c);
    }
}
