// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Fits launch times, scales of profiles and speeds of links to iterations that were measured.
#pragma once

#include <heddle/base/requirements.hpp>
#include <heddle/cluster/fit_parameters.hpp>
#include <heddle/pipeline/strategy.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// A strategy that was run, and the time of an iteration.
struct measured_strategy {
    strategy plan;
    seconds time;
};

/// Strategies of one problem that were run.
struct calibration_set {
    strategy_problem problem;
    std::vector<measured_strategy> trials;
};

struct calibration_options {
    /// How far, as the logarithm of a factor, a scale, a speed or the launches of a profile are expected to be off, and
    /// a prediction off a measurement. What trials do not determine stays as profiled.
    double prior_deviation = 0.7, noise = 0.05;
    int iterations = 40;
};

/// What trials say of a problem's parameters.
struct calibration {
    /// The problems with what was fitted in place of what the profiles assumed, in the order of the sets.
    std::vector<strategy_problem> problems;
    /// By name, such as "T4, launch", "T4, scale at degree 2" or "T4, links inside": the launch in seconds where a type
    /// has one for all layers, and otherwise factors on the profile. Those of one name are one in all sets.
    std::map<std::string, fitted_parameter> parameters;
};

/// Fits, to all sets together, by type of device: the launch times, the scale of every profile that was run, and, where
/// links are given by machines, a factor each for the bandwidths inside and outside machines of the type. It minimises
/// squared relative errors and distances from the profiles, and returns a local optimum.
///
/// The result is fitted to the given trials, so it says nothing about how well others are predicted: leave some out to
/// find that.
/// *Throws* `input_error` for a bad problem, a strategy that is none of it, or a time that is not positive.
/// *Complexity.* Iterations * parameters * trials evaluations.
[[nodiscard]] calibration calibrate(std::span<calibration_set const> sets, calibration_options const& o = {});

/// Returns one problem calibrated on its own trials.
[[nodiscard]] strategy_problem calibrate(strategy_problem const& p, std::span<measured_strategy const> trials,
                                         calibration_options const& o = {});

/// Returns the problem with the parameters of the same names in place of what its profiles assume.
[[nodiscard]] strategy_problem calibrated(strategy_problem p,
                                          std::map<std::string, fitted_parameter> const& parameters);

} // namespace heddle

