// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Tells what modules are by the operators that a trial run of them applies: a trace has lost their arguments.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/requirements.hpp>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace heddle::libtorch::detail {

/// An operator that was applied in a trial run.
struct observed_call {
    std::string_view name;
    std::vector<c10::IValue> arguments, results;
};

[[nodiscard]] inline observed_call const* first_call(std::vector<observed_call> const& calls, std::string_view name) {
    auto const found = algorithm::find(calls, name, &observed_call::name);
    return found == calls.end() ? nullptr : &*found;
}

/// Self-attention without masks.
struct observed_attention {
    at::Tensor query; ///< (sequence, batch, features)
    std::int64_t heads = 0;
    double dropout = 0;
    bool training = true;
};
[[nodiscard]] inline std::optional<observed_attention> find_attention(std::vector<observed_call> const& calls) {
    auto const count = [&](std::string_view name) { return algorithm::count(calls, name, &observed_call::name); };
    bool const known = count("softmax") == 1 && count("linear") == 2 && count("bmm") == 2 &&
                       count("baddbmm") + count("masked_fill") + count("add") == 0;
    if (!known) return {};
    observed_attention found{first_call(calls, "linear")->arguments[0].toTensor()};
    found.heads = first_call(calls, "softmax")->results[0].toTensor().size(0) / found.query.size(1);
    if (auto const* dropout = first_call(calls, "dropout")) {
        found.dropout = dropout->arguments[1].toDouble();
        found.training = dropout->arguments[2].toBool();
    }
    return found;
}

/// A branch times noise of ones and zeros, one for each row or for the batch.
struct observed_drop {
    double probability = 0;
    std::string_view mode;
};
[[nodiscard]] inline std::optional<observed_drop> find_stochastic_depth(std::vector<observed_call> const& calls,
                                                                        at::Tensor const& branch) {
    auto const* drawn = first_call(calls, "bernoulli_");
    if (!drawn || !drawn->arguments.at(1).isDouble() || branch.dim() == 0 || !first_call(calls, "mul")) return {};
    auto const noise = drawn->arguments[0].toTensor();
    if (noise.dim() != branch.dim()) return {};
    return observed_drop{1 - drawn->arguments[1].toDouble(), noise.size(0) == branch.size(0) ? "row" : "batch"};
}

} // namespace heddle::libtorch::detail
