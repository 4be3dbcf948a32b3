// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Benchmarks of the parts of a search, for any `search::problem`.
#pragma once

#include <heddle/search/best_first.hpp>
#include <heddle/search/problem.hpp>
#include <heddle/search/state_table.hpp>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace heddle::bench {

template <search::problem Problem>
struct visited {
    typename Problem::state state;
    typename Problem::label label;
    /// The action that led here.
    typename Problem::action action;
};

/// Records what random walks from the initial state meet, which is the same every time. A walk starts again at a goal
/// or a dead end.
template <search::problem Problem>
[[nodiscard]] std::vector<visited<Problem>> walk(Problem const& p, std::size_t count) {
    std::vector<visited<Problem>> met, next;
    for (std::uint64_t random = 1; met.size() < count;) {
        if (next.empty()) {
            auto [state, label] = p.initial();
            met.push_back({std::move(state), std::move(label), {}});
        } else {
            random = random * 6364136223846793005u + 1442695040888963407u;
            met.push_back(std::move(next[static_cast<std::size_t>(random >> 33) % next.size()]));
        }
        next.clear();
        if (p.is_goal(met.back().state)) continue;
        p.for_each_successor(met.back().state, met.back().label, [&](auto const& action, auto state, auto label) {
            next.push_back({std::move(state), std::move(label), action});
        });
    }
    return met;
}

/// Registers `name/search`, which is the whole search, and the parts of its time, each over `count` states on random
/// walks: `name/expand` (making successors), `name/bound`, `name/insert` (numbering states, old and new) and, if states
/// can subsume each other, `name/subsumes` (the test) and `name/candidates` (the lookup that precedes it).
template <search::problem Problem>
void register_search(std::string const& name, std::shared_ptr<Problem const> p, search::options const& options = {},
                     std::size_t count = 256) {
    auto const met = std::make_shared<std::vector<visited<Problem>> const>(walk(*p, count));
    /// One iteration is `work(number)` for every state met.
    auto const add = [&](char const* part, auto work) {
        benchmark::RegisterBenchmark((name + part).c_str(), [p, met, work](benchmark::State& state) mutable {
            for (auto _ : state)
                for (std::size_t n = 0; n < met->size(); ++n) work(n);
            state.SetItemsProcessed(state.iterations() * std::ssize(*met));
        });
    };
    add("/expand", [p = p.get(), met = met.get()](std::size_t n) {
        p->for_each_successor((*met)[n].state, (*met)[n].label, [](auto const&, auto state, auto label) {
            benchmark::DoNotOptimize(state);
            benchmark::DoNotOptimize(label);
        });
    });
    add("/bound", [p = p.get(), met = met.get()](std::size_t n) {
        benchmark::DoNotOptimize(p->bound((*met)[n].state, (*met)[n].label));
    });
    add("/insert", [met = met.get(), table = search::state_table<typename Problem::state>()](std::size_t n) mutable {
        if (n == 0) table = {};
        benchmark::DoNotOptimize(table.insert((*met)[n].state));
    });
    if constexpr (search::subsuming_problem<Problem>) {
        add("/subsumes", [p = p.get(), met = met.get()](std::size_t n) {
            benchmark::DoNotOptimize(p->subsumes((*met)[n].state, (*met)[met->size() - 1 - n].state));
        });
        typename Problem::subsumption_index index;
        for (std::uint32_t n = 0; n < met->size(); ++n) index.insert(n, (*met)[n].state);
        add("/candidates", [met = met.get(), index = std::move(index)](std::size_t n) mutable {
            benchmark::DoNotOptimize(index.candidates((*met)[n].state));
        });
    }
    benchmark::RegisterBenchmark((name + "/search").c_str(), [p, options](benchmark::State& state) {
        search::statistics statistics;
        for (auto _ : state) statistics = search::best_first(*p, options).statistics;
        state.counters["expanded"] = static_cast<double>(statistics.expanded);
        state.counters["generated"] = static_cast<double>(statistics.generated);
        state.counters["successors_%"] = 100 * statistics.successor_seconds / statistics.seconds;
        state.counters["insertion_%"] = 100 * statistics.insertion_seconds / statistics.seconds;
    });
}

/// Registers `name/follow`: the memory of a property problem's bound, kept up to date along the actions of a walk.
template <search::problem Problem, class Bound>
void register_bound(std::string const& name, Problem const& p, std::shared_ptr<Bound const> bound,
                    std::size_t count = 256) {
    benchmark::RegisterBenchmark((name + "/follow").c_str(), [bound, met = walk(p, count)](benchmark::State& state) {
        for (auto _ : state) {
            auto memory = bound->start();
            for (auto const& step : met) bound->follow(memory, step.action);
            benchmark::DoNotOptimize(memory);
        }
        state.SetItemsProcessed(state.iterations() * std::ssize(met));
    });
}

} // namespace heddle::bench
