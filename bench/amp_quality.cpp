// SPDX-License-Identifier: BSL-1.0
// Compares AMP's measured strategies ($HEDDLE_REFERENCE_DATA/amp) with what AMP and Heddle predict for them: rank
// correlation, error and regret, where each trial is predicted by a model calibrated on all others; memory and status;
// and the speed-up that layer assignment gives as layers become more unlike.
#include "amp_data.hpp"
#include "truth/report.hpp"

#include <heddle/pipeline/calibrate.hpp>
#include <heddle/pipeline/strategy_baselines.hpp>
#include <heddle/pipeline/strategy_walk.hpp>
#include <heddle/planner/amp.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using namespace heddle::bench;

void print_header() {
    std::printf("  %-34s %8s %12s %12s %12s\n", "predicted by", "Spearman", "mean error", "regret of 1", "of 3 tried");
}

void print_row(char const* name, std::vector<double> const& predicted, std::vector<double> const& measured) {
    double error = 0;
    for (std::size_t i = 0; i < measured.size(); ++i)
        error += std::abs(predicted[i] / measured[i] - 1) / static_cast<double>(measured.size());
    std::printf("  %-34s %8.3f %10.1f %% %10.1f %% %10.1f %%\n", name, spearman(predicted, measured), 100 * error,
                100 * regret(predicted, measured, 1), 100 * regret(predicted, measured, 3));
}

/// Compares strategies whose time the paper's tables give too. It shows how far two measurements of one strategy
/// differ, which no prediction can undercut.
void compare_repeats(setting const& s, fs::path const& tables) {
    if (!fs::exists(tables)) return;
    std::printf("  measured twice:\n");
    auto const wanted = s.problem.name.substr(std::string("amp_").size());
    auto const file = nlohmann::json::parse(std::ifstream(tables));
    double most = 0;
    for (auto const& table : file.at("tables")) {
        if (table.at("setting") != wanted) continue;
        for (auto const& row : table.at("rows"))
            for (auto const& t : s.trials) {
                auto const d = t.plan.degrees();
                if (!t.measured || d.pipeline != row.at("pp") || d.tensor != row.at("tmp") ||
                    t.plan.micro_batch_size != row.at("mbs"))
                    continue;
                bool const is_same = t.plan.cuts == row.at("layer_bounds").get<std::vector<std::size_t>>();
                double const other = row.at("measured_s").get<double>(), apart = std::abs(other / *t.measured - 1);
                if (is_same) most = std::max(most, apart);
                std::printf("    %s  %5.2f and %5.2f s, %4.1f %% apart%s\n", t.name().c_str(), *t.measured, other,
                            100 * apart, is_same ? "" : ", other layers in its stages");
            }
    }
    std::printf("  the same strategy measured twice is up to %.1f %% apart\n", 100 * most);
}

/// Returns the problem calibrated on all finished trials.
strategy_problem compare_times(setting const& s) {
    std::vector<measured_strategy> finished;
    std::vector<double> measured, amp, plain, fitted, left_out;
    for (auto const& t : s.trials) {
        if (!t.measured) continue;
        finished.push_back({t.plan, seconds(*t.measured)});
        measured.push_back(*t.measured);
        amp.push_back(t.amp);
    }
    auto const all = calibrate(s.problem, finished);
    for (std::size_t i = 0; i < finished.size(); ++i) {
        plain.push_back(evaluate(s.problem, finished[i].plan).total.value);
        fitted.push_back(evaluate(all, finished[i].plan).total.value);
        auto rest = finished;
        rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
        left_out.push_back(evaluate(calibrate(s.problem, rest), finished[i].plan).total.value);
    }
    print_header();
    print_row("AMP", amp, measured);
    print_row("here, nothing fitted", plain, measured);
    print_row("here, each trial left out", left_out, measured);
    print_row("here, fitted on all", fitted, measured);
    auto const first = *std::ranges::min_element(left_out);
    auto const faster = std::ranges::count_if(s.trials, [&](auto const& t) {
        auto const cost = evaluate(all, t.plan);
        return !t.measured && cost.fits() && cost.total.value < first;
    });
    std::printf("  unfinished trials predicted to fit memory and to be faster than the first choice: %lld\n",
                static_cast<long long>(faster));
    std::printf("  fitted on all:");
    for (auto const& type : all.types) {
        std::printf(" %s launch %.2f ms, scale", type.name.c_str(), type.launch.value * 1e3);
        for (auto const& [degree, profile] : type.profiles) std::printf(" %.2f at degree %zu,", profile.scale, degree);
    }
    auto const speed = [&](network_link profiled_machine::* which) {
        return (all.machines[0].*which).bandwidth / (s.problem.machines[0].*which).bandwidth;
    };
    std::printf(" links x %.2f inside, x %.2f between machines\n", speed(&profiled_machine::inside),
                speed(&profiled_machine::outside));
    return all;
}

