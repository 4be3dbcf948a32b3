// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs and plans on ranks of libtorch's device, beside the reference kernels.
#pragma once

#include "device_rates.hpp"

#include <heddle/execute/devices.hpp>
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/stage_rank.hpp>
#include <heddle/execute/staged_layout.hpp>
#include <heddle/execute/stages_interpreter.hpp>
#include <heddle/libtorch/kernels.hpp>

#include <support/catalogue_programs.hpp>
#include <support/device_groups.hpp>
#include <support/interleaved_plans.hpp>
#include <support/pipelines.hpp>
#include <support/random_plans.hpp>
#include <support/random_stages.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle::bench {

/// The single device by the reference kernels, with which ranks compare what they have computed.
class expected_of {
public:
    expected_of(program const& p, std::uint64_t seed) : sources_(random_sources<double>(p, seed)) {
        static eigen_kernels<double> const reference;
        expected_ = run_on_random_sources(p, sources_, reference, seed);
        for (auto const& [t, gradient] : expected_.gradients) gradients_.emplace(t, gradient.second);
        builder_.emplace(p, expected_, result_);
    }
    template <class Rank>
    void run(Rank& rank) {
        auto const mine = rank.run(rank.place(sources_));
        double const loss = rank.whole_loss(mine);
        auto const wanted = rank.place(gradients_);
        std::scoped_lock const guard(lock_);
        builder_->compare_loss(loss);
        builder_->compare_gradients(mine.gradients, wanted);
    }
    [[nodiscard]] proof const& result() {
        if (!(result_.worst_error <= 1e-10)) builder_->fail(result_.worst_tensor + " differs");
        return result_;
    }

private:
    source_values<double> sources_, gradients_;
    iteration_result<double> expected_;
    proof result_;
    std::optional<heddle::detail::proof_builder> builder_;
    std::mutex lock_;
};

inline libtorch::kernels<double> const& kernels() {
    static libtorch::kernels<double> const all;
    return all;
}

/// What was run of a kind, what of that was wrong, and the largest error. `Ranks` runs up to `most()` ranks: its
/// `run(count, work)` calls `work(communicator)` on each of them. Plans for more are left out.
template <class Ranks>
struct shown {
    char const* what;
    std::size_t run = 0, wrong = 0;
    double worst = 0;

    void fail(std::string const& problem) {
        ++wrong;
        std::fprintf(stderr, "%s: %s\n", what, problem.c_str());
    }
    void run_plan(program const& p, plan const& how, std::uint64_t seed = 1) {
        auto const indexed = index_for(p, how);
        on_ranks(p, ranks_of(how), seed, [&](auto& world, expected_of& expected) {
            on_device<double>(how, world, [&](auto& mine) {
                interpreter rank(p, indexed, how, mine, kernels(), seed);
                expected.run(rank);
            });
        });
    }
    void run_stages(program const& p, staged_plan const& how, std::uint64_t seed = 1) {
        if (how.is_plain()) return run_plan(p, how.stages.front().plan, seed);
        staged_layout const layout(p, how);
        on_ranks(p, layout.ranks(), seed, [&](auto& world, expected_of& expected) {
            on_stages<libtorch::tensor<double>>(layout, world, [&](auto& here) {
                stages_interpreter rank(p, layout, here, kernels(), seed);
                expected.run(rank);
            });
        });
    }
    void run_pipeline(program const& p, pipeline_plan const& how, std::uint64_t seed = 1) {
        auto const indexed = index_program(p);
        auto const split = split_along_batch(indexed);
        pipeline_layout const layout(indexed, how, split);
        on_ranks(p, layout.ranks(), seed, [&](auto& world, expected_of& expected) {
            using world_type = std::remove_reference_t<decltype(world)>;
            stage_rank<libtorch::tensor<double>, world_type> here(indexed, split, layout, world);
            interpreter rank(p, indexed, here, kernels(), seed);
            expected.run(rank);
        });
    }

private:
    template <class Work>
    void on_ranks(program const& p, std::size_t ranks, std::uint64_t seed, Work&& work) {
        if (ranks > Ranks::most()) return;
        expected_of expected(p, seed);
        Ranks::run(ranks, [&](auto& world) { work(world, expected); });
        auto const& found = expected.result();
        ++run;
        worst = std::max(worst, found.worst_error);
        if (!found) fail("seed " + std::to_string(seed) + ": " + found.problem);
    }
};

/// What was run of random programs, and of how many kinds their operators were.
template <class Ranks>
struct random_runs {
    std::vector<shown<Ranks>> all;
    std::size_t kinds = 0;
};

/// Runs random programs, and random plans of them on up to six ranks.
template <class Ranks>
random_runs<Ranks> run_random(std::uint64_t seeds) {
    shown<Ranks> programs{"programs on one rank"}, plans{"plans of uneven shards"}, groups{"plans of device groups"},
        turns{"micro-batches in turn"}, pipelines{"pipelines"}, stages{"stages on lines, meshes and groups"};
    std::set<std::string> kinds;
    for (std::uint64_t seed = 1; turns.run < seeds && seed <= 100 * seeds; ++seed) {
        test::random_source random(seed);
        auto const grown = test::find_catalogue_program(random, random.between(1, 5));
        if (!grown) continue;
        auto const& p = *grown;
        if (int const count = test::divisor_of_batch(p, random); count > 0) {
            auto const part = index_program(micro_batch_of(p, count));
            auto const ranks = static_cast<std::size_t>(random.between(2, 4));
            turns.run_plan(
                p, test::interleaved(test::random_plan(part, ranks, random), part, {.micro_batches = count}, random),
                seed);
        }
        if (seed > seeds) continue;
        for (operator_id o = 0; o < p.operator_count(); ++o) kinds.insert(p.kind(o));
        auto const indexed = index_program(p);
        programs.run_plan(p, test::random_plan(indexed, 1, random), seed);
        plans.run_plan(p, test::random_plan(indexed, static_cast<std::size_t>(random.between(2, 4)), random), seed);
        auto const grouped = test::random_grouped_case(seed);
        groups.run_plan(grouped.program, grouped.plan, seed);
        auto const pipeline = test::pipeline_of(p, {0, p.operator_count() / 2, p.operator_count()}, 1 + seed % 2,
                                                1 + static_cast<std::int64_t>(seed % 3));
        if (p.operator_count() > 1 && verify(p, pipeline)) pipelines.run_pipeline(p, pipeline, seed);
        if (auto const staged = test::random_stages(p, 6, random)) stages.run_stages(p, *staged, seed);
    }
    return {{programs, plans, groups, turns, pipelines, stages}, kinds.size()};
}

/// Prints a table. Returns whether nothing is wrong.
template <class Ranks>
bool print(std::vector<shown<Ranks>> const& all) {
    std::printf("| what | run | wrong | largest relative error |\n|---|---:|---:|---:|\n");
    for (auto const& one : all) std::printf("| %s | %zu | %zu | %.1e |\n", one.what, one.run, one.wrong, one.worst);
    return std::all_of(all.begin(), all.end(), [](auto const& one) { return one.wrong == 0; });
}

} // namespace heddle::bench
