// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Bound and incumbent at given shares from relaxations alone.
#pragma once

#include <heddle/cost/duplex.hpp>
#include <heddle/cost/front_bound.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/program_cost.hpp>
#include <heddle/cost/relaxation.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/narrowing_relaxation.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

struct relaxation_bounds {
    double lower_bound = -std::numeric_limits<double>::infinity();
    /// The best program that fits, if any was met.
    std::optional<move_list> path;
    path_cost cost{std::numeric_limits<double>::infinity(), {}};
    /// The tightest relaxation met.
    std::vector<relaxation> tightest;
    /// The least sum over the steps of a program, among the programs met that fit.
    double least_added = std::numeric_limits<double>::infinity();
    /// Is set if some program met on the way does not fit into memory.
    bool memory_binds = false;

    /// Adds bounds from other weights: the relaxations of both are kept, the tightest first.
    void join(relaxation_bounds other) {
        if (other.lower_bound > lower_bound) {
            std::swap(lower_bound, other.lower_bound);
            std::swap(tightest, other.tightest);
        }
        std::ranges::move(other.tightest, std::back_inserter(tightest));
        if (other.cost.seconds < cost.seconds) {
            cost = std::move(other.cost);
            path = std::move(other.path);
        }
        least_added = std::min(least_added, other.least_added);
        memory_binds |= other.memory_binds;
    }
};

namespace detail {

/// A program and the relaxation in which it is the best.
struct relaxed_program {
    move_list path;
    relaxation under;
    std::shared_ptr<narrowing_relaxation::part const> of; // what its paths are in, if not in all of the graph
};

template <time_accumulator Accumulator>
class bound_improver {
public:
    /// `begun` restricts programs to those with these small buckets. A bound above `enough` is not improved further.
    bound_improver(priced_graph const& priced, std::optional<multipliers> const& start,
                   std::optional<bucket_kinds> begun, double enough)
        : priced_(priced), relaxed_(priced), clock_(priced), classes_(priced.model().class_count()),
          fullness_(classes_, 1.0 / static_cast<double>(classes_)),
          weights_{{fullness_}, std::vector<double>(classes_, 0.0), begun}, enough_(enough) {
        if constexpr (kind == relaxation_kind::turns) weights_.time.turns.emplace();
        if constexpr (kind == relaxation_kind::directions)
            weights_.time.forward = weights_.time.backward = {0.5, 0.5, 0.5};
        if (!start) return;
        weights_ = *start;
        weights_.begun = begun;
        weights_.links.clear(); // prices of another graph's
        setbacks_ = 3;
        factor_ = 1.5;
        for (std::size_t k = 0; k < classes_; ++k) price_ += weights_.memory[k] * limit(k);
        for (std::size_t k = 0; price_ > 0 && k < classes_; ++k) fullness_[k] = weights_.memory[k] * limit(k) / price_;
    }

    relaxation_bounds run(int rounds, search::deadline const& until) && {
        // Prices of memory, turns and directions move on even while the bound does not.
        auto const is_at_rest = [&] { return kind == relaxation_kind::clocks && price_ == 0 && idle_ >= patience; };
        for (int round = 0; round < rounds && !is_closed(1e-12) && !is_at_rest(); ++round) {
            if (round > 0 && until.is_over()) break;
            auto current = relaxed_.at(weights_);
            if (!std::isfinite(current.paths.to_goal())) return std::move(best_);
            double const of_left = bound_of(current), bound = std::min(of_left, relaxed_.least_left_out());
            auto path = search::follow(relaxed_.graph(), current.paths);
            auto const cost = offer(path);
            bool const fits = priced_.fits(cost);
            best_.memory_binds |= !fits;
            auto const loads = loads_of(priced_, path, weights_.time);
            idle_ = bound > best_.lower_bound + slight * std::abs(bound) ? 0 : idle_ + 1;
            if (bound > best_.lower_bound) {
                best_.lower_bound = bound;
                best_.tightest.assign(1, current);
            } else {
                ++setbacks_;
            }
            keep(std::move(path), current);
            if (kind == relaxation_kind::clocks)
                relaxed_.leave_out(current, of_left, std::min(best_.cost.seconds, enough_));
            shift_clocks(loads);
            if (auto& turns = weights_.time.turns) move_turns(*turns, loads);
            if (price_ > 0 || !fits) price_memory(fits, cost.memory, bound);
        }
        if (!is_closed(1e-3) && !until.is_over()) cross();
        if (!weights_.begun && !best_.tightest.empty()) // what it is used for needs paths from everywhere
            best_.tightest.front() = relaxed_.of_all(std::move(best_.tightest.front()));
        if (kind == relaxation_kind::directions && !best_.tightest.empty()) {
            // This relaxation counts the slots lost so far instead of what the network may do in them.
            auto other = best_.tightest.front().weights;
            other.time.forward.patient = other.time.backward.patient = 0;
            best_.tightest.push_back(relax(priced_, std::move(other)));
        }
        return std::move(best_);
    }

private:
    static constexpr auto kind = Accumulator::relaxation;
    static constexpr std::size_t kept = 4;
    /// Weights are at rest after so many rounds in turn that raised the bound by less than this part.
    static constexpr int patience = 6;
    static constexpr double slight = 1e-5;

