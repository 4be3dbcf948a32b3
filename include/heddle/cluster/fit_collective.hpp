// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The time of a collective, fitted to measured sizes as a maximum of lines.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>

#include <span>
#include <vector>

namespace heddle {

/// A size in bytes and the seconds measured for it.
struct timed_transfer {
    double size = 0, time = 0;
};

namespace detail {

struct lines {
    std::vector<collective_model::piece> pieces;
    [[nodiscard]] double time(timed_transfer const& p) const {
        return collective_model{pieces}.time(bytes(p.size)).value;
    }
};

/// Returns the best line of a range of points.
[[nodiscard]] collective_model::piece fit_line(std::span<timed_transfer const> points);
/// Returns the best maximum of at most `most` lines, each fitted to a contiguous range of at least two sizes.
[[nodiscard]] lines fit_at_most(int most, std::vector<timed_transfer> const& points);
[[nodiscard]] lines fit_lines(std::vector<timed_transfer> const& points);

} // namespace detail

/// Fits by least squares on relative errors one line or, if that predicts held-out sizes better, a maximum of up to
/// three lines, the best over all ways to cut the sizes into a range for each line. One size gives a line without
/// latency.
/// *Preconditions:* sizes ascend and are not negative; times are positive; there is a point.
/// *Complexity.* Linear in the points, with a factor of some ten thousand.
[[nodiscard]] collective_model fit_collective(std::vector<timed_transfer> const& points);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/cluster/detail/relative_fit.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace heddle {

namespace detail {

HEDDLE_INLINE collective_model::piece fit_line(std::span<timed_transfer const> points) {
    auto const count = static_cast<Eigen::Index>(points.size());
    Eigen::MatrixXd terms(count, 2);
    Eigen::VectorXd times(count);
    for (Eigen::Index i = 0; i < count; ++i) {
        terms.row(i) << points[static_cast<std::size_t>(i)].size, 1;
        times[i] = points[static_cast<std::size_t>(i)].time;
    }
    auto const found = fit_relative(std::move(terms), times);
    return {seconds(found[1]), seconds_per_byte(found[0])};
}

class best_lines {
public:
    best_lines(std::vector<timed_transfer> const& points, int most)
        : points_(points), cuts_(cut_positions(points.size())) {
        table_.resize(cuts_.size() * cuts_.size());
        extend(0, most);
    }
    [[nodiscard]] lines const& result() const { return best_; }

private:
    /// Covers the points from a cut on with up to `left` more lines. A single range may be shorter than two sizes.
    void extend(std::size_t from, int left) {
        for (std::size_t to = cuts_.size(); --to > from;) {
            bool const is_last = to + 1 == cuts_.size();
            bool const is_short = cuts_[to] - cuts_[from] < 2 && !(is_last && from == 0);
            if (is_short || (!is_last && left == 1)) continue;
            current_.pieces.push_back(line(from, to));
            if (is_last) keep_if_better();
            else extend(to, left - 1);
            current_.pieces.pop_back();
        }
    }

    collective_model::piece const& line(std::size_t from, std::size_t to) {
        auto& slot = table_[from * cuts_.size() + to];
        if (!slot) slot = fit_line(std::span(points_).subspan(cuts_[from], cuts_[to] - cuts_[from]));
        return *slot;
    }

    void keep_if_better() {
        double const error = squared_error(current_, points_);
        if (error + rounding >= least_) return;
        least_ = error;
        best_ = current_;
    }

    std::vector<timed_transfer> const& points_;
    std::vector<std::size_t> cuts_;
    std::vector<std::optional<collective_model::piece>> table_;
    lines current_, best_;
    double least_ = std::numeric_limits<double>::infinity();
};

HEDDLE_INLINE lines fit_at_most(int most, std::vector<timed_transfer> const& points) {
    return best_lines(points, most).result();
}

HEDDLE_INLINE lines fit_lines(std::vector<timed_transfer> const& points) {
    constexpr std::size_t most_pieces = 3, sizes_per_piece = 3;
    auto const levels = std::clamp(points.size() / sizes_per_piece, std::size_t{1}, most_pieces);
    return fit_simplest(points, static_cast<int>(levels),
                        [](auto const& some, int level) { return fit_at_most(level, some); });
}

} // namespace detail

HEDDLE_INLINE collective_model fit_collective(std::vector<timed_transfer> const& points) {
    auto found = detail::fit_lines(points);
    auto& pieces = found.pieces;
    std::vector<bool> holds(pieces.size());
    for (auto const& p : points) {
        auto const time = [&](collective_model::piece const& line) {
            return line.latency + line.slope * bytes(p.size);
        };
        holds[static_cast<std::size_t>(algorithm::max_element(pieces, {}, time) - pieces.begin())] = true;
    }
    collective_model result;
    for (std::size_t i = 0; i < pieces.size(); ++i)
        if (holds[i]) result.pieces.push_back(pieces[i]);
    return result;
}

} // namespace heddle

#endif