namespace heddle::detail {

inline std::string launch_of(profiled_type const& t) { return t.name + ", launch"; }
inline std::string scale_of(profiled_type const& t, std::size_t degree) {
    return t.name + ", scale at degree " + std::to_string(degree);
}
inline std::string links_of(profiled_type const& t, bool inside) {
    return t.name + (inside ? ", links inside" : ", links outside");
}

/// Whether one launch time stands for all layers, which no profile measured.
inline bool has_plain_launch(profiled_type const& t) {
    return algorithm::any_of(t.profiles,
                             [](auto const& p) { return p.second.launches.empty() && p.second.fixed.empty(); });
}

/// Puts the values of the parameters that `value_of` knows into a problem as it was profiled.
template <class ValueOf>
void set_parameters(strategy_problem& p, ValueOf const& value_of) {
    for (auto& type : p.types) {
        if (double const* const launch = value_of(launch_of(type))) {
            if (has_plain_launch(type)) type.launch = seconds(*launch);
            double const factor = has_plain_launch(type) ? 1 : *launch;
            for (auto& [degree, profile] : type.profiles) {
                for (auto& l : profile.launches) l = {factor * l.forward, factor * l.backward};
                for (std::size_t l = 0; l < profile.fixed.size(); ++l)
                    profile.fixed[l] = std::min(factor * profile.fixed[l], profile.layers[l]);
            }
        }
        for (auto& [degree, profile] : type.profiles)
            if (double const* const scale = value_of(scale_of(type, degree))) profile.scale *= *scale;
    }
    for (auto& m : p.machines)
        for (bool const inside : {true, false})
            if (double const* const speed = value_of(links_of(p.types[m.type], inside)))
                (inside ? m.inside : m.outside).bandwidth *= *speed;
}

/// Returns the parameters that a set's trials can determine, and what is known of them.
inline std::map<std::string, prior_parameter> calibration_priors(calibration_set const& set, double deviation) {
    auto const& p = set.problem;
    strategy_model const model(p);
    std::map<std::string, prior_parameter> priors;
    for (auto const& trial : set.trials)
        for (auto const device : trial.plan.placement.devices) {
            auto const& type = p.types[model.type_of(device)];
            auto const degree = trial.plan.degrees().tensor;
            priors.try_emplace(scale_of(type, degree), prior_parameter{1, deviation});
            if (p.bandwidths.empty()) {
                priors.try_emplace(links_of(type, true), prior_parameter{1, deviation});
                if (p.machines.size() > 1) priors.try_emplace(links_of(type, false), prior_parameter{1, deviation});
            }
            if (!has_plain_launch(type)) {
                priors.try_emplace(launch_of(type), prior_parameter{1, deviation});
                continue;
            }
            seconds longest(4e-12);
            for (auto const& [other, profile] : type.profiles)
                for (auto const t : profile.layers) longest = std::max(longest, t);
            double const launch = type.launch.value > 0 ? type.launch.value : longest.value / 4;
            priors.try_emplace(launch_of(type), prior_parameter{launch, std::numeric_limits<double>::infinity()});
        }
    return priors;
}

inline void check_trials(calibration_set const& set) {
    validate(set.problem);
    strategy_model const model(set.problem);
    for (std::size_t i = 0; i < set.trials.size(); ++i) {
        model.check(set.trials[i].plan);
        if (!(set.trials[i].time.value > 0 && std::isfinite(set.trials[i].time.value)))
            throw input_error("trial " + std::to_string(i),
                              std::to_string(set.trials[i].time.value) + " s, expected a positive time");
    }
}

} // namespace heddle::detail

namespace heddle {

inline calibration calibrate(std::span<calibration_set const> sets, calibration_options const& o) {
    std::map<std::string, prior_parameter> priors;
    for (auto const& set : sets) {
        detail::check_trials(set);
        priors.merge(detail::calibration_priors(set, o.prior_deviation));
    }
    std::vector<std::string> names;
    std::vector<prior_parameter> known;
    for (auto const& [name, prior] : priors) {
        names.push_back(name);
        known.push_back(prior);
    }
    auto const with = [&](strategy_problem p, std::span<double const> values) {
        detail::set_parameters(p, [&](std::string const& name) -> double const* {
            auto const found = algorithm::lower_bound(names, name);
            return found != names.end() && *found == name ? &values[static_cast<std::size_t>(found - names.begin())]
                                                          : nullptr;
        });
        return p;
    };
    auto const fitted = fit_parameters(known,
                                       [&](std::span<double const> values) {
                                           std::vector<double> errors;
                                           for (auto const& set : sets) {
                                               auto const p = with(set.problem, values);
                                               strategy_model const model(p);
                                               for (auto const& trial : set.trials)
                                                   errors.push_back(model.cost(trial.plan).total / trial.time - 1);
                                           }
                                           return errors;
                                       },
                                       {.noise = o.noise, .iterations = o.iterations});
    calibration out;
    std::vector<double> values;
    for (std::size_t i = 0; i < names.size(); ++i) {
        out.parameters.emplace(names[i], fitted[i]);
        values.push_back(fitted[i].value);
    }
    for (auto const& set : sets) out.problems.push_back(with(set.problem, values));
    return out;
}

inline strategy_problem calibrate(strategy_problem const& p, std::span<measured_strategy const> trials,
                                  calibration_options const& o) {
    calibration_set const set{p, {trials.begin(), trials.end()}};
    return std::move(calibrate(std::span(&set, 1), o).problems.front());
}

inline strategy_problem calibrated(strategy_problem p, std::map<std::string, fitted_parameter> const& parameters) {
    validate(p);
    detail::set_parameters(p, [&](std::string const& name) -> double const* {
        auto const found = parameters.find(name);
        return found == parameters.end() ? nullptr : &found->second.value;
    });
    return p;
}

} // namespace heddle
