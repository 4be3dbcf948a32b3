// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Node folding: each device counts as a number of folded devices, all of one type.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/pipeline/template_problem.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

struct folding_options {
    /// The type of the folded devices. If unset, it is the weakest type, the one that takes longest for all layers.
    std::optional<std::size_t> reference{};
    /// If set, what folded devices on one layer would have to tell each other is counted (Ditto 5.3.2 instead of
    /// 5.3.1).
    bool communication = false;
    /// Is added with `communication`: the average cost of a layer for each further machine that shares it.
    seconds across_machines{0};
    /// If set, a device stands for no more folded devices than share out the model evenly within its memory.
    bool memory = false;
    /// If there would be more folded devices per layer than this, each stands for several of the type: finer than
    /// layers is useless.
    std::size_t most_per_layer = 16;
};

struct folding {
    std::size_t reference = 0;
    /// The number of folded devices that one device of each type is; at least one if there are machines of the type,
    /// else none. If there would be too many, the numbers are reduced in proportion.
    std::vector<std::size_t> factors;
    /// The number of folded devices of the whole cluster.
    std::size_t devices = 0;
};

namespace detail {

/// Returns the time of all layers on `d` devices of the reference type: p(d) of Ditto section 5.3.2.
double folded_time(template_problem const& p, std::size_t reference, std::size_t d, folding_options const& o);

void count_devices(template_problem const& p, folding& f);

/// Makes folded devices larger, hence fewer, if there are more than `most`.
void coarsen(template_problem const& p, std::size_t most, folding& f);

} // namespace detail

/// Folds a cluster onto one type of device. A factor is the nearest whole number, and never zero.
///
/// *Throws* `input_error` for a bad problem or reference; with communication, also if the reference's all-reduce tables
/// lack a size.
/// *Complexity.* O(types * layers); with communication O(types * factor * layers).
/// *Reference.* Ditto section 5.3, which leaves memory to future work.
[[nodiscard]] folding fold(template_problem const& p, folding_options const& o = {});

/// Returns where the layers would be cut for this many folded devices, each as near as possible to an even share of the
/// work on the reference type, from 0 to the number of layers. If there are more devices than layers, some hold none.
[[nodiscard]] std::vector<std::size_t> folded_cuts(template_problem const& p, folding const& f);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE double folded_time(template_problem const& p, std::size_t reference, std::size_t d,
                                 folding_options const& o) {
    auto const& type = p.types[reference];
    double const all = p.time_on(reference).value, count = static_cast<double>(d);
    auto const whole = d / type.devices_per_machine, rest = d % type.devices_per_machine;
    auto const inside = [&](std::size_t group) {
        if (group <= 1) return 0.0;
        auto const found = type.all_reduce.find(group);
        if (found == type.all_reduce.end())
            throw input_error("folding, type '" + type.name + "'", "no all-reduce times for " + std::to_string(group) +
                                                                       " devices, which " + std::to_string(d) +
                                                                       " folded devices need");
        double sum = 0;
        for (auto const x : found->second) sum += 2 * x.value;
        return sum;
    };
    // The layers are divided by devices between the whole machines and the rest.
    double const on_whole = static_cast<double>(whole * type.devices_per_machine) / count,
                 on_rest = static_cast<double>(rest) / count;
    return all / count + static_cast<double>(whole) * o.across_machines.value +
           on_whole * inside(type.devices_per_machine) + on_rest * inside(rest);
}

HEDDLE_INLINE void count_devices(template_problem const& p, folding& f) {
    f.devices = 0;
    for (std::size_t t = 0; t < p.types.size(); ++t) f.devices += f.factors[t] * p.types[t].device_count();
}

HEDDLE_INLINE void coarsen(template_problem const& p, std::size_t most, folding& f) {
    if (f.devices <= most) return;
    double const scale = static_cast<double>(most) / static_cast<double>(f.devices);
    for (auto& factor : f.factors)
        if (factor > 1)
            factor =
                std::max<std::size_t>(1, static_cast<std::size_t>(std::round(scale * static_cast<double>(factor))));
    count_devices(p, f);
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE folding fold(template_problem const& p, folding_options const& o) {
    detail::check(p);
    folding f;
    auto const has_machines = [&](std::size_t t) { return p.types[t].device_count() > 0; };
    if (o.reference) {
        if (*o.reference >= p.types.size() || !has_machines(*o.reference))
            throw input_error("folding",
                              "reference type " + std::to_string(*o.reference) + ", expected one that has machines");
        f.reference = *o.reference;
    } else {
        seconds most(-1);
        for (std::size_t t = 0; t < p.types.size(); ++t)
            if (has_machines(t) && p.time_on(t) > most) {
                most = p.time_on(t);
                f.reference = t;
            }
    }
    double const all = p.time_on(f.reference).value;
    for (std::size_t t = 0; t < p.types.size(); ++t) {
        auto& factor = f.factors.emplace_back(0);
        if (!has_machines(t)) continue;
        double const alone = p.time_on(t).value;
        factor = alone > 0 ? std::max<std::size_t>(1, static_cast<std::size_t>(std::min(std::round(all / alone),
                                                                                        o.communication ? 1e6 : 1e12)))
                           : 1;
        if (!o.communication) continue;
        std::size_t best = 1;
        for (std::size_t d = 2; d <= factor; ++d)
            if (std::abs(detail::folded_time(p, f.reference, d, o) - alone) <
                std::abs(detail::folded_time(p, f.reference, best, o) - alone))
                best = d;
        factor = best;
    }
    detail::count_devices(p, f);
    detail::coarsen(p, o.most_per_layer * p.layer_count(), f);
    if (!o.memory) return f;
    double needed = 0; // of all folded devices together, one micro-batch in flight
    for (auto const& m : p.memory) needed += m.kept.value + m.saved.value;
    for (bool changed = needed > 0; changed;) { // fewer folded devices, larger shares
        changed = false;
        double const share = needed / static_cast<double>(f.devices);
        for (std::size_t t = 0; t < p.types.size(); ++t) {
            if (f.factors[t] <= 1 || static_cast<double>(f.factors[t]) * share <= p.types[t].memory_limit.value)
                continue;
            f.factors[t] = std::max<std::size_t>(1, static_cast<std::size_t>(p.types[t].memory_limit.value / share));
            changed = true;
        }
        detail::count_devices(p, f);
    }
    return f;
}

HEDDLE_INLINE std::vector<std::size_t> folded_cuts(template_problem const& p, folding const& f) {
    std::vector<double> before(1, 0.0);
    for (std::size_t l = 0; l < p.layer_count(); ++l)
        before.push_back(before.back() + p.time_on(f.reference, l, 1).value);
    std::vector<std::size_t> cuts;
    std::size_t l = 0;
    for (std::size_t d = 0; d < f.devices; ++d) {
        double const wanted = before.back() * static_cast<double>(d) / static_cast<double>(f.devices);
        while (l < p.layer_count() && before[l + 1] - wanted <= wanted - before[l]) ++l;
        cuts.push_back(l);
    }
    cuts.push_back(p.layer_count());
    return cuts;
}

} // namespace heddle

#endif
