// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief How fast a device of libtorch computes the operators of models.
#pragma once

#include <heddle/balance/ratio_problem.hpp>
#include <heddle/base/algorithm.hpp>
#include <heddle/cluster/fit.hpp>
#include <heddle/cost/kernel_sample.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/json/model.hpp>
#include <heddle/libtorch/kernels.hpp>
#include <heddle/pipeline/stage_program.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/theory/rescale.hpp>
#include <heddle/theory/theory.hpp>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#ifdef HEDDLE_LIBTORCH_HAS_CUDA
#include <ATen/cuda/Sleep.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace heddle::bench {

using tensor = libtorch::tensor<float>;

/// The device that is measured first.
inline at::Device device = at::kCPU;

struct named_program {
    std::string name;
    heddle::program program;
};
inline std::vector<named_program> read_models(std::vector<char const*> const& files) {
    std::vector<named_program> models;
    for (auto const* file : files) {
        auto const name = std::filesystem::path(file).filename().string();
        models.push_back({name.substr(0, name.find('.')), json::read_model(file).program});
    }
    return models;
}

/// Waits for the device.
inline void synchronise() { (void)tensor(tensor_shape{}).number(); }

/// Returns the seconds of so many calls, from a device that has nothing to do to one that has done all.
inline double seconds_of(std::function<void()> const& call, int times) {
    using clock = std::chrono::steady_clock;
    synchronise();
    auto const begun = clock::now();
    for (int n = 0; n < times; ++n) call();
    synchronise();
    return std::chrono::duration<double>(clock::now() - begun).count();
}

