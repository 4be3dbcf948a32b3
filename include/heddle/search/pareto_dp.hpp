// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Dynamic programming over states in levels, with a front of labels per state.
#pragma once

#include <heddle/search/best_first.hpp>
#include <heddle/search/block_vector.hpp>
#include <heddle/search/problem.hpp>
#include <heddle/search/result.hpp>
#include <heddle/search/state_table.hpp>

#include <algorithm>
#include <chrono>
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
/// *Axiom.* Every successor of `s` has a level above `p.level(s)`. (Without it nothing found is wrong, but labels may be
/// expanded that are dominated later.)
template <class Problem>
concept levelled_problem = problem<Problem> && requires(Problem const& p, typename Problem::state const& s) {
    { p.level(s) } -> std::convertible_to<std::size_t>;
};

struct pareto_options : options {
    /// So many labels of a level are expanded, those with the least bounds; of equals the first.
    std::size_t beam = std::numeric_limits<std::size_t>::max();
};

namespace detail {

template <levelled_problem Problem>
class pareto_run {
    using state_type = typename Problem::state;
    using label_type = typename Problem::label;
    using action_type = typename Problem::action;
    using clock = std::chrono::steady_clock;

public:
    pareto_run(Problem const& p, pareto_options const& o) : problem_(p), options_(o), wanted_(o.cutoff) {}

    template <class Visitor>
    result<action_type> run(Visitor&& visitor) {
        {
            auto [state, label] = problem_.initial();
            insert(std::move(state), std::move(label), std::numeric_limits<double>::lowest(), none, {});
        }
        auto which = limit_kind::none;
        while (!levels_.empty() && which == limit_kind::none) {
            auto level = std::move(levels_.extract(levels_.begin()).mapped());
            std::erase_if(level, [&](auto n) { return nodes_[n].dead || is_hopeless(nodes_[n].bound); });
            narrow(level);
            for (auto const n : level) {
                if (nodes_[n].dead || is_hopeless(nodes_[n].bound)) continue;
                if (which == limit_kind::none) which = spent();
                if constexpr (requires { visitor.on_expand(now()); })
                    if (which == limit_kind::none && !visitor.on_expand(now())) which = limit_kind::stopped;
                if (which != limit_kind::none) {
                    least_left_ = std::min(least_left_, nodes_[n].bound);
                    continue;
                }
                auto const before = best_;
                expand(n);
                if constexpr (requires { visitor.on_solution(now()); })
                    if (best_ != before) visitor.on_solution(now());
            }
        }
        for (auto const& [number, level] : levels_)
            for (auto const n : level)
                if (!nodes_[n].dead) least_left_ = std::min(least_left_, nodes_[n].bound);
        return finish(which);
    }

private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    struct node_type {
        double bound;
        std::uint32_t state, parent;
        /// The next label of the same state.
        std::uint32_t next;
        bool dead;
        label_type label;
        action_type action;
    };

    [[nodiscard]] double elapsed() const { return std::chrono::duration<double>(clock::now() - start_).count(); }
    [[nodiscard]] bool is_hopeless(double bound) const { return bound * (1 + options_.relative_gap) >= wanted_; }
    [[nodiscard]] double cost_of(std::uint32_t goal) const { return problem_.total(nodes_[goal].label); }
    [[nodiscard]] progress now() const {
        return {statistics_, std::numeric_limits<double>::lowest(), best_ == none ? std::nullopt : std::optional(cost_of(best_))};
    }

    [[nodiscard]] limit_kind spent() const {
        if (nodes_.size() >= options_.label_limit) return limit_kind::labels;
        if (statistics_.compared >= options_.comparison_limit) return limit_kind::comparisons;
        if (bytes_ >= options_.memory_limit_bytes) return limit_kind::memory;
        if (options_.stop.stop_requested()) return limit_kind::stopped;
        if (options_.time_limit_seconds && statistics_.expanded % 64 == 0 && elapsed() >= *options_.time_limit_seconds) return limit_kind::time;
        return limit_kind::none;
    }

    void narrow(std::vector<std::uint32_t>& level) {
        if (level.size() <= options_.beam) return;
        auto const cut = level.begin() + static_cast<std::ptrdiff_t>(options_.beam);
        std::ranges::sort(level, {}, [&](auto n) { return std::pair(nodes_[n].bound, n); });
        for (auto n = cut; n != level.end(); ++n) least_left_ = std::min(least_left_, nodes_[*n].bound);
        is_narrowed_ = true;
        level.erase(cut, level.end());
    }

    void expand(std::uint32_t from) {
        ++statistics_.expanded;
        auto const& node = nodes_[from];
        auto const visit = [&](action_type const& action, state_type next, label_type label) {
            ++statistics_.generated;
            insert(std::move(next), std::move(label), node.bound, from, action);
        };
        for_each_wanted_successor(problem_, states_[node.state], node.label, visit, [&](double bound) { return !is_bounded(bound); });
    }
    /// Whether labels of a bound are dropped; if so, takes note of it.
    [[nodiscard]] bool is_bounded(double bound) {
        if (!is_hopeless(bound)) return false;
        ++statistics_.bounded;
        least_bounded_ = std::min(least_bounded_, bound);
        return true;
    }