    [[nodiscard]] double bound_of(relaxation const& r) const {
        if constexpr (kind == relaxation_kind::none) return 0;
        else return r.bound() + clock_.time().relaxed(clock_.time().initial(), r.weights.time, 0);
    }
    [[nodiscard]] double limit(std::size_t k) const { return priced_.model().memory_limit(k); }
    /// Returns the rate of weight steps. Clocks' weights are soon near their best and come to rest there; weights with
    /// turns have to go far, which they can if the sum of steps has no limit.
    [[nodiscard]] double rate() const {
        return weights_.time.turns ? 2 / std::sqrt(1.0 + setbacks_) : 2 / std::pow(1.5, setbacks_);
    }
    [[nodiscard]] bool is_closed(double gap) const {
        return best_.lower_bound >= std::min(best_.least_added, enough_) * (1 - gap);
    }

    path_cost offer(move_list const& path) {
        auto cost = clock_.evaluate(path);
        if (priced_.fits(cost)) best_.least_added = std::min(best_.least_added, cost.added);
        if (is_best(cost)) take(path, cost);
        return cost;
    }
    [[nodiscard]] bool is_best(path_cost const& cost) const {
        return priced_.fits(cost) && cost.seconds < best_.cost.seconds;
    }
    void take(move_list path, path_cost cost) {
        best_.path = std::move(path);
        best_.cost = std::move(cost);
    }

    /// If micro-batches take turns, the network is one more clock of each direction.
    void shift_clocks(path_loads const& loads) {
        auto& time = weights_.time;
        shift_weights(time.clock, loads.clock, rate());
        shift_weights(time.update, loads.update, rate());
        if constexpr (kind == relaxation_kind::directions) {
            shift_direction(time.forward, loads.forward);
            shift_direction(time.backward, loads.backward);
        }
    }
    void shift_direction(direction_weights& weights, direction_loads const& loads) const {
        std::vector<double> shares{weights.work, weights.network};
        shift_weights(shares, {loads.work, loads.network}, rate());
        weights = {shares[0], shares[1], shares[1]};
    }
    void move_turns(gradient_turns& turns, path_loads const& loads) const {
        if (!turns.contains(loads.last_turn)) turns.move(1.0 / static_cast<double>(turns.count() + 2), loads.last_turn);
        double const last = loads.end(loads.last_turn);
        if (last > 0)
            turns.scale([&](std::optional<std::size_t> level) {
                return std::exp(2 * rate() * (loads.end(level) - last) / last);
            });
    }
    void price_memory(bool fits, std::vector<double> usage, double bound) {
        price_ = price_ == 0 ? 0.1 * std::max(bound, 1e-9) : fits ? price_ / factor_ : price_ * factor_;
        if (std::exchange(fitted_before_, fits).value_or(fits) != fits) factor_ = std::max(1.01, std::sqrt(factor_));
        for (std::size_t k = 0; k < classes_; ++k) usage[k] /= limit(k);
        shift_weights(fullness_, usage, rate());
        for (std::size_t k = 0; k < classes_; ++k) weights_.memory[k] = price_ * fullness_[k] / limit(k);
    }

    /// Keeps the last programs that differ, and the best.
    void keep(move_list path, relaxation under) {
        std::erase_if(met_, [&](relaxed_program const& m) { return m.path == path; });
        if (met_.size() == kept) met_.erase(met_.begin() + (met_.front().path == best_.path ? 1 : 0));
        met_.push_back({std::move(path), std::move(under), relaxed_.left()});
    }
    /// Joins programs that were kept, and the best with another as long as that helps. A relaxation that mixes several
    /// programs is mostly one program after the other: each up to some level, then the next.
    void cross() {
        for (auto const& first : met_) {
            traced_program const traced(priced_, first.path);
            for (auto const& rest : met_)
                if (&first != &rest) cross(traced, rest);
        }
        for (double before = std::numeric_limits<double>::infinity(); best_.cost.seconds < before * (1 - 1e-4);) {
            before = best_.cost.seconds;
            for (auto const& rest : met_) cross(traced_program(priced_, *best_.path), rest);
        }
    }
    /// A program with its states, and what it costs up to each of them.
    struct traced_program {
        move_list path;
        std::vector<search::graph_node> states;
        std::vector<cost_label<Accumulator>> costs;
        traced_program(priced_graph const& priced, move_list p)
            : path(std::move(p)), states(search::states_along(priced.graph(), path)) {
            program_clock<Accumulator> const clock(priced);
            costs.reserve(path.size() + 1);
            costs.push_back(clock.start());
            for (std::size_t level = 0; level < path.size(); ++level)
                clock.extend(costs.emplace_back(costs.back()), level, path[level]);
        }
    };
    /// Tries levels at even distances, then those around the best of them.
    void cross(traced_program const& first, relaxed_program const& rest) {
        double least = std::numeric_limits<double>::infinity();
        std::size_t best = 0, stride = std::max<std::size_t>(1, first.path.size() / 16);
        auto const attempt = [&](std::size_t level) {
            auto const& paths = rest.under.paths;
            auto const from = rest.of ? rest.of->find(first.states[level]) : first.states[level];
            if (!from || !std::isfinite(paths.to_goal(*from))) return;
            auto const moves = search::follow(rest.of ? rest.of->graph() : priced_.graph(), paths, *from);
            auto const cost = clock_.evaluate(first.costs[level], level, moves);
            if (!priced_.fits(cost) || cost.seconds >= least) return;
            least = cost.seconds;
            best = level;
            if (!is_best(cost)) return;
            move_list joined(first.path.begin(), first.path.begin() + static_cast<std::ptrdiff_t>(level));
            joined.insert(joined.end(), moves.begin(), moves.end());
            offer(joined);
        };
        for (std::size_t level = stride; level < first.path.size(); level += stride) attempt(level);
        while (std::isfinite(least) && (stride /= 2) > 0) {
            std::size_t const middle = best;
            if (middle > stride) attempt(middle - stride);
            if (middle + stride < first.path.size()) attempt(middle + stride);
        }
    }

