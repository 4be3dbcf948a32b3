// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The graph of cuts with prices: evaluation of a path, relaxations by added costs, and the
/// label search between them.
#pragma once

#include <heddle/cost/cost_model.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/search/best_first.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/theory/cut_space.hpp>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

using cut_graph = search::state_graph<cut_space::action>;
using move_list = std::vector<cut_space::action>;

/// Time and memory of one program, per class of devices.
struct path_cost {
    double seconds = 0;
    /// Bytes per class: stored, saved and the largest communication buffer.
    std::vector<double> memory;
};

/// Weights that turn the costs of a step into one number. Clocks' weights sum to one.
struct multipliers {
    std::vector<double> clock;
    /// Seconds per byte of memory above the limit.
    std::vector<double> memory;
};

/// A relaxation: shortest paths under added costs.
///
/// For any weights, `closed + max_j` of the clocks is at least `closed +` their weighted mean, and
/// memory within the limit earns no more than nothing; so a shortest path under
/// `transfers + sum_j w_j work_j + sum_j l_j memory_j`, less `sum_j l_j limit_j`, bounds every program
/// of the theory, whatever the order of its instructions.
struct relaxation {
    multipliers weights;
    search::shortest_paths paths;
    double credit = 0;
    [[nodiscard]] double bound() const { return paths.to_goal[0] - credit; }
};

/// Prices of all moves at given shares. Keeps references to the space, the graph and the model.
class priced_graph {
public:
    template <class Shares>
    priced_graph(cut_space const& space, cut_graph const& graph, std::span<step const> steps, cost_model const& model, Shares const& shares)
        : space_(space), graph_(graph), model_(model) {
        for (auto const& s : steps) instructions_.push_back(model.price(s, shares));
        auto const classes = model.class_count();
        for (auto const& move : space.moves()) {
            double transfers = 0;
            momentary_memory momentary;
            std::size_t const at = work_.size();
            work_.resize(at + classes);
            memory_.resize(at + classes);
            for (auto i : move.instructions) {
                auto const& cost = instructions_[i];
                transfers += cost.forward_transfer + cost.backward_transfer + cost.deferred;
                momentary.add(space.instructions()[i].what, cost);
                for (std::size_t k = 0; k < classes; ++k) {
                    work_[at + k] += cost.forward[k] + cost.backward[k] + cost.update[k];
                    memory_[at + k] += cost.memory[k];
                }
            }
            for (auto const& [t, f] : move.saved)
                for (std::size_t k = 0; k < classes; ++k)
                    memory_[at + k] += cost_model::at(model.on_member(held_bytes(space.program().tensors[t], f), k), f.is_shard() ? shares(share_ref{t, f.factor()})[k] : 1);
            transfers_.push_back(transfers);
            buffers_.push_back(momentary.most());
        }
    }

    [[nodiscard]] cut_graph const& graph() const { return graph_; }
    [[nodiscard]] cost_model const& model() const { return model_; }
    [[nodiscard]] std::span<std::uint32_t const> instructions_of(cut_space::action a) const {
        auto const& list = space_.moves()[a].instructions;
        return {list.data(), list.size()};
    }
    [[nodiscard]] step_cost const& instruction(std::uint32_t i) const { return instructions_[i]; }
    [[nodiscard]] std::span<double const> memory(cut_space::action a) const { return {memory_.data() + a * model_.class_count(), model_.class_count()}; }
    /// The most bytes that come and go within a move.
    [[nodiscard]] double buffer(cut_space::action a) const { return buffers_[a]; }
    [[nodiscard]] std::span<double const> work(cut_space::action a) const { return {work_.data() + a * model_.class_count(), model_.class_count()}; }

    [[nodiscard]] path_cost evaluate(move_list const& path) const {
        serial const clock(model_.class_count());
        auto label = clock.initial();
        path_cost cost{0, std::vector<double>(model_.class_count())};
        double buffer = 0;
        for (auto a : path) {
            for (auto i : instructions_of(a)) clock.extend(label, instructions_[i]);
            buffer = std::max(buffer, buffers_[a]);
            for (std::size_t k = 0; k < cost.memory.size(); ++k) cost.memory[k] += memory(a)[k];
        }
        for (auto& memory : cost.memory) memory += buffer;
        cost.seconds = clock.total(label);
        return cost;
    }

    [[nodiscard]] bool fits(path_cost const& cost) const {
        for (std::size_t k = 0; k < cost.memory.size(); ++k)
            if (cost.memory[k] > model_.memory_limit(k)) return false;
        return true;
    }

