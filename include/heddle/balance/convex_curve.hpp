// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Convex piecewise-linear functions of one variable.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// constant + slope * x.
struct affine {
    double constant = 0, slope = 0;
    [[nodiscard]] double at(double x) const { return constant + slope * x; }
    affine& operator+=(affine other) {
        constant += other.constant;
        slope += other.slope;
        return *this;
    }
    friend bool operator==(affine, affine) = default;
};

/// Maximum of affine functions.
using convex_pieces = std::vector<affine>;

/// *Precondition:* there is a piece.
[[nodiscard]] double largest_at(convex_pieces const& pieces, double x);

/// A convex piecewise-linear function on an interval, as the lines that are somewhere the largest. Every line is its
/// tangent somewhere there, so each is a lower bound everywhere.
class convex_curve {
public:
    convex_curve() = default;
    /// Makes the sum of an affine function and of maxima of affine functions on [low, high].
    /// *Complexity.* O(n log n) in the lines; quadratic in the lines of one maximum, which are few.
    convex_curve(affine straight, std::span<convex_pieces const> bent, double low, double high);

    [[nodiscard]] double low() const { return low_; }
    [[nodiscard]] double high() const { return high_; }
    /// The lines go from left to right, so their slopes rise.
    [[nodiscard]] std::span<affine const> lines() const { return lines_; }
    /// Returns a line that is the largest at x. *Complexity.* Logarithmic in the lines.
    [[nodiscard]] affine tangent(double x) const {
        return lines_[static_cast<std::size_t>(algorithm::upper_bound(starts_, x) - starts_.begin())];
    }
    [[nodiscard]] double at(double x) const { return tangent(x).at(x); }
    /// Returns the largest value on the interval.
    [[nodiscard]] double largest() const { return std::max(lines_.front().at(low_), lines_.back().at(high_)); }
    [[nodiscard]] double smallest() const;

private:
    static affine steepest_of_largest(convex_pieces const& pieces, double x) {
        return algorithm::max(pieces, {}, [&](affine a) { return std::pair(a.at(x), a.slope); });
    }

    double low_ = 0, high_ = 0;
    std::vector<affine> lines_;
    /// Holds where each line but the first begins.
    std::vector<double> starts_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE double largest_at(convex_pieces const& pieces, double x) {
    return algorithm::max(pieces, {}, [x](affine a) { return a.at(x); }).at(x);
}

HEDDLE_INLINE convex_curve::convex_curve(affine straight, std::span<convex_pieces const> bent, double low, double high)
    : low_(low), high_(std::max(low, high)) {
    struct bend {
        double at;
        affine change;
    };
    std::vector<bend> bends;
    for (auto const& pieces : bent) {
        affine line = steepest_of_largest(pieces, low_);
        straight += line;
        for (double at = low_;;) {
            affine const* next = nullptr;
            double next_at = high_;
            for (auto const& piece : pieces) {
                if (piece.slope <= line.slope) continue;
                double const crossing = std::max(at, (line.constant - piece.constant) / (piece.slope - line.slope));
                if (crossing < next_at || (next && crossing == next_at && piece.slope > next->slope)) {
                    next = &piece;
                    next_at = crossing;
                }
            }
            if (!next) break;
            bends.push_back({next_at, {next->constant - line.constant, next->slope - line.slope}});
            line = *next;
            at = next_at;
        }
    }
    algorithm::sort(bends, {}, &bend::at);
    for (std::size_t n = 0;;) {
        lines_.push_back(straight);
        if (n == bends.size()) break;
        double const at = bends[n].at;
        for (; n < bends.size() && bends[n].at == at; ++n) straight += bends[n].change;
        starts_.push_back(at);
    }
}

HEDDLE_INLINE double convex_curve::smallest() const {
    if (lines_.front().slope >= 0) return lines_.front().at(low_);
    for (std::size_t n = 0; n < starts_.size(); ++n)
        if (lines_[n + 1].slope >= 0) return lines_[n].at(starts_[n]);
    return lines_.back().at(high_);
}

} // namespace heddle

#endif
