// SPDX-License-Identifier: BSL-1.0
// What one device of libtorch computes, and how fast: arithmetic of all kernels and of plans beside the reference,
// rates of operator classes with errors on shapes that were left out, and iterations beside what is predicted of them.
// Usage: one_gpu cpu|cuda SEEDS BATCH MODEL...   It prints the parts of a page, and returns 1
// if something in them is wrong, 2 if they are not whole. run.sh builds and calls it.
#include "device_rates.hpp"
#include "staged_communicator.hpp"

#include <heddle/libtorch/kernels.hpp>

#include <heddle/cluster/fit.hpp>
#include <heddle/execute/devices.hpp>
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/shrink.hpp>
#include <heddle/execute/shrink_pipeline.hpp>
#include <heddle/execute/shrink_stages.hpp>
#include <heddle/execute/stage_rank.hpp>
#include <heddle/execute/staged_layout.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/names.hpp>
#include <heddle/planner/amp.hpp>
#include <heddle/planner/ditto.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/hidup.hpp>
#include <heddle/planner/joint.hpp>
#include <heddle/theory/rescale.hpp>

#include <support/catalogue_programs.hpp>
#include <support/device_groups.hpp>
#include <support/interleaved_plans.hpp>
#include <support/pipelines.hpp>
#include <support/random_plans.hpp>
#include <support/random_stages.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using namespace heddle::bench;

// ---- arithmetic

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

libtorch::kernels<double> const& kernels() {
    static libtorch::kernels<double> const all;
    return all;
}

/// What was run of a kind, what of that was wrong, and the largest error.
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
        on_ranks(p, ranks_of(how), seed, [&](staged_communicator& world, expected_of& expected) {
            on_device<double>(how, world, [&](auto& mine) {
                interpreter rank(p, indexed, how, mine, kernels(), seed);
                expected.run(rank);
            });
        });
    }
    void run_stages(program const& p, staged_plan const& how, std::uint64_t seed = 1) {
        if (how.is_plain()) return run_plan(p, how.stages.front().plan, seed);
        staged_layout const layout(p, how);
        on_ranks(p, layout.ranks(), seed, [&](staged_communicator& world, expected_of& expected) {
            on_stage<libtorch::tensor<double>>(layout, world, [&](auto& here) {
                interpreter rank(p, layout.indexed(layout.stage_of(world.rank())), here, kernels(), seed);
                expected.run(rank);
            });
        });
    }
    void run_pipeline(program const& p, pipeline_plan const& how, std::uint64_t seed = 1) {
        auto const indexed = index_program(p);
        auto const split = split_along_batch(indexed);
        pipeline_layout const layout(indexed, how, split);
        on_ranks(p, layout.ranks(), seed, [&](staged_communicator& world, expected_of& expected) {
            stage_rank<libtorch::tensor<double>, staged_communicator> here(indexed, split, layout, world);
            interpreter rank(p, indexed, here, kernels(), seed);
            expected.run(rank);
        });
    }

private:
    template <class Work>
    void on_ranks(program const& p, std::size_t ranks, std::uint64_t seed, Work&& work) {
        expected_of expected(p, seed);
        run_ranks(ranks, [&](in_process_communicator& threads) {
            libtorch::device_scope const here(device);
            staged_communicator world(threads);
            work(world, expected);
        });
        auto const& found = expected.result();
        ++run;
        worst = std::max(worst, found.worst_error);
        if (!found) fail("seed " + std::to_string(seed) + ": " + found.problem);
    }
};

/// Shares in proportion to speed, for which no library is needed.
struct proportional_solver {
    ratio_solution solve(ratio_problem const& p) const {
        return {p.fits(p.preferred), p.preferred, p.objective(p.preferred)};
    }
};

/// Three devices of three speeds.
cluster uneven_cluster() {
    cluster c;
    c.name = "three";
    for (double const speed : {1.0, 2.0, 4.0})
        c.types.push_back({"x" + std::to_string(static_cast<int>(speed)),
                           bytes(64e9),
                           bytes_per_second(speed * 3e11),
                           seconds(1e-6),
                           {{element_type::float32, {flops_per_second(speed * 4e12)}}}});
    c.machines = {{.type = 0}, {.type = 1}, {.type = 2}};
    c.inter = network_link{bytes_per_second(2e9), seconds(2e-5)};
    return c;
}

/// Plans models by all planners, and runs the plans with smaller dimensions.
void run_planned(std::vector<named_program> const& models, std::vector<shown>& all) {
    shown hap{"plans of HAP"}, hidup{"plans of HiDup"}, amp{"plans of AMP"}, ditto{"plans of Ditto"},
        any{"plans of all kinds"};
    auto const c = uneven_cluster();
    auto const limited = [](planning_options o) {
        o.synthesis.search.limits.labels = o.last_search.limits.labels = 500;
        return o;
    };
    auto const run = [](shown& of, program const& p, auto const& how) {
        if (!how.exists()) return of.fail("there is no plan: " + how.reason);
        auto const small = shrink(p, how);
        if constexpr (std::is_same_v<decltype(how), plan const&>) of.run_plan(small.program, small.plan);
        else if constexpr (std::is_same_v<decltype(how), staged_plan const&>) of.run_stages(small.program, small.plan);
        else of.run_pipeline(small.program, small.plan);
    };
    for (auto const& [name, p] : models) {
        auto const layers = repeated_layers(index_program(p));
        run(hap, p, plan_hap(p, c, proportional_solver(), limited({})));
        run(hidup, p,
            plan_hidup(p, c, proportional_solver(),
                       {.planning = limited(hidup_options().planning), .compares = false}));
        run(amp, p, plan_amp(p, layers, c));
        run(ditto, p, plan_ditto(p, layers, c, {.planner = {.method = template_method::recover}}));
        run(any, p, find_plan(p, c, proportional_solver()));
    }
    for (auto const& one : {hap, hidup, amp, ditto, any}) all.push_back(one);
}

