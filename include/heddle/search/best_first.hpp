// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A* over states and labels with dominance.
#pragma once

#include <heddle/search/result.hpp>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <deque>
#include <functional>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

namespace heddle::search {

/// A shortest-path problem whose path costs are labels.
///
/// *Notation.* `p` problem, `s`, `t` states, `a`, `b` labels.
/// *Axioms.* `p.dominates` is a preorder on labels that every extension preserves, and
/// `p.dominates(a, b)` implies `p.total(a) <= p.total(b)` at goals. `p.bound(s, a)` is at most the
/// total of every completion from `(s, a)` and never falls along a path by more than rounding.
/// There are no infinite paths of bounded cost.
template <class Problem>
concept problem = requires(Problem const& p, typename Problem::state const& s, typename Problem::label const& a) {
    typename Problem::action;
    { p.initial() } -> std::convertible_to<std::pair<typename Problem::state, typename Problem::label>>;
    { p.is_goal(s) } -> std::convertible_to<bool>;
    { p.total(a) } -> std::convertible_to<double>;
    { p.bound(s, a) } -> std::convertible_to<double>;
    { p.dominates(a, a) } -> std::convertible_to<bool>;
    p.for_each_successor(s, a, [](typename Problem::action const&, typename Problem::state, typename Problem::label) {});
    { std::hash<typename Problem::state>{}(s) } -> std::convertible_to<std::size_t>;
};

/// A problem that can say that one state is at least as good as another.
///
/// *Axioms.* `p.subsumes(s, t)` is a preorder; whatever completes `t` completes `s` with the same
/// steps or fewer. It implies that every feature of `t` is one of `s`.
template <class Problem>
concept subsuming_problem = problem<Problem> && requires(Problem const& p, typename Problem::state const& s) {
    { p.subsumes(s, s) } -> std::convertible_to<bool>;
    p.for_each_feature(s, [](std::size_t) {});
};

/// A visitor may have `bool on_expand(statistics const&, double lower_bound)`; false stops the search.
struct no_visitor {};

namespace detail {

template <problem Problem>
class best_first_run {
    using state_type = typename Problem::state;
    using label_type = typename Problem::label;
    using action_type = typename Problem::action;

public:
    best_first_run(Problem const& p, options const& o) : problem_(p), options_(o) {}

    template <class Visitor>
    result<action_type> run(Visitor&& visitor) {
        auto const start = std::chrono::steady_clock::now();
        auto const elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
        result<action_type> out;
        incumbent_ = options_.cutoff;
        double proven = -std::numeric_limits<double>::infinity();
        {
            auto [state, label] = problem_.initial();
            insert(std::move(state), std::move(label), none, {});
        }
        while (!open_.empty()) {
            auto const top = open_.top();
            open_.pop();
            if (top.bound * (1 + options_.relative_gap) >= incumbent_) { proven = std::max(proven, std::min(top.bound, incumbent_)); open_ = {}; break; }
            auto& node = nodes_[top.node];
            if (node.dead) continue;
            proven = std::max(proven, top.bound);
            if (out.which_limit = spent(elapsed); out.which_limit != limit_kind::none) { open_.push(top); break; }
            if constexpr (requires { { visitor.on_expand(statistics_, proven) } -> std::convertible_to<bool>; })
                if (!visitor.on_expand(statistics_, proven)) { out.which_limit = limit_kind::stopped; open_.push(top); break; }
            if constexpr (subsuming_problem<Problem>)
                if (is_subsumed(*node.state, node.label, top.node)) { ++statistics_.dominated; kill(top.node); continue; }
            ++statistics_.expanded;
            problem_.for_each_successor(*node.state, node.label, [&](action_type const& action, state_type next, label_type label) {
                ++statistics_.generated;
                insert(std::move(next), std::move(label), top.node, action);
            });
        }
        statistics_.kept = nodes_.size();
        statistics_.seconds = elapsed();
        out.statistics = statistics_;
        bool const stopped = out.which_limit != limit_kind::none;
        if (best_ == none) {
            out.status = stopped ? status::limit : status::infeasible;
            out.lower_bound = std::min({stopped ? proven : incumbent_, incumbent_, least_bounded_});
            return out;
        }
        out.cost = incumbent_;
        for (std::size_t n = best_; nodes_[n].parent != none; n = nodes_[n].parent) out.actions.push_back(nodes_[n].action);
        std::ranges::reverse(out.actions);
        // Whatever was not expanded has a bound of at least `proven`.
        out.lower_bound = std::min({proven, incumbent_, least_bounded_});
        if (!stopped && options_.relative_gap <= 1e-9) out.lower_bound = incumbent_;
        out.status = out.lower_bound * (1 + 1e-9) >= incumbent_ ? status::optimal : stopped ? status::limit : status::feasible;
        if (out.status == status::optimal) out.which_limit = limit_kind::none;
        return out;
    }

private:
    static constexpr std::size_t none = ~std::size_t{0};

