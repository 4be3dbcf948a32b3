// SPDX-License-Identifier: BSL-1.0
// Times one solve of sharding ratios on 8 and 64 devices, each of a type of its own: for the stages of programs found
// (the shipped models and, if $HEDDLE_REFERENCE_DATA is set, the models there) and for random stages. The plan is made
// once, on 2 V100 and 6 P100, and not timed. CLP starts from the preferred ratios and from the solution; Ipopt runs if
// it is installed. A solution whose objective is not CLP's is an error. The counters are stages, and distinct stages.
#include <heddle/clp/all.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/synthesis/relaxation_bounds.hpp>
#include <heddle/theory/cut_space.hpp>
#if __has_include(<heddle/ipopt/all.hpp>)
#include <heddle/ipopt/all.hpp>
#endif

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace heddle;
namespace fs = std::filesystem;

/// Makes `size` machines of one device each, all different: rates over a range of ten, bandwidths over one of four.
cluster unequal_cluster(int size) {
    std::mt19937_64 random(7);
    auto const between = [&](double low, double high) {
        return low * std::pow(high / low, static_cast<double>(random() >> 11) * 0x1p-53);
    };
    cluster c;
    c.name = "unequal";
    for (int n = 0; n < size; ++n) {
        device_type type{"type " + std::to_string(n),
                         bytes(64e9),
                         bytes_per_second(between(400e9, 1600e9)),
                         seconds(between(2e-6, 8e-6)),
                         {}};
        type.rates[element_type::float32].fallback = flops_per_second(between(2e12, 20e12));
        c.types.push_back(type);
        c.machines.push_back({static_cast<std::size_t>(n), 1, 1});
    }
    c.inter = network_link{bytes_per_second(1.3e9), seconds(50e-6)};
    validate(c);
    return c;
}

ratio_problem problem_of(program_steps const& program, int devices) {
    auto const c = unequal_cluster(devices);
    std::vector<device_class> classes;
    for (std::size_t t = 0; t < c.types.size(); ++t) classes.push_back({t, 1});
    cost_model const model(c, classes);
    return make_ratio_problem(program, model, compute_proportional(model, element_type::float32));
}

/// Says how a program is cut: as is fastest, or along anything but the batch, which makes many stages.
enum class cut { freely, not_along_batch };

/// The steps of a program of a model, made once.
program_steps const& steps_of(fs::path const& file, fs::path const& on, cut how) {
    static std::map<std::pair<fs::path, cut>, program_steps> known;
    auto const [at, is_new] = known.try_emplace({file, how});
    auto& made = at->second;
    if (!is_new) return made;
    auto const c = json::read_cluster(on);
    auto const model = json::read_model(file);
    auto const p = index_program(model.program);
    cut_space space(p);
    auto const batch = batch_factors(p);
    space.restrict_to([&](instruction const& i) {
        auto const share = make_step(p, i, {}).share;
        return how == cut::freely || !share.is_split() || !batch.contains({share.tensor, share.factor});
    });
    auto const graph = search::explore(space, 20000);
    std::vector<step_work> steps;
    for (auto const& i : space.instructions()) steps.push_back(make_step(p, i, {}));
    cost_model const costs(c, {{0, 2}, {1, 6}});
    uniform_shares const shares(even_ratios(costs));
    priced_graph const priced(space, graph, steps, costs, shares);
    auto const found = improve_bounds(priced, 20);
    if (!found.path) return made;
    for (auto const& s : heddle::steps_of(*found.path, space, steps)) {
        made.steps.push_back(costs.decided(s.step, shares));
        for (auto const& [t, f] : s.saved) made.saved.push_back({held_bytes(p.tensors[t], f[0])});
    }
    return made;
}

/// Makes stages that have nothing in common, which is the hardest case.
ratio_problem random_problem(int stages, int types) {
    std::mt19937_64 random(static_cast<std::uint64_t>(stages + types));
    auto const unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    ratio_problem p;
    p.counts.assign(static_cast<std::size_t>(types), 1);
    double sum = 0;
    for (int t = 0; t < types; ++t) sum += p.preferred.emplace_back(0.1 + unit());
    for (auto& r : p.preferred) r /= sum;
    for (int s = 0; s < stages; ++s) {
        auto& stage = p.stages.emplace_back();
        double const size = std::pow(100, unit());
        for (int t = 0; t < types; ++t)
            stage.push_back(
                {{0.01 * size * unit(), size * (0.5 + unit()) / (p.preferred[static_cast<std::size_t>(t)] * types)}});
    }
    for (int s = 0; s < stages; ++s) p.transfers.push_back({{{0.1, 10 * unit()}}});
    return p;
}

/// Solves the problem again and again; with `warm`, from its solution.
template <class Solver>
void solve(benchmark::State& state, ratio_problem const& p, Solver const& solver, bool warm) {
    if (p.stages.empty()) return state.SkipWithError("no program");
    auto const exact = clp::ratio_solver().solve(p);
    if (!exact.feasible) return state.SkipWithError("infeasible");
    auto const& start = warm ? exact.ratios : p.preferred;
    ratio_solution found;
    for (auto _ : state) found = solver.solve(p, start);
    if (std::abs(found.objective - exact.objective) > 1e-7 * exact.objective) state.SkipWithError("solvers disagree");
    state.counters["stages"] = static_cast<double>(p.stages.size());
    state.counters["distinct"] = static_cast<double>(reduce(p).stages.size());
}

} // namespace

int main(int argc, char** argv) {
    fs::path const examples = HEDDLE_EXAMPLES;
    auto const on = examples / "clusters" / "v100x2_p100x6.json";
    std::vector<fs::path> models;
    auto const add = [&](fs::path const& folder) {
        if (!fs::is_directory(folder)) return;
        for (auto const& entry : fs::directory_iterator(folder))
            if (entry.path().extension() == ".gz" || entry.path().extension() == ".json")
                models.push_back(entry.path());
    };
    add(examples / "models");
    if (char const* const data = std::getenv("HEDDLE_REFERENCE_DATA")) add(fs::path(data) / "models");
    std::ranges::sort(models);
    auto const add_benchmark = [](std::string const& name, auto const& make, int devices, auto const& solver,
                                  bool warm) {
        benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
            solve(state, make(devices), solver, warm);
        })->Unit(benchmark::kMillisecond);
    };
    auto const add_benchmarks = [&](std::string const& name, auto const& make) {
        for (int const devices : {8, 64}) {
            std::string const sized = name + "/" + std::to_string(devices);
            add_benchmark(sized + "/cold", make, devices, clp::ratio_solver(), false);
            add_benchmark(sized + "/warm", make, devices, clp::ratio_solver(), true);
#if __has_include(<heddle/ipopt/all.hpp>)
            add_benchmark(sized + "/ipopt", make, devices, ipopt::ratio_solver(), false);
#endif
        }
    };
    for (auto const& file : models)
        for (auto const how : {cut::freely, cut::not_along_batch})
            add_benchmarks(file.filename().string() + (how == cut::freely ? "/free" : "/batch_whole"),
                           [=](int devices) {
                               auto const& made = steps_of(file, on, how);
                               return made.steps.empty() ? ratio_problem{} : problem_of(made, devices);
                           });
    for (int const stages : {30, 100, 300})
        add_benchmarks("random/" + std::to_string(stages),
                       [=](int devices) { return random_problem(stages, devices); });
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