/// Returns whether nothing is wrong.
bool arithmetic(std::uint64_t seeds, std::vector<named_program> const& models) {
    shown programs{"programs on one rank"}, plans{"plans of uneven shards"}, groups{"plans of device groups"},
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
    std::vector<shown> all{programs, plans, groups, turns, pipelines, stages};
    run_planned(models, all);
    std::printf("\n## Arithmetic\n\nLoss and gradients in float64 beside the reference kernels on the CPU: random "
                "programs, of %zu kinds of operators, and plans on ranks that share the device; and what the planners "
                "make, on three devices of three speeds, of the models below, with smaller dimensions.\n\n"
                "| what | run | wrong | largest relative error |\n|---|---:|---:|---:|\n",
                kinds.size());
    for (auto const& one : all) std::printf("| %s | %zu | %zu | %.1e |\n", one.what, one.run, one.wrong, one.worst);
    return std::all_of(all.begin(), all.end(), [](shown const& one) { return one.wrong == 0; });
}

// ---- time

void time_models(extent batch, std::vector<named_program> const& models) {
    auto const all = sampled(batch, models);
    auto const report = fit_samples(all.samples());
    std::printf(
        "\n## Rates of operator classes\n\nOperators of the models below with half, all and twice the batch, forward "
        "and "
        "backward; each distinct size once. Errors are of sizes that the fit was not given.\n\n"
        "| precision | class | sizes | rate, GFLOP/s | bandwidth, GB/s | overhead, us | median error | 95th percentile "
        "| worst |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
    auto const number = [](auto const& of, double unit) {
        std::array<char, 32> text{"-"};
        if (of) std::snprintf(text.data(), text.size(), "%.4g", of->value / unit);
        return std::string(text.data());
    };
    for (auto const& f : report.operators) {
        std::printf("| %s | %s | %zu | %s | %s | %s |", f.device.c_str(),
                    std::string(json::name_of(json::operator_classes, f.category)).c_str(), f.quality.sizes,
                    number(f.speed.rate, 1e9).c_str(), number(f.speed.bandwidth, 1e9).c_str(),
                    number(f.speed.overhead, 1e-6).c_str());
        if (auto const& error = f.quality.held_out)
            std::printf(" %.1f %% | %.1f %% | %.0f %% |\n", 100 * error->median, 100 * error->percentile_95,
                        100 * error->worst);
        else std::printf(" - | - | - |\n");
    }
    if (!device.is_cuda()) std::printf("\ntf32: not measured, as there is no GPU.\n");
    if (!all.not_in_bf16().empty()) {
        std::printf("\nNot measured in bf16, which libtorch does not compute here:");
        for (auto const& kind : all.not_in_bf16()) std::printf(" `%s`", kind.c_str());
        std::printf(".\n");
    }
    auto const machine = fitted(report);
    std::printf(
        "\n## Iterations\n\nForward and backward of whole models on one device by the interpreter in fp32, batch %lld, "
        "beside the prediction of the rates above.\n\n| model | measured, s | predicted, s | error |\n"
        "|---|---:|---:|---:|\n",
        static_cast<long long>(batch));
    for (auto const& m : models) {
        auto const whole = with_batch_size(m.program, batch);
        auto const indexed = index_program(whole);
        auto what = plan_of_one(indexed);
        for (auto& s : what.steps) s.step.update = {}; // no optimiser runs here
        double const predicted = evaluate(what, machine).time.total();
        double measured = 0;
        run_ranks(1, [&](in_process_communicator& world) {
            libtorch::device_scope const here(device);
            libtorch::kernels<float> const backend;
            interpreter rank(whole, indexed, what, world, backend);
            auto const placed = rank.place(random_sources<float>(whole, 1));
            measured = seconds_of([&] { (void)rank.run(placed); });
        });
        std::printf("| %s | %.5f | %.5f | %+.1f %% |\n", m.name.c_str(), measured, predicted,
                    100 * (predicted / measured - 1));
    }
}

} // namespace

int main(int count, char** arguments) {
    if (count < 5) {
        std::fputs("usage: one_gpu cpu|cuda SEEDS BATCH MODEL...\n", stderr);
        return 2;
    }
    try {
        if (std::string_view(arguments[1]) == "cuda") device = at::Device(at::kCUDA, 0);
        libtorch::device_scope const here(device);
        auto const models = read_models({arguments + 4, arguments + count});
        bool const is_right = arithmetic(std::strtoull(arguments[2], nullptr, 10), models);
        time_models(std::strtoll(arguments[3], nullptr, 10), models);
        return is_right ? 0 : 1;
    } catch (std::exception const& e) {
        std::fprintf(stderr, "one_gpu: %s\n", e.what());
        return 2;
    }
}
