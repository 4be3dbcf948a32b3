// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Tries operations that are started together and waited for in any order.
#pragma once

#include <heddle/execute/communicator.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <list>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace heddle::test {

/// Starts up to eight operations and waits for them in an order that each rank has for itself.
/// *Precondition:* `shared` is equal on all ranks, which draw from it what all of them have; sums are exact.
template <asynchronous_communicator_of<double> Communicator>
void try_started(Communicator& c, std::mt19937& shared, std::mt19937& own) {
    using values = std::vector<double>;
    auto const ranks = static_cast<std::size_t>(c.size()), rank = static_cast<std::size_t>(c.rank());
    auto const draw = [&](std::size_t size) {
        values result;
        for (std::size_t n = 0; n < size; ++n) result.push_back(static_cast<double>(shared() % 1000) / 8);
        return result;
    };
    struct started {
        values mine, got, expected;
        std::vector<std::size_t> counts;
        typename Communicator::request request;
    };
    std::list<started> all; // spans refer to its vectors
    auto const start = [&] {
        auto& s = all.emplace_back();
        std::size_t const most = shared() % 4 == 0 ? 9000 : 300; // large ones are carried in another way
        for (std::size_t r = 0; r < ranks; ++r) s.counts.push_back(shared() % 4 == 0 ? 0 : shared() % most);
        std::size_t const size = total_count(s.counts), root = shared() % ranks;
        std::vector<values> data;
        for (std::size_t r = 0; r < ranks; ++r) data.push_back(draw(size));
        values sum(size);
        for (auto const& d : data) std::ranges::transform(sum, d, sum.begin(), std::plus<>{});
        auto const begin = static_cast<std::ptrdiff_t>(total_count(shard_counts(s.counts).first(rank)));
        auto const piece = [&](values const& whole) {
            return values(whole.begin() + begin, whole.begin() + begin + static_cast<std::ptrdiff_t>(s.counts[rank]));
        };
        switch (shared() % 5) {
        case 0:
            s.got = data[rank];
            s.expected = sum;
            s.request = c.start_all_reduce(std::span<double>(s.got), reduction::sum);
            break;
        case 1:
            s.got = data[rank];
            s.expected = data[root];
            s.request = c.start_broadcast(std::span<double>(s.got), root);
            break;
        case 2:
            s.mine = piece(data[0]);
            s.got.resize(size);
            s.expected = data[0];
            s.request = c.start_all_gather_v(std::span<double const>(s.mine), std::span<double>(s.got), s.counts,
                                             uneven::grouped);
            break;
        case 3:
            s.mine = data[rank];
            s.got.resize(s.counts[rank]);
            s.expected = piece(sum);
            s.request = c.start_reduce_scatter_v(std::span<double const>(s.mine), std::span<double>(s.got), s.counts,
                                                 uneven::padded);
            break;
        default: // each rank sends the same pieces
            s.mine = data[rank];
            std::vector<std::size_t> const received(ranks, s.counts[rank]);
            s.got.resize(total_count(received));
            for (auto const& d : data) {
                auto const from = piece(d);
                s.expected.insert(s.expected.end(), from.begin(), from.end());
            }
            s.request =
                c.start_all_to_all_v(std::span<double const>(s.mine), s.counts, std::span<double>(s.got), received);
        }
    };
    auto const count = 1 + shared() % 8;
    for (std::size_t n = 0; n < count; ++n) start();
    std::vector<started*> order;
    for (auto& s : all) order.push_back(&s);
    std::shuffle(order.begin(), order.end(), own);
    for (auto* s : order) {
        s->request.wait();
        CHECK(s->got == s->expected);
        s->request.wait(); // nothing is left
    }
}

/// Sends messages round a ring of ranks and waits for those that come in any order.
template <class Communicator>
void try_started_messages(Communicator& c, std::mt19937& own) {
    auto const ranks = static_cast<std::size_t>(c.size()), rank = static_cast<std::size_t>(c.rank());
    std::size_t const next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks, count = 20;
    std::vector<std::vector<double>> sent, got;
    for (std::size_t n = 0; n < count; ++n) {
        sent.emplace_back(n % 5 == 0 ? 2000 : n, static_cast<double>(1000 * rank + n));
        got.emplace_back(sent.back().size());
    }
    std::vector<typename Communicator::request> sends, receives;
    for (std::size_t n = 0; n < count; ++n) {
        receives.push_back(c.start_receive(std::span<double>(got[n]), last));
        sends.push_back(c.start_send(std::span<double const>(sent[n]), next));
    }
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), own);
    for (auto n : order) {
        receives[n].wait();
        CHECK(got[n] == std::vector<double>(got[n].size(), static_cast<double>(1000 * last + n)));
    }
    for (auto& s : sends) s.wait();
}

} // namespace heddle::test
