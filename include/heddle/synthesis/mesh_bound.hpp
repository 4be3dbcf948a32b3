// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A lower bound of the programs on a mesh, by a table for each axis.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/numbering.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/search/state_table.hpp>
#include <heddle/synthesis/mesh_choices.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// Bounds what programs on a mesh of two axes cost, of which each axis keeps to the programs of a graph.
///
/// What both axes choose at an operator costs `cost(t, u)` at least, for its computation and for each operand that is
/// brought (`mesh_choice`). It is split into a number for each axis's choice, `a(t) + b(u) <= cost(t, u)`. So the
/// shortest path of each axis under its numbers, added up, is a lower bound, however costs are split. They are split
/// operator by operator, in the order of the program, in a way that is best for the bound while all others stay: the outer
/// axis takes half of what the best programs through a choice leave, the inner one all that is then left, and the outer
/// one what remains. So the bound rises, and no number could be higher while the others stay.
///
/// Sontag, Globerson and Jaakkola, Introduction to Dual Decomposition for Inference (2011), section 1.5: the update of
/// both sides of an edge, with a shortest path for the tree on each side. Tourani, Shekhovtsov, Rother and Savchynskyy,
/// MPLP++ (2018): that numbers are to be as high as they can be.
class mesh_bound {
public:
    /// `programs` are those of one axis of the searched program, or loosened ones that bound these. Prices are at given
    /// shares of the outermost axis and weights of classes.
    mesh_bound(loosened_space const& programs, mesh_prices const& price);

    /// Takes other prices; costs are split from where they are.
    void reprice(mesh_prices const& price);

    /// How long costs are split: for so many rounds, or until the bound is within a fifth of `gap` of what two programs
    /// cost, or rises too little to come near that. When time is over no further round begins.
    struct effort {
        int rounds;
        double gap;
        search::deadline const& until;
        /// Whether a draft of three that repeat is enough: it leaves little to the whole program, whose rounds take long.
        bool drafts = false;
    };
    /// Splits costs in a program that has what repeats once, then in one that has it three times, if that is much
    /// shorter. All layers then have what one ends with. Returns the bound.
    double draft(effort const& e);
    /// Splits costs, and returns the best bound. Rounds end when that reaches `target`, less one part in `10'000`.
    /// Costs are drafted first, if they were not split before or the bound is far from what two programs cost.
    /// *Complexity.* Linear in the links of the graph, per round.
    [[nodiscard]] double improve(double target, effort const& e);
    using path = std::vector<cut_space::action>;
    /// Returns the cheapest of an axis's programs as costs are split.
    [[nodiscard]] path const& cheapest(axis_number axis) { return shortest_as_split(axis).second; }
    /// Two programs, the outer axis's first, and what both cost at least.
    struct pair_of_programs {
        double cost;
        std::array<path, 2> programs;
    };
    /// Takes the cheapest programs of an axis beside a given one of the other, and in turn, until that hardly gains.
    [[nodiscard]] pair_of_programs in_turn(axis_number axis, path other);
    /// A bound of all pairs of programs, and a pair that costs as much, if there is one.
    struct found_together {
        double bound;
        std::optional<pair_of_programs> best;
    };
    /// Returns the cheapest pair of programs that costs less than `below`, which is the bound if there is none: level
    /// by level, from all pairs of states that split costs do not exclude. Ends without a pair where they are more than
    /// `most`, or when time is over.
    [[nodiscard]] found_together together(double below, std::size_t most, search::deadline const& until);

private:
    using numbers = std::vector<double>;
    /// What is known of an axis while costs are split.
    struct side {
        std::vector<numbers> to_end; ///< by place of the level among those at hand, and position
        numbers here;                ///< from the start, by position
        std::vector<numbers> moves;  ///< by place and move of the kind, what it costs
        numbers around;              ///< by move of the kind: the least rest of a path with it
    };