void compare_memory(setting const& s) {
    std::size_t finished = 0, rejected_finished = 0, not_finished = 0, rejected = 0;
    std::printf("  predicted to exceed memory:\n");
    for (auto const& t : s.trials) {
        auto const cost = evaluate(s.problem, t.plan);
        std::size_t worst = 0;
        for (std::size_t i = 0; i < cost.memory.size(); ++i)
            if (cost.memory[i] / cost.memory_limit[i] > cost.memory[worst] / cost.memory_limit[worst]) worst = i;
        (t.measured ? finished : not_finished) += 1;
        if (cost.fits()) continue;
        (t.measured ? rejected_finished : rejected) += 1;
        std::printf("    %s  %6.2f of %5.2f GB on stage %2zu  %s\n", t.name().c_str(), cost.memory[worst].value / 1e9,
                    cost.memory_limit[worst].value / 1e9, worst, t.status.c_str());
    }
    std::printf("  of %zu finished trials %zu, of %zu others %zu\n", finished, rejected_finished, not_finished,
                rejected);
}

void print_strategy(char const* name, strategy const& s, strategy_cost const& c, setting const& of) {
    std::printf("    %-28s %s  %7.3f s", name, trial{s, 0, {}, ""}.name().c_str(), c.total.value);
    for (auto const& t : of.trials)
        if (t.plan.degrees() == s.degrees() && t.plan.micro_batch_size == s.micro_batch_size && t.measured)
            std::printf("  (measured %.2f s with AMP's layers)", *t.measured);
    std::printf("\n");
}

void plan_setting(setting const& s, strategy_problem const& calibrated) {
    std::printf("  planned, all predictions:\n");
    auto const found = plan_amp(calibrated);
    for (std::size_t i = 0; i < std::min<std::size_t>(3, found.record.size()); ++i)
        print_strategy(i == 0 ? "plan_amp, best" : "", found.record[i].plan, found.record[i].cost, s);
    strategy_model const model(calibrated);
    for (auto const balance : {layer_balance::count, layer_balance::parameters}) {
        auto const all = megatron_strategies(calibrated, balance);
        auto const best = std::ranges::min_element(all, {}, [&](auto const& x) { return model.cost(x).total; });
        if (best != all.end())
            print_strategy(balance == layer_balance::count ? "Megatron, layers uniform" : "Megatron, by parameters",
                           *best, model.cost(*best), s);
    }
    search::random_stream random(1);
    double sum = 0;
    int fitting = 0;
    std::optional<strategy> best;
    for (int i = 0; i < 50; ++i) {
        auto r = random_strategy(calibrated, random);
        auto const cost = model.cost(r);
        if (!cost.fits()) continue;
        ++fitting;
        sum += cost.total.value;
        if (!best || cost.total < model.cost(*best).total) best = std::move(r);
    }
    if (best) print_strategy("best of 50 random", *best, model.cost(*best), s);
    if (fitting > 0)
        std::printf("    mean of the %d random that fit                                %7.3f s\n", fitting,
                    sum / fitting);
}

/// Takes over what was fitted elsewhere on the types of device that are here too: launch times, scales, and speeds of
/// the links of their machines.
strategy_problem calibrated_elsewhere(strategy_problem to,
                                      std::vector<std::pair<setting, strategy_problem>> const& fitted) {
    for (auto const& [original, from] : fitted)
        for (std::size_t t = 0; t < to.types.size(); ++t) {
            auto& type = to.types[t];
            auto const known = std::ranges::find(from.types, type.name, &profiled_type::name);
            if (known == from.types.end()) continue;
            type.launch = known->launch;
            for (auto& [degree, profile] : type.profiles)
                if (auto const found = known->profiles.find(degree); found != known->profiles.end())
                    profile.scale = found->second.scale;
            for (auto& m : to.machines) {
                if (m.type != t) continue;
                m.inside.bandwidth *= from.machines[0].inside.bandwidth / original.problem.machines[0].inside.bandwidth;
                m.outside.bandwidth *=
                    from.machines[0].outside.bandwidth / original.problem.machines[0].outside.bandwidth;
            }
        }
    return to;
}

