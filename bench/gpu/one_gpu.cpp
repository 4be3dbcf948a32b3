// SPDX-License-Identifier: BSL-1.0
// What one device of libtorch computes, and how fast: arithmetic of all kernels and of plans beside the reference,
// rates of operator classes with errors on shapes that were left out, and iterations beside what is predicted of them.
// Usage: one_gpu cpu|cuda SEEDS BATCH MODEL...   It prints the parts of a page; run.sh builds and calls it.
#include "staged_communicator.hpp"

#include <heddle/libtorch/kernels.hpp>

#include <heddle/cluster/fit.hpp>
#include <heddle/execute/devices.hpp>
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/stage_rank.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>
#include <heddle/theory/rescale.hpp>

#include <support/catalogue_programs.hpp>
#include <support/device_groups.hpp>
#include <support/interleaved_plans.hpp>
#include <support/pipelines.hpp>
#include <support/random_plans.hpp>

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
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using tensor = libtorch::tensor<float>;

at::Device device = at::kCPU;

// ---- arithmetic

/// Keeps the largest error, and what was wrong.
struct shown {
    std::size_t run = 0, wrong = 0;
    double worst = 0;
    void add(proof const& p) {
        ++run;
        wrong += p.problem.empty() ? 0 : 1;
        worst = std::max(worst, p.worst_error);
    }
    void row(char const* what) const { std::printf("| %s | %zu | %zu | %.1e |\n", what, run, wrong, worst); }
};

/// Compares whatever `run(each)` gives of ranks with the single device by the reference kernels.
class expected_of {
public:
    expected_of(program const& p, std::uint64_t seed) : program_(p), sources(random_sources<double>(p, seed)) {
        static eigen_kernels<double> const reference;
        expected_ = run_on_random_sources(p, sources, reference, seed);
        for (auto const& [t, gradient] : expected_.gradients) gradients_.emplace(t, gradient.second);
        builder_.emplace(p, expected_, result_);
    }
    template <class Rank>
    void run(Rank& rank) {
        auto const mine = rank.run(rank.place(sources));
        double const loss = rank.whole_loss(mine);
        auto const wanted = rank.place(gradients_);
        std::scoped_lock const guard(lock_);
        builder_->compare_loss(loss);
        builder_->compare_gradients(mine.gradients, wanted);
    }
    [[nodiscard]] proof const& result() {
        if (!(result_.worst_error <= 1e-10)) builder_->fail("differs");
        return result_;
    }

private:
    program const& program_;

public:
    source_values<double> const sources;

private:
    iteration_result<double> expected_;
    source_values<double> gradients_;
    proof result_;
    std::optional<heddle::detail::proof_builder> builder_;
    std::mutex lock_;
};

libtorch::kernels<double> const& kernels() {
    static libtorch::kernels<double> const all;
    return all;
}

template <class Work>
void on_ranks(std::size_t ranks, Work&& work) {
    run_ranks(ranks, [&](in_process_communicator& threads) {
        libtorch::device_scope const here(device);
        bench::staged_communicator world(threads);
        work(world);
    });
}
void run_plan(shown& of, program const& p, plan const& what, std::uint64_t seed) {
    expected_of expected(p, seed);
    auto const indexed = index_for(p, what);
    on_ranks(ranks_of(what), [&](bench::staged_communicator& world) {
        on_device<double>(what, world, [&](auto& mine) {
            interpreter rank(p, indexed, what, mine, kernels(), seed);
            expected.run(rank);
        });
    });
    of.add(expected.result());
}
void run_pipeline(shown& of, program const& p, pipeline_plan const& what, std::uint64_t seed) {
    expected_of expected(p, seed);
    auto const indexed = index_program(p);
    auto const split = split_along_batch(indexed);
    pipeline_layout const layout(indexed, what, split);
    on_ranks(layout.ranks(), [&](bench::staged_communicator& world) {
        stage_rank<libtorch::tensor<double>, bench::staged_communicator> here(indexed, split, layout, world);
        interpreter rank(p, indexed, here, kernels(), seed);
        expected.run(rank);
    });
    of.add(expected.result());
}

