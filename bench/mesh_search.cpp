// SPDX-License-Identifier: BSL-1.0
// Programs on meshes of machines and devices: what the search of two axes finds for shipped models, how long it takes,
// and what it proves, beside plans of one axis and of device groups. Every program is verified. Arguments: files of
// models, then `--cluster` and a file of a cluster, and `--mesh` and its sizes, such as `2x8x8`; by default the shipped
// models on 8 machines of 8 (2 V100, 6 P100), and machines and their devices.
#include "planning_run.hpp"

#include <heddle/clp/all.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>

#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
namespace fs = std::filesystem;

double peak_megabytes() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return static_cast<double>(used.ru_maxrss) / 1024;
}

/// Returns machines and their devices or, of sizes such as `2x8x8`, the mesh that they name.
mesh mesh_of(std::string const& sizes, cluster const& c) {
    if (sizes.empty()) {
        auto const grouped = with_grouped_machines(c);
        return mesh({grouped.devices().size(), static_cast<std::size_t>(grouped.group_sizes()[0])});
    }
    std::vector<std::size_t> axes;
    std::istringstream text(sizes);
    for (std::string size; std::getline(text, size, 'x');) axes.push_back(std::stoul(size));
    return mesh(axes);
}

void show(fs::path const& file, cluster c, std::string const& sizes, bool compare) {
    double const begun = bench::cpu_seconds();
    auto const model = bench::read_program(file);
    auto const indexed = index_program(model);
    double const is_read = bench::cpu_seconds();
    mesh const m = mesh_of(sizes, c);
    auto const grouped = machines_of(c, m);
    clp::ratio_solver solver;
    auto const found = search_mesh(indexed, grouped, m, solver);
    double const done = bench::cpu_seconds();
    if (!found.program) {
        std::printf("%-24s %-9s %s: %s\n", file.filename().c_str(), to_string(m).c_str(), name(found.status),
                    found.reason.c_str());
        return;
    }
    auto const checked = verify(indexed, *found.program);
    double most = 0;
    for (auto bytes_held : found.memory) most = std::max(most, bytes_held);
    std::printf("%-24s %-9s %10.5f s  gap %6.2f %%  read %5.2f s  search %5.2f s  %5.0f MB  holds %5.1f GB  %s",
                file.filename().c_str(), to_string(m).c_str(), found.cost, 100 * (1 - found.lower_bound / found.cost),
                is_read - begun, done - is_read, peak_megabytes(), most / 1e9,
                checked ? "verified" : checked.problem.c_str());
    if (compare) {
        cluster flat = c;
        for (auto& machines : flat.machines) machines.is_group = false;
        for (auto const& [what, on] : {std::pair("flat", flat), {"groups", grouped}}) {
            auto const plan = plan_hap(model, on, clp::ratio_solver{});
            std::printf("  %s %.5f s", what, plan.exists() ? plan.cost() : 0.0);
        }
    }
    std::printf("\n");
    std::fflush(stdout);
}

} // namespace

int main(int argc, char** argv) {
    fs::path const examples = HEDDLE_EXAMPLES;
    fs::path cluster_file = examples / "clusters" / "v100_p100_8x8.json";
    std::vector<fs::path> models;
    std::string sizes;
    bool compare = true;
    for (int n = 1; n < argc; ++n) {
        std::string const word = argv[n];
        if (word == "--cluster" && n + 1 < argc) cluster_file = argv[++n];
        else if (word == "--mesh" && n + 1 < argc) sizes = argv[++n];
        else if (word == "--alone") compare = false;
        else models.push_back(word);
    }
    if (models.empty())
        for (auto const* name : {"bert_12", "gpt2_12", "vit_12", "bert_moe_12", "vgg19"})
            models.push_back(examples / "models" / (std::string(name) + ".json.gz"));
    auto const c = json::read_cluster(cluster_file);
    for (auto const& file : models) show(file, c, sizes, compare);
}
