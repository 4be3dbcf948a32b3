// SPDX-License-Identifier: BSL-1.0
// `pareto_dp` agrees with all paths and with `best_first`, on random graphs in levels with costs of two parts.
#include <heddle/search/best_first.hpp>
#include <heddle/search/pareto_dp.hpp>

#include <support/random_programs.hpp>
#include <support/shrinking.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;

/// Has states 0 .. n - 1 and arcs to higher ones; a path costs its sum plus a weight times its largest arc, less a
/// gift.
struct graph {
    using state = std::uint32_t;
    struct label {
        double sum = 0, largest = 0;
    };
    using action = std::uint32_t; // number of an arc
    struct arc {
        state from, to;
        double cost;
    };
    state count = 2;
    double weight = 0, gift = 0;
    std::vector<arc> arcs;
    /// What the rest of the path sums to at least, scaled down.
    std::vector<double> rest;

    [[nodiscard]] std::pair<state, label> initial() const { return {0, {}}; }
    [[nodiscard]] bool is_goal(state s) const { return s + 1 == count; }
    [[nodiscard]] std::size_t level(state s) const { return s / 2; }
    [[nodiscard]] double total(label const& l) const { return l.sum + weight * l.largest - gift; }
    [[nodiscard]] double bound(state s, label const& l) const { return total(l) + rest[s]; }
    [[nodiscard]] bool dominates(label const& a, label const& b) const {
        return a.sum <= b.sum && a.largest <= b.largest;
    }
    template <class Visit>
    void for_each_successor(state s, label const& l, Visit&& visit) const {
        for (std::uint32_t a = 0; a < arcs.size(); ++a)
            if (arcs[a].from == s) visit(a, arcs[a].to, label{l.sum + arcs[a].cost, std::max(l.largest, arcs[a].cost)});
    }

    [[nodiscard]] std::optional<double> try_all(state s, label const& l) const {
        if (is_goal(s)) return total(l);
        std::optional<double> best;
        for_each_successor(s, l, [&](action, state next, label const& longer) {
            if (auto const t = try_all(next, longer); t && (!best || *t < *best)) best = t;
        });
        return best;
    }
    [[nodiscard]] double cost_of(std::vector<action> const& path) const {
        label l;
        state s = 0;
        for (auto a : path) {
            RC_ASSERT(arcs[a].from == s);
            l = {l.sum + arcs[a].cost, std::max(l.largest, arcs[a].cost)};
            s = arcs[a].to;
        }
        RC_ASSERT(is_goal(s));
        return total(l);
    }
    [[nodiscard]] std::string text() const {
        std::ostringstream out;
        out << count << " states, weight " << weight << ", gift " << gift;
        for (auto const& a : arcs) out << "\n" << a.from << " -> " << a.to << ": " << a.cost;
        return out.str();
    }
};

/// Draws small whole numbers, so that sums are exact and ties common. Arcs lead to a higher level.
graph random_graph(random_source& random) {
    graph g;
    g.count = static_cast<graph::state>(random.between(2, 12));
    g.weight = random.between(0, 5);
    if (random.chance(0.3)) g.gift = random.between(1, 80);
    for (int n = random.between(1, 30); n-- > 0;) {
        auto const from = static_cast<graph::state>(random.below(g.count)),
                   to = static_cast<graph::state>(random.below(g.count));
        if (g.level(from) < g.level(to)) g.arcs.push_back({from, to, static_cast<double>(random.between(0, 9))});
    }
    g.rest.assign(g.count, 0);
    if (random.chance(0.5)) {
        std::vector<double> least(g.count, 1e9);
        least.back() = 0;
        for (auto s = g.count - 1; s-- > 0;)
            for (auto const& a : g.arcs)
                if (a.from == s) least[s] = std::min(least[s], a.cost + least[a.to]);
        double const scale = random.chance(0.5) ? 1 : 0.5;
        for (std::size_t s = 0; s < least.size(); ++s) g.rest[s] = scale * least[s];
    }
    return g;
}

} // namespace

