// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Fits launch times, scales of profiles and speeds of links to iterations that were measured.
#pragma once

#include <heddle/pipeline/strategy.hpp>

#include <Eigen/Cholesky>

#include <algorithm>
#include <cmath>
#include <cstddef>
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

struct calibration_options {
    /// How far, as the logarithm of a factor, a scale or a speed is expected to be off the profile, and a prediction
    /// off a measurement. What trials do not determine stays as profiled.
    double prior_deviation = 0.7, noise = 0.05;
    int iterations = 40;
};

namespace detail {

/// The parameters of a problem that trials can determine: launch times of types, scales of the profiles used, and
/// speeds of links.
class calibration_run {
public:
    calibration_run(strategy_problem const& p, std::span<measured_strategy const> trials, calibration_options const& o)
        : problem_(p), trials_(trials), options_(o), model_(problem_) {
        std::set<std::size_t> types;
        std::set<std::pair<std::size_t, std::size_t>> profiles;
        for (auto const& trial : trials)
            for (auto const device : trial.plan.placement.devices) {
                types.insert(model_.type_of(device));
                profiles.emplace(model_.type_of(device), trial.plan.degrees().tensor);
            }
        for (auto const type : types) {
            double const launch = p.types[type].launch.value;
            parameters_.push_back(
                {kind::launch, type, 0, std::log(launch > 0 ? launch : longest_layer(type) / 4), false});
        }
        for (auto const& [type, degree] : profiles)
            parameters_.push_back({kind::scale, type, degree, std::log(p.types[type].profiles.at(degree).scale), true});
        if (p.bandwidths.empty()) {
            parameters_.push_back({kind::inside, 0, 0, 0, true});
            if (p.machines.size() > 1) parameters_.push_back({kind::outside, 0, 0, 0, true});
        }
    }

    /// Runs Levenberg and Marquardt's method on relative errors and priors, in logarithms.
    strategy_problem run() {
        auto const count = static_cast<Eigen::Index>(parameters_.size());
        Eigen::VectorXd at(count);
        for (Eigen::Index i = 0; i < count; ++i) at[i] = parameters_[static_cast<std::size_t>(i)].start;
        Eigen::VectorXd error = errors(at);
        double damping = 1e-3;
        for (int n = 0; n < options_.iterations && damping < 1e8; ++n) {
            Eigen::MatrixXd slopes(error.size(), count);
            double const step = 1e-4;
            for (Eigen::Index i = 0; i < count; ++i) {
                Eigen::VectorXd moved = at;
                moved[i] += step;
                slopes.col(i) = (errors(moved) - error) / step;
            }
            Eigen::MatrixXd normal = slopes.transpose() * slopes;
            normal.diagonal() += damping * (normal.diagonal().array() + 1e-9).matrix();
            Eigen::VectorXd const better =
                at - normal.ldlt().solve(slopes.transpose() * error).cwiseMax(-1).cwiseMin(1);
            Eigen::VectorXd const better_error = errors(better);
            double const gain = error.squaredNorm() - better_error.squaredNorm();
            damping *= gain > 0 ? 0.2 : 10;
            if (!(gain > 0)) continue;
            at = better;
            error = better_error;
            if (gain < 1e-10 * error.squaredNorm()) break;
        }
        set(at);
        return std::move(problem_);
    }

private:
    enum class kind : unsigned char { launch, scale, inside, outside };
    struct parameter {
        kind what;
        std::size_t type, degree;
        double start;
        bool has_prior;
    };

    [[nodiscard]] double longest_layer(std::size_t type) const {
        double longest = 1e-12;
        for (auto const& [degree, profile] : problem_.types[type].profiles)
            for (auto const t : profile.layers) longest = std::max(longest, t.value);
        return longest;
    }

    void set(Eigen::VectorXd const& at) {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            auto const& p = parameters_[i];
            double const value = std::exp(at[static_cast<Eigen::Index>(i)]);
            switch (p.what) {
            case kind::launch: problem_.types[p.type].launch = seconds(value); break;
            case kind::scale: problem_.types[p.type].profiles.at(p.degree).scale = value; break;
            case kind::inside:
            case kind::outside: {
                bool const inside = p.what == kind::inside;
                double const ratio = value / (inside ? inside_ : outside_);
                (inside ? inside_ : outside_) = value;
                for (auto& m : problem_.machines) (inside ? m.inside : m.outside).bandwidth *= ratio;
            }
            }
        }
    }

    /// Returns errors in units of their deviations: those of the predictions, then those of the parameters from the
    /// profile.
    [[nodiscard]] Eigen::VectorXd errors(Eigen::VectorXd const& at) {
        set(at);
        Eigen::VectorXd out(static_cast<Eigen::Index>(trials_.size() + parameters_.size()));
        Eigen::Index next = 0;
        for (auto const& trial : trials_)
            out[next++] = (model_.cost(trial.plan).total / trial.time - 1) / options_.noise;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            auto const& p = parameters_[i];
            out[next++] = p.has_prior ? (at[static_cast<Eigen::Index>(i)] - p.start) / options_.prior_deviation : 0;
        }
        return out;
    }

    strategy_problem problem_;
    std::span<measured_strategy const> trials_;
    calibration_options const& options_;
    strategy_model model_;
    std::vector<parameter> parameters_;
    /// The current speeds as multiples of the given ones.
    double inside_ = 1, outside_ = 1;
};

} // namespace detail

/// Returns the problem with what the trials say in place of what the profile assumed: the launch time of every type,
/// the scale of every profile used, and, if links are given by machines, one factor for the bandwidths inside machines
/// and one for those between them. It minimises squared relative errors and returns a local optimum.
///
/// The result is fitted to the given trials, so it says nothing about how well others are predicted: leave some out to
/// find that.
/// *Throws* `input_error` for a bad problem, a strategy that is none of the problem, or a time that is not positive.
/// *Complexity.* Iterations * parameters * trials evaluations.
[[nodiscard]] inline strategy_problem calibrate(strategy_problem const& p, std::span<measured_strategy const> trials,
                                                calibration_options const& o = {}) {
    validate(p);
    strategy_model const model(p);
    for (std::size_t i = 0; i < trials.size(); ++i) {
        model.check(trials[i].plan);
        if (!(trials[i].time.value > 0 && std::isfinite(trials[i].time.value)))
            throw input_error("trial " + std::to_string(i),
                              std::to_string(trials[i].time.value) + " s, expected a positive time");
    }
    return detail::calibration_run(p, trials, o).run();
}

} // namespace heddle
