// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Raises the bound of a loosened program by what links late uses to the forms in which tensors were given up.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/cost/relaxation.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/narrowing_relaxation.hpp>
#include <heddle/theory/loose_links.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace heddle {

/// The potentials of tensors' forms, as far as they are known; see `loose_links`.
using known_potentials = std::map<std::pair<tensor_id, std::vector<std::uint16_t>>, double>;

/// A relaxation; a bound, which may be higher than its own; and the programs that were best in the last rounds before it
/// ended.
struct linked_relaxation {
    relaxation best;
    double bound = 0;
    std::vector<move_list> last;
};

/// Returns a relaxation with prices of links, or the one that is given, which has none, if its bound is higher. Where
/// the best program restores a tensor in other forms than it was given up in, the potential of those given up rises,
/// and that of those restored falls, in supergradient steps towards the bound `most`; clocks' weights move along. It
/// starts from what potentials are known, and adds those that it finds. Programs that take more than `most` are left out
/// on the way. When time is over no further round begins.
/// *Precondition:* weights of clocks alone bound the time.
/// *Complexity.* Linear in the graph, per round; in what is left of it, once programs are left out.
[[nodiscard]] linked_relaxation improve_links(priced_graph const& priced, loose_links const& links, relaxation start,
                                              known_potentials& known, double most, int rounds,
                                              search::deadline const& until);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE linked_relaxation improve_links(priced_graph const& priced, loose_links const& links, relaxation start,
                                              known_potentials& known, double most, int rounds,
                                              search::deadline const& until) {
    constexpr std::size_t kept = 6;
    constexpr int more_of_few = 4; // times as many rounds, where few programs are left: they take next to no time
    auto const& sides = links.sides();
    std::vector<move_list> last;
    auto const for_each = [&](auto&& visit) { // side, tensor and forms
        for (std::size_t n = 0; n < sides.size(); ++n)
            for (auto t : links.groups()[sides[n].group])
                if (sides[n].is_restored) visit(n, std::pair(t, sides[n].forms));
    };
    std::vector<double> potentials(sides.size()), slope(sides.size());
    for_each([&](std::size_t n, auto const& of) {
        if (auto const found = known.find(of); found != known.end()) potentials[n] = found->second;
    });
    auto best = start;
    narrowing_relaxation relaxed(priced);
    double highest = best.bound();
    auto best_potentials = potentials;
    auto weights = best.weights;
    double part = 1;
    auto const left = [&](int round) { return round < (relaxed.left() ? more_of_few : 1) * rounds; };
    for (int round = 0, setbacks = 0; left(round) && !sides.empty() && !until.is_over(); ++round) {
        auto linked = links.at(potentials);
        weights.links = std::move(linked.of_side);
        auto current = relaxed.at(weights);
        double const bound = current.bound();
        if (!std::isfinite(bound)) break;
        auto const path = search::follow(relaxed.graph(), current.paths);
        relaxed.leave_out(current, bound, most);
        if (bound > highest) {
            highest = bound;
            best = std::move(current);
            best_potentials = potentials;
        } else if (++setbacks % 2 == 0) {
            part *= 0.7;
        }
        slope.assign(sides.size(), 0.0);
        for (auto a : path)
            for (auto n : links.of(a)) slope[linked.potential_of_side[n]] += sides[n].is_restored ? -1 : 1;
        double norm = 0;
        for (double s : slope) norm += s * s;
        auto const loads = loads_of(priced, path, weights.time);
        shift_weights(weights.time.clock, loads.clock, 0.3 / (1 + setbacks));
        shift_weights(weights.time.update, loads.update, 0.3 / (1 + setbacks));
        if (algorithm::find(last, path) == last.end()) last.push_back(path);
        if (last.size() > kept) last.erase(last.begin());
        if (bound >= most) break;
        for (std::size_t n = 0; norm > 0 && n < sides.size(); ++n)
            potentials[n] += part * (most - bound) / norm * slope[n];
    }
    for_each([&](std::size_t n, auto const& of) { known[of] = best_potentials[n]; });
    best = relaxed.of_all(std::move(best));
    if (best.bound() < start.bound()) best = std::move(start);
    double const bound = std::min(highest, std::max(best.bound(), relaxed.least_left_out()));
    return {std::move(best), bound, std::move(last)};
}

} // namespace heddle

#endif
