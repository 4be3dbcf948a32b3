// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The best distributed program at given shares: relaxations for bound and incumbent, label
/// search for what is left between them.
#pragma once

#include <heddle/cost/duplex.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/search/pareto_dp.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// A program with its price and what is proven about it.
struct synthesis_result {
    search::status status = search::status::infeasible;
    search::limit_kind which_limit = search::limit_kind::none;
    /// The best program that fits, if any was found.
    std::optional<move_list> path;
    path_cost cost;
    /// No program of the theory that fits is faster at these shares.
    double lower_bound = 0;
    /// Some program met on the way does not fit into memory.
    bool memory_binds = false;
    search::statistics statistics;
};

/// Bound and incumbent from relaxations alone.
struct relaxation_bounds {
    double lower_bound = -std::numeric_limits<double>::infinity();
    std::optional<move_list> path;
    path_cost cost{std::numeric_limits<double>::infinity(), {}};
    /// The tightest relaxation met.
    std::vector<relaxation> tightest;
    /// Some program met on the way does not fit into memory.
    bool memory_binds = false;
};

/// Improves the weights of the relaxation for a number of rounds: clocks by exponentiated subgradient
/// steps towards the class that works longest; gradients that overlap by moving weight to the level that ends last; memory by a
/// price that rises while the path does not fit and falls while it does, by ever smaller factors, and that shifts towards
/// the class that is fullest.
/// Every path met is evaluated as a program.
/// *Complexity.* Linear in the graph, per round.
template <class Accumulator = serial>
[[nodiscard]] relaxation_bounds improve_bounds(priced_graph const& priced, int rounds) {
    auto const classes = priced.model().class_count();
    relaxation_bounds best;
    std::vector<double> const evenly(classes, 1.0 / static_cast<double>(classes));
    multipliers weights{{evenly}, std::vector<double>(classes, 0.0)};
    if constexpr (Accumulator::overlaps_gradients) weights.time.turns.emplace();
    constexpr bool interleaves = requires { Accumulator::interleaves; }; // then the network is one more clock
    auto const part_network = [&](std::vector<double> shares) {
        weights.time.network = weights.time.patient = shares.back();
        shares.pop_back();
        weights.time.clock = std::move(shares);
    };
    if constexpr (interleaves) part_network(std::vector<double>(classes + 1, 1.0 / static_cast<double>(classes + 1)));
    std::vector<double> fullness = evenly;
    double price = 0, factor = 4, rate = 2;
    std::optional<bool> fitted_before;
    auto const price_turned = [&](bool fits) { return std::exchange(fitted_before, fits).value_or(fits) != fits; };
    auto const shift = [](std::vector<double>& shares, std::vector<double> const& loads, double speed) {
        double const most = std::ranges::max(loads), mean = std::inner_product(loads.begin(), loads.end(), shares.begin(), 0.0);
        if (most <= 0) return;
        double sum = 0;
        for (std::size_t k = 0; k < shares.size(); ++k) sum += shares[k] *= std::exp(speed * (loads[k] - mean) / most);
        for (auto& s : shares) s /= sum;
    };
    for (int round = 0; round < rounds; ++round) {
        auto current = priced.relax(weights);
        if (!std::isfinite(current.paths.to_goal())) return best;
        double const bound = current.bound();
        auto path = search::follow(priced.graph(), current.paths);
        auto cost = priced.evaluate<Accumulator>(path);
        bool const fits = priced.fits(cost);
        auto const loads = priced.loads(path, weights.time);
        std::vector<double> usage(classes);
        for (std::size_t k = 0; k < classes; ++k) usage[k] = cost.memory[k] / priced.model().memory_limit(k);
        if (fits && cost.seconds < best.cost.seconds) { best.cost = std::move(cost); best.path = std::move(path); }
        best.memory_binds |= !fits;
        if (bound > best.lower_bound) {
            best.lower_bound = bound;
            best.tightest.clear();
            best.tightest.push_back(std::move(current));
        } else {
            rate /= 1.5;
        }
        if (best.lower_bound >= best.cost.seconds * (1 - 1e-12)) break;

        if constexpr (interleaves) {
            auto shares = weights.time.clock, all = loads.clock;
            shares.push_back(weights.time.network), all.push_back(loads.network);
            shift(shares, all, rate);
            part_network(std::move(shares));
        } else {
            shift(weights.time.clock, loads.clock, rate);
        }
        if (auto& turns = weights.time.turns) {
            if (!turns->contains(loads.last_turn)) turns->move(1.0 / static_cast<double>(turns->part_count() + 1), loads.last_turn);
            double const last = loads.end(loads.last_turn);
            if (last > 0) turns->scale([&](std::optional<std::size_t> level) { return std::exp(2 * rate * (loads.end(level) - last) / last); });
        }
        if (price == 0 && fits) continue;
        price = price == 0 ? 0.1 * std::max(bound, 1e-9) : fits ? price / factor : price * factor;
        if (price_turned(fits)) factor = std::max(1.01, std::sqrt(factor));
        shift(fullness, usage, rate);
        for (std::size_t k = 0; k < classes; ++k) weights.memory[k] = price * fullness[k] / priced.model().memory_limit(k);
    }
    if (interleaves && !best.tightest.empty()) { // and one that counts the slots lost so far instead of what the network may do in them
        auto other = best.tightest.front().weights;
        other.time.patient = 0;
        best.tightest.push_back(priced.relax(std::move(other)));
    }
    return best;
}

