// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What all fits of a time to sizes have in common: least squares on relative errors, and errors on held-out
/// sizes.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/requirements.hpp>

#include <Eigen/QR>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace heddle::detail {

/// Sums of squared relative errors that differ by less than this differ by rounding alone.
inline constexpr double rounding = 1e-18;

/// Returns the coefficients, none negative, that minimise the sum over the rows of (terms * coefficients / time - 1)^2.
/// If the rows do not tell columns apart, earlier columns are preferred. The result is exact: the optimum is the
/// unconstrained one on its support, and all supports are tried.
/// *Complexity.* Exponential in the columns, which are few.
inline Eigen::VectorXd fit_relative(Eigen::MatrixXd terms, Eigen::VectorXd const& times) {
    terms = times.cwiseInverse().asDiagonal() * terms;
    auto const columns = terms.cols();
    Eigen::VectorXd const ones = Eigen::VectorXd::Ones(terms.rows()), scale = terms.colwise().norm();
    Eigen::VectorXd best = Eigen::VectorXd::Zero(columns);
    double least = std::numeric_limits<double>::infinity();
    for (auto size = static_cast<int>(columns); size > 0; --size) {
        for (unsigned support = 1; support < 1u << columns; ++support) {
            if (std::popcount(support) != size) continue;
            std::vector<Eigen::Index> members;
            for (Eigen::Index c = 0; c < columns; ++c)
                if (support >> c & 1u) members.push_back(c);
            if (algorithm::any_of(members, [&](auto c) { return scale[c] == 0; })) continue;
            Eigen::MatrixXd scaled = terms(Eigen::all, members);
            for (Eigen::Index c = 0; c < size; ++c) scaled.col(c) /= scale[members[static_cast<std::size_t>(c)]];
            Eigen::ColPivHouseholderQR<Eigen::MatrixXd> const factors(scaled);
            if (factors.rank() < size) continue;
            Eigen::VectorXd const found = factors.solve(ones);
            double const residual = (scaled * found - ones).squaredNorm();
            if (found.minCoeff() < 0 || residual + rounding >= least) continue;
            least = residual;
            best.setZero();
            for (Eigen::Index c = 0; c < size; ++c)
                best[members[static_cast<std::size_t>(c)]] = found[c] / scale[members[static_cast<std::size_t>(c)]];
        }
    }
    return best;
}

/// Returns the sum of squared relative errors of a model. A point has a `time`, and a model has `time(point)`.
template <class Model, class Point>
double squared_error(Model const& model, std::vector<Point> const& points) {
    double sum = 0;
    for (auto const& p : points) {
        double const error = model.time(p) / p.time - 1;
        sum += error * error;
    }
    return sum;
}

/// Returns the magnitude of the relative error at each point.
template <class Point>
std::vector<double> errors_of(std::vector<double> const& predicted, std::vector<Point> const& points) {
    std::vector<double> errors;
    for (std::size_t i = 0; i < points.size(); ++i) errors.push_back(std::abs(predicted[i] / points[i].time - 1));
    return errors;
}

/// Returns the time of each point by a model that is fitted without the point: each of at most ten interleaved parts of
/// the points is left out in turn. *Precondition:* there are two points or more, in order of size.
template <class Point, class Fit>
std::vector<double> held_out_times(std::vector<Point> const& points, Fit const& fit) {
    std::size_t const parts = std::min<std::size_t>(points.size(), 10);
    std::vector<double> times(points.size());
    for (std::size_t part = 0; part < parts; ++part) {
        std::vector<Point> rest;
        for (std::size_t i = 0; i < points.size(); ++i)
            if (i % parts != part) rest.push_back(points[i]);
        auto const model = fit(rest);
        for (std::size_t i = part; i < points.size(); i += parts) times[i] = model.time(points[i]);
    }
    return times;
}

/// Fits with the lowest of `levels` levels of complexity whose mean error at held-out points exceeds the least mean
/// error by no more than one standard error of the difference (Breiman et al., Classification and Regression Trees,
/// 1984, section 3.4.3).
template <class Point, class FitLevel>
auto fit_simplest(std::vector<Point> const& points, int levels, FitLevel const& fit) {
    if (levels == 1) return fit(points, 1);
    std::vector<std::vector<double>> errors;
    for (int level = 1; level <= levels; ++level)
        errors.push_back(errors_of(held_out_times(points, [&](auto const& rest) { return fit(rest, level); }), points));
    double const count = static_cast<double>(points.size());
    auto const excess = [&](std::vector<double> const& a, std::vector<double> const& b) {
        double sum = 0, squares = 0;
        for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] - b[i];
        for (std::size_t i = 0; i < a.size(); ++i) squares += std::pow(a[i] - b[i] - sum / count, 2);
        return sum / count - std::sqrt(squares / (count - 1) / count);
    };
    auto const mean = [](std::vector<double> const& e) {
        double sum = 0;
        for (double x : e) sum += x;
        return sum;
    };
    auto const& best = *algorithm::min_element(errors, {}, mean);
    int level = 1;
    while (excess(errors[static_cast<std::size_t>(level - 1)], best) > std::sqrt(rounding)) ++level;
    return fit(points, level);
}

/// Returns where a sequence may be cut, from 0 to its length: everywhere or, if it is long, at 33 evenly spaced places.
inline std::vector<std::size_t> cut_positions(std::size_t length) {
    std::size_t const steps = std::min<std::size_t>(length, 32);
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i <= steps; ++i) result.push_back(i * length / std::max<std::size_t>(steps, 1));
    return result;
}

} // namespace heddle::detail