/// Returns the median of what `timed(times)` says of so many calls, for one. `once` is about what one takes.
template <class Timed>
double median_of_one(double once, double most, Timed const& timed) {
    constexpr double enough = 0.005;
    int const times = std::max(1, static_cast<int>(std::min(most, enough / std::max(once, 1e-7))));
    std::array<double, 5> all{};
    for (auto& t : all) t = timed(times) / times;
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

/// Returns the median seconds of a call, or of several in a row.
inline double seconds_of(std::function<void()> const& call) {
    call();
    return median_of_one(seconds_of(call, 1), 1e9, [&](int times) { return seconds_of(call, times); });
}

/// Returns the median seconds that a call takes of a device's time. A GPU waits until the host has launched all calls,
/// so that it waits for none of them.
inline double device_seconds_of(std::function<void()> const& call) {
#ifdef HEDDLE_LIBTORCH_HAS_CUDA
    if (device.is_cuda()) {
        c10::impl::VirtualGuardImpl const cuda(c10::DeviceType::CUDA);
        call();
        double const once = seconds_of(call, 1);
        constexpr double most_waiting = 40; // the queue of a GPU has a thousand places
        return median_of_one(once, most_waiting, [&](int times) {
            constexpr double most_cycles_per_second = 2e9;
            c10::Event first(c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT),
                last(c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT);
            auto const stream = cuda.getStream(device);
            at::cuda::sleep(static_cast<std::int64_t>(2 * once * times * most_cycles_per_second));
            first.record(stream);
            for (int n = 0; n < times; ++n) call();
            last.record(stream);
            synchronise();
            return 1e-3 * first.elapsedTime(last);
        });
    }
#endif
    return seconds_of(call);
}

/// How numbers are multiplied and kept.
struct precision {
    char const* name;
    element_type type = element_type::float32;
    bool is_tf32 = false;

    void set() const {
        at::globalContext().setAllowTF32CuBLAS(is_tf32);
        at::globalContext().setAllowTF32CuDNN(is_tf32);
    }
};
inline constexpr precision fp32{"fp32"}, tf32{"tf32", element_type::float32, true},
    bf16{"bf16", element_type::bfloat16};

/// Operands and results of a call, with pointers to them as kernels take them, and ones as cotangents.
template <class Scalar>
class held_call {
    using value = libtorch::tensor<Scalar>;

public:
    held_call(std::vector<tensor const*> const& operands, std::vector<tensor> const& results,
              std::vector<bool> const& has_cotangent) {
        auto const copy = [](tensor const& x) { return value(x.value().clone()); };
        for (auto const* x : operands) operands_.push_back(copy(*x));
        for (auto const& y : results) {
            results_.push_back(copy(y));
            ones_.emplace_back(y.shape(), typename value::number_type(1));
        }
        for (auto const& one : operands_) x.push_back(&one);
        for (std::size_t k = 0; k < results_.size(); ++k) {
            y.push_back(&results_[k]);
            g.push_back(has_cotangent[k] ? &ones_[k] : nullptr);
        }
    }
    held_call(held_call&&) = default; // pointers into vectors stay
    std::vector<value const*> x, y, g;

    [[nodiscard]] std::size_t size() const {
        std::size_t all = 0;
        for (auto const* list : {&operands_, &results_, &ones_})
            for (auto const& one : *list) all += one.value().nbytes();
        return all;
    }

private:
    std::vector<value> operands_, results_, ones_;
};

/// Runs a program in fp32 operator by operator, and adds the time that each call that is not known yet takes of the
/// device, forward and backward, in every precision. Operands are in no cache.
class sampler {
public:
    void run(program const& p) {
        auto const indexed = index_calls(p);
        libtorch::kernels<float> const backend;
        std::map<tensor_id, tensor> values;
        for (auto const& [t, value] : random_sources<float>(p, 1)) values.emplace(t, tensor(value));
        std::map<tensor_id, std::size_t> uses;
        for (operator_id o = 0; o < p.operator_count(); ++o)
            for (auto t : p.operands(o)) ++uses[t];
        for (operator_id o = 0; o < p.operator_count(); ++o) {
            std::vector<tensor const*> x;
            for (auto t : p.operands(o)) x.push_back(&values.at(t));
            auto const y = backend.forward(whole_call(p, o), x);
            add_calls<float>(fp32, p, indexed, o, x, y);
            if (device.is_cuda()) add_calls<float>(tf32, p, indexed, o, x, y);
            fp32.set();
            if (algorithm::all_of(p.operands(o), [&](auto t) { return is_floating(p.tensor(t).type); })) try {
                    add_calls<c10::BFloat16>(bf16, p, indexed, o, x, y);
                } catch (input_error const&) { not_in_bf16_.insert(p.kind(o)); }
            for (std::size_t k = 0; k < y.size(); ++k) values.emplace(p.results(o)[k], y[k]);
            for (auto t : p.operands(o))
                if (--uses[t] == 0) values.erase(t);
        }
    }
    [[nodiscard]] std::vector<sample> const& samples() const { return samples_; }
    /// Kinds of operators that libtorch does not compute in bf16 on the device.
    [[nodiscard]] std::set<std::string> const& not_in_bf16() const { return not_in_bf16_; }

private:
    template <class Scalar>
    void add_calls(precision const& how, program const& p, indexed_program const& indexed, operator_id o,
                   std::vector<tensor const*> const& operands, std::vector<tensor> const& results) {
        static libtorch::kernels<Scalar> const backend;
        how.set();
        std::vector<bool> has_cotangent;
        for (auto t : p.results(o)) has_cotangent.push_back(indexed.tensors[t].has_cotangent);
        std::vector<held_call<Scalar>> sets; // there are none until a call is timed
        std::size_t next = 0;
        auto const another = [&]() -> auto const& {
            constexpr std::size_t beyond_caches = 150'000'000, most = 40;
            if (sets.empty())
                for (std::size_t held = 0; held < beyond_caches && sets.size() < most; held += sets.back().size())
                    sets.emplace_back(operands, results, has_cotangent);
            return sets[next++ % sets.size()];
        };
        tensor_call<libtorch::tensor<Scalar>> const call = whole_call(p, o);
        auto const step = make_step(indexed, whole_computation(indexed, o), {});
        add(how, step, false, [&] { (void)backend.forward(call, another().x); });
        if (algorithm::find(has_cotangent, true) != has_cotangent.end())
            add(how, step, true, [&] {
                auto const& held = another();
                (void)backend.backward(call, held.x, held.y, held.g);
            });
    }
    void add(precision const& how, step_work const& s, bool is_backward, std::function<void()> const& call) {
        auto one = sample_of(s, is_backward, how.name, how.type);
        auto const& work = s.work(is_backward);
        if (!work.launches ||
            !known_.insert({how.name, s.category, s.kind, is_backward, one.work.value, one.size.value}).second)
            return;
        one.time = seconds(device_seconds_of(call));
        samples_.push_back(std::move(one));
    }

    std::set<std::tuple<std::string, operator_class, std::string, bool, double, double>> known_;
    std::vector<sample> samples_;
    std::set<std::string> not_in_bf16_;
};

/// Returns the operators of models with half, all and twice a batch, measured.
inline sampler sampled(extent batch, std::vector<named_program> const& models) {
    sampler all;
    for (auto const& m : models)
        for (extent const size : {batch / 2, batch, 2 * batch}) all.run(with_batch_size(m.program, size));
    return all;
}

/// A device that is as fitted in fp32; the overhead of element-wise kernels stands for all others.
inline cluster fitted(fit_report const& report) {
    device_type type{fp32.name, bytes(1e15), bytes_per_second(1e9), seconds(1e-6), {}};
    rate_table& table = type.rates[element_type::float32] = {flops_per_second(1e9), {}};
    for (auto const& f : report.operators) {
        if (f.device != fp32.name || f.of) continue;
        if (f.category == operator_class::matmul && f.speed.rate) table.fallback = *f.speed.rate;
        if (f.category == operator_class::elementwise && f.speed.overhead) type.overhead = *f.speed.overhead;
    }
    cluster c;
    c.name = "fitted";
    c.types = {type};
    c.machines = {{.type = 0}};
    (void)put_into(c, models_of(report, 1));
    return c;
}

inline plan plan_of_one(indexed_program const& indexed) {
    plan p = blank_plan(indexed);
    p.devices.resize(1);
    p.devices[0].group_size = 1;
    p.ratios.assign(segment_count(indexed), {1.0});
    for (auto const& i : undivided_program(indexed)) p.steps.push_back({i, make_step(indexed, i, {}), {}});
    return p;
}

/// Shares in proportion to speed, for which no library is needed.
struct proportional_solver {
    ratio_solution solve(ratio_problem const& p) const {
        return {p.fits(p.preferred), p.preferred, p.objective(p.preferred)};
    }
};

} // namespace heddle::bench
