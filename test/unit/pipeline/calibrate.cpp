// SPDX-License-Identifier: BSL-1.0
#include <heddle/pipeline/calibrate.hpp>
#include <heddle/pipeline/strategy_baselines.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace heddle;

strategy_problem profiled() {
    strategy_problem p;
    p.types = {{"gpu", bytes(1e12), seconds(0), {}}};
    for (std::size_t degree : {1u, 2u, 4u}) {
        auto& row = p.types[0].profiles[degree].layers;
        for (int l = 0; l < 12; ++l)
            row.emplace_back((l % 4 == 0 ? 0.002 : 0.01 + 0.001 * l) / (1 + 0.3 * static_cast<double>(degree)));
    }
    p.layers.assign(
        12, {"", {bytes(0), bytes(5e7)}, {bytes(0), bytes(2e8)}, {bytes(1e6), bytes(0)}, {bytes(4e6), bytes(0)}});
    p.machines.assign(4, {0, 4, {bytes_per_second(1e10), seconds(0)}, {bytes_per_second(1e9), seconds(0)}});
    p.global_batch = 32;
    return p;
}

std::vector<measured_strategy> run_on(strategy_problem const& truth, int count) {
    search::random_stream random(7);
    std::vector<measured_strategy> out;
    for (int i = 0; i < count; ++i) {
        auto s = random_strategy(truth, random);
        auto const time = evaluate(truth, s).total;
        out.push_back({std::move(s), time});
    }
    return out;
}

} // namespace

TEST_CASE("calibration finds the parameters that made the times, and predicts others") {
    auto const p = profiled();
    auto truth = p;
    truth.types[0].launch = seconds(0.004);
    truth.types[0].profiles.at(1).scale = 1.2;
    truth.types[0].profiles.at(2).scale = 0.8;
    truth.types[0].profiles.at(4).scale = 0.6;
    for (auto& m : truth.machines) {
        m.inside.bandwidth *= 0.7;
        m.outside.bandwidth *= 0.5;
    }
    auto const trials = run_on(truth, 60);
    auto const found = calibrate(p, std::vector(trials.begin(), trials.begin() + 40), {.prior_deviation = 1e6});
    CHECK(found.types[0].launch.value == doctest::Approx(0.004).epsilon(1e-3));
    CHECK(found.types[0].profiles.at(1).scale == doctest::Approx(1.2).epsilon(1e-3));
    CHECK(found.types[0].profiles.at(2).scale == doctest::Approx(0.8).epsilon(1e-3));
    CHECK(found.types[0].profiles.at(4).scale == doctest::Approx(0.6).epsilon(1e-3));
    CHECK(found.machines[3].outside.bandwidth.value == doctest::Approx(5e8).epsilon(1e-3));
    for (std::size_t i = 40; i < 60; ++i)
        CHECK(evaluate(found, trials[i].plan).total.value == doctest::Approx(trials[i].time.value).epsilon(1e-3));
}

TEST_CASE("what trials leave open stays as profiled") {
    auto const p = profiled();
    auto one_machine = p;
    one_machine.machines.resize(1);
    strategy const alone{megatron_placement({4, 1, 1}), 1, 32, uniform_cuts(12, 4)};
    std::vector<measured_strategy> const trials{{alone, 2 * evaluate(one_machine, alone).total}};
    auto const found = calibrate(one_machine, trials);
    CHECK(evaluate(found, alone).total / trials[0].time == doctest::Approx(1).epsilon(0.02));
    CHECK(found.types[0].profiles.at(2).scale == 1);
    CHECK(found.machines[0].outside.bandwidth == p.machines[0].outside.bandwidth);
    CHECK(calibrate(p, {}).types[0].launch == p.types[0].launch);
}

TEST_CASE("trials of several problems determine together what neither does alone, and say what stays open") {
    // One problem runs on T, one on U, and a third mixes both.
    auto p = profiled();
    p.types[0].name = "T";
    for (auto& [degree, profile] : p.types[0].profiles) profile.launches.assign(12, {seconds(0.002), seconds(0.004)});
    auto q = p;
    q.types[0].name = "U";
    q.machines.resize(1);
    auto mixed = p;
    mixed.types.push_back(q.types[0]);
    mixed.machines[1].type = mixed.machines[3].type = 1;
    std::map<std::string, fitted_parameter> const made{
        {"T, launch", {1.5}}, {"U, launch", {0.7}}, {"T, scale at degree 1", {0.8}}};
    std::vector<calibration_set> const sets{{p, run_on(calibrated(p, made), 25)}, {q, run_on(calibrated(q, made), 15)}};
    auto const found = calibrate(sets, {.noise = 0.001});
    for (auto const& [name, parameter] : made)
        CHECK_MESSAGE(found.parameters.at(name).value == doctest::Approx(parameter.value).epsilon(0.01), name);
    CHECK(found.parameters.at("T, launch").is_determined());
    CHECK(found.parameters.at("T, launch").low() < 1.5);
    CHECK(found.parameters.at("T, launch").high() > 1.5);
    CHECK_FALSE(found.parameters.contains("U, links outside"));
    auto const there = calibrated(mixed, found.parameters), truth = calibrated(mixed, made);
    for (auto const& trial : run_on(truth, 10))
        CHECK(evaluate(there, trial.plan).total.value == doctest::Approx(trial.time.value).epsilon(0.02));
    CHECK(calibrate(std::vector<calibration_set>{{p, {}}}).parameters.empty());
    // One trial says one thing of several parameters: each stays near the profile, and is said to be open.
    strategy const alone{megatron_placement({1, 4, 1}), 1, 8, {0, 12}};
    auto const one = calibrate(std::vector<calibration_set>{{q, {{alone, 1.5 * evaluate(q, alone).total}}}});
    for (auto const& [name, parameter] : one.parameters) CHECK_MESSAGE(parameter.value > 0.3, name);
    CHECK_FALSE(one.parameters.at("U, links inside").is_determined());
}

TEST_CASE("bad trials are refused by number") {
    auto const p = profiled();
    strategy const s{megatron_placement({4, 4, 1}), 1, 8, uniform_cuts(12, 4)};
    for (double const bad :
         {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
        CHECK_THROWS_AS((void)calibrate(p, std::vector<measured_strategy>{{s, seconds(bad)}}), input_error);
    CHECK_THROWS_AS((void)calibrate(p, std::vector<measured_strategy>{{{megatron_placement({4, 4, 1}), 1, 8, {0, 12}},
                                                                       seconds(1)}}),
                    input_error);
}
