// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Bounds for the best plan found: for every program at its integral shares, and for every program at any
/// shares.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cost/relaxation.hpp>
#include <heddle/synthesis/alternation.hpp>
#include <heddle/synthesis/planned_prices.hpp>
#include <heddle/synthesis/stage_run.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

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

/// Tells whether so little is left between a bound and a plan's cost that labels may prove it.
[[nodiscard]] constexpr bool is_nearly_proven(double bound, double cost) { return bound >= 0.99 * cost; }

/// A relaxation of the programs that bound those at hand, at the shares of the best plan. *Precondition:* there are
/// such programs, which stay as long as this.
struct relaxed_bounding {
    /// Begins with what is known of weights, where something is.
    explicit relaxed_bounding(stage_run& run, std::optional<multipliers> const& start = {});

    /// Returns the computations that are part of a bounding program of a bound of at most `most`.
    [[nodiscard]] computation_set useful(stage_run const& run, double most) const;

    planned_prices at;
    double bound = 0;
    /// None if nothing was found, or memory has to be priced and smaller programs are missing.
    std::optional<relaxation> under;
    bool memory_binds = false;
    /// Forms of the best program met that fits, and of those that were best in the end.
    form_table forms;
};

/// A bound by programs that bound those at hand, at the shares of the best plan. What no program as cheap as the plan
/// has is left out on the way, which leaves programs few enough for narrower bounds, or for none; where that does not
/// suffice, they are bounded by programs with wider cuts. It begins with a relaxation of these, where there is one.
/// *Precondition:* there are such programs.
[[nodiscard]] double bound_by_bounding(stage_run& run, std::unique_ptr<relaxed_bounding> begun = nullptr);

/// Makes a program the plan, if it is better at the shares of the best plan, and searches on from there: for ratios of
/// its own and, where the programs at hand are others than those that were searched, among these. Returns whether it is.
bool take_program(stage_run& run, alternation& by, move_list const& path, std::string const& origin, bool are_others);

/// Runs the last search, if one with a twentieth of its limits pays.
[[nodiscard]] synthesis_result search_while_it_pays(stage_run& run, priced_graph const& priced,
                                                    synthesis_options options);

} // namespace detail

/// Where programs were left out, and a relaxation leaves a gap, searches among those whose bound is near it: they are
/// so few that all may be at hand, and a better plan is more often there than among those that were found without
/// bounds. Returns the last relaxation, if it is of the best plan. *Precondition:* something was found.
[[nodiscard]] std::unique_ptr<detail::relaxed_bounding> search_near_bounds(stage_run& run, alternation& by);

/// Proves by relaxations, of which the first may be known, and, if those do not suffice, by a search that goes on while
/// it pays. If a better program is met on the way, it becomes the plan, and the bound is computed anew. *Precondition:*
/// something was found.
void prove(stage_run& run, alternation& by, std::unique_ptr<detail::relaxed_bounding> begun = nullptr);

/// Proves by a search of all programs at the plan's shares, if weights alone give a loose bound.
void prove_by_search(stage_run& run);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/synthesis/global_bound.hpp>
#include <heddle/synthesis/linked_bound.hpp>

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

HEDDLE_INLINE relaxed_bounding::relaxed_bounding(stage_run& run, std::optional<multipliers> const& start)
    : at(run.programs, run.record.best(), planned_prices::of_bounding{}) {
    constexpr int rounds_of_links = 15;
    auto& programs = run.programs;
    double const cost = run.record.best().cost();
    auto const improve = [&](std::optional<multipliers> const& from) {
        int const most = run.options.synthesis.relaxation_rounds;
        return run.by.improve_bounds(at.priced, start ? most / 2 : 2 * most, from, run.until);
    };
    auto found = improve(start);
    if (!start && run.weights) // prices of memory may be far from those that go with these shares
        if (auto others = improve(at.spread(*run.weights, programs.types())); others.lower_bound > found.lower_bound)
            found = std::move(others);
    memory_binds = found.memory_binds;
    bound = std::min(found.lower_bound, cost);
    if ((memory_binds && !programs.has_all()) || found.tightest.empty()) return;
    under = std::move(found.tightest.front());
    if (run.by.kind == relaxation_kind::clocks) {
        auto const& bounding = *programs.bounding();
        auto linked = improve_links(at.priced, *bounding.links, *std::move(under), programs.potentials(), cost,
                                    rounds_of_links, run.until);
        bound = std::max(bound, std::min(linked.bound, cost));
        under = std::move(linked.best);
        for (auto const& path : linked.last) programs.add_forms(bounding, path, forms);
    }
    if (found.path) programs.add_forms(*programs.bounding(), *found.path, forms);
}

HEDDLE_INLINE computation_set relaxed_bounding::useful(stage_run const& run, double most) const {
    double const offset = run.by.worth_at_start(at.priced, *under) + under->beside();
    return useful_computations(run.programs, at.priced, *under, offset, most);
}

