// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Bounds for the best plan found: for every program at its integral shares, and for every program at any
/// shares.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/synthesis/alternation.hpp>
#include <heddle/synthesis/stage_run.hpp>

#include <cstddef>

namespace heddle {

namespace detail {

/// The labels that each state keeps for a plan's last bound.
inline constexpr std::size_t labels_of_proof = 64;

/// Returns a lower bound of every program at any ratios.
[[nodiscard]] double bound_at_any_ratios(stage_run const& run);

/// Returns the computations of bounding programs that are part of one whose bound is at most `most`.
/// *Complexity.* Linear in the levels times their links and moves.
[[nodiscard]] computation_set useful_computations(stage_programs const& programs, priced_graph const& priced,
                                                  relaxation const& under, double offset, double most);

/// A bound by programs that bound those at hand, at the shares of the best plan. What no program as cheap as the plan
/// has is left out on the way, which leaves programs few enough for narrower bounds, or for none.
/// *Precondition:* there are such programs.
[[nodiscard]] double bound_by_bounding(stage_run& run);

/// Runs the last search, if one with a twentieth of its limits pays.
[[nodiscard]] synthesis_result search_while_it_pays(stage_run& run, priced_graph const& priced,
                                                    synthesis_options options);

} // namespace detail

/// Proves by relaxations and, if those do not suffice, by a search that goes on while it pays. If a better program is
/// met on the way, it becomes the plan, and the bound is computed anew. *Precondition:* something was found.
void prove(stage_run& run, alternation& by);

/// Searches and proves once more where programs were left out and the bound is more than a hundredth below the plan,
/// bounded by programs with wider cuts. The plan is never dearer for it. *Precondition:* as above.
void widen(stage_run& run, alternation& by);

/// Proves by a search of all programs at the plan's shares, if weights alone give a loose bound.
void prove_by_search(stage_run& run);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/synthesis/global_bound.hpp>
#include <heddle/synthesis/linked_bound.hpp>
#include <heddle/synthesis/planned_prices.hpp>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::detail {

HEDDLE_INLINE double bound_at_any_ratios(stage_run const& run) {
    constexpr int rounds = 4;
    auto const& programs = run.programs;
    auto const speeds = programs.compute_proportional_ratios().front();
    auto const* bounding = programs.bounding();
    auto const bound_by = [&](multipliers const& weights) {
        if (bounding)
            return global_lower_bound(*bounding->space, bounding->graph, bounding->steps, programs.model(), weights,
                                      speeds, rounds);
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

HEDDLE_INLINE double bound_by_bounding(stage_run& run) {
    constexpr int rounds_of_links = 15;
    constexpr std::size_t few = 4, many = labels_of_proof; // of a state; many for what is left in the end
    constexpr double near = 0.01;                          // of the cost: fronts may prove what is left then
    constexpr double little = 0.05;                        // of what is left: rounds that gain no more end
    // Where micro-batches take turns, more than two rounds leave hardly anything out.
    int const rounds = run.by.kind == relaxation_kind::directions ? 2 : 4;
    auto& programs = run.programs;
    double bound = 0, before = 0;
    bool is_narrower = false;
    double const cost = run.record.best().cost();
    std::optional<multipliers> weights; // of the tightest relaxation so far
    form_table forms;                   // of programs that fit, and of those that may be as fast
    for (int round = 0; round < rounds && programs.bounding(); ++round) {
        auto const& bounding = *programs.bounding();
        planned_prices const at(programs, run.record.best(), planned_prices::of_bounding{});
        auto const improve = [&](std::optional<multipliers> const& start) {
            int const most = run.options.synthesis.relaxation_rounds;
            return run.by.improve_bounds(at.priced, start ? most / 2 : 2 * most, start, run.until);
        };
        auto bounds = improve(weights);
        if (round == 0 && run.weights) // prices of memory may be far from those that go with these shares
            if (auto others = improve(at.spread(*run.weights, programs.types()));
                others.lower_bound > bounds.lower_bound)
                bounds = std::move(others);
        if (bounds.memory_binds && !programs.has_all()) {
            run.memory_binds = true; // a bound that prices memory is for programs of the graph alone
            programs.take_all();
            before = 0;
            continue;
        }
        bound = std::max(bound, std::min(bounds.lower_bound, cost));
        if (bounds.tightest.empty()) break;
        auto& under = bounds.tightest.front();
        weights = under.weights;
        forms.clear();
        if (run.by.kind == relaxation_kind::clocks) {
            auto linked = improve_links(at.priced, *bounding.links, std::move(under), programs.potentials(), cost,
                                        rounds_of_links, run.until);
            under = std::move(linked.best);
            for (auto const& path : linked.last) programs.add_forms(bounding, path, forms);
            bound = std::max(bound, std::min(under.bound(), cost));
        }
        auto const raise = [&](std::size_t labels) {
            bound = std::max(bound, run.by.raise_bound(at.priced, bound, under, cost, labels));
        };
        bool const is_over = run.until.is_over();
        bool const goes_on = !is_over && round + 1 < rounds && bound - before > (cost - bound) * little;
        if (!run.by.joins_labels || (!goes_on && !is_over)) raise(many);
        else if (is_over || bound >= cost * (1 - near)) raise(few);
        before = bound;
        if (bound >= cost * (1 - 1e-4) || is_over) break;
        if (bounds.path) programs.add_forms(bounding, *bounds.path, forms);
        // What fronts leave out besides is of use at other shares.
        double const offset = run.by.worth_at_start(at.priced, under) + under.beside();
        bool const is_less =
            programs.take_only(useful_computations(programs, at.priced, under, offset, cost * (1 + 1e-9)));
        is_narrower = is_narrower || is_less;
        if (!is_less && goes_on && run.by.joins_labels) raise(many);
        if (!is_less || !goes_on) break;
    }
    if (is_narrower) programs.keep_to_forms(std::move(forms));
    return bound;
}

HEDDLE_INLINE synthesis_result search_while_it_pays(stage_run& run, priced_graph const& priced,
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

HEDDLE_INLINE computation_set useful_computations(stage_programs const& programs, priced_graph const& priced,
                                                  relaxation const& under, double offset, double most) {
    auto const& graph = priced.graph();
    auto const& space = priced.space();
    constexpr auto none = ~operator_id{0};
    std::vector<operator_id> useful_of(space.instructions().size(), none); // the last kind of which it was found to be
    std::vector<std::uint32_t> computed;                                   // by move, its computation
    for (auto const& move : space.moves()) {
        computed.push_back(0);
        for (auto i : move.instructions)
            if (space.instructions()[i].is<instruction::compute>()) computed.back() = i;
    }
    computation_set useful;
    auto const count = space.program().operators.size();
    constexpr double infinite = std::numeric_limits<double>::infinity();
    std::vector<double> here{0.0}, there, rest;
    std::vector<double> prices, cheapest, around; // of moves, bundle by bundle; and, by bundle, of what it leads past
    for (std::size_t level = 0; level + 2 < graph.level_count(); ++level) {
        auto const& segment = graph.from_level(level);
        prices.clear();
        cheapest.clear();
        for (auto const b : segment.bundles) {
            double least = infinite;
            for (auto a : graph.bundle(b))
                least = std::min(least, prices.emplace_back(weighted_price(priced, under.weights, level, a)));
            cheapest.push_back(least);
        }
        std::size_t const size = graph.first_of_level[level + 2] - graph.first_of_level[level + 1];
        there.assign(size, infinite);
        rest.clear();
        for (std::uint32_t to = 0; to < size; ++to)
            rest.push_back(under.paths.to_goal({static_cast<std::uint32_t>(level + 1), to}));
        around.assign(segment.bundles.size(), infinite);
        for (std::size_t n = 0; n < here.size(); ++n)
            for (auto const& link : segment.out(n)) {
                there[link.to] = std::min(there[link.to], here[n] + cheapest[link.bundle]);
                around[link.bundle] = std::min(around[link.bundle], here[n] + rest[link.to]);
            }
        auto price = prices.begin();
        for (std::size_t b = 0; b < segment.bundles.size(); ++b)
            for (auto a : graph.bundle(segment.bundles[b])) {
                if (offset + around[b] + *price++ > most || space.operator_of(level, a) >= count) continue;
                auto const i = computed[a];
                auto const kind = programs.space().kind(space.operator_of(level, a));
                if (std::exchange(useful_of[i], kind) != kind)
                    useful[kind].insert(codes_of(*space.instructions()[i].as<instruction::compute>()));
            }
        here.swap(there);
    }
    return useful;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE void prove(stage_run& run, alternation& by) {
    bool const searches = run.search_proves();
    auto& programs = run.programs;
    auto& record = run.record;
    record.tell("proof");
    auto options = run.options.synthesis;
    options.relaxation_rounds *= searches ? 4 : 2;
    options.front = detail::labels_of_proof;
    if (!searches) options.search.limits.labels = 0;
    bool const is_relaxed = run.is_relaxed();
    std::optional<double> at_any_ratios;
    bool is_reduced = false, at_equal_shares = false; // what was left out, then, is no part of cheaper plans either
    double bounded = 0;
    for (int left = 4;; --left) {
        if (run.memory_binds) programs.take_all(); // a bound that prices memory is for programs of the graph alone
        if (!std::exchange(at_equal_shares, false)) {
            bounded = 0;
            if (std::exchange(is_reduced, false)) programs.take_again();
        }
        if (programs.bounding() && !run.until.is_over()) {
            if (is_relaxed && run.weights && !is_reduced) at_any_ratios = detail::bound_at_any_ratios(run);
            bounded = std::max(bounded, detail::bound_by_bounding(run));
            is_reduced = true; // at these shares
            left = std::min(left, 2);
        }
        planned_prices const at(programs, record.best());
        options.start = record.path();
        if (searches && run.weights) options.weights = at.spread(*run.weights, programs.types());
        auto const found =
            searches ? detail::search_while_it_pays(run, at.priced, options) : run.synthesise(at.priced, options);
        if (found.memory_binds && !programs.has_all()) {
            run.memory_binds = true;
            is_reduced = false;
            continue;
        }
        if (searches) run.which_limit = found.which_limit;
        double const cost = record.best().cost();
        assert(is_reduced || found.lower_bound <= cost * (1 + 1e-9));
        record.best().lower_bound = std::min(cost, std::max(bounded, programs.is_complete() ? found.lower_bound : 0));
        if (left == 0 || !found.path || found.cost.seconds >= cost * (1 - 1e-9)) break;
        auto [p, now] = programs.realise_on_devices(*found.path, record.best().ratios, run.options.training);
        if (!now.fits || p.cost() >= cost) break;
        std::string const origin = "integral shares, round " + std::to_string(5 - left);
        record.take(origin, std::move(p), *found.path, ratio_table(record.ratios()));
        if (auto const balanced = by.balance_at(record.path(), record.ratios()))
            record.consider(origin + ", ratios", record.path(), *balanced);
        if (is_reduced) by.search_again(); // the programs at hand have led on once, so they may from elsewhere
        move_atoms_of_candidates(record, programs, run.until);
        auto const& best = record.best();
        at_equal_shares = is_reduced && are_equal(programs.program(), at.shares,
                                                  integral_shares(programs.program(), best.ratios, best.cuts));
    }
    if (!is_relaxed || !programs.has_bound() || !run.weights || run.until.is_over()) return;
    if (!at_any_ratios) at_any_ratios = detail::bound_at_any_ratios(run);
    record.best().global_lower_bound = std::min(*at_any_ratios, record.best().lower_bound);
}

HEDDLE_INLINE void widen(stage_run& run, alternation& by) {
    constexpr double near = 0.01;
    double const cost = run.record.best().cost(), bound = run.record.best().lower_bound;
    if (bound >= (1 - near) * cost || run.until.is_over() || !run.programs.widen_bounds()) return;
    auto const ratios = run.record.best().ratios;
    by.search_again();
    move_atoms_of_candidates(run.record, run.programs, run.until);
    prove(run, by);
    auto& best = run.record.best();
    if (best.ratios == ratios && best.cost() == cost) best.lower_bound = std::max(best.lower_bound, bound);
}

HEDDLE_INLINE void prove_by_search(stage_run& run) {
    auto& programs = run.programs;
    auto& record = run.record;
    record.tell("proof");
    auto options = run.options.synthesis;
    options.search = run.options.last_search;
    options.narrowest = options.beam; // what narrower ones find is there
    if (run.weights) options.relaxation_rounds /= 2;
    constexpr int rounds = 4; // of exchanges
    bool is_reduced = false;
    for (int left = 4;; --left) {
        if (run.memory_binds) programs.take_all();
        if (std::exchange(is_reduced, false)) programs.take_again();
        record.best().lower_bound = 0;
        if (run.out_of_time()) return;
        if (programs.bounding()) {
            record.best().lower_bound = detail::bound_by_bounding(run);
            is_reduced = true; // at these shares
            left = std::min(left, 2);
        } else if (!programs.is_complete()) {
            return;
        }
        double const cost = record.best().cost(), bounded = record.best().lower_bound;
        planned_prices const at(programs, record.best());
        if (run.weights) options.weights = at.spread(*run.weights, programs.types());
        options.start = record.path();
        auto const found = run.synthesise(at.priced, options);
        if (found.which_limit != search::limit_kind::none) run.which_limit = found.which_limit;
        if ((run.memory_binds |= found.memory_binds) && !programs.has_all())
            continue; // programs that are only smaller count then
        if (left > 0) {
            if (found.path && found.cost.seconds < cost * (1 - 1e-9))
                record.consider("longer search, program", *found.path, ratio_table(record.ratios()));
            if (auto const cheaper = run.by.exchange_moves(at.priced, record.path(), rounds, run.until))
                record.consider("moves exchanged", *cheaper, ratio_table(record.ratios()));
        }
        auto const& best = record.best();
        if (best.cost() < cost &&
            !are_equal(programs.program(), at.shares, integral_shares(programs.program(), best.ratios, best.cuts)))
            continue; // the bound anew
        double const proven = programs.is_complete() ? found.lower_bound : 0;
        record.best().lower_bound = std::min(std::max(bounded, proven), best.cost());
        return;
    }
}

} // namespace heddle

#endif