/// Compares times on the mixed cluster that the paper's tables 8 and 9 give.
void compare_mixed(setting const& s, strategy_problem const& p) {
    struct row {
        std::int64_t micro_batch;
        std::size_t tensor, pipeline;
        double time;
    };
    std::vector<double> measured, amp, plain, transferred;
    for (auto const& [micro_batch, tensor, pipeline, time] : {row{1, 1, 4, 1.47},
                                                              {1, 1, 8, 1.28},
                                                              {1, 1, 16, 1.52},
                                                              {2, 1, 4, 1.52},
                                                              {2, 1, 8, 1.54},
                                                              {2, 1, 2, 2.27},
                                                              {4, 1, 2, 2.32},
                                                              {8, 1, 4, 1.97},
                                                              {8, 2, 2, 2.43},
                                                              {16, 2, 4, 2.34}})
        for (auto const& t : s.trials) {
            auto const d = t.plan.degrees();
            if (d.pipeline != pipeline || d.tensor != tensor || t.plan.micro_batch_size != micro_batch) continue;
            measured.push_back(time);
            amp.push_back(t.amp);
            plain.push_back(evaluate(s.problem, t.plan).total.value);
            transferred.push_back(evaluate(p, t.plan).total.value);
        }
    print_header();
    print_row("AMP", amp, measured);
    print_row("here, nothing fitted", plain, measured);
    print_row("here, fitted on the two above", transferred, measured);
}

/// Draws AMP's figure 3: by how much assigned layers are faster than balanced ones at pp 4, dp 4, tmp 1, mbs 1, as eq.
/// (9)'s ratio of the narrow layers' time to the wide layers' grows.
void vary_heterogeneity(setting const& s, strategy_problem p) {
    if (s.narrow.empty() || p.machines.size() * p.machines[0].devices != 16) return;
    std::printf("  speed-up of assigned layers, pp 4, dp 4, tmp 1, mbs 1, by heterogeneity (eq. (9)):\n");
    std::printf("    %13s %12s %15s %12s\n", "heterogeneity", "over uniform", "over parameters", "assigned, s");
    double wide = 0, narrow = 0;
    auto& times = p.types[0].profiles.at(1).layers;
    for (std::size_t l = 0; l < p.layer_count(); ++l) {
        bool const is_narrow = std::ranges::find(s.narrow, l) != s.narrow.end();
        if (p.layers[l].gradients.split.value > 0) (is_narrow ? narrow : wide) += times[l].value;
    }
    auto const profiled = times;
    // As in the data, uniform and balanced cuts are over the layers that compute.
    for (double const ratio : {0.25, 0.5, 1.0, narrow / wide, 3.0, 4.0, 8.0}) {
        for (auto const l : s.narrow) times[l] = profiled[l] * (ratio * wide / narrow);
        strategy_model const model(p);
        auto const placement = megatron_placement({4, 4, 1});
        auto const passes = p.global_batch / 4;
        auto const assigned = assign_strategy(model, {{4, 4, 1}, 1, passes}, placement);
        if (!assigned) continue;
        auto const time = [&](std::vector<std::size_t> cuts) {
            return model.cost({placement, 1, passes, std::move(cuts)}).total;
        };
        auto const own = model.cost(*assigned).total;
        std::vector<std::size_t> working;
        for (std::size_t l = 0; l < p.layer_count(); ++l)
            if (profiled[l].value > 0) working.push_back(l);
        auto uniform = uniform_cuts(working.size(), 4);
        for (std::size_t i = 1; i < 4; ++i) uniform[i] = working[uniform[i]];
        uniform[4] = p.layer_count();
        std::printf("    %13.2f %10.2f x %13.2f x %12.3f%s\n", ratio, time(uniform) / own,
                    time(parameter_cuts(p, 4)) / own, own.value, ratio == narrow / wide ? "  as profiled" : "");
    }
}

} // namespace

int main() {
    char const* const data = std::getenv("HEDDLE_REFERENCE_DATA");
    if (!data) {
        std::puts("HEDDLE_REFERENCE_DATA is not set: skipped");
        return 0;
    }
    std::vector<std::pair<setting, strategy_problem>> fitted;
    for (auto const* const name : {"amp_homogeneous", "amp_het_model", "amp_het_cluster"}) {
        fs::path const path = fs::path(data) / "amp" / (std::string(name) + ".json");
        if (!fs::exists(path)) continue;
        auto const s = read(path);
        auto const finished = std::ranges::count_if(s.trials, [](auto const& t) { return t.measured.has_value(); });
        std::printf("%s: %zu strategies, %lld finished\n", name, s.trials.size(), static_cast<long long>(finished));
        auto const calibrated = finished > 0 ? compare_times(s) : calibrated_elsewhere(s.problem, fitted);
        if (finished > 0) compare_repeats(s, fs::path(data) / "amp" / "amp_paper_tables_6_11.json");
        if (finished > 0) fitted.emplace_back(s, calibrated);
        else compare_mixed(s, calibrated);
        compare_memory(s);
        plan_setting(s, calibrated);
        vary_heterogeneity(s, calibrated);
        std::puts("");
    }
}