void arithmetic(std::uint64_t seeds) {
    shown programs, plans, groups, turns, pipelines;
    std::set<std::string> kinds;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        test::random_source random(seed);
        auto const grown = test::find_catalogue_program(random, random.between(2, 5));
        if (!grown) continue;
        auto const& p = *grown;
        for (operator_id o = 0; o < p.operator_count(); ++o) kinds.insert(p.kind(o));
        auto const indexed = index_program(p);
        run_plan(programs, p, test::random_plan(indexed, 1, random), seed);
        run_plan(plans, p, test::random_plan(indexed, static_cast<std::size_t>(random.between(2, 4)), random), seed);
        auto const grouped = test::random_grouped_case(seed);
        run_plan(groups, grouped.program, grouped.plan, seed);
        if (int const count = test::divisor_of_batch(p, random); count > 0) {
            auto const part = index_program(micro_batch_of(p, count));
            run_plan(turns, p,
                     test::interleaved(test::random_plan(part, 2, random), part, {.micro_batches = count}, random),
                     seed);
        }
        std::vector<std::size_t> const cuts{0, p.operator_count() / 2, p.operator_count()};
        auto const pipeline = test::pipeline_of(p, cuts, 1 + seed % 2, 1 + static_cast<std::int64_t>(seed % 3));
        if (verify(p, pipeline)) run_pipeline(pipelines, p, pipeline, seed);
    }
    std::printf("\n## Arithmetic\n\nFloat64 beside the reference kernels on the CPU: random programs of %zu kinds of "
                "operators on one rank, and plans of every kind that planners make on ranks that share the device.\n\n"
                "| what | run | wrong | largest relative error |\n|---|---:|---:|---:|\n",
                kinds.size());
    programs.row("programs on one rank");
    plans.row("plans of uneven shards");
    groups.row("plans of device groups");
    turns.row("micro-batches in turn");
    pipelines.row("pipelines");
}

// ---- time

/// Waits for the device.
void synchronise() { (void)tensor(tensor_shape{}).number(); }

