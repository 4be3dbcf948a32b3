// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The best sharding ratios of a program that a search found.
#pragma once

#include <heddle/balance/curved_ratio_problem.hpp>
#include <heddle/balance/interleaved_ratio_problem.hpp>
#include <heddle/balance/segmented_ratio_problem.hpp>
#include <heddle/synthesis/realise.hpp>

#include <functional>
#include <optional>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Whose ratios are balanced, and by which times. `space` and `steps` are those of the paths; classes of `model` are device types.
struct balance_setting {
    cut_space const& space;
    std::span<step const> steps;
    cost_model const& model;
    training_options const& training;
    /// Of the types: where several ratios are best, one near these.
    std::vector<double> const& preferred;
};

namespace detail {

/// From the ratios that there are, if the solver can start from any. None if there are none that fit.
template <class Problem, ratio_solver Solver>
[[nodiscard]] std::optional<ratio_table> solve_from(std::vector<double> const& ratios, Problem const& problem, Solver& solver) {
    ratio_solution solution;
    if constexpr (requires { solver.solve(problem, ratios); }) solution = solver.solve(problem, ratios);
    else solution = solver.solve(problem);
    return solution.feasible ? std::optional<ratio_table>({std::move(solution.ratios)}) : std::nullopt;
}

/// Micro-batches in turn, in one segment.
template <ratio_solver Solver>
[[nodiscard]] std::optional<ratio_table> balance_turns(move_list const& path, std::vector<double> const& ratios, segment_shares const& shares, balance_setting const& by,
                                                       Solver& solver) {
    std::vector<step_in_turn> steps;
    std::vector<holding> saved;
    for (auto const& s : steps_of(path, by.space, by.steps)) {
        steps.push_back({by.model.decided(s.step, shares)});
        for (auto const& [t, f] : s.saved) saved.push_back(saved_bytes(by.space.program().tensors[t], f, by.training.micro_batches));
    }
    for (std::size_t level = 0, n = 0; level < path.size(); n += by.space.moves()[path[level++]].instructions.size())
        if (by.space.moves()[path[level]].begins_stage) steps[n].begins_stage = true;
    return solve_from(ratios, make_interleaved_ratio_problem(steps, saved, by.model, by.preferred, by.training, ratios), solver);
}

} // namespace detail

/// The best ratios, by segment and type, of a program whose shards move in the way that is best at `ratios` (HAP, section 3.3).
///
/// Efficiencies are lines below their curves, or with `follows_curves`, where the solver can and the program is one segment, as they are. None if no ratios fit,
/// or if the solver cannot do with so many segments.
template <ratio_solver Solver>
[[nodiscard]] std::optional<ratio_table> balance(move_list const& path, ratio_table const& ratios, balance_setting const& by, Solver& solver, bool follows_curves = false) {
    auto const& program = by.space.program();
    segment_shares const shares(program, ratios);
    if (by.training.interleaves() && ratios.size() == 1) return detail::balance_turns(path, ratios.front(), shares, by, solver);
    auto const segment_of = [&](share_ref ref) -> std::size_t { return program.tensors[ref.tensor].factors[static_cast<std::size_t>(ref.factor)].segment; };
    std::vector<step> steps;
    std::vector<std::pair<std::size_t, holding>> saved;
    for (auto const& s : steps_of(path, by.space, by.steps)) {
        steps.push_back(by.model.decided(s.step, shares));
        for (auto const& [t, f] : s.saved)
            saved.push_back({f.is_shard() ? segment_of({t, f.factor()}) : 0, saved_bytes(program.tensors[t], f, by.training.micro_batches)});
    }
    if constexpr (curved_ratio_solver<Solver>) {
        auto const problem = follows_curves ? make_curved_ratio_problem(steps, saved | std::views::values, by.model, by.preferred) : curved_ratio_problem{};
        if (!problem.stages.empty() && solves(solver, problem)) return detail::solve_from(ratios.front(), problem, solver);
    }
    auto const problem = make_ratio_problem(steps, saved, by.model, by.preferred, ratios.size(), segment_of);
    if (ratios.size() == 1) return detail::solve_from(ratios.front(), problem.segments.front(), solver);
    if constexpr (segmented_ratio_solver<Solver>) {
        auto solution = solver.solve(problem);
        if (solution.feasible) return std::move(solution.ratios);
    }
    return std::nullopt;
}

/// `balance` by some solver, behind one type: what balances ratios is compiled once for all solvers. Refers to the solver.
class ratio_balancer {
public:
    template <ratio_solver Solver>
    explicit ratio_balancer(Solver& solver)
        : balance_([&solver](move_list const& path, ratio_table const& ratios, balance_setting const& by, bool follows_curves) {
              return balance(path, ratios, by, solver, follows_curves);
          }),
          can_follow_curves_(curved_ratio_solver<Solver>) {}

    [[nodiscard]] std::optional<ratio_table> operator()(move_list const& path, ratio_table const& ratios, balance_setting const& by, bool follows_curves) const {
        return balance_(path, ratios, by, follows_curves);
    }
    [[nodiscard]] bool can_follow_curves() const { return can_follow_curves_; }

private:
    std::function<std::optional<ratio_table>(move_list const&, ratio_table const&, balance_setting const&, bool)> balance_;
    bool can_follow_curves_;
};

} // namespace heddle
