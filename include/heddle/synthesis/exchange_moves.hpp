// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Makes a program cheaper by other moves in a few places at a time.
#pragma once

#include <heddle/cost/priced_graph.hpp>
#include <heddle/cost/program_cost.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/state_graph.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// Exchanges two moves in turn of a program for others between the same states, from the first level to the last and
/// again, as long as that makes it cheaper and it fits. A beam is short-sighted where collectives hide behind work that
/// comes much later; this prices whole programs.
/// *Returns* the program, if it became cheaper; nothing as well if the graph does not have the given one.
/// *Complexity.* Per round linear in the pairs of moves, times the levels up to where the program itself is as good.
template <time_accumulator Accumulator>
[[nodiscard]] std::optional<move_list> exchange_moves(priced_graph const& priced, move_list path, int rounds,
                                                      search::deadline const& until) {
    auto const& graph = priced.graph();
    std::vector<search::graph_node> states{{}};
    for (auto const given : path) {
        std::optional<std::uint32_t> next;
        graph.for_each_edge(states.back(), [&](std::uint32_t to, auto action) {
            if (action == given) next = to;
        });
        if (!next) return std::nullopt;
        states.push_back({states.back().level + 1, *next});
    }
    program_clock<Accumulator> const clock(priced);
    std::vector<cost_label<Accumulator>> labels{clock.start()}; // the program's, by level
    auto const follow_from = [&](std::size_t level) {
        labels.erase(labels.begin() + static_cast<std::ptrdiff_t>(level) + 1, labels.end());
        for (; level < path.size(); ++level) {
            auto next = labels.back();
            clock.extend(next, level, path[level]);
            labels.push_back(std::move(next));
        }
    };
    follow_from(0);
    // What a label costs with the rest of the program; nothing once the program's own is as good.
    auto const cost_with_rest = [&](cost_label<Accumulator> made, std::size_t level) -> std::optional<path_cost> {
        for (; level < path.size(); ++level) {
            if (clock.time().dominates(labels[level].time, made.time)) return std::nullopt;
            clock.extend(made, level, path[level]);
        }
        return clock.evaluate(std::move(made), level, {});
    };
    auto const first = clock.evaluate(labels.back(), path.size(), {});
    double least = first.seconds;
    if (!priced.fits(first)) return std::nullopt;
    for (bool again = true; again && rounds > 0; --rounds) {
        again = false;
        for (std::size_t level = 0; level + 1 < path.size() && !until.is_over(); ++level)
            graph.for_each_edge(states[level], [&](std::uint32_t through, auto one) {
                auto between = labels[level];
                clock.extend(between, level, one);
                graph.for_each_edge({states[level].level + 1, through}, [&](std::uint32_t to, auto other) {
                    if (to != states[level + 2].position) return;
                    auto made = between;
                    clock.extend(made, level + 1, other);
                    auto const cost = cost_with_rest(std::move(made), level + 2);
                    if (!cost || cost->seconds >= least * (1 - 1e-9) || !priced.fits(*cost)) return;
                    least = cost->seconds;
                    path[level] = one;
                    path[level + 1] = other;
                    states[level + 1].position = through;
                    follow_from(level);
                    again = true;
                });
            });
    }
    if (least >= first.seconds) return std::nullopt;
    return path;
}

} // namespace heddle