    priced_graph const& priced_;
    narrowing_relaxation relaxed_;
    program_clock<Accumulator> clock_;
    std::size_t classes_;
    /// For memory: its price is spread over the classes by how full they are.
    std::vector<double> fullness_;
    multipliers weights_;
    /// The number of rounds that did not improve the bound.
    int setbacks_ = 0;
    /// The number of rounds since the bound rose by more than a slight part.
    int idle_ = 0;
    double price_ = 0, factor_ = 4;
    double enough_;
    std::optional<bool> fitted_before_;
    std::vector<relaxed_program> met_;
    relaxation_bounds best_;
};

} // namespace detail

/// Improves the weights of the relaxation for a number of rounds: those of clocks by exponentiated subgradient steps
/// towards the class that works longest; those of gradients that overlap by moving weight to the level that ends last;
/// that of memory by a price that rises while the path does not fit and falls while it does, by ever smaller factors,
/// and that shifts towards the class that is fullest. It starts from given weights, such as those of other shares, or
/// from even ones; from both if micro-batches take turns, as weights of directions go far and a few rounds do not lead
/// from one to the other: a search that sees the relaxations of both is misled by neither. Every path met is evaluated as a program; while bound and cost differ, so are some programs that
/// join two of them. If there are small buckets, and they follow the backward pass, all of this is done for every set
/// of them that a program may have. When time is over no further round begins, but the first always runs.
/// *Complexity.* Linear in the graph, per round; in what is left of it, once programs are left out
/// (`narrowing_relaxation`).
template <time_accumulator Accumulator = serial>
[[nodiscard]] relaxation_bounds improve_bounds(priced_graph const& priced, int rounds,
                                               std::optional<multipliers> const& start = {},
                                               search::deadline const& until = search::deadline()) {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    constexpr auto kind = Accumulator::relaxation;
    relaxation_bounds result;
    if (priced.small_bucket_count() == 0 || kind != relaxation_kind::clocks) {
        result = detail::bound_improver<Accumulator>(priced, start, {}, infinite).run(rounds, until);
        if (start && kind == relaxation_kind::directions)
            result.join(detail::bound_improver<Accumulator>(priced, {}, {}, infinite).run(rounds, until));
        return result;
    }
    double lower_bound = infinite;
    std::optional<multipliers> weights;
    for (bucket_kinds left = bucket_kinds{1} << priced.small_bucket_count(); left-- > 0;) {
        auto found = detail::bound_improver<Accumulator>(priced, start, left, result.cost.seconds).run(rounds, until);
        result.memory_binds |= found.memory_binds;
        result.least_added = std::min(result.least_added, found.least_added);
        if (found.cost.seconds < result.cost.seconds) {
            result.cost = std::move(found.cost);
            result.path = std::move(found.path);
        }
        if (found.tightest.empty() || found.lower_bound >= lower_bound) continue; // there is no such program
        lower_bound = found.lower_bound;
        weights = std::move(found.tightest.front().weights);
    }
    if (!weights) return result;
    result.lower_bound = lower_bound;
    weights->begun.reset();
    result.tightest.push_back(relax(priced, std::move(*weights)));
    return result;
}

/// Returns a bound raised to that by fronts of so many labels, if the accumulator can join labels; at most `most`.
template <time_accumulator Accumulator>
[[nodiscard]] double raise_bound(priced_graph const& priced, double bound, relaxation const& under, double most,
                                 std::size_t front) {
    if constexpr (joining_accumulator<Accumulator>)
        if (bound < most) return std::max(bound, bound_by_fronts<Accumulator>(priced, under, most, {front}));
    return bound;
}

} // namespace heddle
