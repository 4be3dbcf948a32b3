// SPDX-License-Identifier: BSL-1.0
// What one device of libtorch computes, and how fast: arithmetic of all kernels and of plans beside the reference,
// rates of operator classes with errors on shapes that were left out, and iterations beside what is predicted of them.
// Usage: one_gpu cpu|cuda SEEDS BATCH SAMPLES MODEL...   It prints the parts of a page, writes what operators took to
// the file SAMPLES, as heddle fit reads it, and returns 1 if something is wrong, 2 if the page is not whole. run.sh
// builds and calls it.
#include "arithmetic.hpp"
#include "device_rates.hpp"
#include "staged_communicator.hpp"

#include <heddle/cluster/fit.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/shrink.hpp>
#include <heddle/execute/shrink_pipeline.hpp>
#include <heddle/execute/shrink_stages.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/names.hpp>
#include <heddle/json/samples.hpp>
#include <heddle/libtorch/kernels.hpp>
#include <heddle/planner/amp.hpp>
#include <heddle/planner/ditto.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/hidup.hpp>
#include <heddle/planner/joint.hpp>
#include <heddle/theory/rescale.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using namespace heddle::bench;

// ---- arithmetic

/// Threads that share the device; what they exchange goes through the host.
struct sharing_threads {
    static std::size_t most() { return std::numeric_limits<std::size_t>::max(); }
    template <class Work>
    static void run(std::size_t ranks, Work&& work) {
        run_ranks(ranks, [&](in_process_communicator& threads) {
            libtorch::device_scope const here(device);
            staged_communicator world(threads);
            work(world);
        });
    }
};
using shown_here = shown<sharing_threads>;

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
void run_planned(std::vector<named_program> const& models, std::vector<shown_here>& all) {
    shown_here hap{"plans of HAP"}, hidup{"plans of HiDup"}, amp{"plans of AMP"}, ditto{"plans of Ditto"},
        any{"plans of all kinds"};
    auto const c = uneven_cluster();
    auto const limited = [](planning_options o) {
        o.synthesis.search.limits.labels = o.last_search.limits.labels = 500;
        return o;
    };
    auto const run = [](shown_here& of, program const& p, auto const& how) {
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
    auto [all, kinds] = run_random<sharing_threads>(seeds);
    run_planned(models, all);
    std::printf("\n## Arithmetic\n\nLoss and gradients in float64 beside the reference kernels on the CPU: random "
                "programs, of %zu kinds of operators, and plans on ranks that share the device; and what the planners "
                "make, on three devices of three speeds, of the models below, with smaller dimensions.\n\n",
                kinds);
    return print(all);
}

// ---- time

void time_models(extent batch, std::filesystem::path const& samples, std::vector<named_program> const& models) {
    auto const all = sampled(batch, models);
    json::write_file_atomically(samples, json::to_text(all.samples()));
    auto const report = fit_samples(all.samples());
    std::printf(
        "\n## Rates\n\nOperator classes, and kinds of operators in each pass, by which plans are priced. Operators of "
        "the models below with half, all and twice the batch, forward "
        "and backward; each distinct size once. Times are of the device, without what its host takes to launch "
        "kernels, and operands are in no cache. Errors are of sizes that the fit was not given.\n\n"
        "| precision | of | sizes | rate, GFLOP/s | bandwidth, GB/s | overhead, us | median error | 95th percentile "
        "| worst |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
    auto const number = [](auto const& of, double unit) {
        std::array<char, 32> text{"-"};
        if (of) std::snprintf(text.data(), text.size(), "%.4g", of->value / unit);
        return std::string(text.data());
    };
    for (auto const& f : report.operators) {
        auto const of = f.of ? '`' + f.of->kind + "` " + f.of->pass()
                             : std::string(json::name_of(json::operator_classes, f.category));
        std::printf("| %s | %s | %zu | %s | %s | %s |", f.device.c_str(), of.c_str(), f.quality.sizes,
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
        "beside the prediction of the rates above, which is of the device: an iteration takes no less than its host "
        "takes to launch its kernels.\n\n| model | measured, s | predicted, s | error |\n"
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
    if (count < 6) {
        std::fputs("usage: one_gpu cpu|cuda SEEDS BATCH SAMPLES MODEL...\n", stderr);
        return 2;
    }
    try {
        if (std::string_view(arguments[1]) == "cuda") device = at::Device(at::kCUDA, 0);
        libtorch::device_scope const here(device);
        auto const models = read_models({arguments + 5, arguments + count});
        bool const is_right = arithmetic(std::strtoull(arguments[2], nullptr, 10), models);
        time_models(std::strtoll(arguments[3], nullptr, 10), arguments[4], models);
        return is_right ? 0 : 1;
    } catch (std::exception const& e) {
        std::fprintf(stderr, "one_gpu: %s\n", e.what());
        return 2;
    }
}
