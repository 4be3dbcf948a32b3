// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What is held at least, and in words why programs do not fit.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/cost/step.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>

#include <cstdio>
#include <optional>
#include <string>

namespace heddle {

/// Returns what the device that a program overfills most would need, by term.
[[nodiscard]] std::string memory_reason(plan const& p);

/// Adds what all devices hold together at least of a parameter that is used: one copy and, if it is trained, one of its
/// gradient and of the optimiser's state.
void add_least_memory(memory_terms& to, indexed_tensor const& parameter, training_options const& training);
/// Returns what all devices hold together at least, whatever the program and the shares: one copy of the parameters,
/// with gradients and optimiser state, and one of each tensor that is saved and not made again. Inputs, what regions
/// hold while they run again, and the buffers of collectives are not counted.
/// *Complexity.* Linear in the program.
[[nodiscard]] memory_terms least_memory(indexed_program const& p, training_options const& training);
/// Returns the memory of all devices together.
[[nodiscard]] bytes memory_of(cluster const& c);
/// Returns in words that this is more than a cluster's devices have together; nothing if it is not.
[[nodiscard]] std::optional<std::string> why_nothing_fits(memory_terms const& least, cluster const& c);
[[nodiscard]] inline std::optional<std::string> why_nothing_fits(indexed_program const& p,
                                                                 training_options const& training, cluster const& c) {
    return why_nothing_fits(least_memory(p, training), c);
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/instruction.hpp>

#include <vector>

namespace heddle {

HEDDLE_INLINE std::string memory_reason(plan const& p) {
    std::size_t worst = 0;
    auto const use = [&](std::size_t d) { return p.memory[d].total() / p.devices[d].memory_limit.value; };
    for (std::size_t d = 1; d < p.devices.size(); ++d)
        if (use(d) > use(worst)) worst = d;
    auto const& m = p.memory[worst];
    char text[320];
    std::snprintf(text, sizeof text,
                  "memory: at the ratios tried nothing fits; in a program of little memory device %zu (%.60s) would "
                  "need %.3g GB of %.3g GB: parameters %.3g, gradients %.3g, "
                  "optimizer %.3g, inputs %.3g, activations %.3g, communication %.3g",
                  worst, p.devices[worst].name().c_str(), m.total() / 1e9, p.devices[worst].memory_limit.value / 1e9,
                  m.parameters / 1e9, m.gradients / 1e9, m.optimizer / 1e9, m.inputs / 1e9, m.activations / 1e9,
                  m.communication / 1e9);
    return text;
}

HEDDLE_INLINE void add_least_memory(memory_terms& to, indexed_tensor const& parameter,
                                    training_options const& training) {
    auto const type = parameter.info.type;
    double const size = parameter.info.size().value;
    to.parameters += size;
    if (!parameter.has_cotangent) return;
    to.gradients += size;
    to.optimizer += size / element_size(type) * training.state_bytes_per_element(type);
}

HEDDLE_INLINE memory_terms least_memory(indexed_program const& p, training_options const& training) {
    memory_terms least;
    std::vector<char> is_saved(p.tensors.size());
    for (auto const& op : p.operators) {
        for (auto k : op.work.saved_operands) is_saved[op.operands[k]] = 1;
        for (auto k : op.work.saved_results) is_saved[op.results[k]] = 1;
        if (op.results.empty() || p.tensors[op.results.front()].region == no_region) continue;
        for (auto t : op.operands)
            if (keeps_to_run_again(p, t)) is_saved[t] = 1;
    }
    for (tensor_id t = 0; t < p.tensors.size(); ++t) {
        auto const& tensor = p.tensors[t];
        if (tensor.is_parameter()) {
            if (!tensor.consumers.empty()) add_least_memory(least, tensor, training);
        } else if (is_saved[t] && !tensor.is_source() && tensor.region == no_region) {
            least.activations += training.held() * tensor.info.size().value;
        }
    }
    return least;
}

HEDDLE_INLINE bytes memory_of(cluster const& c) {
    bytes sum{0};
    for (auto const& m : c.machines) sum += static_cast<double>(m.devices) * m.count * c.types[m.type].memory;
    return sum;
}

HEDDLE_INLINE std::optional<std::string> why_nothing_fits(memory_terms const& least, cluster const& c) {
    double const room = memory_of(c).value;
    if (least.total() <= room) return std::nullopt;
    char text[240];
    std::snprintf(text, sizeof text,
                  "memory: all devices together have %.4g GB, and need %.4g GB at least: parameters %.3g, gradients "
                  "%.3g, optimizer %.3g, activations %.3g",
                  room / 1e9, least.total() / 1e9, least.parameters / 1e9, least.gradients / 1e9, least.optimizer / 1e9,
                  least.activations / 1e9);
    return text;
}

} // namespace heddle

#endif
