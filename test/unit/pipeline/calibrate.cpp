// SPDX-License-Identifier: BSL-1.0
#include <heddle/pipeline/calibrate.hpp>
#include <heddle/pipeline/strategy_baselines.hpp>

#include <doctest/doctest.h>

#include <limits>
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
