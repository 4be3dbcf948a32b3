// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The best distributed program at given shares: relaxations for bound and incumbent, label
/// search for what is left between them.
#pragma once

#include <heddle/cost/priced_graph.hpp>

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
/// steps towards the class that works longest, memory by doubling and then bisecting one price for all
/// devices. Every path met is evaluated as a program.
/// *Complexity.* Linear in the graph, per round.
template <class Allowed>
[[nodiscard]] relaxation_bounds improve_bounds(priced_graph const& priced, int rounds, Allowed const& allowed) {
    auto const classes = priced.model().class_count();
    relaxation_bounds best;
    multipliers weights{std::vector<double>(classes, 1.0 / static_cast<double>(classes)), std::vector<double>(classes, 0.0)};
    double low = 0, high = std::numeric_limits<double>::infinity(), price = 0, rate = 2;
    for (int round = 0; round < rounds; ++round) {
        auto current = priced.relax(weights, allowed);
        if (!std::isfinite(current.paths.to_goal[0])) return best;
        double const bound = current.bound();
        auto path = search::follow(priced.graph(), current.paths);
        auto cost = priced.evaluate(path);
        bool const fits = priced.fits(cost);
        std::vector<double> work(classes);
        for (auto a : path)
            for (std::size_t k = 0; k < classes; ++k) work[k] += priced.work(a)[k];
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

        double const most = std::ranges::max(work), mean = std::inner_product(work.begin(), work.end(), weights.clock.begin(), 0.0);
        double sum = 0;
        for (std::size_t k = 0; k < classes; ++k) {
            if (most > 0) weights.clock[k] *= std::exp(rate * (work[k] - mean) / most);
            sum += weights.clock[k];
        }
        for (auto& w : weights.clock) w /= sum;

        (fits ? high : low) = price;
        if (price == 0 && fits) continue;
        price = std::isfinite(high) ? (low + high) / 2 : price == 0 ? 0.1 * std::max(bound, 1e-9) : 2 * price;
        for (std::size_t k = 0; k < classes; ++k) weights.memory[k] = price / priced.model().memory_limit(k) / static_cast<double>(classes);
    }
    return best;
}

struct synthesis_options {
    int relaxation_rounds = 20;
    search::options search{.label_limit = 200'000};
    /// A program known already, as a first incumbent.
    std::optional<move_list> start{};
};

/// The fastest program that fits, at the shares of `priced`.
/// *Returns* `optimal` if its cost is proven least over the theory in any order, `feasible` if the search
/// ended with a bound below the cost, `limit` if a limit ended it, `infeasible` if no program fits.
/// *Thread safety.* Const calls only.
[[nodiscard]] inline synthesis_result synthesise(priced_graph const& priced, synthesis_options const& options) {
    synthesis_result result;
    auto bounds = improve_bounds(priced, options.relaxation_rounds, [](auto) { return true; });
    result.lower_bound = std::max(0.0, bounds.lower_bound);
    if (options.start)
        if (auto cost = priced.evaluate(*options.start); priced.fits(cost) && cost.seconds < bounds.cost.seconds) {
            bounds.cost = std::move(cost);
            bounds.path = options.start;
        }
    if (bounds.tightest.empty()) return result;

    auto const search_once = [&](bool memory_matters) {
        priced_graph_problem const problem(priced, bounds.tightest, memory_matters);
        auto search_options = options.search;
        search_options.cutoff = bounds.cost.seconds;
        auto found = search::best_first(problem, search_options);
        result.statistics.expanded += found.statistics.expanded;
        result.statistics.generated += found.statistics.generated;
        result.statistics.dominated += found.statistics.dominated;
        result.statistics.bounded += found.statistics.bounded;
        result.statistics.kept = std::max(result.statistics.kept, found.statistics.kept);
        result.statistics.seconds += found.statistics.seconds;
        result.which_limit = found.which_limit;
        if (found.cost) {
            bounds.cost = priced.evaluate(found.actions);
            bounds.path = std::move(found.actions);
        }
        return found.status;
    };
    bool stopped = false;
    if (bounds.lower_bound < bounds.cost.seconds * (1 - 1e-9)) {
        auto const first = search_once(bounds.memory_binds);
        stopped = first == search::status::limit;
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
