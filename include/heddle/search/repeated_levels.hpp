// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A list without what repeats in it.
#pragma once

#include <heddle/base/requirements.hpp>

#include <cstddef>
#include <vector>

namespace heddle::search {

/// Places of a list, without repetitions.
struct shortened_list {
    /// The places kept, ascending.
    std::vector<std::size_t> kept;
    /// For each place, one that is kept and has the same key.
    std::vector<std::size_t> like;
};

/// Keeps of equal parts in a row so many, beginning with the row where that leaves out most, until there is none with
/// more. Those left out follow the middle one of those kept and are like it. So what comes before a place in the list
/// has the key of what comes before it among those kept; and so has the end.
/// *Precondition:* `most > 0`. *Complexity.* Quadratic in what is kept, per row.
template <class Key>
[[nodiscard]] shortened_list without_repetitions(std::vector<Key> const& keys, std::size_t most = 1) {
    shortened_list result;
    std::size_t const before = (most - 1) / 2; // how many come before the middle one
    for (std::size_t n = 0; n < keys.size(); ++n) result.kept.push_back(n), result.like.push_back(n);
    for (auto& kept = result.kept;;) {
        std::size_t first = 0, length = 0, saved = 0; // of what is left out, and of one part
        for (std::size_t period = 1; 2 * period <= kept.size(); ++period)
            for (std::size_t n = 0, same = 0; n + period < kept.size(); ++n) {
                same = keys[kept[n]] == keys[kept[n + period]] ? same + 1 : 0;
                std::size_t const repeated = same - same % period, others = (most - 1) * period;
                if (repeated > others + saved) {
                    saved = repeated - others;
                    length = period;
                    first = n + period + 1 - repeated + before * period;
                }
            }
        if (saved == 0) break;
        for (std::size_t n = first; n < first + saved; ++n)
            result.like[kept[n]] = kept[first - length + (n - first) % length];
        auto const at = kept.begin() + static_cast<std::ptrdiff_t>(first);
        kept.erase(at, at + static_cast<std::ptrdiff_t>(saved));
    }
    for (auto& place : result.like) // one that was left out later
        while (result.like[place] != place) place = result.like[place];
    return result;
}

} // namespace heddle::search
