// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Parameters fitted to measurements, drawn to what is known of them beforehand, with what is left uncertain.
#pragma once

#include <heddle/base/definitions.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace heddle {

/// A positive quantity, and how far it may be off before anything is measured, as the deviation of its logarithm;
/// infinite if nothing is known.
struct prior_parameter {
    double value = 1, deviation = std::numeric_limits<double>::infinity();
};

/// A fitted value, and the deviation of its logarithm given prior and measurements.
struct fitted_parameter {
    double value = 1, deviation = 0, prior_deviation = std::numeric_limits<double>::infinity();

    /// Whether the measurements say more of it than the prior did.
    [[nodiscard]] bool is_determined() const { return deviation < prior_deviation / 2 && deviation < 0.5; }
    /// The ends of an interval that has the value with a probability of 95 %, if errors are as assumed.
    [[nodiscard]] double low() const { return value * std::exp(-1.96 * deviation); }
    [[nodiscard]] double high() const { return value * std::exp(1.96 * deviation); }
};

struct parameter_fit_options {
    /// The deviation of a prediction's relative error.
    double noise = 0.05;
    int iterations = 40;
    /// Whether to begin also with each parameter in turn off by its prior's deviation, up or down, and at most by half
    /// or double: where the slowest of several decides, what is not slow at first has no slope.
    bool tries_others = false;
};

/// Returns the parameters that minimise the squares of `errors(values)`, relative errors of predictions, in units of
/// the noise, and of the logarithms' distances from the priors, in units of theirs: the best local optimum from the
/// priors, or beginnings near them, by Levenberg's and Marquardt's method. Sets of measurements are pooled by errors that
/// have those of all.
///
/// The result is fitted to these measurements, so it says nothing about how well others are predicted.
/// *Precondition:* values are positive, and `errors` returns as many finite numbers each time.
/// *Complexity.* `iterations` times parameters calls of `errors` per beginning.
[[nodiscard]] std::vector<fitted_parameter> fit_parameters(
    std::span<prior_parameter const> priors, std::function<std::vector<double>(std::span<double const>)> const& errors,
    parameter_fit_options const& o = {});

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <Eigen/Cholesky>

namespace heddle {

HEDDLE_INLINE std::vector<fitted_parameter> fit_parameters(
    std::span<prior_parameter const> priors, std::function<std::vector<double>(std::span<double const>)> const& errors,
    parameter_fit_options const& o) {
    auto const count = static_cast<Eigen::Index>(priors.size());
    Eigen::VectorXd at(count);
    for (Eigen::Index i = 0; i < count; ++i) at[i] = std::log(priors[static_cast<std::size_t>(i)].value);
    Eigen::VectorXd const start = at;
    std::vector<double> values(priors.size());
    auto const all_errors = [&](Eigen::VectorXd const& x) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::exp(x[static_cast<Eigen::Index>(i)]);
        auto const relative = errors(values);
        auto const trials = static_cast<Eigen::Index>(relative.size());
        Eigen::VectorXd out(trials + count);
        for (Eigen::Index i = 0; i < trials; ++i) out[i] = relative[static_cast<std::size_t>(i)] / o.noise;
        for (Eigen::Index i = 0; i < count; ++i)
            out[trials + i] = (x[i] - start[i]) / priors[static_cast<std::size_t>(i)].deviation;
        return out;
    };
    Eigen::VectorXd error;
    auto const slopes_at = [&] {
        double const step = 1e-4;
        Eigen::MatrixXd slopes(error.size(), count);
        for (Eigen::Index i = 0; i < count; ++i) {
            Eigen::VectorXd moved = at;
            moved[i] += step;
            slopes.col(i) = (all_errors(moved) - error) / step;
        }
        return slopes;
    };
    auto const descend_from = [&](Eigen::VectorXd const& first) {
        at = first;
        error = all_errors(at);
        double damping = 1e-3;
        for (int n = 0; n < o.iterations && damping < 1e8; ++n) {
            Eigen::MatrixXd const slopes = slopes_at();
            Eigen::MatrixXd normal = slopes.transpose() * slopes;
            normal.diagonal() += damping * (normal.diagonal().array() + 1e-9).matrix();
            Eigen::VectorXd const better =
                at - normal.ldlt().solve(slopes.transpose() * error).cwiseMax(-1).cwiseMin(1);
            Eigen::VectorXd const better_error = all_errors(better);
            double const gain = error.squaredNorm() - better_error.squaredNorm();
            damping *= gain > 0 ? 0.2 : 10;
            if (!(gain > 0)) continue;
            at = better;
            error = better_error;
            if (gain < 1e-10 * error.squaredNorm()) break;
        }
    };
    descend_from(start);
    for (Eigen::Index i = 0; o.tries_others && i < count; ++i)
        for (double const sign : {1.0, -1.0}) {
            auto const best = at, best_error = error;
            Eigen::VectorXd first = start;
            first[i] += sign * std::min(std::log(2.0), priors[static_cast<std::size_t>(i)].deviation);
            descend_from(first);
            if (error.squaredNorm() >= best_error.squaredNorm() * (1 - 1e-9)) at = best, error = best_error;
        }
    Eigen::MatrixXd const slopes = slopes_at();
    Eigen::MatrixXd normal = slopes.transpose() * slopes;
    // What neither prior nor measurements determine has a large variance, not an infinite one.
    normal.diagonal().array() += 1e-12;
    Eigen::MatrixXd const variance = normal.ldlt().solve(Eigen::MatrixXd::Identity(count, count));
    std::vector<fitted_parameter> out;
    for (Eigen::Index i = 0; i < count; ++i)
        out.push_back({std::exp(at[i]), std::sqrt(variance(i, i)), priors[static_cast<std::size_t>(i)].deviation});
    return out;
}

} // namespace heddle

#endif