HEDDLE_INLINE double bound_by_bounding(stage_run& run, std::unique_ptr<relaxed_bounding> begun) {
    constexpr std::size_t few = 4, many = labels_of_proof; // of a state; many for what is left in the end
    constexpr double little = 0.05;                        // of what is left: rounds that gain no more end
    // Where micro-batches take turns, more than two rounds leave hardly anything out.
    int const rounds = run.by.kind == relaxation_kind::directions ? 2 : 4;
    auto& programs = run.programs;
    double bound = 0, before = 0;
    bool is_narrower = false;
    using enum stage_programs::bounding_cuts;
    auto cuts = programs.cuts();
    bool const may_widen = run.is_relaxed() && run.by.kind != relaxation_kind::directions;
    double const cost = run.record.best().cost();
    std::optional<multipliers> weights; // of the tightest relaxation so far
    form_table forms;                   // of programs that fit, and of those that may be as fast
    for (int round = 0; round < rounds && programs.bounding(); ++round) {
        if (!begun) begun = std::make_unique<relaxed_bounding>(run, weights);
        auto const now = std::exchange(begun, nullptr);
        if (now->memory_binds && !programs.has_all()) {
            run.memory_binds = true; // a bound that prices memory is for programs of the graph alone
            programs.take_all();
            cuts = programs.cuts();
            before = 0;
            continue;
        }
        bound = std::max(bound, now->bound);
        if (!now->under) break;
        weights = now->under->weights;
        forms = now->forms;
        auto const raise = [&](std::size_t labels) {
            bound = std::max(bound, run.by.raise_bound(now->at.priced, bound, *now->under, cost, labels));
        };
        bool const is_over = run.until.is_over();
        bool goes_on = !is_over && round + 1 < rounds && bound - before > (cost - bound) * little;
        if (!run.by.joins_labels || (!goes_on && !is_over)) raise(many);
        else if (is_over || is_nearly_proven(bound, cost)) raise(few);
        before = bound;
        if (bound >= cost * (1 - 1e-4) || is_over) break;
        // What fronts leave out besides is of use at other shares.
        auto const useful = now->useful(run, cost * (1 + 1e-9));
        auto const widens = [&] {
            if (goes_on || !may_widen || cuts == wider || is_nearly_proven(bound, cost)) return false;
            cuts = wider;
            round = -1;
            return goes_on = true;
        };
        widens();
        bool is_less = programs.take_only(useful, cuts);
        if (!is_less && goes_on) {
            if (run.by.joins_labels) raise(many);
            goes_on = false;
            if (widens()) is_less = programs.take_only(useful, cuts);
        }
        is_narrower = is_narrower || is_less;
        if (!goes_on) break;
    }
    if (is_narrower) programs.keep_to_forms(std::move(forms));
    return bound;
}

HEDDLE_INLINE bool take_program(stage_run& run, alternation& by, move_list const& path, std::string const& origin,
                                bool are_others) {
    auto& record = run.record;
    auto [p, now] = run.programs.realise_on_devices(path, record.best().ratios, run.options.training);
    if (!now.fits || p.cost() >= record.best().cost()) return false;
    record.take(origin, std::move(p), path, ratio_table(record.ratios()));
    if (auto const balanced = by.balance_at(record.path(), record.ratios()))
        record.consider(origin + ", ratios", record.path(), *balanced);
    if (are_others) by.search_again();
    move_atoms_of_candidates(record, run.programs, run.until);
    return true;
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

HEDDLE_INLINE std::unique_ptr<detail::relaxed_bounding> search_near_bounds(stage_run& run, alternation& by) {
    constexpr int rounds = 4;
    auto& programs = run.programs;
    for (int round = 1; round <= rounds && run.is_relaxed(); ++round) {
        if (run.memory_binds) programs.take_all();
        if (!programs.bounding() || run.until.is_over()) break;
        run.record.tell("near the bound");
        auto here = std::make_unique<detail::relaxed_bounding>(run);
        if (here->memory_binds && !programs.has_all()) {
            run.memory_binds = true;
            programs.take_all();
            continue;
        }
        double const cost = run.record.best().cost();
        if (!here->under || detail::is_nearly_proven(here->bound, cost)) return here;
        auto const within = [&](double part) { return here->useful(run, here->bound + part * (cost - here->bound)); };
        // Parts of what is between bound and plan: the first that leaves few programs, or else some of the largest.
        auto const largest = within(0.1);
        if (!programs.keep_near(largest) && !programs.keep_near(within(0.03)) && !programs.keep_near(within(0.01)))
            programs.keep_near(largest, here->forms);
        planned_prices const at(programs, run.record.best());
        auto options = run.options.synthesis;
        options.start = run.record.path();
        options.search.limits.labels = 0;
        auto const found = run.synthesise(at.priced, options);
        bool const is_better =
            found.path && found.cost.seconds < cost * (1 - 1e-9) &&
            detail::take_program(run, by, *found.path, "near the bound, round " + std::to_string(round), true);
        if (!is_better) return here;
    }
    return nullptr;
}

HEDDLE_INLINE void prove(stage_run& run, alternation& by, std::unique_ptr<detail::relaxed_bounding> begun) {
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
        if (programs.bounding() && (begun || !run.until.is_over())) {
            if (is_relaxed && run.weights && !is_reduced) at_any_ratios = detail::bound_at_any_ratios(run);
            bounded = std::max(bounded, detail::bound_by_bounding(run, std::move(begun)));
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
        assert(is_reduced || !programs.is_complete() || found.lower_bound <= cost * (1 + 1e-9));
        record.best().lower_bound = std::min(cost, std::max(bounded, programs.is_complete() ? found.lower_bound : 0));
        if (left == 0 || !found.path || found.cost.seconds >= cost * (1 - 1e-9)) break;
        if (!detail::take_program(run, by, *found.path, "integral shares, round " + std::to_string(5 - left),
                                  is_reduced))
            break;
        auto const& best = record.best();
        at_equal_shares = is_reduced && are_equal(programs.program(), at.shares,
                                                  integral_shares(programs.program(), best.ratios, best.cuts));
    }
    if (!is_relaxed || !programs.has_bound() || !run.weights || run.until.is_over()) return;
    if (!at_any_ratios) at_any_ratios = detail::bound_at_any_ratios(run);
    record.best().global_lower_bound = std::min(*at_any_ratios, record.best().lower_bound);
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
