// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Dynamic programming over states in levels, with a front of labels per state.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/detail/label_search.hpp>
#include <heddle/search/problem.hpp>
#include <heddle/search/result.hpp>
#include <heddle/search/visitor.hpp>

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::search {

/// A problem whose states lie in levels.
///
/// *Axiom.* Every successor of `s` has a level above `p.level(s)`. (If it does not hold, results are still right, but
/// labels may be expanded that are dominated later.)
template <class Problem>
concept levelled_problem = problem<Problem> && requires(Problem const& p, typename Problem::state const& s) {
    { p.level(s) } -> std::convertible_to<std::size_t>;
};

struct pareto_options : options {
    /// At most this many labels of a level are expanded: those with the least bounds, the first of equal ones.
    std::size_t beam = std::numeric_limits<std::size_t>::max();
};

struct widening_options : pareto_options {
    /// The width of the first beam.
    std::size_t narrowest = 1;
    /// Once a solution is known, widening ends after this many beams in a row that do not improve it.
    std::size_t patience = std::numeric_limits<std::size_t>::max();
};

namespace detail {

/// A label that waits for its level. Until then its state is kept with it.
template <class State>
struct waiting_state {
    double bound;
    State state;
};

/// Labels of a level are taken in this order.
struct waiting_label {
    double bound;
    std::uint32_t node;
    friend auto operator<=>(waiting_label const&, waiting_label const&) = default;
};

template <levelled_problem Problem>
class pareto_run : label_search<Problem, pareto_options, waiting_state<typename Problem::state>> {
    using base = label_search<Problem, pareto_options, waiting_state<typename Problem::state>>;
    using base::cost_of, base::is_hopeless, base::is_bounded, base::is_over, base::report_solution, base::forget;
    using base::none, base::problem_, base::options_, base::budget_, base::wanted_, base::incumbent_, base::statistics_,
        base::nodes_, base::first_, base::least_bounded_;
    using state_type = typename Problem::state;
    using label_type = typename Problem::label;
    using action_type = typename Problem::action;

public:
    pareto_run(Problem const& p, pareto_options const& o) : base(p, o) {}

    template <class Visitor>
    result<action_type> run(Visitor&& visitor) {
        constexpr double unproven = std::numeric_limits<double>::lowest();
        {
            auto [state, label] = problem_.initial();
            insert(state_type(std::move(state)), label_type(std::move(label)), unproven, none, {});
        }
        while (!waiting_.empty() && budget_.reached() == limit_kind::none) {
            for (auto const n : settle(std::move(waiting_.extract(waiting_.begin()).mapped()))) {
                if (nodes_[n].dead || is_bounded(nodes_[n].more.bound)) continue;
                if (is_over(visitor, unproven)) {
                    least_left_ = std::min(least_left_, nodes_[n].more.bound);
                    continue;
                }
                auto const before = best_;
                expand(n);
                if (best_ != before) report_solution(visitor, unproven);
            }
        }
        for (auto const& [number, level] : waiting_)
            for (auto const& waiting : level) least_left_ = std::min(least_left_, waiting.bound);
        auto which = budget_.reached();
        if (which == limit_kind::none && best_.empty() && is_narrowed_) which = limit_kind::width;
        return base::concluded(best_, which, least_left_);
    }

private:
    /// Takes labels of a level in the order of their bounds while the beam has room, and forgets the others. What
    /// dominates a label has no greater bound as a rule, so it is there first, and a label is compared only with labels
    /// that stay.
    std::vector<std::uint32_t> settle(std::vector<waiting_label> level) {
        std::vector<std::uint32_t> kept;
        std::size_t dead = 0;
        algorithm::sort(level);
        bool is_full = false;
        for (auto const& [bound, n] : level) {
            if (is_full || is_hopeless(bound)) {
                statistics_.bounded += !is_full;
                forget(n, is_full ? least_left_ : least_bounded_);
                continue;
            }
            auto const state = base::number_of(nodes_[n].more.state).first;
            if (is_dominated(state, nodes_[n].label)) {
                ++statistics_.dominated;
                forget(n);
            } else if (kept.size() - dead == options_.beam) {
                is_full = is_narrowed_ = true;
                forget(n, least_left_);
            } else {
                // Looks among labels of equal bounds, and of greater ones if levels come back.
                dead += base::drop_dominated(state, nodes_[n].label,
                                             [bound](auto const& other) { return other.more.bound >= bound; });
                base::put(n, state);
                kept.push_back(n);
                ++statistics_.kept;
            }
        }
        return kept;
    }

    void expand(std::uint32_t from) {
        ++statistics_.expanded;
        auto const& node = nodes_[from];
        auto const visit = [&]<class Label>(action_type const& action, state_type next, Label&& label) {
            ++statistics_.generated;
            insert(std::move(next), std::forward<Label>(label), node.more.bound, from, action);
        };
        for_each_wanted_successor(problem_, node.more.state, node.label, visit,
                                  [&](double bound) { return !is_bounded(bound); });
    }

    template <class Label>
    void insert(state_type&& state, Label&& label, double least, std::uint32_t from, action_type const& action) {
        double const bound = std::max<double>(least, problem_.bound(state, label));
        if (is_bounded(bound)) return;
        bool const is_goal = problem_.is_goal(state);
        if (is_goal && problem_.total(label) >= wanted_) return;
        auto const me = base::add({bound, std::move(state)}, from, label_type(std::forward<Label>(label)), action);
        if (!is_goal) {
            waiting_[problem_.level(nodes_[me].more.state)].push_back({bound, me});
            return;
        }
        best_ = {me};
        incumbent_ = wanted_ = cost_of(me);
        ++statistics_.kept;
    }

    /// Leaves out a label, whose bound then counts.
    void forget(std::uint32_t n, double& least) {
        least = std::min(least, nodes_[n].more.bound);
        forget(n);
    }

    bool is_dominated(std::uint32_t state, label_type const& label) {
        for (auto n = first_[state]; n != none; n = nodes_[n].next) {
            ++statistics_.compared;
            if (problem_.dominates(nodes_[n].label, label)) return true;
        }
        return false;
    }

    /// The best goal, if there is one.
    std::vector<std::uint32_t> best_;
    /// The least bound of the labels that the beam or a limit left out.
    double least_left_ = std::numeric_limits<double>::infinity();
    bool is_narrowed_ = false;
    std::map<std::size_t, std::vector<waiting_label>> waiting_;
};

} // namespace detail

/// Finds a path of least total cost from the initial state to a goal, level by level.
///
/// A label is dropped if another of its state dominates it (weakly: the first of equal labels is kept), if its bound
/// reaches the incumbent, or if the beam has no room for it. Labels wait for their level and are then taken in the
/// order of their bounds, so a label is compared only with better ones; if it has a greater bound than another that it
/// dominates, both stay. Waiting labels count as kept for limits. The bound only prunes: if it is weak, no order of
/// expansion helps, and this search saves `best_first`'s queue. States that subsume others, and `solution_count`, are
/// not used.
/// *Visitor.* As for `best_first`; the bound of its progress stays the least number.
/// *Returns* `optimal` unless a limit, a gap or the beam prevented it; then the bound is that of the labels left out. A
/// beam that leaves no way to a goal counts as a limit on the width. The parts of `seconds` are not measured.
/// *Complexity.* Time and memory grow with the labels kept, which are at most 2^32 - 1.
/// *Thread safety.* Uses the problem through const calls only.
template <levelled_problem Problem, class Visitor = no_visitor>
[[nodiscard]] result<typename Problem::action> pareto_dp(Problem const& p, pareto_options const& o = {},
                                                         Visitor&& visitor = {}) {
    require_visitor<Visitor>();
    return detail::pareto_run<Problem>(p, o).run(visitor);
}

/// Runs `pareto_dp` with beams of `o.narrowest` labels, then four times as many, and so on up to `o.beam`, until a beam
/// leaves nothing out. If bounds are loose, labels that look cheap crowd better ones out of a wide beam, and a narrower
/// beam finds what it misses. Each beam looks for what costs less than all before it found. Limits on labels,
/// comparisons and memory hold for each beam; the limit on time holds for all.
/// *Returns* what `pareto_dp` does, with the best bound of all beams and the statistics of all.
/// *Complexity.* If the beam ends the search, it takes a third more than `pareto_dp`, or less, since it prunes more.
/// *Reference.* W. Zhang, Complete anytime beam search, AAAI 1998.
template <levelled_problem Problem, class Visitor = no_visitor>
[[nodiscard]] result<typename Problem::action> widening_beam(Problem const& p, widening_options const& o = {},
                                                             Visitor&& visitor = {}) {
    deadline const until(o.limits);
    result<typename Problem::action> best;
    double bound = std::numeric_limits<double>::lowest();
    std::size_t in_vain = 0;
    pareto_options options = o;
    for (options.beam = std::min(std::max<std::size_t>(1, o.narrowest), o.beam);;
         options.beam = options.beam > o.beam / 4 ? o.beam : 4 * options.beam) {
        options.limits = until.rest(o.limits);
        auto found = pareto_dp(p, options, visitor);
        found.statistics += best.statistics;
        bound = std::max(bound, found.lower_bound);
        in_vain = found.cost || options.cutoff == std::numeric_limits<double>::infinity() ? 0 : in_vain + 1;
        bool const is_last =
            options.beam == o.beam || found.status == status::optimal || found.status == status::infeasible ||
            (found.status == status::limit && found.which_limit != limit_kind::width) || in_vain >= o.patience;
        if (!found.cost) {
            found.cost = best.cost;
            found.actions = std::move(best.actions);
        }
        best = std::move(found);
        if (best.cost) options.cutoff = *best.cost;
        if (!is_last) continue;
        if (best.cost && best.which_limit == limit_kind::width) best.which_limit = limit_kind::none;
        conclude(best, best.cost, bound, options.cutoff);
        return best;
    }
}

} // namespace heddle::search
