// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Finds the best distributed program at given shares: relaxations give bound and incumbent, and a label search
/// closes what is left between them.
#pragma once

#include <heddle/cost/duplex.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/priced_graph_problem.hpp>
#include <heddle/cost/program_cost.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/search/best_first.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/search/pareto_dp.hpp>
#include <heddle/synthesis/relaxation_bounds.hpp>
#include <heddle/synthesis/synthesis_options.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

namespace heddle {

/// A program with its price and what is proven about it. The bound is one on every program of the theory that fits, at
/// these shares.
struct synthesis_result : search::outcome<> {
    /// The best program that fits, if any was found.
    std::optional<move_list> path;
    path_cost cost;
    /// Is set if some program met on the way does not fit into memory.
    bool memory_binds = false;
    /// Is set if a search found a better program than relaxations, or closed a tenth of the gap that they leave: then a
    /// longer search may do more.
    bool search_pays = false;
    /// The weights of the tightest relaxation met.
    std::optional<multipliers> weights;
    search::statistics statistics;
};

/// Returns the fastest program that fits, at the shares of `priced`.
/// *Returns* `optimal` if its cost is proven least over the theory (in any order, unless work and collectives run
/// beside each other), `feasible` if the search ended with a bound below the cost, `limit` if a limit ended it, and
/// `infeasible` if no program fits.
/// *Thread safety.* Only const calls are made.
template <time_accumulator Accumulator = serial>
[[nodiscard]] synthesis_result synthesise(priced_graph const& priced, synthesis_options const& options) {
    constexpr auto kind = Accumulator::relaxation;
    bool const search_bounds =
        kind == relaxation_kind::directions ? priced.has_all_orders() : kind != relaxation_kind::clocks;
    synthesis_result result;
    program_clock<Accumulator> const clock(priced);
    search::deadline const until(options.search.limits);
    auto bounds = improve_bounds<Accumulator>(priced, options.relaxation_rounds, options.weights, until);
    result.lower_bound = std::max(0.0, bounds.lower_bound);
    result.memory_binds = bounds.memory_binds;
    if (options.start)
        if (auto cost = clock.evaluate(*options.start); priced.fits(cost)) {
            bounds.least_added = std::min(bounds.least_added, cost.added);
            if (cost.seconds < bounds.cost.seconds) {
                bounds.cost = std::move(cost);
                bounds.path = options.start;
            }
        }
    if (bounds.tightest.empty()) return result;
    result.weights = bounds.tightest.front().weights;
    if (options.front > 0 && bounds.path)
        result.lower_bound = raise_bound<Accumulator>(priced, result.lower_bound, bounds.tightest.front(),
                                                      bounds.cost.seconds, options.front);

    double const relaxed_bound = result.lower_bound;
    // Labels add up what gradients add to their buckets at least, so no search tells more of programs than that.
    bool const is_open = bounds.lower_bound < bounds.least_added * (1 - 1e-9);
    bool stopped = is_open && *options.search.all_limits().labels < priced.graph().level_count();
    if (stopped) result.which_limit = search::limit_kind::labels;
    // The first search ignores memory; if memory turns out to matter, a second one takes it into account.
    for (bool memory_matters = bounds.memory_binds; is_open && !stopped; memory_matters = true) {
        priced_graph_problem<Accumulator> const problem(priced, bounds.tightest, memory_matters);
        auto search_options = options.search;
        search_options.cutoff = bounds.least_added;
        search_options.limits.seconds = until.left();
        auto found =
            options.engine == search_engine::best_first
                ? search::best_first(problem, search_options)
                : search::widening_beam(problem, {{search_options, options.beam}, options.narrowest, options.patience});
        result.statistics += found.statistics;
        // A beam that finds nothing better than the incumbent has come to its end nonetheless.
        bool const has_ended = bounds.path && found.which_limit == search::limit_kind::width;
        result.which_limit = has_ended ? search::limit_kind::none : found.which_limit;
        stopped = found.status == search::status::limit && !has_ended;
        if (found.cost) {
            auto cost = clock.evaluate(found.actions);
            bounds.least_added = std::min(bounds.least_added, cost.added);
            if (cost.seconds < bounds.cost.seconds) {
                bounds.cost = std::move(cost);
                bounds.path = std::move(found.actions);
                result.search_pays = true;
            }
        }
        // Relaxations hold for instructions in any order; if work and collectives run beside each other, only for the
        // orders that the search sees.
        double const unseen = memory_matters ? std::numeric_limits<double>::infinity() : problem.least_without_memory();
        if (search_bounds)
            result.lower_bound =
                std::max(result.lower_bound, std::min({found.lower_bound, unseen, bounds.least_added}));
        bool const binds = problem.least_without_memory() < bounds.least_added * (1 - 1e-9);
        result.memory_binds |= binds;
        if (stopped || memory_matters || !binds) break;
    }
    result.path = std::move(bounds.path);
    result.cost = std::move(bounds.cost);
    if (!result.path) {
        result.status = stopped ? search::status::limit : search::status::infeasible;
        return result;
    }
    result.search_pays |= result.lower_bound - relaxed_bound > 0.1 * (result.cost.seconds - relaxed_bound);
    search::conclude(result, result.cost.seconds, result.lower_bound);
    return result;
}

} // namespace heddle
