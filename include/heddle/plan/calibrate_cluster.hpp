// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Fits a cluster's speeds and links to the times of plans that were run on it.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/cluster/fit_parameters.hpp>
#include <heddle/plan/staged_plan.hpp>

#include <map>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// A plan that was run, and the time of an iteration.
struct measured_plan {
    staged_plan plan;
    seconds time;
};

struct cluster_calibration_options {
    /// How far, as the logarithm of a factor, each number of the cluster is expected to be off.
    double prior_deviation = 0.7;
    /// How far a price is expected to be off a measurement.
    parameter_fit_options fit{};
};

struct cluster_calibration {
    heddle::cluster cluster;
    /// Factors on what the cluster said, by name: for each type of devices that a plan uses "V100, speed", of rates and
    /// memory bandwidth, and "V100, launches", of the time to start a kernel; "links inside" and "links between"
    /// machines, of bandwidths and of the speed of measured collectives. What trials hardly tell is drawn to 1, and has a
    /// wide interval (`fitted_parameter::is_determined`).
    std::map<std::string, fitted_parameter> factors;
    /// What each plan takes by the new cluster.
    std::vector<seconds> predicted;
};

/// Fits speeds and links of a cluster so that `evaluate` prices plans as they were measured: it minimises squared
/// relative errors and distances from the cluster as it is, and returns a local optimum. So what was measured of some
/// plans informs the choice among others (AMP section 6).
///
/// The result is fitted to these plans, so it says nothing about how well others are predicted.
/// *Throws* `input_error` for a plan of other devices, a time that is not positive, deviations that are not, and for a
/// cluster that `validate` refuses.
/// *Complexity.* Iterations * factors * plans evaluations.
[[nodiscard]] cluster_calibration calibrate(cluster const& c, std::span<measured_plan const> trials,
                                            cluster_calibration_options const& o = {});

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/error.hpp>
#include <heddle/cluster/detail/device_places.hpp>

#include <cmath>
#include <cstddef>
#include <functional>
#include <set>
#include <utility>

namespace heddle::detail {

/// Something of a cluster that may be off by a factor.
struct cluster_factor {
    std::string name;
    std::function<void(cluster&, double)> multiply;
};

HEDDLE_INLINE void multiply_speed(device_type& type, double by) {
    type.bandwidth = type.bandwidth * by;
    for (auto& [element, rates] : type.rates) {
        rates.fallback = rates.fallback * by;
        for_each_speed(rates, [by](class_speed& speed) {
            if (speed.rate) *speed.rate *= by;
            if (speed.bandwidth) *speed.bandwidth *= by;
        });
    }
}

HEDDLE_INLINE void multiply_launches(device_type& type, double by) {
    type.overhead = type.overhead * by;
    for (auto& [element, rates] : type.rates)
        for_each_speed(rates, [by](class_speed& speed) {
            if (speed.overhead) *speed.overhead *= by;
        });
}

/// Collectives were measured over all devices, so they are of the slowest links.
HEDDLE_INLINE void multiply_links(cluster& c, bool inside, double by) {
    if (auto& link = inside ? c.intra : c.inter) link->bandwidth = link->bandwidth * by;
    auto const multiply = [by](std::map<collective, collective_model>& models) {
        for (auto& [kind, model] : models)
            for (auto& line : model.pieces) line = {line.latency * (1 / by), line.slope * (1 / by)};
    };
    multiply((inside ? c.measured_inside : c.measured_across).models);
    if (inside != has_several_machines(c)) multiply(c.measured);
}

/// Returns what the plans' times depend on.
HEDDLE_INLINE std::vector<cluster_factor> factors_of(cluster const& c, std::span<measured_plan const> trials) {
    device_places const places(c);
    std::set<std::size_t> types;
    for (auto const& trial : trials)
        for (auto const& s : trial.plan.stages)
            for (auto const d : s.devices) types.insert(c.machines[places.group_of_machine[d]].type);
    std::vector<cluster_factor> factors;
    for (auto const t : types) {
        factors.push_back(
            {c.types[t].name + ", speed", [t](cluster& on, double by) { multiply_speed(on.types[t], by); }});
        factors.push_back(
            {c.types[t].name + ", launches", [t](cluster& on, double by) { multiply_launches(on.types[t], by); }});
    }
    if (c.intra) factors.push_back({"links inside", [](cluster& on, double by) { multiply_links(on, true, by); }});
    if (has_several_machines(c))
        factors.push_back({"links between", [](cluster& on, double by) { multiply_links(on, false, by); }});
    return factors;
}

HEDDLE_INLINE void check_trials(cluster const& c, std::span<measured_plan const> trials,
                                cluster_calibration_options const& o) {
    validate(c);
    for (double const deviation : {o.prior_deviation, o.fit.noise})
        if (!(deviation > 0))
            throw input_error("calibration", "a deviation is " + std::to_string(deviation) + ", expected more than 0");
    auto const devices = device_places(c).machine.size();
    for (std::size_t n = 0; n < trials.size(); ++n) {
        auto const& [plan, time] = trials[n];
        auto const place = "trial " + std::to_string(n);
        if (!plan.exists() || plan.device_count != devices)
            throw input_error(place, "is of " + std::to_string(plan.device_count) + " devices, expected a plan for " +
                                         std::to_string(devices));
        for (auto const& s : plan.stages) static_cast<void>(cluster_of(c, s)); // refuses devices that there are not
        if (!(time.value > 0 && std::isfinite(time.value)))
            throw input_error(place, std::to_string(time.value) + " s, expected a positive time");
    }
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE cluster_calibration calibrate(cluster const& c, std::span<measured_plan const> trials,
                                            cluster_calibration_options const& o) {
    detail::check_trials(c, trials, o);
    auto const factors = detail::factors_of(c, trials);
    auto const by = [&](std::span<double const> values) {
        auto changed = c;
        for (std::size_t i = 0; i < factors.size(); ++i) factors[i].multiply(changed, values[i]);
        return changed;
    };
    auto const errors = [&](std::span<double const> values) {
        auto const changed = by(values);
        std::vector<double> relative;
        for (auto const& [plan, time] : trials) relative.push_back(evaluate(plan, changed).time.total() / time - 1);
        return relative;
    };
    std::vector<prior_parameter> const priors(factors.size(), {1, o.prior_deviation});
    auto fit = o.fit;
    fit.tries_others = true; // the slowest class decides
    auto const fitted = fit_parameters(priors, errors, fit);
    cluster_calibration result;
    std::vector<double> values;
    for (std::size_t i = 0; i < factors.size(); ++i) {
        result.factors.emplace(factors[i].name, fitted[i]);
        values.push_back(fitted[i].value);
    }
    result.cluster = by(values);
    for (auto const& trial : trials) result.predicted.push_back(evaluate(trial.plan, result.cluster).time.total());
    return result;
}

} // namespace heddle

#endif