enum class search_engine : std::uint8_t { best_first, pareto_dp };

struct synthesis_options {
    int relaxation_rounds = 20;
    search_engine engine = search_engine::best_first;
    /// Of Pareto dynamic programming: labels expanded per level. What it leaves out counts in the bound.
    std::size_t beam = std::numeric_limits<std::size_t>::max();
    search::options search{.label_limit = 10'000, .comparison_limit = 10'000'000};
    /// A program known already, as a first incumbent.
    std::optional<move_list> start{};
};

/// The fastest program that fits, at the shares of `priced`.
/// *Returns* `optimal` if its cost is proven least over the theory in any order, `feasible` if the search
/// ended with a bound below the cost, `limit` if a limit ended it, `infeasible` if no program fits.
/// *Thread safety.* Const calls only.
template <class Accumulator = serial>
[[nodiscard]] synthesis_result synthesise(priced_graph const& priced, synthesis_options const& options) {
    synthesis_result result;
    auto bounds = improve_bounds<Accumulator>(priced, options.relaxation_rounds);
    result.lower_bound = std::max(0.0, bounds.lower_bound);
    result.memory_binds = bounds.memory_binds;
    if (options.start)
        if (auto cost = priced.evaluate<Accumulator>(*options.start); priced.fits(cost) && cost.seconds < bounds.cost.seconds) {
            bounds.cost = std::move(cost);
            bounds.path = options.start;
        }
    if (bounds.tightest.empty()) return result;

    bool stopped = false;
    // First as if memory were no criterion; again with it if that turns out to matter.
    for (bool memory_matters = bounds.memory_binds; bounds.lower_bound < bounds.cost.seconds * (1 - 1e-9); memory_matters = true) {
        priced_graph_problem<Accumulator> const problem(priced, bounds.tightest, memory_matters);
        auto search_options = options.search;
        search_options.cutoff = bounds.cost.seconds;
        auto found = options.engine == search_engine::best_first ? search::best_first(problem, search_options) : search::pareto_dp(problem, {search_options, options.beam});
        result.statistics += found.statistics;
        result.which_limit = found.which_limit;
        stopped = found.status == search::status::limit;
        if constexpr (requires { Accumulator::interleaves; }) { // then a search says something about the orders that it sees
            if (priced.has_all_orders()) result.lower_bound = std::max(result.lower_bound, found.lower_bound);
        }
        if (found.cost) {
            bounds.cost = priced.evaluate<Accumulator>(found.actions);
            bounds.path = std::move(found.actions);
        }
        bool const binds = problem.least_without_memory() < bounds.cost.seconds * (1 - 1e-9);
        result.memory_binds |= binds;
        if (stopped || memory_matters || !binds) break;
    }
    result.path = std::move(bounds.path);
    result.cost = std::move(bounds.cost);
    if (!result.path) {
        result.status = stopped ? search::status::limit : search::status::infeasible;
        return result;
    }
    bool const proven = result.lower_bound >= result.cost.seconds * (1 - 1e-9);
    result.status = proven ? search::status::optimal : stopped ? search::status::limit : search::status::feasible;
    if (proven) result.lower_bound = result.cost.seconds;
    return result;
}

} // namespace heddle
