// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief HAP's setting: its clusters, its models at any number of devices, and programs of one strategy at given
/// ratios.
#pragma once

#include <heddle/all.hpp>
#include <heddle/clp/all.hpp>
#include <heddle/cluster/presets.hpp>
#include <heddle/json/all.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::bench {

/// Gradients are reduced after the backward pass (HAP section 3.2).
inline training_options const hap_training{.overlaps_gradients = false};

/// Machines are joined by 10.4 Gbit/s (HAP section 7.1), devices inside by PCIe; both latencies and the bandwidth
/// inside are guesses.
inline constexpr network_link ethernet{bytes_per_second(1.3e9), seconds(50e-6)},
    pcie{bytes_per_second(12e9), seconds(10e-6)};

/// Makes machines of some devices each, from presets with 16 GB except for the A100.
inline cluster make_cluster(std::vector<std::pair<presets::published_peaks, int>> const& machines, int devices) {
    cluster c;
    for (auto const& [peaks, count] : machines) {
        if (count == 0) continue;
        auto type = presets::make(peaks);
        if (peaks.name == presets::v100.name) type.memory = bytes(16e9);
        c.machines.push_back({c.types.size(), devices, count});
        c.types.push_back(std::move(type));
        c.name += (c.name.empty() ? "" : "_") + std::string(peaks.name) + "x" + std::to_string(count * devices);
    }
    c.inter = ethernet;
    c.intra = pcie;
    return c;
}
inline cluster heterogeneous(int devices) { return make_cluster({{presets::v100, 2}, {presets::p100, 6}}, devices); }
inline cluster homogeneous(int devices) { return make_cluster({{presets::p100, 4}}, devices); }
inline cluster a100_and_p100() { return make_cluster({{presets::a100, 1}, {presets::p100, 1}}, 2); }

/// Leaves the time of collectives of large messages, for which the latency of links does not matter.
inline cluster without_latencies(cluster c) {
    for (auto* link : {&c.intra, &c.inter}) (*link)->latency = seconds(0);
    return c;
}

inline int device_count(cluster const& c) {
    int count = 0;
    for (auto const& m : c.machines) count += m.devices * m.count;
    return count;
}

struct benchmark_model {
    std::string_view name, file;
    /// The samples and, for a mixture, the experts per device (HAP section 7.1, table 1).
    extent batch, experts;
};
inline constexpr std::array hap_models{
    benchmark_model{"VGG19", "vgg19", 64, 0}, benchmark_model{"ViT", "vit_12", 64, 0},
    benchmark_model{"BERT-Base", "bert_12", 64, 0}, benchmark_model{"BERT-MoE", "bert_moe_12", 32, 2}};

inline program shipped_program(std::string_view file) {
    return json::read_model(std::string(HEDDLE_EXAMPLES "/models/") + std::string(file) + ".json.gz").program;
}

/// Returns a mixture with another number of experts, each of which takes as many tokens of a batch as before, rounded
/// up.
inline program with_experts(program const& p, extent experts) {
    auto const indexed = index_program(p);
    auto const numbers = expert_factors(indexed);
    std::vector<cut_factor> of_experts, of_slots;
    extent before = 0, slots = 0;
    for (tensor_id t = 0; t < indexed.tensors.size(); ++t)
        if (auto const f = numbers.first_of(t); indexed.tensors[t].is_parameter() && f != no_factor) {
            of_experts.push_back({t, f});
            before = indexed.tensors[t].factors[static_cast<std::size_t>(f)].extent;
        }
    for (operator_id o = 0; o < p.operator_count(); ++o)
        if (p.kind(o).ends_with("top_2_gating"))
            for (auto t : p.results(o)) {
                of_slots.push_back({t, static_cast<factor_number>(indexed.tensors[t].factors.size() - 1)});
                slots = indexed.tensors[t].factors.back().extent;
            }
    if (before == experts) return p;
    auto const with_slots = rescaled(p, of_slots, (before * slots + experts - 1) / experts, slots);
    return rescaled(with_slots, of_experts, experts, before);
}

