// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The best sharding ratios of a program that a search has found.
#pragma once

#include <heddle/balance/program_ratio_problem.hpp>
#include <heddle/balance/ratio_problem.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/theory/cut_move.hpp>

#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

class cut_space;

/// What ratios are balanced for, and by which times. `space` and `steps` are those of the paths; the classes of `model`
/// are device types.
struct balance_setting {
    cut_space const& space;
    std::span<step_work const> steps;
    cost_model const& model;
    training_options const& training;
    /// For the types; if several ratios are best, one near these is taken.
    std::vector<double> const& preferred;
};

/// Balances the ratios of programs by some solver, behind one type, so that everything but the solver is compiled once.
/// It keeps a reference to the solver.
class ratio_balancer {
public:
    template <ratio_solver Solver>
    explicit ratio_balancer(Solver& solver)
        : takes_([&solver](ratio_problem const& p) { return solves(solver, p); }),
          solve_([&solver](ratio_problem const& p, std::vector<double> const& start) -> ratio_solution {
              if constexpr (requires { solver.solve(p, start); }) return solver.solve(p, start);
              else return solver.solve(p);
          }) {}

    /// Whether the solver takes problems of so many segments, with convex curves or without any.
    [[nodiscard]] bool takes(std::size_t segments, bool with_curves) const;

    /// Returns the best ratios, by segment and type, of a program whose shards move in the way that is best at `ratios`
    /// (HAP section 3.3).
    ///
    /// Efficiencies are lines below their curves, or with `follows_curves` as they are. None if no ratios fit, or if
    /// the solver does not take the problem.
    [[nodiscard]] std::optional<ratio_table> operator()(move_list const& path, ratio_table const& ratios,
                                                        balance_setting const& by, bool follows_curves) const;

private:
    [[nodiscard]] static program_steps steps_at(move_list const& path, ratio_table const& ratios,
                                                balance_setting const& by);
    [[nodiscard]] static ratio_problem make_problem(move_list const& path, ratio_table const& ratios,
                                                    balance_setting const& by, bool follows_curves);

    std::function<bool(ratio_problem const&)> takes_;
    /// Starts from the current ratios if the solver can start from given ones.
    std::function<ratio_solution(ratio_problem const&, std::vector<double> const&)> solve_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/balance/interleaved_ratio_problem.hpp>
#include <heddle/synthesis/realise.hpp>

namespace heddle {

HEDDLE_INLINE bool ratio_balancer::takes(std::size_t segments, bool with_curves) const {
    ratio_problem p{.counts = {1}, .preferred = std::vector(segments, 1.0), .segments = segments};
    if (with_curves) p.stages.emplace_back(segments, stage_work{.curves = {saturating_work(seconds(1), 1)}});
    return takes_(p);
}

HEDDLE_INLINE std::optional<ratio_table> ratio_balancer::operator()(move_list const& path, ratio_table const& ratios,
                                                                    balance_setting const& by,
                                                                    bool follows_curves) const {
    auto const problem = make_problem(path, ratios, by, follows_curves);
    if (!takes_(problem)) return std::nullopt;
    std::vector<double> start;
    for (auto const& row : ratios) start.insert(start.end(), row.begin(), row.end());
    auto const found = solve_(problem, start);
    if (!found.feasible) return std::nullopt;
    ratio_table result;
    for (auto row = found.ratios.begin(); row != found.ratios.end(); row += std::ssize(problem.counts))
        result.emplace_back(row, row + std::ssize(problem.counts));
    return result;
}

HEDDLE_INLINE ratio_problem ratio_balancer::make_problem(move_list const& path, ratio_table const& ratios,
                                                         balance_setting const& by, bool follows_curves) {
    auto const program = steps_at(path, ratios, by);
    if (by.training.interleaves() && ratios.size() == 1)
        return make_interleaved_ratio_problem(program, by.model, by.preferred, by.training, ratios.front());
    auto const segment_of = [&](share_ref ref) -> std::size_t {
        return by.space.program().tensors[ref.tensor].factors[static_cast<std::size_t>(ref.factor)].segment;
    };
    return make_ratio_problem(program, by.model, by.preferred,
                              {.segments = ratios.size(), .segment_of = segment_of, .follows_curves = follows_curves});
}

HEDDLE_INLINE program_steps ratio_balancer::steps_at(move_list const& path, ratio_table const& ratios,
                                                     balance_setting const& by) {
    segment_shares const shares(by.space.program(), ratios);
    program_steps result;
    for (auto const& s : steps_of(path, by.space, by.steps)) {
        result.steps.push_back(by.model.decided(s.step, shares));
        for (auto const& [t, f] : s.saved)
            result.saved.push_back({saved_bytes(by.space.program(), t, f[0], by.training.held()),
                                    f[0].is_shard() ? share_ref{t, f[0].factor()} : share_ref{}});
    }
    result.stage_starts = stages_of(path, by.space);
    return result;
}

} // namespace heddle

#endif