    [[nodiscard]] mesh_choices const& kind_at(std::size_t level) const { return kinds_[space_.kind(level)]; }
    [[nodiscard]] numbers moves_at(std::size_t level, axis_number axis) const;
    /// Returns what moves of a level cost on an axis together with a move of the other.
    [[nodiscard]] numbers moves_beside(std::size_t level, axis_number axis, cut_space::action other) const;
    [[nodiscard]] search::graph_segment const& segment(std::size_t place) const {
        return graph_.from_level(levels_[place]);
    }
    /// Returns the least cost of each bundle of a segment. *Lifetime:* until it is called again.
    [[nodiscard]] numbers const& of_bundles(search::graph_segment const& segment, numbers const& of_move);
    void find_ends(axis_number axis);
    void look_around(std::size_t place, axis_number axis);
    void split(std::size_t place, mesh_choice const& c);
    void pass(std::size_t place, axis_number axis);
    /// Splits the costs of all levels at hand, from the first to the last, and returns the bound.
    [[nodiscard]] double round();
    /// Makes rounds until a bound reaches the target, or has hardly risen in some of them, and returns the best.
    [[nodiscard]] double improve_at_hand(double target, effort const& e);
    /// As `draft` does; returns whether there were three of what repeats.
    [[nodiscard]] bool split_in_drafts(effort const& e);
    void take_levels(std::vector<std::size_t> at_hand);
    void take_all_levels();
    [[nodiscard]] std::pair<double, path> const& shortest_as_split(axis_number axis);
    /// What moves, and bundles of them, cost on levels that are alike.
    struct known_costs {
        search::numbering<std::vector<std::uint64_t>, search::list_hash<std::uint64_t>> levels;
        std::deque<std::pair<numbers, numbers>> of_moves_and_bundles;
    };
    /// Returns the shortest path, and its length, if moves cost what `moves(level)` says, or what is known.
    /// *Precondition:* levels of one segment whose `alike(level)` is the same have the same moves and costs.
    template <class Moves, class Alike>
    [[nodiscard]] std::pair<double, path> shortest(known_costs& known, Moves const& moves, Alike const& alike);

    /// Returns what bundles of a level's segment cost together at least, by those of the inner axis.
    [[nodiscard]] std::vector<numbers> bundles_together(std::size_t level);
    /// Returns the cheapest moves of a level of two bundles.
    [[nodiscard]] std::array<cut_space::action, 2> moves_together(std::size_t level,
                                                                  std::array<std::uint32_t, 2> const& bundles) const;

    /// The rounds after which the bound is looked at.
    static constexpr int patience = 8;
    static constexpr double hardly = 1e-4;