/// Returns the median seconds of a call.
double seconds_of(std::function<void()> const& call) {
    using clock = std::chrono::steady_clock;
    constexpr double enough = 0.02;
    auto const timed = [&](int times) {
        synchronise();
        auto const begun = clock::now();
        for (int n = 0; n < times; ++n) call();
        synchronise();
        return std::chrono::duration<double>(clock::now() - begun).count();
    };
    call();
    int const times = std::max(1, static_cast<int>(enough / std::max(timed(1), 1e-7)));
    std::array<double, 5> all{};
    for (auto& t : all) t = timed(times) / times;
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

/// Runs a program operator by operator, and adds the time of each that is not known yet, forward and backward.
class sampler {
public:
    void run(program const& p) {
        auto const indexed = index_program(p);
        libtorch::kernels<float> const backend;
        std::map<tensor_id, tensor> values;
        for (auto const& [t, value] : random_sources<float>(p, 1)) values.emplace(t, tensor(value));
        std::map<tensor_id, std::size_t> uses;
        for (operator_id o = 0; o < p.operator_count(); ++o)
            for (auto t : p.operands(o)) ++uses[t];
        for (operator_id o = 0; o < p.operator_count(); ++o) {
            tensor_call<tensor> const call = whole_call(p, o);
            std::vector<tensor const*> x, y, g;
            for (auto t : p.operands(o)) x.push_back(&values.at(t));
            auto made = backend.forward(call, x);
            std::vector<tensor> ones;
            for (auto const& result : made) ones.emplace_back(result.shape(), 1.0F);
            for (std::size_t k = 0; k < made.size(); ++k) {
                y.push_back(&made[k]);
                g.push_back(indexed.tensors[p.results(o)[k]].has_cotangent ? &ones[k] : nullptr);
            }
            auto const step = make_step(indexed, whole_instruction(indexed, o), {});
            bool const differs = std::any_of(g.begin(), g.end(), [](auto const* c) { return c != nullptr; });
            add(step, step.forward, [&] { (void)backend.forward(call, x); });
            if (differs) add(step, step.backward, [&] { (void)backend.backward(call, x, y, g); });
            for (std::size_t k = 0; k < made.size(); ++k) values.emplace(p.results(o)[k], std::move(made[k]));
            for (auto t : p.operands(o))
                if (--uses[t] == 0) values.erase(t);
        }
    }
    [[nodiscard]] std::vector<sample> const& samples() const { return samples_; }

private:
    [[nodiscard]] static instruction whole_instruction(indexed_program const& p, operator_id o) {
        auto const forms = [&](std::vector<tensor_id> const& tensors) {
            form_list all;
            for (auto t : tensors) all.push_back(canonical(tensor_form::mirrored(), p.tensors[t]));
            return all;
        };
        return instruction::compute{o, forms(p.operators[o].operands), forms(p.operators[o].results)};
    }
    void add(step_work const& s, local_work const& work, std::function<void()> const& call) {
        bytes const size = work.whole + work.split;
        if (!work.launches || !known_.insert({s.category, work.operations.value, size.value}).second) return;
        samples_.push_back(
            {s.category, "device", 0, element_type::float32, work.operations, size, seconds(seconds_of(call))});
    }

    std::set<std::tuple<operator_class, double, double>> known_;
    std::vector<sample> samples_;
};

/// A device whose classes are as fitted; the overhead and bandwidth of the element-wise stand for all others.
cluster fitted(fit_report const& report) {
    device_type type{"device", bytes(1e15), bytes_per_second(1e9), seconds(1e-6), {}};
    rate_table table{flops_per_second(1e9), {}};
    for (auto const& f : report.operators) {
        table.by_class[f.category] = f.speed;
        if (f.category == operator_class::matmul && f.speed.rate) table.fallback = *f.speed.rate;
        if (f.category != operator_class::elementwise) continue;
        if (f.speed.bandwidth) type.bandwidth = *f.speed.bandwidth;
        if (f.speed.overhead) type.overhead = *f.speed.overhead;
    }
    type.rates[element_type::float32] = table;
    cluster c;
    c.name = "fitted";
    c.types = {type};
    c.machines = {{.type = 0}};
    return c;
}

plan plan_of_one(indexed_program const& indexed) {
    plan p = blank_plan(indexed);
    p.devices.resize(1);
    p.devices[0].group_size = 1;
    p.ratios.assign(segment_count(indexed), {1.0});
    for (auto const& i : undivided_program(indexed)) p.steps.push_back({i, make_step(indexed, i, {}), {}});
    return p;
}

void time_models(extent batch, std::vector<std::string> const& files) {
    struct model_of {
        std::string name;
        program whole;
    };
    std::vector<model_of> models;
    sampler all;
    for (auto const& file : files) {
        auto model = json::read_model(file);
        auto const name = std::filesystem::path(file).filename().string();
        models.push_back({name.substr(0, name.find('.')), with_batch_size(model.program, batch)});
        for (extent const size : {batch / 2, batch, 2 * batch}) all.run(with_batch_size(model.program, size));
    }
    auto const report = fit_samples(all.samples());
    std::printf(
        "\n## Rates of operator classes\n\nFloat32. Operators of the models below with half, all and twice the "
        "batch, forward and backward; each distinct size once. Errors are of sizes that the fit was not given.\n\n"
        "| class | sizes | rate, GFLOP/s | bandwidth, GB/s | overhead, us | median error | ninth decile | worst "
        "|\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
    auto const number = [](auto const& of, double unit) {
        std::array<char, 32> text{"-"};
        if (of) std::snprintf(text.data(), text.size(), "%.4g", of->value / unit);
        return std::string(text.data());
    };
    for (auto const& f : report.operators) {
        auto const error = f.quality.held_out.value_or(f.quality.in_sample);
        std::printf("| %s | %zu | %s | %s | %s | %.1f %% | %.1f %% | %.0f %% |\n",
                    std::string(json::name_of(json::operator_classes, f.category)).c_str(), f.quality.sizes,
                    number(f.speed.rate, 1e9).c_str(), number(f.speed.bandwidth, 1e9).c_str(),
                    number(f.speed.overhead, 1e-6).c_str(), 100 * error.median, 100 * error.ninth_decile,
                    100 * error.worst);
    }
    auto const machine = fitted(report);
    std::printf("\n## Iterations\n\nForward and backward of whole models on one device by the interpreter, batch %lld, "
                "beside the prediction of the rates above.\n\n| model | measured, s | predicted, s | error |\n"
                "|---|---:|---:|---:|\n",
                static_cast<long long>(batch));
    for (auto const& m : models) {
        auto const indexed = index_program(m.whole);
        auto what = plan_of_one(indexed);
        for (auto& s : what.steps) s.step.update = {}; // no optimiser runs here
        double const predicted = evaluate(what, machine).time.total();
        double measured = 0;
        run_ranks(1, [&](in_process_communicator& world) {
            libtorch::device_scope const here(device);
            libtorch::kernels<float> const backend;
            interpreter rank(m.whole, indexed, what, world, backend);
            auto const placed = rank.place(random_sources<float>(m.whole, 1));
            measured = seconds_of([&] { (void)rank.run(placed); });
        });
        std::printf("| %s | %.5f | %.5f | %+.1f %% |\n", m.name.c_str(), measured, predicted,
                    100 * (predicted / measured - 1));
    }
}

} // namespace

int main(int count, char** arguments) {
    if (count < 4) {
        std::fputs("usage: one_gpu cpu|cuda SEEDS BATCH MODEL...\n", stderr);
        return 2;
    }
    try {
        if (std::string_view(arguments[1]) == "cuda") device = at::Device(at::kCUDA, 0);
        libtorch::device_scope const here(device);
        arithmetic(std::strtoull(arguments[2], nullptr, 10));
        time_models(std::strtoll(arguments[3], nullptr, 10), {arguments + 4, arguments + count});
    } catch (std::exception const& e) {
        std::fprintf(stderr, "one_gpu: %s\n", e.what());
        return 1;
    }
}
