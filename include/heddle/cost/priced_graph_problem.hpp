// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The label search on a priced graph.
#pragma once

#include <heddle/cost/program_cost.hpp>
#include <heddle/cost/relaxation.hpp>
#include <heddle/search/best_first.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Searches for the least time of an accumulator within the memory limits; relaxations give the bounds.
template <time_accumulator Accumulator>
class priced_graph_problem {
public:
    using state = search::graph_node;
    using action = cut_space::action;
    using label = cost_label<Accumulator>;

    /// `memory_matters` tells whether two labels are also compared by memory. Without it the search is exact as long as
    /// it finds nothing above `least_without_memory()`; otherwise it may miss a program that fits.
    priced_graph_problem(priced_graph const& priced, std::span<relaxation const> relaxations, bool memory_matters)
        : priced_(priced), relaxations_(relaxations), clock_(priced), memory_matters_(memory_matters) {
        for (std::size_t k = 0; k < priced.model().class_count(); ++k) least_memory_.push_back(priced.least_memory(k));
        for (auto* work : {&latencies_.forward, &latencies_.backward, &latencies_.update})
            work->assign(priced.model().class_count(), 0.0);
    }

    [[nodiscard]] std::pair<state, label> initial() const { return {{}, clock_.start()}; }
    [[nodiscard]] std::size_t level(state s) const { return s.level; }
    [[nodiscard]] bool is_goal(state s) const { return s.level + 1 == priced_.graph().level_count(); }
    [[nodiscard]] double total(label const& l) const { return clock_.time().total(l.time); }

    [[nodiscard]] double bound(state s, label const& l) const {
        double const time = bound_of_time(s, l);
        for (std::size_t k = 0; k < l.memory.size(); ++k)
            if (l.memory[k] + least_memory_[k].to_goal(s) + l.buffer > priced_.model().memory_limit(k)) {
                least_without_memory_ = std::min(least_without_memory_, time);
                return std::numeric_limits<double>::infinity();
            }
        return time;
    }

    /// Returns the least bound of a label that was dropped because nothing that follows it fits.
    [[nodiscard]] double least_without_memory() const { return least_without_memory_; }

    /// A label that lacks small buckets which the other has may have to begin them later.
    [[nodiscard]] bool dominates(label const& a, label const& b) const {
        if (!clock_.time().dominates(a.time, b.time)) return false;
        if (auto const lacks = b.begun & ~a.begun) {
            auto later = a.time;
            latencies_.deferred = priced_.latency(lacks);
            clock_.time().extend(later, latencies_);
            if (!clock_.time().dominates(later, b.time)) return false;
        }
        if (!memory_matters_) return true;
        for (std::size_t k = 0; k < a.memory.size(); ++k)
            if (a.memory[k] > b.memory[k]) return false;
        return a.buffer <= b.buffer;
    }

    template <class Visit>
    void for_each_successor(state s, label const& l, Visit&& visit) const {
        for_each_successor(s, l, visit, [](double) { return true; });
    }
    /// A label plus the relaxed costs from there over a link, or by one of its moves, is a bound already; it drops most
    /// successors.
    template <class Visit, class IsWanted>
    void for_each_successor(state s, label const& l, Visit&& visit, IsWanted&& is_wanted) const {
        auto const& graph = priced_.graph();
        auto const& segment = graph.from_level(s.level);
        relaxed_.clear();
        if constexpr (is_relaxed)
            for (auto const& r : relaxations_) relaxed_.push_back(relaxed(r, l, s.level));
        auto const bound_over = [&](auto const& rest) {
            if constexpr (!is_relaxed) return total(l);
            double best = 0;
            for (std::size_t n = 0; n < relaxations_.size(); ++n)
                best = std::max(best, relaxed_[n] + rest(relaxations_[n]));
            return best;
        };
        for (auto const& link : segment.out(s.position)) {
            if (!is_wanted(bound_over([&](relaxation const& r) { return r.paths.through(s.level, link); }))) continue;
            state const there{s.level + 1, link.to};
            for (action const a : graph.bundle(segment.bundles[link.bundle])) {
                if (!is_wanted(bound_over([&](relaxation const& r) {
                        return weighted_price(priced_, r.weights, s.level, a) + r.paths.to_goal(there);
                    })))
                    continue;
                label next = l;
                clock_.extend(next, s.level, a);
                visit(a, there, std::move(next));
            }
        }
    }

private:
    static constexpr bool is_relaxed = Accumulator::relaxation != relaxation_kind::none;

    /// Returns what a label is worth in a relaxation; with the relaxed costs from its level on it is a bound.
    [[nodiscard]] double relaxed(relaxation const& r, label const& l, std::size_t level) const {
        double value = clock_.time().relaxed(l.time, r.weights.time, level) - r.credit;
        for (std::size_t k = 0; k < l.memory.size(); ++k) value += r.weights.memory[k] * l.memory[k];
        return value;
    }
    [[nodiscard]] double bound_of_time(state s, label const& l) const {
        if (is_goal(s) || !is_relaxed) return total(l);
        double best = 0;
        if constexpr (is_relaxed)
            for (auto const& r : relaxations_) best = std::max(best, relaxed(r, l, s.level) + r.paths.to_goal(s));
        return best;
    }

    priced_graph const& priced_;
    std::span<relaxation const> relaxations_;
    program_clock<Accumulator> clock_;
    bool memory_matters_;
    /// The worth in each relaxation of the label whose successors are made.
    mutable std::vector<double> relaxed_;
    mutable double least_without_memory_ = std::numeric_limits<double>::infinity();
    /// A step that has latencies alone.
    mutable step_cost latencies_;
    std::vector<search::shortest_paths> least_memory_;
};

} // namespace heddle
