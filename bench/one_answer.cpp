// SPDX-License-Identifier: BSL-1.0
// What one planner for all finds for shipped models on shipped clusters, beside the best of each family at one price. Writes
// docs/results/one_answer.md to stdout. Every plan is verified, written, read and priced again. Arguments: files of models.
#include "planning_run.hpp"

#include <heddle/clp/all.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using namespace heddle;
namespace fs = std::filesystem;

/// Those that other planners have, and those that the joint one alone has.
constexpr std::array others{"one axis", "groups", "mesh", "turns", "amp", "ditto"};
constexpr std::array own{"pipeline", "rounds", "turning stages", "recomputed", "accumulated"};

struct tally {
    int cases = 0, several_machines = 0, cheaper = 0, quick = 0, bad = 0;
    std::vector<double> gaps{};
};

void show(fs::path const& file, fs::path const& cluster_file, tally& all) {
    auto const model = bench::read_program(file);
    auto const c = json::read_cluster(cluster_file);
    double const begun = bench::cpu_seconds();
    auto const plan = find_plan(model, c, clp::ratio_solver{});
    double const took = bench::cpu_seconds() - begun;
    auto const name = file.filename().string(), on = cluster_file.stem().string();
    std::printf("| %s | %s |", name.substr(0, name.find('.')).c_str(), on.c_str());
    ++all.cases;
    if (!plan.exists()) {
        std::printf(" none: %s |\n", plan.reason.substr(0, plan.reason.find(';')).c_str());
        return;
    }
    auto const again = json::parse_staged_plan(json::write_plan(plan));
    double const priced = evaluate(again, c).time.total().value;
    bool const good = verify(model, again) && std::abs(priced - plan.cost()) <= 1e-9 * plan.cost();
    all.bad += !good;
    all.quick += took <= 2;
    double least = INFINITY;
    all.gaps.push_back(plan.gap());
    auto const stages =
        std::to_string(plan.places()) + (plan.rounds() > 1 ? " x " + std::to_string(plan.rounds()) : "");
    std::printf(" %.4g%s | %s, %d | %.1f%s | %.2f |", plan.cost(), good ? "" : " (not verified)", stages.c_str(),
                plan.micro_batches, 100 * plan.gap(), plan.space.find("layers") < plan.space.size() ? "" : " of work",
                took);
    auto const show_cost_of = [&](char const* family) {
        auto const found = plan.families.find(family);
        bool const has = found != plan.families.end() && found->second.cost;
        std::printf(has ? " %.4g |" : " |", has ? *found->second.cost : 0.0);
        return has ? *found->second.cost : INFINITY;
    };
    for (auto const* family : others) least = std::min(least, show_cost_of(family));
    for (auto const* family : own) show_cost_of(family);
    std::printf("\n");
    std::fflush(stdout);
    bool const several = has_several_machines(c);
    all.several_machines += several;
    all.cheaper += several && plan.cost() <= 0.95 * least;
}

} // namespace

int main(int count, char** arguments) {
    fs::path const examples = HEDDLE_EXAMPLES;
    std::vector<fs::path> models(arguments + 1, arguments + count), clusters;
    if (models.empty())
        for (auto const* m : {"bert_12.json.gz", "gpt2_12.json.gz", "vit_12.json.gz", "vgg19.json.gz",
                              "bert_moe_12.json.gz", "llama3_8b_32.pt2.gz", "mixtral_8x7b_32.pt2.gz"})
            models.push_back(examples / "models" / m);
    for (auto const& entry : fs::directory_iterator(examples / "clusters"))
        if (entry.path().stem() != "single" && !has_groups(json::read_cluster(entry.path())))
            clusters.push_back(entry.path());
    std::ranges::sort(clusters);
    std::printf(
        "# One price, one planner\n\n"
        "Made by `build/release/bench/one_answer > docs/results/one_answer.md`: `find_plan` for shipped models on "
        "shipped clusters, seconds per iteration by one price\n(`evaluate` of a staged plan). *plan* is what it "
        "returns, *stages* its stages (of a round, x rounds) and micro-batches, *gap %%* how far a bound is below it: "
        "of plans of stages "
        "of whole layers,\nmachine by machine, or, where it says so, of all plans, from work alone. *CPU s* is the "
        "time that planning took, with the bound. Then the best of each family: `amp` and `ditto`\nare these "
        "planners' strategies, stages planned in full; `pipeline` is pipelines of its own; `recomputed` and "
        "`accumulated` are one stage that holds less, looked for where memory is tight; `rounds` is the best pipeline "
        "with several stages on the same devices, and `turning stages` the best in whose stages parts of a micro-batch "
        "take turns. A family is left out "
        "where it has no plan, or a bound shows that it is no better.\nEvery plan was verified, written, read and "
        "priced again to 1e-9.\n\n"
        "| model | cluster | plan | stages | gap %% | CPU s |");
    for (auto const* family : others) std::printf(" %s |", family);
    for (auto const* family : own) std::printf(" %s |", family);
    std::printf("\n|---|---|---|---|---|---|");
    for (std::size_t n = 0; n < others.size() + own.size(); ++n) std::printf("---|");
    std::printf("\n");
    tally all;
    for (auto const& m : models)
        for (auto const& c : clusters) show(m, c, all);
    std::ranges::sort(all.gaps);
    auto const within = [&](double gap) { return std::ranges::upper_bound(all.gaps, gap) - all.gaps.begin(); };
    std::printf(
        "\nOf %d cases %d were planned in 2 seconds of CPU time; the gap is at most 3 %% in %d, 10 %% in %d, 25 %% "
        "in %d, and %.0f %% in all. Of %d with several machines, in %d the plan is at least 5 %% "
        "cheaper than the best of the families that other planners have.\n",
        all.cases, all.quick, static_cast<int>(within(0.03)), static_cast<int>(within(0.1)),
        static_cast<int>(within(0.25)), all.gaps.empty() ? 0 : std::ceil(100 * all.gaps.back()), all.several_machines,
        all.cheaper);
    return all.bad == 0 ? 0 : 1;
}
