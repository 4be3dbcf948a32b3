// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Bounds for the best plan found: for every program at its integral shares, and for every program at any
/// shares.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/synthesis/alternation.hpp>
#include <heddle/synthesis/global_bound.hpp>
#include <heddle/synthesis/planned_prices.hpp>
#include <heddle/synthesis/stage_run.hpp>

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

namespace heddle {

namespace detail {

/// Returns a lower bound of every program at any ratios.
template <time_accumulator Accumulator>
[[nodiscard]] double bound_at_any_ratios(stage_run<Accumulator> const& run) {
    constexpr int rounds = 4;
    auto const& programs = run.programs;
    auto const speeds = programs.compute_proportional_ratios().front();
    auto const bound_by = [&](multipliers const& weights) {
        return global_lower_bound(programs.space(), programs.graph(), programs.steps(), programs.model(), weights,
                                  speeds, rounds);
    };
    auto weights = *run.weights; // of memory prices, those found and none: either is a bound
    double bound = 0;
    if (programs.has_all() && algorithm::any_of(weights.memory, [](double w) { return w > 0; }))
        bound = bound_by(weights);
    algorithm::fill(weights.memory, 0.0);
    return std::max(bound, bound_by(weights));
}

/// Runs the last search, if one with a twentieth of its limits pays.
template <time_accumulator Accumulator>
[[nodiscard]] synthesis_result search_while_it_pays(stage_run<Accumulator>& run, priced_graph const& priced,
                                                    synthesis_options options) {
    auto const& last = run.options.last_search;
    options.search = last;
    auto& limits = options.search.limits;
    limits = options.search.all_limits();
    *limits.labels /= 20;
    *limits.comparisons /= 20;
    auto first = run.synthesise(priced, options);
    if (first.which_limit == search::limit_kind::none || !first.search_pays) return first;
    options.search = last;
    options.start = first.path;
    options.weights = first.weights; // as tight a relaxation in one round
    options.relaxation_rounds = 1;
    return run.synthesise(priced, std::move(options));
}

} // namespace detail

/// Proves by relaxations and, if those do not suffice, by a search that goes on while it pays. If a better program is
/// met on the way, it becomes the plan, and the bound is computed anew. *Precondition:* something was found.
template <time_accumulator Accumulator>
void prove(stage_run<Accumulator>& run, alternation<Accumulator>& by) {
    constexpr bool searches = stage_run<Accumulator>::search_proves;
    auto& programs = run.programs;
    auto& record = run.record;
    record.tell("proof");
    auto options = run.options.synthesis;
    options.relaxation_rounds *= searches ? 4 : 2;
    if (!searches) options.search.limits.labels = 0;
    for (int left = 4;; --left) {
        if (run.memory_binds) programs.take_all(); // a bound that prices memory is for programs of the graph alone
        planned_prices const at(programs, record.best());
        options.start = record.path();
        if (searches && run.weights) options.weights = at.spread(*run.weights, programs.types());
        auto const found =
            searches ? detail::search_while_it_pays(run, at.priced, options) : run.synthesise(at.priced, options);
        if (found.memory_binds && !programs.has_all()) {
            run.memory_binds = true;
            continue;
        }
        if (searches) run.which_limit = found.which_limit;
        double const cost = record.best().cost();
        assert(found.lower_bound <= cost * (1 + 1e-9));
        record.best().lower_bound = programs.is_complete() ? std::min(found.lower_bound, cost) : 0;
        if (left == 0 || !found.path || found.cost.seconds >= cost * (1 - 1e-9)) break;
        auto [p, now] = realise(*found.path, programs.space(), programs.steps(), programs.cluster(),
                                record.best().ratios, run.options.training);
        if (!now.fits || p.cost() >= cost) break;
        std::string const origin = "integral shares, round " + std::to_string(5 - left);
        record.take(origin, std::move(p), *found.path, ratio_table(record.ratios()));
        if (!searches) continue;
        if (auto const balanced = by.balance_at(record.path(), record.ratios()))
            record.consider(origin + ", ratios", record.path(), *balanced);
    }
    bool const is_relaxed = Accumulator::relaxation != relaxation_kind::none;
    if (!is_relaxed || !programs.is_complete() || !run.weights || run.until.is_over()) return;
    record.best().global_lower_bound = std::min(detail::bound_at_any_ratios(run), record.best().lower_bound);
}

/// Proves by a search of all programs at the plan's shares, if weights alone give a loose bound.
template <time_accumulator Accumulator>
void prove_by_search(stage_run<Accumulator>& run) {
    auto& programs = run.programs;
    auto& record = run.record;
    record.tell("proof");
    auto options = run.options.synthesis;
    options.search = run.options.last_search;
    options.narrowest = options.beam; // what narrower ones find is there
    if (run.weights) options.relaxation_rounds /= 2;
    for (int left = 4;; --left) {
        if (run.memory_binds) programs.take_all();
        record.best().lower_bound = 0;
        if (!programs.is_complete() || run.out_of_time()) return;
        double const cost = record.best().cost();
        planned_prices const at(programs, record.best());
        if (run.weights) options.weights = at.spread(*run.weights, programs.types());
        options.start = record.path();
        auto const found = run.synthesise(at.priced, options);
        if (found.which_limit != search::limit_kind::none) run.which_limit = found.which_limit;
        if ((run.memory_binds |= found.memory_binds) && !programs.has_all())
            continue; // programs that are only smaller count then
        if (left > 0 && found.path && found.cost.seconds < cost * (1 - 1e-9))
            record.consider("longer search, program", *found.path, ratio_table(record.ratios()));
        auto const& best = record.best();
        if (best.cost() < cost &&
            !are_equal(programs.program(), at.shares, integral_shares(programs.program(), best.ratios, best.cuts)))
            continue; // the bound anew
        record.best().lower_bound = std::min(found.lower_bound, best.cost());
        return;
    }
}

} // namespace heddle
