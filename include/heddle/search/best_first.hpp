// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A* over states and labels with dominance.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/search/detail/label_search.hpp>
#include <heddle/search/mix_bits.hpp>
#include <heddle/search/problem.hpp>
#include <heddle/search/result.hpp>
#include <heddle/search/visitor.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

namespace heddle::search {

namespace detail {

template <class Problem>
struct index_of {
    struct type {};
};
template <subsuming_problem Problem>
struct index_of<Problem> {
    using type = typename Problem::subsumption_index;
};

/// The fingerprint is equal for paths that count as one solution; see `extended`.
struct path_identity {
    std::uint64_t fingerprint;
};

/// A label that is to be expanded.
struct open_label {
    double bound;
    std::uint32_t depth, node;
    /// The order is by least bound, then deepest, then newest.
    friend bool operator<(open_label const& a, open_label const& b) {
        if (a.bound != b.bound) return a.bound > b.bound;
        if (a.depth != b.depth) return a.depth < b.depth;
        return a.node < b.node;
    }
};

template <problem Problem>
class best_first_run : label_search<Problem, options, path_identity> {
    using base = label_search<Problem, options, path_identity>;
    using base::cost_of, base::is_hopeless, base::is_bounded, base::is_over, base::report_solution;
    using base::none, base::problem_, base::options_, base::budget_, base::wanted_, base::incumbent_, base::statistics_,
        base::nodes_, base::states_, base::first_;
    using state_type = typename Problem::state;
    using label_type = typename Problem::label;
    using action_type = typename Problem::action;
    using clock = std::chrono::steady_clock;

public:
    best_first_run(Problem const& p, options const& o) : base(p, o) {
        options_.solution_count = std::max<std::size_t>(1, o.solution_count);
    }

    template <class Visitor>
    result<action_type> run(Visitor& visitor) {
        double proven = -std::numeric_limits<double>::infinity();
        {
            auto [state, label] = problem_.initial();
            insert(std::move(state), std::move(label), {std::numeric_limits<double>::lowest(), 0, none}, {});
        }
        std::uint32_t best = none;
        auto const tell = [&] {
            if (!solutions_.empty() && std::exchange(best, solutions_.front()) != solutions_.front())
                report_solution(visitor, proven);
        };
        while (!open_.empty()) {
            tell();
            auto const top = open_.top();
            if (is_hopeless(top.bound)) {
                proven = std::max(proven, std::min(top.bound, wanted_));
                break;
            }
            if (nodes_[top.node].dead) {
                open_.pop();
                continue;
            }
            proven = std::max(proven, top.bound);
            if (is_over(visitor, proven)) break;
            open_.pop();
            expand(top);
        }
        if (open_.empty()) proven = std::numeric_limits<double>::infinity();
        tell();
        statistics_.kept = nodes_.size();
        scale_samples();
        return base::concluded(solutions_, budget_.reached(), proven);
    }

private:
    /// One of this many expansions is timed: a look at the clock takes as long as a simple insertion.
    static constexpr std::size_t sampled = 32;
    static constexpr bool has_hashed_actions = requires(action_type const& a) {
        { std::hash<action_type>{}(a) } -> std::convertible_to<std::size_t>;
    };

    static double seconds(clock::duration d) { return std::chrono::duration<double>(d).count(); }

    void expand(open_label const& from) {
        auto& node = nodes_[from.node];
        bool const is_timed = statistics_.expanded % sampled == 0;
        auto const time = [is_timed] { return is_timed ? clock::now() : clock::time_point(); };
        auto const looking = time();
        bool const subsumed = is_subsumed(states_[node.state], node.label);
        auto const start = time();
        clock::duration inserting = start - looking;
        if (subsumed) {
            statistics_.insertion_seconds += seconds(inserting);
            ++statistics_.dominated;
            node.dead = true;
            return;
        }
        ++statistics_.expanded;
        auto const visit = [&](action_type const& action, state_type next, label_type label) {
            ++statistics_.generated;
            auto const before = time();
            insert(std::move(next), std::move(label), from, action);
            inserting += time() - before;
        };
        for_each_wanted_successor(problem_, states_[node.state], node.label, visit,
                                  [&](double bound) { return !is_bounded(settled(bound, from)); });
        statistics_.insertion_seconds += seconds(inserting);
        statistics_.successor_seconds += seconds(time() - looking - inserting);
    }
    void scale_samples() {
        auto const samples = (statistics_.expanded + sampled - 1) / sampled;
        if (samples == 0) return;
        double const scale = static_cast<double>(statistics_.expanded) / static_cast<double>(samples);
        statistics_.insertion_seconds *= scale;
        statistics_.successor_seconds *= scale;
    }

    /// Returns a bound that does not fall along a path: that of the label it comes from, unless the new one is greater
    /// by more than rounding. So equal bounds stay equal.
    [[nodiscard]] static double settled(double bound, open_label const& from) {
        return bound <= from.bound + 1e-12 * std::abs(from.bound) ? from.bound : bound;
    }
    void insert(state_type state, label_type label, open_label const& from, action_type const& action) {
        double const bound = settled(problem_.bound(state, label), from);
        if (is_bounded(bound)) return;
        if (is_subsumed(state, label)) {
            ++statistics_.dominated;
            return;
        }
        auto const [number, is_new] = base::number_of(std::move(state));
        if (is_new) index(number);
        auto const fingerprint = extended(from.node, action);
        if (is_dominated(number, label, fingerprint)) {
            ++statistics_.dominated;
            return;
        }
        if (options_.solution_count == 1) base::drop_dominated(number, label, [](auto const&) { return true; });
        auto const me = base::add({fingerprint}, from.node, std::move(label), action);
        base::put(me, number);
        if (!problem_.is_goal(states_[number])) {
            open_.push({bound, from.depth + 1, me});
        } else if (cost_of(me) < wanted_) {
            offer(me);
        }
    }

