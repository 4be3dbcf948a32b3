// SPDX-License-Identifier: BSL-1.0
// What the interpreter costs: a training step of a small network on one rank, by the interpreter and by calls of the
// same kernels written by hand, whose gradients are equal.
// Counter `ratio`: CPU time of the interpreter over that by hand. README.md says how to count instructions.
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/in_process.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/pipeline/stage_program.hpp>

#include <benchmark/benchmark.h>

#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using tensor = dense_tensor<float>;
using kernels = eigen_kernels<float>;
using rank_of_one = interpreter<float, in_process_communicator, kernels>;

/// Blocks of a linear layer, a residual sum and a relu.
program network(extent batch, extent width, int blocks) {
    program_builder b;
    auto x = b.input("x", {batch, width});
    for (int n = 0; n < blocks; ++n) {
        auto const w = b.parameter("w" + std::to_string(n), {width, width});
        auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, {.category = operator_class::matmul});
        auto const sum = b.apply("add", "(b n), (b n) -> (b n); 0 + 1", {x, y});
        x = b.apply("relu", "(b n) -> (b n)", {sum}, {.saved_results = {0}});
    }
    return b.finish(b.apply("sum", "(b n) -> (); 0", {x}));
}

/// Everything on one device.
plan plan_of_one(indexed_program const& indexed) {
    plan p = blank_plan(indexed);
    p.devices.resize(1);
    for (auto const& i : undivided_program(indexed)) p.steps.push_back({i, {}, {}});
    return p;
}

/// The same by hand: each kernel is called in order on tensors in a list, with calls that are made once.
class by_hand {
public:
    by_hand(program const& p, kernels const& backend) : program_(p), backend_(backend) {
        for (operator_id o = 0; o < p.operator_count(); ++o) calls_.emplace_back(whole_call(p, o));
    }

    [[gnu::noinline]] iteration_result<float> step(source_values<float> const& sources) {
        std::vector<tensor> made(program_.tensor_count());
        std::vector<tensor const*> values(program_.tensor_count());
        for (auto const& [t, value] : sources) values[t] = &value;
        auto const all = [](std::vector<tensor const*> const& of, std::span<tensor_id const> tensors) {
            std::vector<tensor const*> result;
            for (auto t : tensors) result.push_back(of[t]);
            return result;
        };
        for (operator_id o = 0; o < program_.operator_count(); ++o) {
            auto results = backend_.forward(calls_[o], all(values, program_.operands(o)));
            for (std::size_t k = 0; k < results.size(); ++k) {
                auto const t = program_.results(o)[k];
                made[t] = std::move(results[k]);
                values[t] = &made[t];
            }
        }
        std::vector<std::optional<tensor>> gradients(program_.tensor_count());
        gradients[program_.loss()] = tensor(tensor_shape{}, 1);
        for (auto o = static_cast<operator_id>(program_.operator_count()); o-- > 0;) {
            std::vector<tensor const*> given;
            for (auto t : program_.results(o)) given.push_back(gradients[t] ? &*gradients[t] : nullptr);
            auto of_operands = backend_.backward(calls_[o], all(values, program_.operands(o)),
                                                 all(values, program_.results(o)), given);
            for (std::size_t k = 0; k < of_operands.size(); ++k)
                if (auto& sum = gradients[program_.operands(o)[k]]; sum) *sum += *of_operands[k];
                else sum = std::move(of_operands[k]);
        }
        iteration_result<float> result{made[program_.loss()][0], {}};
        for (auto const& [t, value] : sources)
            if (program_.tensor(t).trainable)
                result.gradients.emplace(t, std::pair(tensor_form::replicated(), std::move(*gradients[t])));
        return result;
    }

private:
    program const& program_;
    kernels const& backend_;
    std::vector<tensor_call<tensor>> calls_;
};

[[gnu::noinline]] rank_result<tensor> by_interpreter(rank_of_one& rank, source_values<float> const& sources) {
    return rank.run(sources);
}

void ratio(benchmark::State& state) {
    auto const p = network(state.range(0), state.range(1), 8);
    auto const indexed = index_program(p);
    auto const what = plan_of_one(indexed);
    kernels const backend;
    auto const sources = random_sources<float>(p, 1);
    run_ranks(1, [&](in_process_communicator& world) {
        rank_of_one rank(p, indexed, what, world, backend);
        auto const placed = rank.place(sources);
        by_hand hand(p, backend);
        std::clock_t interpreted = 0, called = 0;
        std::optional<rank_result<tensor>> mine;
        iteration_result<float> theirs;
        for (auto _ : state) {
            auto const start = std::clock();
            mine = by_interpreter(rank, placed);
            auto const between = std::clock();
            theirs = hand.step(placed);
            called += std::clock() - between;
            interpreted += between - start;
        }
        bool equal = mine->loss.number() == theirs.loss && mine->gradients.size() == theirs.gradients.size();
        for (auto const& [t, gradient] : theirs.gradients)
            equal = equal && gradient.second == mine->gradients.at(t).second;
        if (!equal) state.SkipWithError("the two differ");
        state.counters["ratio"] = static_cast<double>(interpreted) / static_cast<double>(called);
    });
}
BENCHMARK(ratio)->Args({8, 16})->Args({16, 64})->Args({64, 128})->Unit(benchmark::kMicrosecond);

} // namespace

BENCHMARK_MAIN();