    loosened_space const& programs_;
    cut_space const& space_;
    search::state_graph<cut_space::action> const& graph_;
    std::vector<mesh_choices> kinds_;
    /// The place of each move among those of its kind.
    std::vector<std::uint32_t> place_of_move_;
    /// By level and axis, the numbers of the kind's items.
    std::vector<std::array<numbers, 2>> numbers_;
    /// By level, one that has the same numbers.
    std::vector<std::size_t> like_;
    /// By axis, its cheapest program as costs are split, where it is known.
    std::array<std::optional<std::pair<double, path>>, 2> shortest_;
    /// By axis, what its moves cost beside a move of the other.
    std::array<known_costs, 2> beside_;
    bool is_split_ = false;
    /// The levels at hand.
    std::vector<std::size_t> levels_;
    std::array<side, 2> sides_;
    numbers bundles_; ///< by place of a bundle in the segment at hand
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/search/repeated_levels.hpp>

namespace heddle {

HEDDLE_INLINE mesh_bound::mesh_bound(loosened_space const& programs, mesh_prices const& price)
    : programs_(programs), space_(*programs.space), graph_(programs.graph), kinds_(choices_of(programs, price)),
      place_of_move_(space_.moves().size()) {
    for (auto const& kind : kinds_)
        for (std::uint32_t n = 0; n < kind.moves.size(); ++n) place_of_move_[kind.moves[n]] = n;
    for (std::size_t level = 0; level + 1 < graph_.level_count(); ++level) {
        numbers const nothing(kind_at(level).item_count);
        numbers_.push_back({nothing, nothing});
    }
    like_.resize(numbers_.size());
    std::iota(like_.begin(), like_.end(), std::size_t{0});
    take_all_levels();
}

HEDDLE_INLINE void mesh_bound::reprice(mesh_prices const& price) {
    kinds_ = choices_of(programs_, price);
    beside_ = {};
}

HEDDLE_INLINE mesh_bound::numbers mesh_bound::moves_at(std::size_t level, axis_number axis) const {
    auto const& kind = kind_at(level);
    numbers of_move(kind.moves.size());
    for (std::size_t n = 0; n < of_move.size(); ++n)
        for (auto item : kind.items[n]) of_move[n] += numbers_[level][axis][item];
    return of_move;
}

HEDDLE_INLINE mesh_bound::numbers const& mesh_bound::of_bundles(search::graph_segment const& segment,
                                                                numbers const& of_move) {
    bundles_.clear();
    for (auto const bundle : segment.bundles) {
        double least = never;
        for (auto a : graph_.bundle(bundle)) least = std::min(least, of_move[place_of_move_[a]]);
        bundles_.push_back(least);
    }
    return bundles_;
}

HEDDLE_INLINE mesh_bound::numbers mesh_bound::moves_beside(std::size_t level, axis_number axis,
                                                           cut_space::action other) const {
    auto const& kind = kind_at(level);
    numbers of_item(kind.item_count, 0.0), of_move(kind.moves.size());
    for (auto item : kind.items[place_of_move_[other]]) {
        auto const [number, place] = kind.place_of_item[item];
        auto const& c = kind.choices[number];
        auto const costs = c.beside(axis, place);
        for (std::size_t n = 0; n < costs.size(); ++n) of_item[c.items[n]] = costs[n];
    }
    for (std::size_t n = 0; n < of_move.size(); ++n)
        for (auto item : kind.items[n]) of_move[n] += of_item[item];
    return of_move;
}

HEDDLE_INLINE void mesh_bound::find_ends(axis_number axis) {
    auto& s = sides_[axis];
    s.here = {0};
    s.moves.resize(levels_.size());
    s.to_end.resize(levels_.size() + 1);
    s.to_end.back().assign(graph_.node_count() - graph_.first_of_level[graph_.level_count() - 1], 0);
    for (std::size_t place = levels_.size(); place-- > 0;) {
        s.moves[place] = moves_at(levels_[place], axis);
        auto const& links = segment(place);
        auto const& costs = of_bundles(links, s.moves[place]);
        auto const& next = s.to_end[place + 1];
        s.to_end[place].assign(links.size(), never);
        for (std::size_t n = 0; n < links.size(); ++n)
            for (auto const& l : links.out(n))
                s.to_end[place][n] = std::min(s.to_end[place][n], costs[l.bundle] + next[l.to]);
    }
}

HEDDLE_INLINE void mesh_bound::look_around(std::size_t place, axis_number axis) {
    auto& s = sides_[axis];
    auto const& links = segment(place);
    auto const& to_end = s.to_end[place + 1];
    bundles_.assign(links.bundles.size(), never);
    for (std::size_t n = 0; n < links.size(); ++n)
        for (auto const& l : links.out(n)) bundles_[l.bundle] = std::min(bundles_[l.bundle], s.here[n] + to_end[l.to]);
    s.around.assign(s.moves[place].size(), never);
    for (std::size_t b = 0; b < bundles_.size(); ++b)
        for (auto a : graph_.bundle(links.bundles[b])) {
            double& around = s.around[place_of_move_[a]];
            around = std::min(around, bundles_[b]);
        }
}

HEDDLE_INLINE void mesh_bound::split(std::size_t place, mesh_choice const& c) {
    std::size_t const count = c.items.size(), level = levels_[place];
    std::array<numbers, 2> rest; // of the best path of each axis with an item
    for (axis_number a = 0; a < 2; ++a) {
        rest[a].assign(count, never);
        for (auto const& [move, n] : c.taken)
            rest[a][n] = std::min(rest[a][n], sides_[a].around[move] + sides_[a].moves[place][move] -
                                                  numbers_[level][a][c.items[n]]);
    }
    std::array<numbers, 2> before;
    for (axis_number a = 0; a < 2; ++a)
        for (auto item : c.items) before[a].push_back(numbers_[level][a][item]);
    auto& outer = numbers_[level][0];
    auto& inner = numbers_[level][1];
    numbers least(count);
    // Finds what costs leave at least to each item of an axis, where those of the other have as much.
    auto const find_left = [&](axis_number a, auto const& of_other) {
        least.assign(count, never);
        for (std::size_t other = 0; other < count; ++other) {
            double const taken = of_other(other);
            auto const costs = c.beside(a, other);
            for (std::size_t mine = 0; mine < count; ++mine) least[mine] = std::min(least[mine], costs[mine] - taken);
        }
    };
    find_left(0, [&](std::size_t n) { return -rest[1][n]; });
    for (std::size_t n = 0; n < count; ++n) outer[c.items[n]] = (least[n] - rest[0][n]) / 2;
    find_left(1, [&](std::size_t n) { return outer[c.items[n]]; });
    for (std::size_t n = 0; n < count; ++n) inner[c.items[n]] = least[n];
    find_left(0, [&](std::size_t n) { return inner[c.items[n]]; });
    for (std::size_t n = 0; n < count; ++n) outer[c.items[n]] = least[n];
    for (axis_number a = 0; a < 2; ++a)
        for (auto const& [move, n] : c.taken)
            sides_[a].moves[place][move] += numbers_[level][a][c.items[n]] - before[a][n];
}

HEDDLE_INLINE void mesh_bound::pass(std::size_t place, axis_number axis) {
    auto& s = sides_[axis];
    auto const& links = segment(place);
    auto const& costs = of_bundles(links, s.moves[place]);
    numbers next(s.to_end[place + 1].size(), never);
    for (std::size_t n = 0; n < links.size(); ++n)
        for (auto const& l : links.out(n)) next[l.to] = std::min(next[l.to], s.here[n] + costs[l.bundle]);
    s.here = std::move(next);
}

HEDDLE_INLINE double mesh_bound::round() {
    shortest_ = {};
    for (axis_number a = 0; a < 2; ++a) find_ends(a);
    for (std::size_t place = 0; place < levels_.size(); ++place) {
        for (axis_number a = 0; a < 2; ++a) look_around(place, a);
        for (auto const& c : kind_at(levels_[place]).choices) split(place, c);
        for (axis_number a = 0; a < 2; ++a) pass(place, a);
    }
    return sides_[0].here[0] + sides_[1].here[0];
}

HEDDLE_INLINE double mesh_bound::improve_at_hand(double target, effort const& e) {
    bool const is_draft = levels_.size() < numbers_.size();
    std::iota(like_.begin(), like_.end(), std::size_t{0}); // rounds tell levels apart
    double best = 0, before = 0, of_pair = std::numeric_limits<double>::infinity();
    for (int n = 1; n <= e.rounds && best < target * (1 - hardly) && (n == 1 || !e.until.is_over()); ++n) {
        best = std::max(best, round());
        if ((n & (n - 1)) == 0) of_pair = std::min(of_pair, in_turn(0, cheapest(1)).cost);
        if (best >= of_pair * (1 - e.gap / 5)) break;
        if (n % patience != 0) continue;
        double const little = is_draft ? 0 : (of_pair - best) / 4; // many more would be needed to meet the pair
        if (best - before < std::max(best * e.gap / 20, little)) break;
        before = best;
    }
    return best;
}

HEDDLE_INLINE void mesh_bound::take_levels(std::vector<std::size_t> at_hand) {
    levels_ = std::move(at_hand);
    shortest_ = {};
}

HEDDLE_INLINE void mesh_bound::take_all_levels() {
    std::vector<std::size_t> all(numbers_.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    take_levels(std::move(all));
}

HEDDLE_INLINE double mesh_bound::draft(effort const& e) {
    static_cast<void>(split_in_drafts(e));
    return shortest_as_split(0).first + shortest_as_split(1).first;
}

HEDDLE_INLINE bool mesh_bound::split_in_drafts(effort const& e) {
    std::vector<std::pair<std::uint32_t, operator_id>> keys;
    for (std::size_t level = 0; level < numbers_.size(); ++level)
        keys.push_back({graph_.segment_of_level[level], space_.kind(level)});
    auto const split_in = [&](search::shortened_list const& shorter, double gap) {
        take_levels(shorter.kept);
        static_cast<void>(improve_at_hand(std::numeric_limits<double>::infinity(), {e.rounds, gap, e.until}));
        for (std::size_t level = 0; level < keys.size(); ++level) numbers_[level] = numbers_[shorter.like[level]];
        like_ = shorter.like;
    };
    // Of three that repeat the middle one has neighbours like most have. Without them, what a draft's rounds leave undone,
    // many rounds of the whole program would have to do.
    auto const of_three = search::without_repetitions(keys, 3);
    bool const is_much_shorter = of_three.kept.size() <= keys.size() / 3;
    split_in(search::without_repetitions(keys, 1), is_much_shorter ? e.gap : e.gap / 5);
    if (is_much_shorter) split_in(of_three, e.gap);
    take_all_levels();
    return is_much_shorter;
}

HEDDLE_INLINE double mesh_bound::improve(double target, effort const& e) {
    double best = is_split_ ? improve_at_hand(target, {patience, e.gap, e.until}) : 0;
    if (best >= target * (1 - hardly)) return best;
    is_split_ = true;
    if (e.rounds > 0 && best < in_turn(0, cheapest(1)).cost * (1 - e.gap / 2)) {
        bool const has_three = split_in_drafts(e);
        auto const& [inner, on_inner] = shortest_as_split(1);
        best = std::max(best, shortest_as_split(0).first + inner);
        if ((e.drafts && has_three) || best >= in_turn(0, on_inner).cost * (1 - e.gap / 2)) return best;
    }
    return std::max(best, improve_at_hand(target, e));
}

HEDDLE_INLINE std::pair<double, mesh_bound::path> const& mesh_bound::shortest_as_split(axis_number axis) {
    auto& found = shortest_[axis];
    if (!found) {
        known_costs known;
        found = shortest(
            known, [&](std::size_t level) { return moves_at(level, axis); },
            [&](std::size_t level) { return like_[level]; });
    }
    return *found;
}

HEDDLE_INLINE mesh_bound::pair_of_programs mesh_bound::in_turn(axis_number axis, path other) {
    pair_of_programs result{std::numeric_limits<double>::infinity(), {}};
    result.programs[1 - axis] = std::move(other);
    path given(numbers_.size()); // by level
    for (;; axis = 1 - axis) {
        for (std::size_t place = 0; place < levels_.size(); ++place)
            given[levels_[place]] = result.programs[1 - axis][place];
        auto [cost, best] = shortest(
            beside_[axis], [&](std::size_t level) { return moves_beside(level, axis, given[level]); },
            [&](std::size_t level) { return given[level]; });
        bool const is_little = cost >= result.cost * (1 - hardly);
        if (cost < result.cost) {
            result.cost = cost;
            result.programs[axis] = std::move(best);
        }
        if (is_little) return result;
    }
}

HEDDLE_INLINE std::vector<mesh_bound::numbers> mesh_bound::bundles_together(std::size_t level) {
    auto const& links = graph_.from_level(level);
    std::vector<numbers> result(links.bundles.size(), numbers(links.bundles.size(), never));
    std::vector<numbers> of_move(kind_at(level).moves.size()); // of the inner axis
    for (std::size_t inner = 0; inner < result.size(); ++inner)
        for (auto a : graph_.bundle(links.bundles[inner])) {
            auto& costs = of_move[place_of_move_[a]];
            if (costs.empty()) costs = of_bundles(links, moves_beside(level, 0, a));
            std::ranges::transform(result[inner], costs, result[inner].begin(), std::ranges::min);
        }
    return result;
}

HEDDLE_INLINE std::array<cut_space::action, 2> mesh_bound::moves_together(
    std::size_t level, std::array<std::uint32_t, 2> const& bundles) const {
    auto const& links = graph_.from_level(level);
    std::array<cut_space::action, 2> best{};
    double least = std::numeric_limits<double>::infinity();
    for (auto const inner : graph_.bundle(links.bundles[bundles[1]])) {
        auto const costs = moves_beside(level, 0, inner);
        for (auto const outer : graph_.bundle(links.bundles[bundles[0]]))
            if (double const cost = costs[place_of_move_[outer]]; cost < least) least = cost, best = {outer, inner};
    }
    return best;
}

HEDDLE_INLINE mesh_bound::found_together mesh_bound::together(double below, std::size_t most,
                                                              search::deadline const& until) {
    struct pair_of_states {
        double cost, least;              ///< so far, and to the end
        std::array<std::uint32_t, 2> at; ///< positions
        std::uint32_t from = 0;          ///< among the pairs of the level before
        std::array<std::uint32_t, 2> bundles{};
    };
    take_all_levels();
    std::iota(like_.begin(), like_.end(), std::size_t{0});
    static_cast<void>(round()); // no split exceeds a cost at the prices at hand
    for (axis_number a = 0; a < 2; ++a) find_ends(a);
    std::map<std::uint32_t, std::vector<numbers>> costs; // by segment
    std::vector<std::vector<pair_of_states>> met{{{0, 0, {0, 0}}}};
    // All pairs below go through those of the last level, where it is not left early.
    auto const too_many = [&] { return algorithm::min_element(met.back(), {}, &pair_of_states::least)->least; };
    met.back().front().least = sides_[0].to_end[0][0] + sides_[1].to_end[0][0];
    for (std::size_t level = 0; level < levels_.size(); ++level) {
        auto const& links = segment(level);
        auto const [slot, is_new] = costs.try_emplace(graph_.segment_of_level[level]);
        if (is_new) slot->second = bundles_together(level);
        auto const &outer_ends = sides_[0].to_end[level + 1], &inner_ends = sides_[1].to_end[level + 1];
        search::state_table<std::uint64_t> numbers_of_pairs;
        std::vector<pair_of_states> next;
        for (std::uint32_t n = 0; n < met.back().size(); ++n) {
            if (next.size() > most || until.is_over()) return {too_many(), {}};
            auto const& from = met.back()[n];
            for (auto const& inner : links.out(from.at[1]))
                for (auto const& outer : links.out(from.at[0])) {
                    double const cost = from.cost + slot->second[inner.bundle][outer.bundle];
                    double const least = cost + outer_ends[outer.to] + inner_ends[inner.to];
                    if (least >= below) continue;
                    pair_of_states const there{cost, least, {outer.to, inner.to}, n, {outer.bundle, inner.bundle}};
                    auto const [number, is_first] = numbers_of_pairs.insert(std::uint64_t{outer.to} << 32 | inner.to);
                    if (is_first) next.push_back(there);
                    else if (cost < next[number].cost) next[number] = there;
                }
        }
        if (next.size() > most) return {too_many(), {}};
        if (next.empty()) return {below, {}};
        met.push_back(std::move(next));
    }
    auto const end = algorithm::min_element(met.back(), {}, &pair_of_states::cost);
    found_together result{end->cost, pair_of_programs{end->cost, {}}};
    auto& programs = result.best->programs;
    for (auto& program : programs) program.resize(levels_.size());
    auto const* at = &*end;
    for (std::size_t level = levels_.size(); level-- > 0; at = &met[level][at->from]) {
        auto const moves = moves_together(level, at->bundles);
        for (axis_number a = 0; a < 2; ++a) programs[a][level] = moves[a];
    }
    return result;
}

template <class Moves, class Alike>
std::pair<double, mesh_bound::path> mesh_bound::shortest(known_costs& known, Moves const& moves, Alike const& alike) {
    std::size_t const count = levels_.size();
    std::vector<std::pair<numbers, numbers> const*> costs(count); // by place
    std::vector<numbers> to_end(count + 1);                       // by place and position
    to_end[count].assign(graph_.node_count() - graph_.first_of_level[graph_.level_count() - 1], 0);
    for (std::size_t place = count; place-- > 0;) {
        auto const level = levels_[place];
        auto const& links = segment(place);
        auto const [number, is_new] =
            known.levels.insert(std::vector<std::uint64_t>{graph_.segment_of_level[level], alike(level)});
        if (is_new) {
            auto of_moves = moves(level);
            auto of_bundle = of_bundles(links, of_moves);
            known.of_moves_and_bundles.emplace_back(std::move(of_moves), std::move(of_bundle));
        }
        costs[place] = &known.of_moves_and_bundles[number];
        auto const& least = costs[place]->second;
        auto const& next = to_end[place + 1];
        auto& here = to_end[place];
        here.assign(links.size(), std::numeric_limits<double>::infinity());
        for (std::size_t n = 0; n < links.size(); ++n)
            for (auto const& l : links.out(n)) here[n] = std::min(here[n], least[l.bundle] + next[l.to]);
    }
    path result;
    for (std::size_t place = 0, at = 0; place < count; ++place) {
        auto const& links = segment(place);
        auto const& [of_moves, of_bundles] = *costs[place];
        auto const turn = *algorithm::min_element(
            links.out(at), {}, [&](auto const& l) { return of_bundles[l.bundle] + to_end[place + 1][l.to]; });
        result.push_back(*algorithm::min_element(graph_.bundle(links.bundles[turn.bundle]), {},
                                                 [&](cut_space::action a) { return of_moves[place_of_move_[a]]; }));
        at = turn.to;
    }
    return {to_end[0][0], std::move(result)};
}

} // namespace heddle

#endif
