// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What each call of an operator takes in iterations of one process.
#pragma once

#include "measure.hpp"

#include <heddle/execute/kernel.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/program/program.hpp>

#include <chrono>
#include <compare>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace heddle::cli {

/// One pass of an operator.
struct operator_call {
    operator_id op = 0;
    bool is_backward = false;
    friend auto operator<=>(operator_call const&, operator_call const&) = default;
};

/// Kernels that note when each of some calls ends. A call has the time since the end of the one before: it finds caches
/// as the others leave them, and tensors between the two are made, dropped, added up and looked up in this time.
template <class Backend>
class watched_kernels {
    using clock = std::chrono::steady_clock;

public:
    using tensor = typename Backend::tensor;

    /// What is not watched belongs to the call after it. References are kept.
    watched_kernels(Backend const& kernels, std::set<operator_call> const& watched)
        : kernels_(kernels), watched_(watched) {}

    void begin() { last_ = clock::now(); }
    [[nodiscard]] std::map<operator_call, std::vector<double>> const& seconds() const { return seconds_; }

    [[nodiscard]] std::vector<tensor> forward(tensor_call<tensor> const& call,
                                              std::span<tensor const* const> operands) const {
        auto results = kernels_.forward(call, operands);
        ended({static_cast<operator_id>(call.random.stream), false});
        return results;
    }
    [[nodiscard]] std::vector<std::optional<tensor>> backward(tensor_call<tensor> const& call,
                                                              std::span<tensor const* const> operands,
                                                              std::span<tensor const* const> results,
                                                              std::span<tensor const* const> cotangents) const {
        auto gradients = kernels_.backward(call, operands, results, cotangents);
        ended({static_cast<operator_id>(call.random.stream), true});
        return gradients;
    }

private:
    void ended(operator_call const& call) const {
        if (!watched_.contains(call)) return;
        seconds_[call].push_back(std::chrono::duration<double>(clock::now() - last_).count());
        last_ = clock::now();
    }

    Backend const& kernels_;
    std::set<operator_call> const& watched_;
    mutable clock::time_point last_;
    mutable std::map<operator_call, std::vector<double>> seconds_;
};

/// Returns the median seconds that calls of a program take in iterations, which take this long together at least.
/// *Precondition:* an iteration makes the calls.
template <class Backend>
[[nodiscard]] std::map<operator_call, double> seconds_of_calls(program const& p, std::set<operator_call> const& calls,
                                                               Backend const& backend, double enough) {
    using tensor = typename Backend::tensor;
    tensor_values<tensor> sources;
    for (auto const& [t, value] : random_sources<typename tensor::scalar_type>(p, 1)) sources.emplace(t, tensor(value));
    auto const iterate = [&](auto const& kernels) { (void)run_single_device(p, sources, kernels); };
    iterate(backend); // the first one prepares what is kept between calls
    watched_kernels watched(backend, calls);
    double together = 0;
    do
        together += seconds_of([&] {
            watched.begin();
            iterate(watched);
        });
    while (together < enough);
    std::map<operator_call, double> result;
    for (auto const& [call, each] : watched.seconds()) result.emplace(call, median(each));
    return result;
}

} // namespace heddle::cli