    struct node_type {
        state_type const* state;
        label_type label;
        std::size_t parent;
        action_type action;
        std::uint32_t depth;
        bool dead;
    };
    struct entry {
        double bound;
        std::uint32_t depth;
        std::size_t node;
        /// Least bound first, then the deepest, then the newest.
        friend bool operator<(entry const& a, entry const& b) {
            if (a.bound != b.bound) return a.bound > b.bound;
            if (a.depth != b.depth) return a.depth < b.depth;
            return a.node < b.node;
        }
    };
    using front = std::vector<std::size_t>;
    using front_map = std::unordered_map<state_type, front>;

    template <class Elapsed>
    [[nodiscard]] limit_kind spent(Elapsed const& elapsed) const {
        if (nodes_.size() >= options_.label_limit) return limit_kind::labels;
        if (statistics_.compared >= options_.comparison_limit) return limit_kind::comparisons;
        if (options_.stop.stop_requested()) return limit_kind::stopped;
        if (options_.time_limit_seconds && statistics_.expanded % 64 == 0 && elapsed() >= *options_.time_limit_seconds) return limit_kind::time;
        return limit_kind::none;
    }

    void kill(std::size_t n) { nodes_[n].dead = true; }

    void insert(state_type state, label_type label, std::size_t parent, action_type action) {
        double bound = problem_.bound(state, label);
        if (parent != none) bound = std::max(bound, bounds_[parent]);
        if (bound * (1 + options_.relative_gap) >= incumbent_) {
            ++statistics_.bounded;
            least_bounded_ = std::min(least_bounded_, bound);
            return;
        }
        if constexpr (subsuming_problem<Problem>)
            if (is_subsumed(state, label, none)) { ++statistics_.dominated; return; }
        auto [slot, is_new] = fronts_.try_emplace(std::move(state));
        auto& labels = slot->second;
        statistics_.compared += labels.size();
        for (auto n : labels)
            if (problem_.dominates(nodes_[n].label, label)) { ++statistics_.dominated; return; }
        std::erase_if(labels, [&](std::size_t n) {
            if (!problem_.dominates(label, nodes_[n].label)) return false;
            ++statistics_.dominated;
            kill(n);
            return true;
        });
        if constexpr (subsuming_problem<Problem>)
            if (is_new)
                problem_.for_each_feature(slot->first, [&](std::size_t f) {
                    if (with_feature_.size() <= f) with_feature_.resize(f + 1);
                    with_feature_[f].push_back(&*slot);
                });
        auto const depth = parent == none ? 0 : nodes_[parent].depth + 1;
        labels.push_back(nodes_.size());
        if (!problem_.is_goal(slot->first)) {
            open_.push({bound, depth, nodes_.size()});
        } else if (double const total = problem_.total(label); total < incumbent_) {
            incumbent_ = total;
            best_ = nodes_.size();
        }
        nodes_.push_back({&slot->first, std::move(label), parent, std::move(action), depth, false});
        bounds_.push_back(bound);
    }

    /// Whether another state that subsumes this one has a label that dominates: looked for among the
    /// states that share its rarest feature.
    [[nodiscard]] bool is_subsumed(state_type const& state, label_type const& label, std::size_t self) const {
        std::vector<typename front_map::value_type const*> const* rarest = nullptr;
        bool impossible = false;
        problem_.for_each_feature(state, [&](std::size_t f) {
            if (f >= with_feature_.size()) { impossible = true; return; }
            if (!rarest || with_feature_[f].size() < rarest->size()) rarest = &with_feature_[f];
        });
        if (impossible || !rarest) return false;
        for (auto const* other : *rarest)
            for (auto n : other->second)
                if (n != self && problem_.dominates(nodes_[n].label, label) && problem_.subsumes(other->first, state) &&
                    !(other->first == state)) return true;
        return false;
    }

    Problem const& problem_;
    options options_;
    double incumbent_ = 0;
    std::size_t best_ = none;
    /// Least bound of a label dropped because of the incumbent or the cutoff, which a gap lets be above it.
    double least_bounded_ = std::numeric_limits<double>::infinity();
    statistics statistics_;
    std::deque<node_type> nodes_; // labels are read while successors are added
    std::vector<double> bounds_;
    std::priority_queue<entry> open_;
    front_map fronts_;
    std::vector<std::vector<typename front_map::value_type const*>> with_feature_;
};

} // namespace detail

/// Finds a path of least total cost from the initial state to a goal.
///
/// A label is dropped when a label of its own state, or of a state that subsumes it, dominates it
/// (weakly: of equal labels the first is kept), or when its bound reaches the incumbent. Ties in the
/// bound go to the deepest, then to the newest label, so the search is deterministic.
/// *Returns* `optimal` unless a limit or a gap was set and reached; see `result`.
/// *Complexity.* Time and memory grow with the labels kept.
/// *Thread safety.* Uses the problem through const calls only.
/// *Reference.* HAP section 4.3, Fig. 10, with dominance of labels instead of comparison of costs.
template <problem Problem, class Visitor = no_visitor>
[[nodiscard]] result<typename Problem::action> best_first(Problem const& p, options const& o = {}, Visitor&& visitor = {}) {
    return detail::best_first_run<Problem>(p, o).run(visitor);
}

} // namespace heddle::search
