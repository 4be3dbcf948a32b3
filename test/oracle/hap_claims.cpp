// SPDX-License-Identifier: BSL-1.0
// What HAP (EuroSys '24, section 7) finds about its plans holds on the shipped models and clusters.
#include <heddle/clp/all.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/synthesis/baselines.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/rescale.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

namespace {

using namespace heddle;

program shipped(std::string const& name) { return json::read_model("examples/models/" + name + ".json.gz").program; }
cluster shipped_cluster(std::string const& name) { return json::read_cluster("examples/clusters/" + name + ".json"); }

/// Plans in HAP's own setting.
plan hap(program const& p, cluster const& c) {
    return plan_hap(p, c, clp::ratio_solver{}, {.training = {.overlaps_gradients = false}});
}

/// 2 machines of 8 V100 and 6 of 8 P100, all of 16 GB, 10.4 Gbit/s between machines (section 7.1).
cluster testbed() {
    cluster c;
    c.types = {presets::make(presets::v100), presets::make(presets::p100)};
    for (auto& type : c.types) type.memory = bytes(16e9);
    c.machines = {{0, 8, 2}, {1, 8, 6}};
    c.intra = network_link{bytes_per_second(12e9), seconds(10e-6)};
    c.inter = network_link{bytes_per_second(1.3e9), seconds(50e-6)};
    return c;
}

/// Twice as many experts as devices and 32 samples each (table 1); an expert takes as many of all tokens as before,
/// rounded up.
program scaled_mixture(int devices) {
    auto const p = with_batch_size(shipped("bert_moe_12"), 32 * devices);
    auto const indexed = index_program(p);
    auto const numbers = expert_factors(indexed);
    std::vector<cut_factor> experts, slots;
    extent expert_count = 0, slot_count = 0;
    for (tensor_id t = 0; t < indexed.tensors.size(); ++t)
        if (auto const f = numbers.first_of(t); indexed.tensors[t].is_parameter() && f != no_factor) {
            experts.push_back({t, f});
            expert_count = indexed.tensors[t].factors[static_cast<std::size_t>(f)].extent;
        }
    for (operator_id o = 0; o < p.operator_count(); ++o)
        if (p.kind(o) == "top_2_gating")
            for (auto t : p.results(o)) {
                slots.push_back({t, static_cast<factor_number>(indexed.tensors[t].factors.size() - 1)});
                slot_count = indexed.tensors[t].factors.back().extent;
            }
    auto const fewer_slots =
        rescaled(p, slots, (expert_count * slot_count + 2 * devices - 1) / (2 * devices), slot_count);
    return rescaled(fewer_slots, experts, 2 * devices, expert_count);
}

/// Prices every program that a search of its own finds for a baseline's instructions: a plan may not be dearer. Returns
/// how many fit.
int check_against_own_searches(program const& model, cluster const& c, plan const& p) {
    auto const indexed = index_program(model);
    training_options const training{};
    device_types const types(c);
    cost_model const prices(c, types.classes, main_type(indexed), training.bucket);
    int fitting = 0;
    for (auto const& b : baselines_of(indexed)) {
        CAPTURE(b.at_even);
        cut_space space(indexed, operator_kinds(indexed));
        space.restrict_to(b.allowed);
        auto const graph = search::explore(space, 20'000);
        std::vector<step_work> steps;
        for (auto const& i : space.instructions()) steps.push_back(make_step(indexed, i, training));
        for (auto const& ratios : {even_ratios(prices), compute_proportional(prices, main_type(indexed))}) {
            auto const per_device = types.per_device({ratios});
            largest_shares const shares(integral_shares(indexed, per_device), types.of_device);
            auto const found = synthesise(priced_graph(space, graph, steps, prices, shares, training), {});
            if (!found.path) continue;
            auto const cost = realise(*found.path, space, steps, c, per_device, training).second;
            if (cost.fits) CHECK(p.cost() <= cost.time.total() * (1 + 1e-9));
            fitting += cost.fits;
        }
    }
    return fitting;
}

void check_against_baselines(program const& model, cluster const& c) {
    auto const p = hap(model, c);
    CAPTURE(c.name);
    REQUIRE(p.exists());
    REQUIRE_FALSE(p.baselines.empty());
    for (auto const& [name, seconds] : p.baselines) {
        CAPTURE(name);
        if (seconds) CHECK(p.cost() <= *seconds);
    }
    CHECK(check_against_own_searches(model, c, p) > 0);
}

/// Checks that a plan stores the parameters of experts in shards, and nowhere whole.
void check_experts_are_cut(program const& model, plan const& p) {
    auto const indexed = index_program(model);
    auto const experts = expert_factors(indexed);
    std::size_t count = 0;
    for (auto const& s : p.steps) {
        auto const* const i = s.instruction.change();
        if (!i || !indexed.tensors[i->tensor].is_parameter() || experts.first_of(i->tensor) == no_factor) continue;
        CAPTURE(indexed.tensors[i->tensor].info.name);
        CHECK(i->from.is_shard());
        CHECK(i->to.is_shard());
        ++count;
    }
    CHECK(count >= 12); // two in each of six mixtures
}

} // namespace

TEST_CASE("a plan is never dearer than a baseline") {
    for (auto const* model : {"vgg19", "vit_12", "bert_12", "bert_moe_2"}) {
        CAPTURE(model);
        auto const p = shipped(model);
        for (auto const* c : {"v100x2_p100x6", "p100x4", "v100x4_nvlink"})
            check_against_baselines(with_batch_size(p, 256), shipped_cluster(c));
    }
    for (auto const* model : {"vgg19", "bert_moe_12"}) {
        CAPTURE(model);
        check_against_baselines(shipped(model), shipped_cluster("v100x8_p100x24"));
    }
}

TEST_CASE("VGG19 is strictly cheaper than under data parallelism of any kind") {
    auto const model = shipped("vgg19");
    for (auto const* c : {"v100x2_p100x6", "p100x4", "v100x8_p100x24", "v100x4_nvlink"}) {
        CAPTURE(c);
        auto const p = hap(model, shipped_cluster(c));
        REQUIRE(p.exists());
        for (auto const* name : {"DP-EV", "DP-CP", "ZeRO-1", "ZeRO-2", "fully sharded"}) {
            CAPTURE(name);
            auto const found = p.baselines.find(name);
            REQUIRE(found != p.baselines.end());
            if (found->second) CHECK(p.cost() < *found->second);
        }
    }
}

TEST_CASE("BERT-MoE on 64 devices of 16 GB does not replicate its experts, as data parallelism would") {
    auto const model = scaled_mixture(64);
    auto const p = hap(model, testbed());
    INFO(p.reason);
    REQUIRE(p.exists());
    CHECK(verify(model, p));
    check_experts_are_cut(model, p);
    for (auto const& m : p.memory) CHECK(m.total() <= 16e9);
    auto const fits = [&](char const* name) {
        auto const found = p.baselines.find(name);
        return found != p.baselines.end() && found->second.has_value();
    };
    CHECK_FALSE(fits("DP-EV"));
    CHECK_FALSE(fits("DP-CP"));
    CHECK(fits("expert parallel"));
}
