// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Benchmarks of whole planning runs.
#pragma once

#include <heddle/base/requirements.hpp>

#include <benchmark/benchmark.h>

#include <concepts>
#include <string>
#include <type_traits>
#include <utility>

namespace heddle::bench {

/// What a planning run returns, such as `plan` and `pipeline_plan`.
template <class Plan>
concept measured_plan = requires(Plan const& p) {
    { p.exists() } -> std::convertible_to<bool>;
    { p.cost() } -> std::convertible_to<double>;
    { p.gap() } -> std::convertible_to<double>;
    { p.reason } -> std::convertible_to<std::string>;
};

/// Counts what a run found: `plan_s` is the seconds per iteration of the plan, and `gap_%` is the proven gap. Without a
/// plan the run has failed, for the reason given. Returns whether there is a plan.
template <measured_plan Plan>
bool report(benchmark::State& state, Plan const& p) {
    if (!p.exists()) {
        state.SkipWithError(p.reason.c_str());
        return false;
    }
    state.counters["plan_s"] = p.cost();
    state.counters["gap_%"] = 100 * p.gap();
    return true;
}

/// Registers `name`: runs of `planning()`, which returns a plan. The result takes Google Benchmark's settings.
template <std::invocable Planning>
    requires measured_plan<std::invoke_result_t<Planning&>>
benchmark::internal::Benchmark* register_planner(std::string const& name, Planning planning) {
    return benchmark::RegisterBenchmark(name.c_str(),
                                        [planning = std::move(planning)](benchmark::State& state) mutable {
                                            std::invoke_result_t<Planning&> result;
                                            for (auto _ : state) result = planning();
                                            report(state, result);
                                        })
        ->Unit(benchmark::kMillisecond);
}

} // namespace heddle::bench
