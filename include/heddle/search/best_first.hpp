// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A* over states and labels with dominance.
#pragma once

#include <heddle/search/block_vector.hpp>
#include <heddle/search/mix_bits.hpp>
#include <heddle/search/problem.hpp>
#include <heddle/search/result.hpp>
#include <heddle/search/state_table.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace heddle::search {

/// A visitor may have `bool on_expand(progress const&)`; false stops the search. And `void on_solution(progress const&)`,
/// called for each new incumbent; for the last only, if one expansion finds several.
struct no_visitor {};

template <class Visitor>
concept expansion_visitor = requires(Visitor& v, progress const& p) {
    { v.on_expand(p) } -> std::convertible_to<bool>;
};
template <class Visitor>
concept solution_visitor = requires(Visitor& v, progress const& p) { v.on_solution(p); };

namespace detail {

template <class Problem>
struct index_of { struct type {}; };
template <subsuming_problem Problem>
struct index_of<Problem> { using type = typename Problem::subsumption_index; };

template <problem Problem>
class best_first_run {
    using state_type = typename Problem::state;
    using label_type = typename Problem::label;
    using action_type = typename Problem::action;
    using clock = std::chrono::steady_clock;

public:
    best_first_run(Problem const& p, options const& o) : problem_(p), options_(o), wanted_(o.cutoff) {
        options_.solution_count = std::max<std::size_t>(1, o.solution_count);
    }

    template <class Visitor>
    result<action_type> run(Visitor& visitor) {
        auto const start = clock::now();
        auto const elapsed = [&] { return seconds(clock::now() - start); };
        result<action_type> out;
        double proven = -std::numeric_limits<double>::infinity();
        auto const now = [&] {
            if (solutions_.empty()) return progress{statistics_, proven, {}};
            double const cost = cost_of(solutions_.front());
            return progress{statistics_, std::min(proven, cost), cost};
        };
        {
            auto [state, label] = problem_.initial();
            insert(std::move(state), std::move(label), {std::numeric_limits<double>::lowest(), 0, none}, {});
        }
        std::size_t best = none;
        while (!open_.empty()) {
            if constexpr (solution_visitor<Visitor>)
                if (!solutions_.empty() && solutions_.front() != best) { best = solutions_.front(); visitor.on_solution(now()); }
            auto const top = open_.top();
            if (is_hopeless(top.bound)) { proven = std::max(proven, std::min(top.bound, wanted_)); break; }
            if (nodes_[top.node].dead) { open_.pop(); continue; }
            proven = std::max(proven, top.bound);
            out.which_limit = spent(elapsed);
            if constexpr (expansion_visitor<Visitor>)
                if (out.which_limit == limit_kind::none && !visitor.on_expand(now())) out.which_limit = limit_kind::stopped;
            if (out.which_limit != limit_kind::none) break;
            open_.pop();
            expand(top);
        }
        if (open_.empty()) proven = std::numeric_limits<double>::infinity();
        if constexpr (solution_visitor<Visitor>)
            if (!solutions_.empty() && solutions_.front() != best) visitor.on_solution(now());
        statistics_.kept = nodes_.size();
        statistics_.seconds = elapsed();
        scale_samples();
        out.statistics = statistics_;
        finish(out, proven);
        return out;
    }

private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    /// Of so many expansions one is timed: a look at the clock takes as long as a simple insertion.
    static constexpr std::size_t sampled = 32;
    static constexpr bool has_hashed_actions = requires(action_type const& a) { { std::hash<action_type>{}(a) } -> std::convertible_to<std::size_t>; };

    struct node_type {
        /// The same for paths that count as one solution, see `extended`.
        std::uint64_t fingerprint;
        std::uint32_t state, parent;
        /// The next label of the same state.
        std::uint32_t next;
        bool dead;
        label_type label;
        action_type action;
    };
    struct entry {
        double bound;
        std::uint32_t depth, node;
        /// Least bound first, then the deepest, then the newest.
        friend bool operator<(entry const& a, entry const& b) {
            if (a.bound != b.bound) return a.bound > b.bound;
            if (a.depth != b.depth) return a.depth < b.depth;
            return a.node < b.node;
        }
    };

    static double seconds(clock::duration d) { return std::chrono::duration<double>(d).count(); }

    [[nodiscard]] bool is_hopeless(double bound) const { return detail::is_hopeless(bound, wanted_, options_); }

    /// Looks at the clock about every millisecond, or after every expansion where one takes longer.
    template <class Elapsed>
    [[nodiscard]] bool is_late(Elapsed const& elapsed) {
        if (!options_.time_limit_seconds || statistics_.expanded < next_look_) return false;
        double const now = elapsed();
        auto const since = static_cast<double>(statistics_.expanded - std::exchange(last_look_, statistics_.expanded));
        double const pace = since / std::max(now - std::exchange(last_time_, now), 1e-9);
        next_look_ = statistics_.expanded + static_cast<std::size_t>(std::clamp(1e-3 * pace, 1.0, 64.0));
        return now >= *options_.time_limit_seconds;
    }

