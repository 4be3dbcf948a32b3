// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Says in words why a program does not fit.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/plan/plan.hpp>

#include <cstdio>
#include <string>

namespace heddle {

/// Returns what the device that a program overfills most would need, by term.
[[nodiscard]] std::string memory_reason(plan const& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

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

} // namespace heddle

#endif