    /// Solves the relaxation with these weights.
    [[nodiscard]] relaxation relax(multipliers weights) const {
        auto const classes = model_.class_count();
        std::vector<double> price(transfers_);
        for (std::size_t a = 0; a < price.size(); ++a)
            for (std::size_t k = 0; k < classes; ++k)
                price[a] += weights.clock[k] * work_[a * classes + k] + weights.memory[k] * memory_[a * classes + k];
        relaxation r{std::move(weights), search::paths_to_goal(graph_, [&](auto a) { return price[a]; }), 0};
        for (std::size_t k = 0; k < classes; ++k) r.credit += r.weights.memory[k] * model_.memory_limit(k);
        return r;
    }

    /// Least memory of class `k` from every node to the end.
    [[nodiscard]] std::vector<double> least_memory(std::size_t k) const {
        return search::paths_to_goal(graph_, [&](auto a) { return memory(a)[k]; }).to_goal;
    }

private:
    cut_space const& space_;
    cut_graph const& graph_;
    cost_model const& model_;
    std::vector<step_cost> instructions_;
    std::vector<double> transfers_, buffers_, work_, memory_;
};

/// The label search on a priced graph: serial clocks, memory within limits, bounded by relaxations.
class priced_graph_problem {
public:
    using state = std::uint32_t;
    using action = cut_space::action;
    struct label {
        serial::label time;
        per_class memory;
        double buffer = 0;
    };

    /// `memory_matters`: whether two labels are also compared by memory. Without it the search is exact as
    /// long as it finds nothing above `least_without_memory()`; else it may miss a program that fits.
    priced_graph_problem(priced_graph const& priced, std::span<relaxation const> relaxations, bool memory_matters)
        : priced_(priced), relaxations_(relaxations), clock_(priced.model().class_count()), memory_matters_(memory_matters) {
        for (std::size_t k = 0; k < priced.model().class_count(); ++k) least_memory_.push_back(priced.least_memory(k));
    }

    [[nodiscard]] std::pair<state, label> initial() const {
        return {0, {clock_.initial(), per_class(priced_.model().class_count(), 0.0), 0}};
    }
    [[nodiscard]] bool is_goal(state s) const { return priced_.graph().is_last(s); }
    [[nodiscard]] double total(label const& l) const { return clock_.total(l.time); }

    [[nodiscard]] double bound(state s, label const& l) const {
        double const time = bound_of_time(s, l);
        for (std::size_t k = 0; k < l.memory.size(); ++k)
            if (l.memory[k] + least_memory_[k][s] + l.buffer > priced_.model().memory_limit(k)) {
                least_without_memory_ = std::min(least_without_memory_, time);
                return std::numeric_limits<double>::infinity();
            }
        return time;
    }

    /// The least bound of a label that was dropped because nothing that follows it fits.
    [[nodiscard]] double least_without_memory() const { return least_without_memory_; }

    [[nodiscard]] bool dominates(label const& a, label const& b) const {
        if (!clock_.dominates(a.time, b.time)) return false;
        if (!memory_matters_) return true;
        for (std::size_t k = 0; k < a.memory.size(); ++k)
            if (a.memory[k] > b.memory[k]) return false;
        return a.buffer <= b.buffer;
    }

    template <class Visit>
    void for_each_successor(state s, label const& l, Visit&& visit) const {
        for (auto const& edge : priced_.graph().out(s)) {
            label next = l;
            for (auto i : priced_.instructions_of(edge.action)) clock_.extend(next.time, priced_.instruction(i));
            next.buffer = std::max(next.buffer, priced_.buffer(edge.action));
            auto const memory = priced_.memory(edge.action);
            for (std::size_t k = 0; k < next.memory.size(); ++k) next.memory[k] += memory[k];
            visit(edge.action, edge.to, std::move(next));
        }
    }

private:
    [[nodiscard]] double bound_of_time(state s, label const& l) const {
        if (is_goal(s)) return total(l);
        double best = 0;
        for (auto const& r : relaxations_) {
            double value = l.time.closed + l.time.deferred + r.paths.to_goal[s] - r.credit;
            for (std::size_t k = 0; k < l.memory.size(); ++k)
                value += r.weights.clock[k] * (l.time.forward[k] + l.time.backward[k] + l.time.update[k]) + r.weights.memory[k] * l.memory[k];
            best = std::max(best, value);
        }
        return best;
    }

    priced_graph const& priced_;
    std::span<relaxation const> relaxations_;
    serial clock_;
    bool memory_matters_;
    mutable double least_without_memory_ = std::numeric_limits<double>::infinity();
    std::vector<std::vector<double>> least_memory_;
};

} // namespace heddle
