// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Section 7 of HAP: iterations beside baselines (figures 13, 14), ablation (15), concurrent models (16), uneven
/// experts (17), time of synthesis (19).
#pragma once

#include "../layers.hpp"
#include "setting.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

namespace heddle::bench {

inline std::string in_seconds(std::optional<double> seconds) {
    if (!seconds) return "-";
    char text[32];
    std::snprintf(text, sizeof text, "%.4f", *seconds);
    return text;
}

inline std::optional<double> cost_of(std::optional<plan> const& p) {
    return p && p->exists() ? std::optional(p->cost()) : std::nullopt;
}

constexpr std::array hap_baselines{
    "DP-EV", "DP-CP", "ZeRO-1", "ZeRO-2", "fully sharded", "expert parallel", "expert parallel + ZeRO"};

/// Seconds per iteration of every model, at 1, 2, 4 and 8 devices a machine, beside all baselines, device groups and
/// meshes.
template <class MakeCluster>
void compare(MakeCluster const& make) {
    std::printf("seconds per iteration; - does not fit into memory, or is no strategy of its own for this model\n");
    std::printf("%-10s %4s", "model", "GPUs");
    for (auto const* column :
         {"DP-EV", "DP-CP", "ZeRO-1", "ZeRO-2", "sharded", "experts", "exp+ZeRO", "tensor", "plan"})
        std::printf(" %8s", column);
    std::printf(" %6s %6s %6s %9s %8s %6s\n", "gap %", "faster", "of all", "machines", "mesh", "gap %");
    for (auto const& m : hap_models)
        for (int each : {1, 2, 4, 8}) {
            auto const c = make(each);
            auto const model = scaled_model(m, device_count(c));
            auto const p = hap_plan(model, c);
            std::printf("%-10.*s %4d", static_cast<int>(m.name.size()), m.name.data(), device_count(c));
            std::optional<double> least;
            auto const print = [&](char const* name) {
                auto const found = p.baselines.find(name);
                auto const seconds = found == p.baselines.end() ? std::nullopt : found->second;
                if (seconds && (!least || *seconds < *least)) least = seconds;
                std::printf(" %8s", in_seconds(seconds).c_str());
            };
            for (auto const* name : hap_baselines) print(name);
            auto const least_of_hap = least;
            print("tensor parallel");
            std::printf(" %8s %6.2f", in_seconds(cost_of(p)).c_str(), 100 * p.gap());
            for (auto const& other : {least_of_hap, least})
                other&& p.exists() ? std::printf(" %6.2f", *other / p.cost()) : std::printf(" %6s", "-");
            auto const machines = with_grouped_machines(c);
            auto const grouped = each > 1 ? cost_of(hap_plan(model, machines)) : std::nullopt;
            std::printf(" %9s", in_seconds(grouped).c_str());
            if (each > 1) {
                mesh const axes({machines.devices().size(), static_cast<std::size_t>(each)});
                auto const on_mesh =
                    plan_mesh(model, c, axes, clp::ratio_solver{}, {.training = hap_training, .compares = false});
                std::printf(" %8s %6.2f\n", in_seconds(cost_of(on_mesh)).c_str(), 100 * on_mesh.gap());
            } else {
                std::printf(" %8s %6s\n", "-", "-");
            }
            std::fflush(stdout);
        }
    std::puts("faster: times the cheapest baseline but tensor parallelism, which HAP does not compare with; of all: "
              "times the cheapest of all\n"
              "machines: the plan with each machine as one device, data parallel inside\n"
              "mesh: the plan on machines by the devices of each");
}

inline void figure_13() {
    std::puts("2 machines of V100 and 6 of P100, 1 to 8 GPUs each");
    compare(heterogeneous);
}
inline void figure_13_without_latencies() {
    std::puts("2 machines of V100 and 6 of P100, 1 to 8 GPUs each; links without latencies");
    compare([](int each) { return without_latencies(heterogeneous(each)); });
}
inline void figure_14() {
    std::puts("4 machines of P100, 1 to 8 GPUs each");
    compare(homogeneous);
}
/// Shows what the program (Q), the ratios (B) and the communication options (C) add to data parallelism at even ratios.
inline void figure_15() {
    constexpr int each = 8;
    auto const c = heterogeneous(each);
    int const devices = device_count(c);
    std::printf("samples per second on 16 V100 and 48 P100; - does not fit into memory\n");
    std::printf("Q: programs at even ratios; B: ratios of a program and programs at ratios in turn; C: grouped "
                "collectives and sufficient factors\n");
    std::printf("%-10s %10s %10s %10s %10s %10s\n", "model", "DP-EV", "DP-CP", "Q", "Q, B", "Q, B, C");
    auto const without_options = [](indexed_program const& p) {
        auto all = fastest_programs(p);
        return instruction_filter(
            [allows = all.allows](instruction const& i) {
                auto const* const compute = i.as<instruction::compute>();
                return allows(i) && !(compute && gathers_factors(*compute));
            },
            all.mark);
    };
    for (auto const& m : hap_models) {
        auto const p = scaled_model(m, devices);
        double const samples = static_cast<double>(m.batch * devices);
        strategy const data(
            p, c, [](indexed_program const& i) { return data_parallel(i, parameter_storage::replicated); }, true);
        strategy const plain(p, c, without_options, true), all(p, c, fastest);
        auto const best = [&](strategy const& programs) {
            auto from_even = programs.alternated(programs.even()),
                 from_proportional = programs.alternated(programs.proportional());
            auto const a = cost_of(from_even), b = cost_of(from_proportional);
            return a && b ? std::optional(std::min(*a, *b)) : a ? a : b;
        };
        std::printf("%-10.*s", static_cast<int>(m.name.size()), m.name.data());
        for (auto const seconds : {cost_of(data.at(data.even())), cost_of(data.at(data.proportional())),
                                   cost_of(plain.at(plain.even())), best(plain), best(all)})
            seconds ? std::printf(" %10.1f", samples / *seconds) : std::printf(" %10s", "-");
        std::printf("\n");
        std::fflush(stdout);
    }
}

/// Compares one model on everything with two, each on the devices of one type.
inline void figure_16() {
    std::printf("samples per second: one model on all devices, beside a model on the V100s and another on the P100s\n");
    std::printf("%-10s %5s %10s %10s %10s %12s %10s\n", "model", "GPUs", "all", "V100s", "P100s", "concurrent",
                "all / c.");
    for (auto const& m : hap_models)
        for (int each : {1, 8}) {
            auto const rate = [&](cluster const& c) {
                auto const cost = cost_of(hap_plan(scaled_model(m, device_count(c)), c));
                return cost ? static_cast<double>(m.batch * device_count(c)) / *cost : 0;
            };
            double const all = rate(heterogeneous(each));
            double const fast = rate(make_cluster({{presets::v100, 2}}, each)),
                         slow = rate(make_cluster({{presets::p100, 6}}, each));
            std::printf("%-10.*s %5d", static_cast<int>(m.name.size()), m.name.data(), 8 * each);
            std::printf(" %10.0f %10.0f %10.0f %12.0f %10.2f\n", all, fast, slow, fast + slow, all / (fast + slow));
            std::fflush(stdout);
        }
}

/// Returns how many of the first mixture's experts each device has.
inline std::string experts_by_device(indexed_program const& program, plan const& p) {
    auto const experts = expert_factors(program);
    for (auto const& cut : p.cuts) {
        auto const is_expert = [&](cut_factor f) {
            return program.tensors[f.tensor].is_parameter() && experts.contains(f);
        };
        if (std::ranges::none_of(cut.members, is_expert)) continue;
        std::string counts;
        for (extent count : cut.counts) counts += (counts.empty() ? "" : " ") + std::to_string(count);
        return counts;
    }
    auto const holds_experts = [&](plan_step const& step) {
        auto const* const read = step.instruction.as<instruction::read>();
        return read && program.tensors[read->tensor].is_parameter() && experts.first_of(read->tensor) != no_factor;
    };
    auto const first = std::ranges::find_if(p.steps, holds_experts);
    return first != p.steps.end() && first->instruction.change()->to.is_shard() ? "a part of each"
                                                                                : "all on every device";
}

/// Compares numbers of experts that devices do not divide: padded to equal numbers, as expert parallelism places them,
/// and in any numbers.
inline void figure_17() {
    auto const c = a100_and_p100();
    auto const shipped = shipped_program("bert_moe_12");
    std::printf("BERT-MoE on 2 A100 and 2 P100, 16 samples per expert; seconds per iteration\n");
    std::printf("%8s %8s %16s %10s %10s  %s\n", "experts", "padded", "expert parallel", "plan", "speed-up",
                "experts by device");
    for (extent experts : {4, 5, 6, 7, 8, 9, 10, 12, 14, 16}) {
        auto const model = [&](extent count) { return with_batch_size(with_experts(shipped, count), 16 * experts); };
        extent const padded = (experts + 3) / 4 * 4;
        // Padding adds experts and no tokens to those that are there.
        auto const slots = with_experts(shipped, experts);
        auto const indexed = index_program(slots);
        auto const numbers = expert_factors(indexed);
        std::vector<cut_factor> of_experts;
        for (tensor_id t = 0; t < indexed.tensors.size(); ++t)
            if (indexed.tensors[t].is_parameter() && numbers.first_of(t) != no_factor)
                of_experts.push_back({t, numbers.first_of(t)});
        auto const even = with_batch_size(rescaled(slots, of_experts, padded, experts), 16 * experts);
        strategy const placed(
            even, c, [](indexed_program const& p) { return expert_parallel(p, parameter_storage::replicated); });
        auto const usual = cost_of(placed.at(placed.even()));
        auto const p = hap_plan(model(experts), c);
        std::printf("%8lld %8lld %16s %10s", static_cast<long long>(experts), static_cast<long long>(padded),
                    in_seconds(usual).c_str(), in_seconds(cost_of(p)).c_str());
        if (usual && p.exists()) std::printf(" %10.3f  ", *usual / p.cost());
        else std::printf(" %10s  ", "-");
        std::printf("%s\n", experts_by_device(index_program(model(experts)), p).c_str());
        std::fflush(stdout);
    }
}

/// Prints CPU seconds of planning by depth, beside those of HAP's published search on its own theories if they are
/// there.
inline void figure_19() {
    auto c = heterogeneous(1);
    for (auto& type : c.types) type.memory = 100 * type.memory; // room for the deepest
    char const* const data = std::getenv("HEDDLE_REFERENCE_DATA");
    if (!data) std::puts("HEDDLE_REFERENCE_DATA is not set: the published search's times are left out");
    std::printf("vision transformers on 2 V100 and 6 P100, CPU seconds of one run\n");
    std::printf("%8s %12s %14s %12s %16s\n", "layers", "synthesis", "whole plan", "gap %", "HAP's search");
    auto const cpu = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
    for (int layers : {2, 4, 8, 12, 16, 20, 24}) {
        auto const p = layer_builder({}).build(layers);
        double const start = cpu();
        strategy const programs(p, c, fastest);
        auto const once = programs.at(programs.proportional());
        double const middle = cpu();
        auto const made = hap_plan(p, c);
        double const end = cpu();
        std::string published = "-";
        if (data) {
            auto const file =
                std::filesystem::path(data) / "theories" / ("vit_L" + std::to_string(layers) + "_het8.json.gz");
            if (std::filesystem::exists(file)) {
                auto const theory = nlohmann::json::parse(json::read_text(file));
                published = std::to_string(theory.at("meta").at("hap_search_cpu_s").get<double>());
            }
        }
        std::printf("%8d %12.4f %14.4f %12.2f %16s\n", layers, middle - start, end - middle, 100 * made.gap(),
                    published.c_str());
    }
}

} // namespace heddle::bench