/// Scales weakly: there are as many samples and experts per device at every number of devices.
inline program scaled_model(benchmark_model const& m, int devices) {
    auto p = with_batch_size(shipped_program(m.file), m.batch * devices);
    return m.experts > 0 ? with_experts(p, m.experts * devices) : p;
}

/// The instructions of the fastest programs of the whole batch.
inline constexpr auto fastest = [](indexed_program const& p) { return fastest_programs(p); };

/// Finds the fastest programs of some instructions on a cluster, for ratios of its device types.
class strategy {
public:
    /// `make_filter(indexed_program const&)` returns the instructions. With `pads_shards`, uneven shards are never
    /// moved one by one.
    template <class MakeFilter>
    strategy(program const& p, cluster c, MakeFilter const& make_filter, bool pads_shards = false)
        : indexed_(index_program(p)), cluster_(std::move(c)), types_(cluster_),
          space_(indexed_, operator_kinds(indexed_)),
          model_(cluster_, types_.classes, element_type::float32, hap_training.bucket) {
        space_.restrict_to(make_filter(indexed_));
        graph_ = search::explore(space_, width);
        for (auto const& i : space_.instructions()) {
            auto& s = steps_.emplace_back(make_step(indexed_, i, hap_training));
            if (pads_shards) for_each_transfer(s, [](transfer& t) { t.how = uneven::padded; });
        }
    }
    strategy(strategy const&) = delete;

    [[nodiscard]] std::vector<double> even() const { return even_ratios(model_); }
    [[nodiscard]] std::vector<double> proportional() const {
        return compute_proportional(model_, element_type::float32);
    }

    /// Returns the fastest program found at some ratios that fits into memory, as a plan.
    [[nodiscard]] std::optional<plan> at(std::vector<double> const& ratios) const {
        auto const path = program_at(ratios);
        return path ? realised(*path, ratios) : std::nullopt;
    }

    /// Returns the best pair met from some ratios on: program, ratios, program, ... (HAP section 3.1).
    [[nodiscard]] std::optional<plan> alternated(std::vector<double> ratios, int rounds = 6) const {
        std::optional<plan> best;
        auto const take = [&](std::optional<plan> p) {
            if (p && (!best || p->cost() < best->cost())) best = std::move(p);
        };
        for (int round = 0; round < rounds; ++round) {
            auto const path = program_at(ratios);
            if (!path) break;
            take(realised(*path, ratios));
            program_steps program;
            for (auto const& s : steps_of(*path, space_, steps_)) {
                program.steps.push_back(model_.decided(s.step, uniform_shares(ratios)));
                for (auto const& [t, f] : s.saved) program.saved.push_back({held_bytes(indexed_.tensors[t], f[0])});
            }
            auto const balanced = clp::ratio_solver{}.solve(make_ratio_problem(program, model_, proportional()));
            if (!balanced.feasible) break;
            take(realised(*path, balanced.ratios));
            if (std::exchange(ratios, balanced.ratios) == balanced.ratios) break;
        }
        return best;
    }

private:
    static constexpr std::size_t width = 20'000; // as the planner's

    [[nodiscard]] std::optional<move_list> program_at(std::vector<double> const& ratios) const {
        largest_shares const shares(integral_shares(indexed_, types_.per_device({ratios})), types_.of_device);
        return synthesise<serial>(priced_graph(space_, graph_, steps_, model_, shares), {}).path;
    }
    [[nodiscard]] std::optional<plan> realised(move_list const& path, std::vector<double> const& ratios) const {
        auto [p, cost] = realise(path, space_, steps_, cluster_, types_.per_device({ratios}), hap_training);
        return cost.fits ? std::optional(std::move(p)) : std::nullopt;
    }

    indexed_program indexed_;
    cluster cluster_;
    device_types types_;
    cut_space space_;
    cost_model model_;
    cut_graph graph_;
    std::vector<step_work> steps_;
};

/// A plan in HAP's setting.
inline plan hap_plan(program const& p, cluster const& c) {
    return plan_hap(p, c, clp::ratio_solver{}, {.training = hap_training});
}

} // namespace heddle::bench