    /// Takes a goal among the solutions unless it counts as one of them and costs no less.
    void offer(std::uint32_t goal) {
        auto const cost = [&](std::uint32_t n) { return cost_of(n); };
        auto const same = algorithm::find(solutions_, nodes_[goal].more.fingerprint,
                                          [&](auto n) { return nodes_[n].more.fingerprint; });
        if (same != solutions_.end()) {
            if (cost(*same) <= cost(goal)) return;
            solutions_.erase(same);
        }
        solutions_.insert(algorithm::upper_bound(solutions_, cost(goal), {}, cost), goal);
        if (solutions_.size() > options_.solution_count) solutions_.pop_back();
        incumbent_ = cost(solutions_.front());
        wanted_ = solutions_.size() < options_.solution_count ? options_.cutoff : cost(solutions_.back());
    }

    /// Tells whether a label is dominated: by one label of a path that counts as the same, or by as many labels of its
    /// state as solutions are sought.
    bool is_dominated(std::uint32_t state, label_type const& label, std::uint64_t fingerprint) {
        better_.clear();
        for (auto n = first_[state]; n != none; n = nodes_[n].next) {
            if (nodes_[n].dead) continue;
            ++statistics_.compared;
            if (!problem_.dominates(nodes_[n].label, label)) continue;
            auto const other = nodes_[n].more.fingerprint;
            if (other == fingerprint) return true;
            if (algorithm::find(better_, other) == better_.end()) better_.push_back(other);
            if (better_.size() >= options_.solution_count) return true;
        }
        return false;
    }

    /// Returns the fingerprint of a path with one more action. If actions can be hashed it is equal for all orders of
    /// them; otherwise every label has a fingerprint of its own. If a single solution is sought, none is needed.
    [[nodiscard]] std::uint64_t extended(std::uint32_t path, action_type const& action) const {
        if (path == none || options_.solution_count == 1) return 0;
        if constexpr (has_hashed_actions) {
            return nodes_[path].more.fingerprint + mix_bits(std::hash<action_type>{}(action) + golden_gamma);
        } else {
            return nodes_.size();
        }
    }

    void index(std::uint32_t state) {
        if constexpr (subsuming_problem<Problem>)
            if (options_.solution_count == 1) index_.insert(state, states_[state]);
    }

    /// Tells whether a label of another state that subsumes this one dominates. If several solutions are sought, this
    /// would hide some. The check is given up once it has cost more comparisons than a fixed number per label and
    /// another per label that it found.
    [[nodiscard]] bool is_subsumed(state_type const& state, label_type const& label) {
        if constexpr (subsuming_problem<Problem>) {
            constexpr std::size_t per_label = 64, per_find = 4096;
            if (options_.solution_count > 1 ||
                subsumption_compared_ > per_label * (nodes_.size() + per_label) + per_find * subsumption_found_)
                return false;
            for (std::uint32_t other : index_.candidates(state))
                for (auto n = first_[other]; n != none; n = nodes_[n].next) {
                    if (nodes_[n].dead) continue;
                    ++statistics_.compared;
                    ++subsumption_compared_;
                    if (problem_.dominates(nodes_[n].label, label) && problem_.subsumes(states_[other], state) &&
                        !(states_[other] == state)) {
                        ++subsumption_found_;
                        return true;
                    }
                }
        }
        return false;
    }

    /// The best solutions, best first.
    std::vector<std::uint32_t> solutions_;
    std::size_t subsumption_compared_ = 0, subsumption_found_ = 0;
    std::priority_queue<open_label> open_;
    /// The fingerprints of the labels that dominate the one that is being inserted.
    std::vector<std::uint64_t> better_;
    [[no_unique_address]] index_of<Problem>::type index_;
};

} // namespace detail

/// Finds a path of least total cost from the initial state to a goal.
///
/// A label is dropped if a label of its own state, or of a state that subsumes it, dominates it (weakly: the first of
/// equal labels is kept), or if its bound reaches the incumbent. Of equal bounds the deepest label goes first, then the
/// newest, so the search is deterministic. If `solution_count` is above 1, that many labels are kept per state, and
/// nothing is subsumed across states.
/// *Returns* `optimal` unless a limit or a gap was set and reached; see `result`.
/// *Complexity.* Time and memory grow with the labels kept, which are at most 2^31.
/// *Thread safety.* Uses the problem through const calls only.
/// *Reference.* HAP section 4.3, Fig. 10, with dominance of labels instead of comparison of costs.
template <problem Problem, class Visitor = no_visitor>
[[nodiscard]] result<typename Problem::action> best_first(Problem const& p, options const& o = {},
                                                          Visitor&& visitor = {}) {
    require_visitor<Visitor>();
    return detail::best_first_run<Problem>(p, o).run(visitor);
}

} // namespace heddle::search
