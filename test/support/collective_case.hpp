// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What ranks have and what collectives make of it, for tests of communicators.
#pragma once

#include <heddle/execute/communicator.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace heddle::test {

using element_counts = std::vector<std::size_t>;

/// Uneven, some zero; sometimes equal, sometimes all zero.
inline element_counts random_counts(std::mt19937& random, std::size_t ranks) {
    auto const kind = random() % 8;
    if (kind < 2) return element_counts(ranks, kind * (random() % 600));
    element_counts result;
    for (std::size_t r = 0; r < ranks; ++r) result.push_back(random() % 3 == 0 ? 0 : random() % 600);
    return result;
}

/// Every rank draws what all ranks have, so each knows what it has to get. All sums are exact.
template <class Scalar>
struct collective_case {
    using values = std::vector<Scalar>;

    element_counts shards;
    std::size_t root;
    uneven how;
    /// What the ranks reduce or scatter, by rank, of one size; and what they gather.
    std::vector<values> data;
    values whole;
    values sum, largest;
    /// What the ranks send to each other, by rank, and how much to whom.
    std::vector<values> outgoing;
    std::vector<element_counts> sent;
    /// What this rank receives, and how much from whom.
    values incoming;
    element_counts received;

    collective_case(std::mt19937& random, std::size_t ranks, std::size_t rank)
        : shards(random_counts(random, ranks)), root(random() % ranks),
          how(random() % 2 ? uneven::padded : uneven::grouped) {
        std::size_t const size = total_count(shards);
        for (std::size_t r = 0; r < ranks; ++r) {
            data.push_back(random_values(random, size));
            sent.push_back(random_counts(random, ranks));
        }
        whole = random_values(random, size);
        sum.resize(size);
        largest = data[0];
        for (auto const& d : data)
            for (std::size_t n = 0; n < size; ++n) {
                sum[n] += d[n];
                largest[n] = std::max(largest[n], d[n]);
            }
        for (auto const& s : sent) outgoing.push_back(random_values(random, total_count(s)));
        for (std::size_t r = 0; r < ranks; ++r) {
            received.push_back(sent[r][rank]);
            auto const next = piece(outgoing[r], sent[r], rank);
            incoming.insert(incoming.end(), next.begin(), next.end());
        }
    }

    /// Returns a rank's shard.
    [[nodiscard]] values shard(values const& of, std::size_t rank) const { return piece(of, shards, rank); }

private:
    [[nodiscard]] static values random_values(std::mt19937& random, std::size_t size) {
        values result;
        for (std::size_t n = 0; n < size; ++n) result.push_back(static_cast<Scalar>(random() % 1000) / 8);
        return result;
    }
    [[nodiscard]] static values piece(values const& of, element_counts const& counts, std::size_t rank) {
        auto const begin = of.begin() + static_cast<std::ptrdiff_t>(total_count(shard_counts(counts).first(rank)));
        return {begin, begin + static_cast<std::ptrdiff_t>(counts[rank])};
    }
};

} // namespace heddle::test