    template <class Elapsed>
    [[nodiscard]] limit_kind spent(Elapsed const& elapsed) {
        if (nodes_.size() >= options_.label_limit) return limit_kind::labels;
        if (statistics_.compared >= options_.comparison_limit) return limit_kind::comparisons;
        if (bytes_ >= options_.memory_limit_bytes) return limit_kind::memory;
        if (options_.stop.stop_requested()) return limit_kind::stopped;
        if (is_late(elapsed)) return limit_kind::time;
        return limit_kind::none;
    }

    [[nodiscard]] double cost_of(std::uint32_t goal) const { return problem_.total(nodes_[goal].label); }

    void expand(entry const& from) {
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
        for_each_wanted_successor(problem_, states_[node.state], node.label, visit, [&](double bound) { return !is_bounded(settled(bound, from)); });
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

    /// What is left to pay never falls along a path; nor does it rise by rounding, or equals would part.
    [[nodiscard]] static double settled(double bound, entry const& from) {
        return bound <= from.bound + 1e-12 * std::abs(from.bound) ? from.bound : bound;
    }
    /// Whether labels of a bound are dropped; if so, takes note of it.
    [[nodiscard]] bool is_bounded(double bound) {
        if (!is_hopeless(bound)) return false;
        ++statistics_.bounded;
        least_bounded_ = std::min(least_bounded_, bound);
        return true;
    }

    void insert(state_type state, label_type label, entry const& from, action_type const& action) {
        double const bound = settled(problem_.bound(state, label), from);
        if (is_bounded(bound)) return;
        if (is_subsumed(state, label)) { ++statistics_.dominated; return; }
        auto const [number, is_new] = states_.insert(std::move(state));
        if (is_new) {
            first_.push_back(none);
            index(number);
        }
        auto const fingerprint = extended(from.node, action);
        if (!make_room(number, label, fingerprint)) { ++statistics_.dominated; return; }

        auto const me = static_cast<std::uint32_t>(nodes_.size());
        nodes_.push_back({fingerprint, number, from.node, std::exchange(first_[number], me), false, std::move(label), action});
        count_bytes(number, nodes_[me].label, is_new);
        if (!problem_.is_goal(states_[number])) {
            open_.push({bound, from.depth + 1, me});
        } else if (cost_of(me) < wanted_) {
            offer(me);
        }
    }

    /// Takes a goal among the solutions, unless it counts as one of them and is no cheaper.
    void offer(std::uint32_t goal) {
        auto const cost = [&](std::uint32_t n) { return cost_of(n); };
        auto const same = std::ranges::find(solutions_, nodes_[goal].fingerprint, [&](auto n) { return nodes_[n].fingerprint; });
        if (same != solutions_.end()) {
            if (cost(*same) <= cost(goal)) return;
            solutions_.erase(same);
        }
        solutions_.insert(std::ranges::upper_bound(solutions_, cost(goal), {}, cost), goal);
        if (solutions_.size() > options_.solution_count) solutions_.pop_back();
        wanted_ = solutions_.size() < options_.solution_count ? options_.cutoff : cost(solutions_.back());
    }

    /// Compares a label with those of its state: false if it is not wanted beside them; kills those that are not wanted beside it.
    bool make_room(std::uint32_t state, label_type const& label, std::uint64_t fingerprint) {
        better_.clear();
        for (auto n = first_[state]; n != none; n = nodes_[n].next) {
            if (nodes_[n].dead) continue;
            ++statistics_.compared;
            if (!problem_.dominates(nodes_[n].label, label)) continue;
            auto const other = nodes_[n].fingerprint;
            if (other == fingerprint) return false;
            if (std::ranges::find(better_, other) == better_.end()) better_.push_back(other);
            if (better_.size() >= options_.solution_count) return false;
        }
        if (options_.solution_count > 1) return true;
        for (auto* link = &first_[state]; *link != none;) {
            auto& n = nodes_[*link];
            if (!n.dead && problem_.dominates(label, n.label)) {
                ++statistics_.dominated;
                n.dead = true;
            }
            if (n.dead) *link = n.next;
            else link = &n.next;
        }
        return true;
    }

    /// The fingerprint of a path and one more action. Where actions can be hashed it is the same for all orders of them, else
    /// every label has its own. A single solution needs none.
    [[nodiscard]] std::uint64_t extended(std::uint32_t path, action_type const& action) const {
        if (path == none || options_.solution_count == 1) return 0;
        if constexpr (has_hashed_actions) {
            return nodes_[path].fingerprint + mix_bits(std::hash<action_type>{}(action) + golden_gamma);
        } else {
            return nodes_.size();
        }
    }

    void index(std::uint32_t state) {
        if constexpr (subsuming_problem<Problem>)
            if (options_.solution_count == 1) index_.insert(state, states_[state]);
    }

    /// Whether a label of another state that subsumes this one dominates. With several solutions sought that would
    /// hide some. It is no longer asked once it has cost more comparisons than so many per label, and per label it found.
    [[nodiscard]] bool is_subsumed(state_type const& state, label_type const& label) {
        if constexpr (subsuming_problem<Problem>) {
            constexpr std::size_t per_label = 64, per_find = 4096;
            if (options_.solution_count > 1 || subsumption_compared_ > per_label * (nodes_.size() + per_label) + per_find * subsumption_found_) return false;
            for (std::uint32_t other : index_.candidates(state))
                for (auto n = first_[other]; n != none; n = nodes_[n].next) {
                    if (nodes_[n].dead) continue;
                    ++statistics_.compared;
                    ++subsumption_compared_;
                    if (problem_.dominates(nodes_[n].label, label) && problem_.subsumes(states_[other], state) && !(states_[other] == state)) {
                        ++subsumption_found_;
                        return true;
                    }
                }
        }
        return false;
    }

    void count_bytes(std::uint32_t state, label_type const& label, bool is_new) {
        bytes_ += sizeof(node_type) + sizeof(entry);
        if constexpr (requires { problem_.memory(label); }) bytes_ += problem_.memory(label);
        if (!is_new) return;
        bytes_ += sizeof(state_type) + 4 * sizeof(std::uint32_t);
        if constexpr (requires { problem_.memory(states_[state]); }) bytes_ += problem_.memory(states_[state]);
    }

    void finish(result<action_type>& out, double proven) const {
        double const bound = std::min({proven, wanted_, least_bounded_});
        if (solutions_.empty()) return conclude(out, bound, wanted_);
        auto const solution_of = [&](std::uint32_t node) {
            solution<action_type> found{cost_of(node), {}};
            for (auto n = node; nodes_[n].parent != none; n = nodes_[n].parent) found.actions.push_back(nodes_[n].action);
            std::reverse(found.actions.begin(), found.actions.end()); // also of bool
            return found;
        };
        auto first = solution_of(solutions_.front());
        out.cost = first.cost;
        out.actions = std::move(first.actions);
        for (auto n : std::span(solutions_).subspan(1)) out.runners_up.push_back(solution_of(n));
        conclude(out, bound, wanted_);
    }

    Problem const& problem_;
    options options_;
    /// The best ones, best first, and the cost that a further one has to beat.
    std::vector<std::uint32_t> solutions_;
    double wanted_;
    /// Least bound of a label dropped because of the incumbent or the cutoff, which a gap lets be above it.
    double least_bounded_ = std::numeric_limits<double>::infinity();
    statistics statistics_;
    /// Expansions at the last look at the clock and at the next one, and the time of the last.
    std::size_t last_look_ = 0, next_look_ = 0;
    double last_time_ = 0;
    std::size_t subsumption_compared_ = 0, subsumption_found_ = 0;
    std::size_t bytes_ = 0;
    block_vector<node_type> nodes_; // labels are read while successors are added
    std::priority_queue<entry> open_;
    state_table<state_type> states_;
    /// The fingerprints of the labels that dominate the one being inserted.
    std::vector<std::uint64_t> better_;
    /// By state, its newest label.
    std::vector<std::uint32_t> first_;
    [[no_unique_address]] index_of<Problem>::type index_;
};

} // namespace detail

/// Finds a path of least total cost from the initial state to a goal.
///
/// A label is dropped when a label of its own state, or of a state that subsumes it, dominates it
/// (weakly: of equal labels the first is kept), or when its bound reaches the incumbent. Ties in the
/// bound go to the deepest, then to the newest label, so the search is deterministic.
/// With `solution_count` above 1, as many labels are kept per state, and nothing is subsumed across states.
/// *Returns* `optimal` unless a limit or a gap was set and reached; see `result`.
/// *Complexity.* Time and memory grow with the labels kept, at most 2^31.
/// *Thread safety.* Uses the problem through const calls only.
/// *Reference.* HAP section 4.3, Fig. 10, with dominance of labels instead of comparison of costs.
template <problem Problem, class Visitor = no_visitor>
[[nodiscard]] result<typename Problem::action> best_first(Problem const& p, options const& o = {}, Visitor&& visitor = {}) {
    using plain = std::remove_cvref_t<Visitor>;
    static_assert(std::same_as<plain, no_visitor> || expansion_visitor<std::remove_reference_t<Visitor>> || solution_visitor<std::remove_reference_t<Visitor>>,
                  "a search's visitor has bool on_expand(progress const&), void on_solution(progress const&) or both");
    static_assert(expansion_visitor<std::remove_reference_t<Visitor>> || !requires { &plain::on_expand; },
                  "a search's visitor's on_expand takes a progress const& and returns bool");
    static_assert(solution_visitor<std::remove_reference_t<Visitor>> || !requires { &plain::on_solution; },
                  "a search's visitor's on_solution takes a progress const&");
    return detail::best_first_run<Problem>(p, o).run(visitor);
}

} // namespace heddle::search
