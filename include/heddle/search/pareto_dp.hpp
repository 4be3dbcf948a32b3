// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Dynamic programming over states in levels, with a front of labels per state.
#pragma once

#include <heddle/search/best_first.hpp>
#include <heddle/search/block_vector.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/problem.hpp>
#include <heddle/search/result.hpp>
#include <heddle/search/state_table.hpp>

#include <algorithm>
#include <chrono>
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

struct widening_options : pareto_options {
    /// Where there is something to beat, it ends after so many beams in a row that do not.
    std::size_t patience = std::numeric_limits<std::size_t>::max();
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
            insert(state_type(std::move(state)), label_type(std::move(label)), std::numeric_limits<double>::lowest(), none, {});
        }
        auto which = limit_kind::none;
        while (!waiting_.empty() && which == limit_kind::none) {
            for (auto const n : settle(std::move(waiting_.extract(waiting_.begin()).mapped()))) {
                if (nodes_[n].dead || is_bounded(nodes_[n].bound)) continue;
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
        for (auto const& [number, level] : waiting_)
            for (auto const& waiting : level) least_left_ = std::min(least_left_, waiting.bound);
        return finish(which);
    }

private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    struct node_type {
        double bound;
        std::uint32_t parent;
        /// The next label of the same state.
        std::uint32_t next;
        bool dead;
        state_type state;
        label_type label;
        action_type action;
    };
    /// A label that waits for its level: then all others of its state are there.
    struct entry {
        double bound;
        std::uint32_t node;
        friend auto operator<=>(entry const&, entry const&) = default;
    };

    [[nodiscard]] double elapsed() const { return std::chrono::duration<double>(clock::now() - start_).count(); }
    [[nodiscard]] bool is_hopeless(double bound) const { return detail::is_hopeless(bound, wanted_, options_); }
    [[nodiscard]] double cost_of(std::uint32_t goal) const { return problem_.total(nodes_[goal].label); }
    [[nodiscard]] progress now() const {
        return {statistics_, std::numeric_limits<double>::lowest(), best_ == none ? std::nullopt : std::optional(cost_of(best_))};
    }

    [[nodiscard]] limit_kind spent() const {
        if (nodes_.size() - free_.size() >= options_.label_limit) return limit_kind::labels;
        if (statistics_.compared >= options_.comparison_limit) return limit_kind::comparisons;
        if (bytes_ >= options_.memory_limit_bytes) return limit_kind::memory;
        if (options_.stop.stop_requested()) return limit_kind::stopped;
        if (options_.time_limit_seconds && statistics_.expanded % 64 == 0 && elapsed() >= *options_.time_limit_seconds) return limit_kind::time;
        return limit_kind::none;
    }

    /// Takes labels of a level in the order of their bounds, as long as the beam has room, and forgets the others. What dominates a label
    /// has no greater bound, as a rule: so it is there first, and a label is compared with those alone that stay.
    std::vector<std::uint32_t> settle(std::vector<entry> level) {
        std::vector<std::uint32_t> kept;
        std::size_t dead = 0;
        std::ranges::sort(level);
        bool is_full = false;
        for (auto const& [bound, n] : level) {
            if (is_full || is_hopeless(bound)) {
                statistics_.bounded += !is_full;
                forget(n, is_full ? least_left_ : least_bounded_);
                continue;
            }
            auto const [state, is_new] = states_.insert(nodes_[n].state);
            if (is_new) {
                first_.push_back(none);
                count_bytes(states_[state]);
            }
            if (is_dominated(state, n)) {
                ++statistics_.dominated;
                forget(n);
            } else if (kept.size() - dead == options_.beam) {
                is_full = is_narrowed_ = true;
                forget(n, least_left_);
            } else {
                dead += drop_dominated(state, n);
                nodes_[n].next = std::exchange(first_[state], n);
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
            insert(std::move(next), std::forward<Label>(label), node.bound, from, action);
        };
        for_each_wanted_successor(problem_, node.state, node.label, visit, [&](double bound) { return !is_bounded(bound); });
    }
    /// Whether labels of a bound are dropped; if so, takes note of it.
    [[nodiscard]] bool is_bounded(double bound) {
        if (!is_hopeless(bound)) return false;
        ++statistics_.bounded;
        least_bounded_ = std::min(least_bounded_, bound);
        return true;
    }

    template <class Label>
    void insert(state_type&& state, Label&& label, double least, std::uint32_t from, action_type const& action) {
        double const bound = std::max<double>(least, problem_.bound(state, label));
        if (is_bounded(bound)) return;
        bool const is_goal = problem_.is_goal(state);
        if (is_goal && problem_.total(label) >= wanted_) return;
        auto const me = add(bound, from, std::move(state), std::forward<Label>(label), action);
        if (!is_goal) {
            waiting_[problem_.level(nodes_[me].state)].push_back({bound, me});
            return;
        }
        best_ = me;
        wanted_ = cost_of(me);
        ++statistics_.kept;
    }

    template <class Label>
    std::uint32_t add(double bound, std::uint32_t from, state_type&& state, Label&& label, action_type const& action) {
        auto n = static_cast<std::uint32_t>(nodes_.size());
        if (free_.empty()) {
            nodes_.push_back({bound, from, none, false, std::move(state), label_type(std::forward<Label>(label)), action});
        } else {
            n = free_.back();
            free_.pop_back();
            auto& node = nodes_[n];
            node.bound = bound;
            node.parent = from;
            node.state = std::move(state);
            node.label = std::forward<Label>(label);
            node.action = action;
        }
        bytes_ += bytes_of(nodes_[n].label);
        return n;
    }
    void forget(std::uint32_t n) {
        bytes_ -= bytes_of(nodes_[n].label);
        free_.push_back(n);
    }
    /// A label left out whose bound counts.
    void forget(std::uint32_t n, double& least) {
        least = std::min(least, nodes_[n].bound);
        forget(n);
    }

    bool is_dominated(std::uint32_t state, std::uint32_t label) {
        for (auto n = first_[state]; n != none; n = nodes_[n].next) {
            ++statistics_.compared;
            if (problem_.dominates(nodes_[n].label, nodes_[label].label)) return true;
        }
        return false;
    }
    /// Kills labels of a state that one dominates: among those of equal bounds, or of greater ones where levels come back.
    std::size_t drop_dominated(std::uint32_t state, std::uint32_t label) {
        std::size_t dropped = 0;
        for (auto* link = &first_[state]; *link != none;) {
            auto& n = nodes_[*link];
            n.dead = n.bound >= nodes_[label].bound && problem_.dominates(nodes_[label].label, n.label);
            dropped += n.dead;
            if (n.dead) *link = n.next;
            else link = &n.next;
        }
        statistics_.dominated += dropped;
        return dropped;
    }

    [[nodiscard]] std::size_t bytes_of(label_type const& label) const {
        std::size_t bytes = sizeof(node_type) + sizeof(std::uint32_t);
        if constexpr (requires { problem_.memory(label); }) bytes += problem_.memory(label);
        return bytes;
    }
    void count_bytes(state_type const& state) {
        bytes_ += sizeof(state_type) + 4 * sizeof(std::uint32_t);
        if constexpr (requires { problem_.memory(state); }) bytes_ += problem_.memory(state);
    }

    result<action_type> finish(limit_kind which) {
        result<action_type> out;
        statistics_.seconds = elapsed();
        out.statistics = statistics_;
        if (which == limit_kind::none && best_ == none && is_narrowed_) which = limit_kind::width;
        out.which_limit = which;
        if (best_ != none) {
            out.cost = cost_of(best_);
            for (auto n = best_; nodes_[n].parent != none; n = nodes_[n].parent) out.actions.push_back(nodes_[n].action);
            std::reverse(out.actions.begin(), out.actions.end()); // also of bool
        }
        conclude(out, std::min({least_left_, least_bounded_, wanted_}), wanted_);
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
    /// Places among them of labels that were forgotten.
    std::vector<std::uint32_t> free_;
    state_table<state_type> states_;
    /// By state, its newest label.
    std::vector<std::uint32_t> first_;
    std::map<std::size_t, std::vector<entry>> waiting_;
};

} // namespace detail

/// Finds a path of least total cost from the initial state to a goal, level by level.
///
/// A label is dropped when another of its state dominates it (weakly: of equal labels the first is kept), when its bound
/// reaches the incumbent, or when the beam has no room for it. Labels wait for their level and are then taken in the order of their
/// bounds, so one is compared with better ones alone; where a label has a greater bound than another that it dominates, both stay. Those
/// that wait count as kept for limits. The bound only prunes; where it is weak, no order of expansion helps, and this does without
/// `best_first`'s queue. States that subsume others, and `solution_count`, are not used.
/// *Visitor.* That of `best_first`; the bound of its progress stays at the least number.
/// *Returns* `optimal` unless a limit, a gap or the beam stood in the way; then a bound from the labels left out. A beam
/// that leaves no way to a goal counts as a limit on the width. The parts of `seconds` are not measured.
/// *Complexity.* Time and memory grow with the labels kept, at most 2^32 - 1.
/// *Thread safety.* Uses the problem through const calls only.
template <levelled_problem Problem, class Visitor = no_visitor>
[[nodiscard]] result<typename Problem::action> pareto_dp(Problem const& p, pareto_options const& o = {}, Visitor&& visitor = {}) {
    return detail::pareto_run<Problem>(p, o).run(visitor);
}

/// `pareto_dp` with beams of 1, 4, 16 ... labels and at last of `o.beam`, until one leaves nothing out. Where bounds are loose, labels that look cheap crowd
/// better ones out of a beam, and a narrower one finds what it misses; here each looks for what costs less than all before it found.
/// Limits on labels, comparisons and memory are for each, that on time for all.
/// *Returns* what `pareto_dp` does, with the best bound of all beams and the statistics of all.
/// *Complexity.* Where the beam is what ends it, a third more than `pareto_dp`, or less, as there is more to bound by.
/// After W. Zhang, Complete anytime beam search, AAAI 1998.
template <levelled_problem Problem, class Visitor = no_visitor>
[[nodiscard]] result<typename Problem::action> widening_beam(Problem const& p, widening_options const& o = {}, Visitor&& visitor = {}) {
    deadline const until(o.time_limit_seconds, o.stop);
    result<typename Problem::action> best;
    double bound = std::numeric_limits<double>::lowest();
    std::size_t in_vain = 0;
    pareto_options options = o;
    for (options.beam = std::min<std::size_t>(1, o.beam);; options.beam = options.beam > o.beam / 4 ? o.beam : 4 * options.beam) {
        options.time_limit_seconds = until.left();
        auto found = pareto_dp(p, options, visitor);
        found.statistics += best.statistics;
        bound = std::max(bound, found.lower_bound);
        in_vain = found.cost || options.cutoff == std::numeric_limits<double>::infinity() ? 0 : in_vain + 1;
        bool const is_last = options.beam == o.beam || found.status == status::optimal || found.status == status::infeasible ||
                             (found.status == status::limit && found.which_limit != limit_kind::width) || in_vain >= o.patience;
        if (!found.cost) {
            found.cost = best.cost;
            found.actions = std::move(best.actions);
        }
        best = std::move(found);
        if (best.cost) options.cutoff = *best.cost;
        if (!is_last) continue;
        if (best.cost && best.which_limit == limit_kind::width) best.which_limit = limit_kind::none;
        detail::conclude(best, bound, options.cutoff);
        return best;
    }
}

} // namespace heddle::search
