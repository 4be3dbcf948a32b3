// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The part of label searches that does not depend on the order in which labels are taken.
#pragma once

#include <heddle/search/block_vector.hpp>
#include <heddle/search/budget.hpp>
#include <heddle/search/problem.hpp>
#include <heddle/search/result.hpp>
#include <heddle/search/state_table.hpp>
#include <heddle/search/visitor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::search::detail {

/// Keeps labels by state, and what is too dear for them; enforces limits and finds the way back from a goal. `More` is
/// what a search keeps with each label.
template <problem Problem, class Options, class More>
class label_search {
protected:
    using state_type = typename Problem::state;
    using label_type = typename Problem::label;
    using action_type = typename Problem::action;

    static constexpr std::uint32_t none = ~std::uint32_t{0};

    struct node_type {
        More more;
        std::uint32_t parent;
        /// The number of its state, and the next label of that state.
        std::uint32_t state = none, next = none;
        bool dead = false;
        label_type label;
        action_type action;
    };

    label_search(Problem const& p, Options const& o)
        : problem_(p), options_(o), budget_(o.all_limits()), wanted_(o.cutoff) {}

    [[nodiscard]] double cost_of(std::uint32_t goal) const { return problem_.total(nodes_[goal].label); }

    /// Tells whether whatever costs no less than a bound is too dear, as only what costs less than `wanted_` is sought.
    [[nodiscard]] bool is_hopeless(double bound) const { return raised(bound, options_.relative_gap) >= wanted_; }
    /// Tells whether labels with this bound are dropped, and if so, notes the bound.
    [[nodiscard]] bool is_bounded(double bound) {
        if (!is_hopeless(bound)) return false;
        ++statistics_.bounded;
        least_bounded_ = std::min(least_bounded_, bound);
        return true;
    }

    /// Tells whether a limit is reached or the visitor does not want the next expansion.
    template <class Visitor>
    [[nodiscard]] bool is_over(Visitor& visitor, double bound) {
        if (budget_.is_spent(label_count(), statistics_.compared, bytes_)) return true;
        if constexpr (expansion_visitor<Visitor>)
            if (!visitor.on_expand(now(bound))) budget_.stop();
        return budget_.reached() != limit_kind::none;
    }
    template <class Visitor>
    void report_solution(Visitor& visitor, double bound) {
        if constexpr (solution_visitor<Visitor>) visitor.on_solution(now(bound));
    }

    /// Keeps a label; it is not yet among those of a state.
    std::uint32_t add(More more, std::uint32_t parent, label_type label, action_type const& action) {
        auto n = static_cast<std::uint32_t>(nodes_.size());
        node_type node{std::move(more), parent, none, none, false, std::move(label), action};
        bytes_ += label_bytes(node.label);
        if (free_.empty()) {
            nodes_.push_back(std::move(node));
        } else {
            n = free_.back();
            free_.pop_back();
            nodes_[n] = std::move(node);
        }
        return n;
    }
    /// Frees the place of a label that is not the parent of another.
    void forget(std::uint32_t n) {
        bytes_ -= label_bytes(nodes_[n].label);
        free_.push_back(n);
    }
    [[nodiscard]] std::size_t label_count() const { return nodes_.size() - free_.size(); }

    /// Returns the number of a state, and whether it is new.
    std::pair<std::uint32_t, bool> number_of(state_type state) {
        auto const result = states_.insert(std::move(state));
        if (result.second) {
            first_.push_back(none);
            bytes_ += state_bytes(states_[result.first]);
        }
        return result;
    }
    void put(std::uint32_t n, std::uint32_t state) {
        nodes_[n].state = state;
        nodes_[n].next = std::exchange(first_[state], n);
    }
    /// Drops the labels of a state that `label` dominates and `may_drop` allows to drop; returns their number.
    template <class MayDrop>
    std::size_t drop_dominated(std::uint32_t state, label_type const& label, MayDrop const& may_drop) {
        std::size_t dropped = 0;
        for (auto* link = &first_[state]; *link != none;) {
            auto& n = nodes_[*link];
            if (!n.dead && may_drop(n) && problem_.dominates(label, n.label)) {
                n.dead = true;
                ++dropped;
            }
            if (n.dead) *link = n.next;
            else link = &n.next;
        }
        statistics_.dominated += dropped;
        return dropped;
    }

    [[nodiscard]] solution<action_type> solution_of(std::uint32_t goal) const {
        solution<action_type> found{cost_of(goal), {}};
        for (auto n = goal; nodes_[n].parent != none; n = nodes_[n].parent) found.actions.push_back(nodes_[n].action);
        std::reverse(found.actions.begin(), found.actions.end()); // also of bool
        return found;
    }
    /// Makes the result of a search that is over: nothing that it did not meet costs less than `bound`. `goals` are
    /// best first and may be empty.
    [[nodiscard]] result<action_type> concluded(std::vector<std::uint32_t> const& goals, limit_kind which,
                                                double bound) {
        result<action_type> out;
        out.which_limit = which;
        statistics_.seconds = budget_.elapsed();
        out.statistics = statistics_;
        for (auto n : goals) {
            auto found = solution_of(n);
            if (out.cost) {
                out.runners_up.push_back(std::move(found));
                continue;
            }
            out.cost = found.cost;
            out.actions = std::move(found.actions);
        }
        conclude(out, out.cost, std::min({bound, least_bounded_, wanted_}), wanted_);
        return out;
    }

    Problem const& problem_;
    Options options_;
    budget budget_;
    /// The cost that a further solution has to beat, and the cost of the best solution so far.
    double wanted_;
    std::optional<double> incumbent_;
    /// The least bound of the labels dropped because of `wanted_`; with a gap it may be below `wanted_`.
    double least_bounded_ = std::numeric_limits<double>::infinity();
    statistics statistics_;
    block_vector<node_type> nodes_; // labels are read while successors are added
    state_table<state_type> states_;
    /// The newest label of each state.
    std::vector<std::uint32_t> first_;

private:
    [[nodiscard]] progress now(double bound) const {
        return {statistics_, incumbent_ ? std::min(bound, *incumbent_) : bound, incumbent_};
    }

    /// Returns the bytes of a label, and of what waits for it to be expanded.
    [[nodiscard]] std::size_t label_bytes(label_type const& label) const {
        std::size_t bytes = sizeof(node_type) + 16;
        if constexpr (requires { problem_.memory(label); }) bytes += problem_.memory(label);
        return bytes;
    }
    [[nodiscard]] std::size_t state_bytes(state_type const& state) const {
        std::size_t bytes = sizeof(state_type) + 4 * sizeof(std::uint32_t);
        if constexpr (requires { problem_.memory(state); }) bytes += problem_.memory(state);
        return bytes;
    }

    std::size_t bytes_ = 0;
    /// The places of labels that were forgotten.
    std::vector<std::uint32_t> free_;
};

} // namespace heddle::search::detail
