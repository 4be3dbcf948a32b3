// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A bound from work alone, of every plan whatever its stages, forms, shares and micro-batches.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/program/indexed_program.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace heddle {

/// No plan of the program on the cluster takes less time.
///
/// All of an operator has to be done by some devices. One that does a part x of it takes x times as long as it would for
/// all, at least: kernels of a part are no more efficient, and start as well. With weights on devices that sum to one, an
/// iteration takes as long as all operators, each where weight times time is least; weights are in proportion to how
/// fast devices do all of the program. Additions of cotangents do not count, as stages do some of them as they send; and
/// where times are not finite, or nothing takes any, the bound is zero.
/// *Throws* `input_error` if a type has no rate for the program's element type.
[[nodiscard]] seconds work_bound(indexed_program const& p, cluster const& c);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/synthesis/layer_costs.hpp>
#include <heddle/synthesis/program_profile.hpp>

namespace heddle {

HEDDLE_INLINE seconds work_bound(indexed_program const& p, cluster const& c) {
    auto counted = p;
    for (auto& t : counted.tensors) t.uses = std::min(t.uses, decltype(t.uses){1});
    std::vector<std::vector<seconds>> times;
    std::vector<double> speeds;
    double sum = 0;
    for (auto const type : detail::types_in_use(c)) {
        times.push_back(operator_times(counted, c, type));
        seconds all{0};
        for (auto const t : times.back()) all += t;
        double count = 0;
        for (auto const& m : c.machines)
            if (m.type == type) count += static_cast<double>(m.devices) * m.count;
        speeds.push_back(1 / all.value);
        sum += count * speeds.back();
    }
    if (!std::isfinite(sum)) return seconds(0);
    seconds bound{0};
    for (std::size_t o = 0; o < p.operators.size(); ++o) {
        seconds least(std::numeric_limits<double>::infinity());
        for (std::size_t k = 0; k < times.size(); ++k) least = std::min(least, times[k][o] * (speeds[k] / sum));
        bound += least;
    }
    return std::isfinite(bound.value) ? bound : seconds(0);
}

} // namespace heddle

#endif
