// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The best sharding ratios of a program that a search found.
#pragma once

#include <heddle/balance/curved_ratio_problem.hpp>
#include <heddle/balance/interleaved_ratio_problem.hpp>
#include <heddle/balance/segmented_ratio_problem.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/synthesis/realise.hpp>

#include <functional>
#include <optional>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Whose ratios are balanced, and by which times. `space` and `steps` are those of the paths; classes of `model` are
/// device types.
struct balance_setting {
    cut_space const& space;
    std::span<step const> steps;
    cost_model const& model;
    training_options const& training;
    /// Of the types: where several ratios are best, one near these.
    std::vector<double> const& preferred;
};

/// Balances the ratios of programs by some solver, behind one type: all but the solver is compiled once. Refers to the
/// solver.
class ratio_balancer {
public:
    template <ratio_solver Solver>
    explicit ratio_balancer(Solver& solver)
        : lines_([&solver](ratio_problem const& p, std::vector<double> const& start) {
              return found(solve_from(solver, p, start));
          }) {
        if constexpr (curved_ratio_solver<Solver>)
            curves_ = [&solver](curved_ratio_problem const& p, std::vector<double> const& start) {
                return solves(solver, p) ? std::optional(found(solve_from(solver, p, start))) : std::nullopt;
            };
        if constexpr (segmented_ratio_solver<Solver>)
            segments_ = [&solver](segmented_ratio_problem const& p) { return found(solver.solve(p)); };
    }

    [[nodiscard]] bool can_follow_curves() const { return static_cast<bool>(curves_); }
    [[nodiscard]] bool can_take_segments() const { return static_cast<bool>(segments_); }

    /// The best ratios, by segment and type, of a program whose shards move in the way that is best at `ratios` (HAP,
    /// section 3.3).
    ///
    /// Efficiencies are lines below their curves, or with `follows_curves`, where the solver can and the program is one
    /// segment, as they are. None if no ratios fit, or if the solver cannot do with so many segments.
    [[nodiscard]] std::optional<ratio_table> operator()(move_list const& path, ratio_table const& ratios,
                                                        balance_setting const& by, bool follows_curves) const;

private:
    using found_ratios = std::optional<ratio_table>;

    /// From the ratios that there are, if the solver can start from any.
    template <class Solver, class Problem>
    static auto solve_from(Solver& solver, Problem const& p, std::vector<double> const& start) {
        if constexpr (requires { solver.solve(p, start); }) return solver.solve(p, start);
        else return solver.solve(p);
    }
    static found_ratios found(segmented_ratio_solution s) {
        return s.feasible ? found_ratios(std::move(s.ratios)) : std::nullopt;
    }
    template <class Solution>
    static found_ratios found(Solution s) {
        return s.feasible ? found_ratios({std::move(s.ratios)}) : std::nullopt;
    }

    /// Micro-batches in turn, in one segment.
    found_ratios balance_turns(move_list const& path, std::vector<double> const& ratios, segment_shares const& shares,
                               balance_setting const& by) const;

    std::function<found_ratios(ratio_problem const&, std::vector<double> const&)> lines_;
    /// None if the solver does not take the problem.
    std::function<std::optional<found_ratios>(curved_ratio_problem const&, std::vector<double> const&)> curves_;
    std::function<found_ratios(segmented_ratio_problem const&)> segments_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::optional<ratio_table> ratio_balancer::operator()(move_list const& path, ratio_table const& ratios,
                                                                    balance_setting const& by,
                                                                    bool follows_curves) const {
    auto const& program = by.space.program();
    segment_shares const shares(program, ratios);
    if (by.training.interleaves() && ratios.size() == 1) return balance_turns(path, ratios.front(), shares, by);
    auto const segment_of = [&](share_ref ref) -> std::size_t {
        return program.tensors[ref.tensor].factors[static_cast<std::size_t>(ref.factor)].segment;
    };
    std::vector<step> steps;
    std::vector<std::pair<std::size_t, holding>> saved;
    for (auto const& s : steps_of(path, by.space, by.steps)) {
        steps.push_back(by.model.decided(s.step, shares));
        for (auto const& [t, f] : s.saved)
            saved.push_back({f.is_shard() ? segment_of({t, f.factor()}) : 0,
                             saved_bytes(program.tensors[t], f, by.training.micro_batches)});
    }
    if (curves_ && follows_curves)
        if (auto const problem = make_curved_ratio_problem(steps, saved | std::views::values, by.model, by.preferred);
            !problem.stages.empty())
            if (auto const balanced = curves_(problem, ratios.front())) return *balanced;
    auto const problem = make_ratio_problem(steps, saved, by.model, by.preferred, ratios.size(), segment_of);
    if (ratios.size() == 1) return lines_(problem.segments.front(), ratios.front());
    return segments_ ? segments_(problem) : std::nullopt;
}

HEDDLE_INLINE std::optional<ratio_table> ratio_balancer::balance_turns(move_list const& path,
                                                                       std::vector<double> const& ratios,
                                                                       segment_shares const& shares,
                                                                       balance_setting const& by) const {
    std::vector<step_in_turn> steps;
    std::vector<holding> saved;
    for (auto const& s : steps_of(path, by.space, by.steps)) {
        steps.push_back({by.model.decided(s.step, shares)});
        for (auto const& [t, f] : s.saved)
            saved.push_back(saved_bytes(by.space.program().tensors[t], f, by.training.micro_batches));
    }
    for (std::size_t level = 0, n = 0; level < path.size(); n += by.space.moves()[path[level++]].instructions.size())
        if (by.space.moves()[path[level]].begins_stage) steps[n].begins_stage = true;
    return lines_(make_interleaved_ratio_problem(steps, saved, by.model, by.preferred, by.training, ratios), ratios);
}

} // namespace heddle

#endif