TEST_CASE("pareto_dp costs what the cheapest of all paths costs, as best_first does") {
    std::size_t feasible = 0;
    bool const holds =
        test::holds_when_drawn("pareto_dp and best_first find the cheapest path", 3000, [&](random_source& random) {
            auto const g = random_graph(random);
            RC_LOG(g.text());
            auto const best = g.try_all(0, {});
            feasible += best.has_value();
            auto const found = search::pareto_dp(g);
            auto const other = search::best_first(g);
            RC_ASSERT(found.cost == best);
            RC_ASSERT(other.cost == best);
            RC_ASSERT(found.status == other.status);
            RC_ASSERT(found.status == (best ? search::status::optimal : search::status::infeasible));
            if (best) {
                RC_ASSERT(g.cost_of(found.actions) == *best);
                RC_ASSERT(found.lower_bound == *best);
            }
            for (double const gap : {0.1, 0.5}) {
                search::pareto_options wide;
                wide.relative_gap = gap;
                for (auto const& near : {search::pareto_dp(g, wide), search::best_first(g, wide)})
                    if (best) {
                        RC_ASSERT(near.cost);
                        RC_ASSERT(near.lower_bound <= *best);
                        RC_ASSERT(*near.cost <= near.lower_bound + gap * std::abs(near.lower_bound) + 1e-9);
                    }
            }
            search::pareto_options o;
            o.beam = static_cast<std::size_t>(random.between(1, 3));
            auto const narrow = search::pareto_dp(g, o);
            if (best) RC_ASSERT(narrow.lower_bound <= *best);
            if (narrow.cost) {
                RC_ASSERT(*narrow.cost >= *best);
                RC_ASSERT(g.cost_of(narrow.actions) == *narrow.cost);
                if (narrow.status == search::status::optimal) RC_ASSERT(*narrow.cost == *best);
            } else if (best) {
                RC_ASSERT(narrow.status == search::status::limit);
            }
            search::widening_options hasty{o}, wide{o};
            hasty.patience = 1;
            wide.narrowest = 3;
            for (auto const& early : {search::widening_beam(g, hasty), search::widening_beam(g, wide)}) {
                RC_ASSERT(early.cost.has_value() >= search::pareto_dp(g, o).cost.has_value());
                if (early.cost) RC_ASSERT(g.cost_of(early.actions) == *early.cost);
                if (best) RC_ASSERT(early.lower_bound <= *best);
                if (early.status == search::status::optimal) RC_ASSERT(early.cost == best);
            }
            auto const widening = search::widening_beam(g, {o});
            if (best) RC_ASSERT(widening.lower_bound <= *best);
            o.beam = 1;
            auto const narrowest = search::pareto_dp(g, o);
            RC_ASSERT(widening.lower_bound >= narrowest.lower_bound);
            if (narrowest.cost) {
                RC_ASSERT(widening.cost);
                RC_ASSERT(*widening.cost <= *narrowest.cost);
            }
            if (widening.cost) RC_ASSERT(g.cost_of(widening.actions) == *widening.cost);
            if (widening.status == search::status::optimal) RC_ASSERT(widening.cost == best);
            if (widening.status == search::status::infeasible) RC_ASSERT(!best);
            RC_ASSERT((widening.which_limit == search::limit_kind::none) == (widening.status != search::status::limit));
            auto const widest = search::widening_beam(g);
            RC_ASSERT(widest.cost == best);
            RC_ASSERT(widest.status == (best ? search::status::optimal : search::status::infeasible));
            search::pareto_options few;
            few.limits.labels = static_cast<std::size_t>(random.between(1, 12));
            auto const stopped = search::pareto_dp(g, few);
            if (best) RC_ASSERT(stopped.lower_bound <= *best);
            if (stopped.status == search::status::optimal) RC_ASSERT(stopped.cost == best);
            if (stopped.status == search::status::infeasible) RC_ASSERT(!best);
        });
    CHECK(holds);
    if (!holds || std::getenv("RC_PARAMS") != nullptr) return; // such cases as somebody wants to see
    CHECK(feasible > 1000);
    CHECK(feasible < 2900);
}
