// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Sharding ratios of a program in several segments, each with ratios of its own.
///
/// HAP section 5.2, with what is moved at a boundary where ratios differ paid for.
#pragma once

#include <heddle/balance/program_ratio_problem.hpp>
#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/atoms.hpp>

#include <algorithm>
#include <concepts>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Minimise, over the ratios r_gt of every segment g and type t, each segment's summing to one over the devices, `sum
/// over stages of max_t (sum over g of work_g(r_gt))`, transfers, constants and exchanges, so that the memory of all
/// segments together is within the limit of each type.
struct segmented_ratio_problem {
    /// One per segment, side by side: of equal types, limits and numbers of stages. A stage's time adds up over them,
    /// type by type.
    std::vector<ratio_problem> segments;
    /// As `transfers`, of the larger of two segments' largest ratios.
    using exchange = detail::ratio_problem_builder::exchange;
    std::vector<exchange> exchanges;

    [[nodiscard]] std::size_t type_count() const { return segments.front().type_count(); }

    /// The objective at ratios, by segment and type, that need not fit into memory.
    [[nodiscard]] double objective(ratio_table const& ratios) const;
    [[nodiscard]] bool fits(ratio_table const& ratios, double tolerance = 1e-9) const;
};

/// Throws `input_error` naming the first thing in a problem that cannot be.
void validate(segmented_ratio_problem const& p);

struct segmented_ratio_solution {
    bool feasible = false;
    /// By segment and type.
    ratio_table ratios;
    double objective = 0;
};

/// Solves ratio problems of several segments. *Axioms.* As of `ratio_solver`, but for ties.
template <class Solver>
concept segmented_ratio_solver = ratio_solver<Solver> && requires(Solver& solver, segmented_ratio_problem const& p) {
    { solver.solve(p) } -> std::convertible_to<segmented_ratio_solution>;
};

/// The ratio problem of a program in segments: its steps in order, and what it saves beside them with the segment whose
/// ratios that follows. `segment_of(share_ref)` is the segment of a share.
template <class SegmentOf>
[[nodiscard]] segmented_ratio_problem make_ratio_problem(std::span<step const> steps,
                                                         std::span<std::pair<std::size_t, holding> const> saved,
                                                         cost_model const& model, std::vector<double> const& preferred,
                                                         std::size_t segments, SegmentOf const& segment_of) {
    detail::ratio_problem_builder builder(model, preferred, segments);
    for (auto const& s : steps) builder.add(s, segment_of);
    for (auto const& [segment, h] : saved) builder.add_memory(h, segment);
    auto parts = builder.finish();
    return {std::move(parts), std::move(builder.exchanges)};
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE double segmented_ratio_problem::objective(ratio_table const& ratios) const {
    double sum = 0;
    std::vector<double> largest;
    for (auto const& row : ratios) largest.push_back(algorithm::max(row));
    auto const most = [](convex_pieces const& pieces, double x) {
        return algorithm::max(pieces, {}, [x](affine a) { return a.at(x); }).at(x);
    };
    for (std::size_t g = 0; g < segments.size(); ++g) {
        sum += segments[g].constant;
        for (auto const& pieces : segments[g].transfers) sum += most(pieces, largest[g]);
    }
    for (std::size_t s = 0; s < segments.front().stages.size(); ++s) {
        double last = 0;
        for (std::size_t t = 0; t < type_count(); ++t) {
            double time = 0;
            for (std::size_t g = 0; g < segments.size(); ++g) time += segments[g].stages[s][t].at(ratios[g][t]);
            last = std::max(last, time);
        }
        sum += last;
    }
    for (auto const& e : exchanges) sum += most(e.pieces, std::max(largest[e.from], largest[e.to]));
    return sum;
}

HEDDLE_INLINE bool segmented_ratio_problem::fits(ratio_table const& ratios, double tolerance) const {
    for (std::size_t t = 0; t < type_count(); ++t) {
        double used = 0;
        for (std::size_t g = 0; g < segments.size(); ++g) used += segments[g].memory[t].at(ratios[g][t]);
        if (used > segments.front().memory_limits[t] * (1 + tolerance)) return false;
    }
    return true;
}

HEDDLE_INLINE void validate(segmented_ratio_problem const& p) {
    if (p.segments.empty()) throw input_error("ratio problem, segments", "there is none, expected at least one");
    auto const& first = p.segments.front();
    for (auto const& segment : p.segments) {
        validate(segment);
        if (segment.counts != first.counts || segment.stages.size() != first.stages.size() ||
            segment.memory.size() != segment.counts.size())
            throw input_error("ratio problem, segments",
                              "expected equal types and numbers of stages, and memory rows, in all of them");
    }
    for (auto const& e : p.exchanges) {
        if (e.from >= p.segments.size() || e.to >= p.segments.size())
            throw input_error("ratio problem, exchanges", "expected segments that are there");
        detail::check_pieces(e.pieces, "ratio problem, exchanges");
    }
}

} // namespace heddle

#endif