    void insert(state_type&& state, label_type&& label, double least, std::uint32_t from, action_type const& action) {
        double const bound = std::max<double>(least, problem_.bound(state, label));
        if (is_bounded(bound)) return;
        auto const [number, is_new] = states_.insert(std::move(state));
        if (is_new) first_.push_back(none);
        if (!make_room(number, label)) { ++statistics_.dominated; return; }
        auto const me = static_cast<std::uint32_t>(nodes_.size());
        nodes_.push_back({bound, number, from, std::exchange(first_[number], me), false, std::move(label), action});
        count_bytes(number, nodes_[me].label, is_new);
        if (!problem_.is_goal(states_[number])) {
            levels_[problem_.level(states_[number])].push_back(me);
        } else if (cost_of(me) < wanted_) {
            best_ = me;
            wanted_ = cost_of(me);
        }
    }

    /// Compares a label with those of its state: false if one of them dominates it; kills those that it dominates.
    bool make_room(std::uint32_t state, label_type const& label) {
        for (auto n = first_[state]; n != none; n = nodes_[n].next) {
            ++statistics_.compared;
            if (problem_.dominates(nodes_[n].label, label)) return false;
        }
        for (auto* link = &first_[state]; *link != none;) {
            auto& n = nodes_[*link];
            n.dead = problem_.dominates(label, n.label);
            statistics_.dominated += n.dead;
            if (n.dead) *link = n.next;
            else link = &n.next;
        }
        return true;
    }

    void count_bytes(std::uint32_t state, label_type const& label, bool is_new) {
        bytes_ += sizeof(node_type) + sizeof(std::uint32_t);
        if constexpr (requires { problem_.memory(label); }) bytes_ += problem_.memory(label);
        if (!is_new) return;
        bytes_ += sizeof(state_type) + 4 * sizeof(std::uint32_t);
        if constexpr (requires { problem_.memory(states_[state]); }) bytes_ += problem_.memory(states_[state]);
    }

    result<action_type> finish(limit_kind which) {
        result<action_type> out;
        statistics_.kept = nodes_.size();
        statistics_.seconds = elapsed();
        out.statistics = statistics_;
        if (which == limit_kind::none && best_ == none && is_narrowed_) which = limit_kind::labels;
        out.which_limit = which;
        double const bound = std::min({least_left_, least_bounded_, wanted_});
        if (best_ == none) {
            out.status = which == limit_kind::none ? status::infeasible : status::limit;
            out.lower_bound = bound;
            return out;
        }
        out.cost = cost_of(best_);
        for (auto n = best_; nodes_[n].parent != none; n = nodes_[n].parent) out.actions.push_back(nodes_[n].action);
        std::ranges::reverse(out.actions);
        out.status = bound * (1 + 1e-9) >= wanted_ ? status::optimal : which == limit_kind::none ? status::feasible : status::limit;
        out.lower_bound = out.status == status::optimal ? *out.cost : bound;
        if (out.status == status::optimal) out.which_limit = limit_kind::none;
        return out;
    }

    Problem const& problem_;
    pareto_options options_;
    clock::time_point start_ = clock::now();
    /// The best goal, and the cost that a further one has to beat.
    std::uint32_t best_ = none;
    double wanted_;
    /// Least bound of the labels dropped because of `wanted_`, and of those left out by the beam or a limit.
    double least_bounded_ = std::numeric_limits<double>::infinity(), least_left_ = std::numeric_limits<double>::infinity();
    bool is_narrowed_ = false;
    statistics statistics_;
    std::size_t bytes_ = 0;
    block_vector<node_type> nodes_; // labels are read while successors are added
    state_table<state_type> states_;
    /// By state, its newest label.
    std::vector<std::uint32_t> first_;
    /// By level, the labels to expand.
    std::map<std::size_t, std::vector<std::uint32_t>> levels_;
};

} // namespace detail

/// Finds a path of least total cost from the initial state to a goal, level by level.
///
/// A label is dropped when another of its state dominates it (weakly: of equal labels the first is kept), when its bound
/// reaches the incumbent, or when the beam has no room for it. The bound only prunes; where it is weak, no order of
/// expansion helps, and this does without `best_first`'s queue. States that subsume others, and `solution_count`, are not used.
/// *Visitor.* That of `best_first`; the bound of its progress stays at the least number.
/// *Returns* `optimal` unless a limit, a gap or the beam stood in the way; then a bound from the labels left out. A beam
/// that leaves no way to a goal counts as a limit on labels. The parts of `seconds` are not measured.
/// *Complexity.* Time and memory grow with the labels kept, at most 2^32 - 1.
/// *Thread safety.* Uses the problem through const calls only.
template <levelled_problem Problem, class Visitor = no_visitor>
[[nodiscard]] result<typename Problem::action> pareto_dp(Problem const& p, pareto_options const& o = {}, Visitor&& visitor = {}) {
    return detail::pareto_run<Problem>(p, o).run(visitor);
}

} // namespace heddle::search
