// SPDX-License-Identifier: BSL-1.0
#include <heddle/execute/in_process.hpp>

#include <support/errors.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace heddle;

namespace {

using values = std::vector<double>;
using counts = std::vector<std::size_t>;

/// Uneven, some zero.
counts random_counts(std::mt19937& random, std::size_t ranks) {
    counts result;
    for (std::size_t r = 0; r < ranks; ++r) result.push_back(random() % 3 == 0 ? 0 : random() % 6);
    return result;
}
values random_values(std::mt19937& random, std::size_t size) {
    values result;
    for (std::size_t n = 0; n < size; ++n) result.push_back(static_cast<double>(random() % 1000) / 8);
    return result;
}
std::vector<values> random_values(std::mt19937& random, std::size_t ranks, std::size_t size) {
    std::vector<values> result;
    for (std::size_t r = 0; r < ranks; ++r) result.push_back(random_values(random, size));
    return result;
}
values sum(std::vector<values> const& all) {
    values result = all.front();
    for (std::size_t r = 1; r < all.size(); ++r)
        for (std::size_t n = 0; n < result.size(); ++n) result[n] += all[r][n];
    return result;
}
std::size_t offset(counts const& c, std::size_t rank) { return total_count(shard_counts(c).first(rank)); }
values piece(values const& whole, counts const& c, std::size_t rank) {
    auto const begin = whole.begin() + static_cast<std::ptrdiff_t>(offset(c, rank));
    return {begin, begin + static_cast<std::ptrdiff_t>(c[rank])};
}

std::span<double> out(values& v) { return v; }
std::span<double const> in(values const& v) { return v; }

template <class Work>
std::string failure(std::size_t ranks, Work work) {
    try {
        run_ranks(ranks, work);
    } catch (std::exception const& e) { return e.what(); }
    return "nothing thrown";
}

using test::contains;

} // namespace

TEST_CASE("collectives equal their sequential oracles on 1 to 7 ranks") {
    for (unsigned seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        std::size_t const ranks = 1 + seed % 7;
        auto const shards = random_counts(random, ranks);
        std::size_t const size = total_count(shards), root = random() % ranks;
        auto const how = random() % 2 ? uneven::padded : uneven::grouped;
        auto const data = random_values(random, ranks, size);
        auto const whole = random_values(random, size);
        std::vector<counts> sent;
        for (std::size_t r = 0; r < ranks; ++r) sent.push_back(random_counts(random, ranks));
        std::vector<values> outgoing;
        for (auto const& c : sent) outgoing.push_back(random_values(random, total_count(c)));

        std::vector<values> reduced = data, broadcast = data, gathered(ranks), scattered(ranks), received(ranks);
        std::vector<traffic> seen(ranks);
        std::vector<counts> receive_counts(ranks);
        run_ranks(ranks, [&](in_process_communicator& c) {
            auto const r = c.rank();
            c.all_reduce(out(reduced[r]));
            c.broadcast(out(broadcast[r]), root);
            gathered[r].resize(size);
            c.all_gather_v(in(piece(whole, shards, r)), out(gathered[r]), shards, how);
            scattered[r].resize(shards[r]);
            c.reduce_scatter_v(in(data[r]), out(scattered[r]), shards, how);
            for (auto const& s : sent) receive_counts[r].push_back(s[r]);
            received[r].resize(total_count(receive_counts[r]));
            c.all_to_all_v(in(outgoing[r]), sent[r], out(received[r]), receive_counts[r]);
            seen[r] = c.traffic();
        });
        auto const total = sum(data);
        std::size_t largest_sent = 0;
        for (std::size_t r = 0; r < ranks; ++r) {
            CHECK(reduced[r] == total);
            CHECK(broadcast[r] == data[root]);
            CHECK(gathered[r] == whole);
            CHECK(scattered[r] == piece(total, shards, r));
            values expected;
            for (std::size_t s = 0; s < ranks; ++s)
                for (double x : piece(outgoing[s], sent[s], r)) expected.push_back(x);
            CHECK(received[r] == expected);
            largest_sent = std::max({largest_sent, total_count(sent[r]), total_count(receive_counts[r])});
        }
        auto const payload = [](std::size_t elements) { return bytes(8.0 * static_cast<double>(elements)); };
        for (auto const& t : seen) {
            CHECK(t == seen.front());
            CHECK(t.of(collective::all_reduce) == traffic::entry{1, 1, payload(size)});
            CHECK(t.of(collective::broadcast) == traffic::entry{1, 1, payload(size)});
            CHECK(t.of(collective::all_to_all) == traffic::entry{1, 1, payload(largest_sent)});
            bool const padded = how == uneven::padded;
            traffic::entry const gather{1, padded ? 1 : ranks,
                                        payload(padded ? ranks * std::ranges::max(shards) : size)};
            CHECK(t.of(collective::all_gather, how) == gather);
            CHECK(t.of(collective::reduce_scatter, how) == gather);
        }
    }
}

TEST_CASE("sums run over the ranks in order and are equal on all of them") {
    std::vector<float> const terms{1e8F, 1, -1e8F, 1};
    std::vector<float> result(4);
    run_ranks(4, [&](in_process_communicator& c) {
        float mine = terms[c.rank()];
        c.all_reduce(std::span(&mine, 1));
        result[c.rank()] = mine;
    });
    CHECK(result == std::vector<float>(4, ((1e8F + 1) - 1e8F) + 1));
}

TEST_CASE("an all-reduce may take the largest; ranks that want different reductions fail") {
    double const none = -std::numeric_limits<double>::infinity();
    std::vector<values> const data{{1, none, -5}, {3, none, -4}, {2, none, none}};
    std::vector<values> result = data;
    std::vector<traffic> seen(3);
    run_ranks(3, [&](in_process_communicator& c) {
        c.all_reduce(out(result[c.rank()]), reduction::maximum);
        seen[c.rank()] = c.traffic();
    });
    for (auto const& t : seen) CHECK(t.of(collective::all_reduce) == traffic::entry{1, 1, bytes(24)});
    for (auto const& r : result) CHECK(r == values{3, none, -4});
    CHECK_THROWS_WITH_AS(run_ranks(2,
                                   [](in_process_communicator& c) {
                                       values x(3);
                                       c.all_reduce(out(x), c.rank() == 0 ? reduction::maximum : reduction::sum);
                                   }),
                         doctest::Contains("different reductions"), error);
}

TEST_CASE("bytes can be counted as of the model's elements") {
    run_ranks(1, [](in_process_communicator& c) {
        values x(10);
        c.charge_elements_as(4);
        c.all_reduce(out(x));
        CHECK(c.traffic().of(collective::all_reduce).payload == bytes(40));
    });
}

TEST_CASE("groups of ranks meet among themselves") {
    for (std::size_t ranks : {2u, 4u, 6u}) {
        values result(ranks);
        run_ranks(ranks, [&](in_process_communicator& c) {
            counts members;
            for (std::size_t r = c.rank() % 2; r < ranks; r += 2) members.push_back(r);
            auto group = c.group(members);
            CHECK(group.rank() == c.rank() / 2);
            values mine{static_cast<double>(c.rank())};
            group.all_reduce(out(mine));
            result[c.rank()] = mine[0];
        });
        for (std::size_t r = 0; r < ranks; ++r) {
            double expected = 0;
            for (std::size_t s = r % 2; s < ranks; s += 2) expected += static_cast<double>(s);
            CHECK(result[r] == expected);
        }
    }
}

TEST_CASE("a device group's first device acts for it across groups") {
    using member = grouped_communicator<double, in_process_communicator, in_process_communicator>;
    static_assert(communicator_of<member, double>);
    for (std::size_t inside : {1u, 2u, 3u}) {
        std::size_t const groups = 2, ranks = inside * groups;
        std::mt19937 random(static_cast<unsigned>(inside));
        auto const data = random_values(random, groups, 7);
        auto const whole = random_values(random, 7);
        counts const shards{7, 0}, back{2, 5};
        std::vector<values> reduced = data, gathered(groups, values(7)), scattered(groups), exchanged(groups),
                            copied = data;
        run_ranks(ranks, [&](in_process_communicator& world) {
            auto const r = world.rank(), group = r / inside;
            counts members, leaders;
            for (std::size_t m = 0; m < inside; ++m) members.push_back(group * inside + m);
            for (std::size_t g = 0; g < groups; ++g) leaders.push_back(g * inside);
            auto inner = world.group(members);
            std::optional<in_process_communicator> across;
            if (inner.rank() == 0) across = world.group(leaders);
            member c(inner, across ? &*across : nullptr, group, groups);
            CHECK(c.rank() == group);
            CHECK(c.size() == groups);
            CHECK(c.inside().size() == inside);
            CHECK((c.across() != nullptr) == (c.inside().rank() == 0));
            if (!c.across()) return;
            c.charge_elements_as(2);
            c.all_reduce(out(reduced[group]));
            CHECK(across->traffic().of(collective::all_reduce).payload == bytes(14));
            c.all_gather_v(in(piece(whole, shards, group)), out(gathered[group]), shards, uneven::grouped);
            scattered[group].resize(back[group]);
            c.reduce_scatter_v(in(data[group]), out(scattered[group]), back, uneven::padded);
            counts const sent{group == 0 ? 2u : 0u, group == 0 ? 5u : 0u}, received{back[group], 0};
            exchanged[group].resize(back[group]);
            c.all_to_all_v(in(piece(whole, shards, group)), sent, out(exchanged[group]), received);
            c.broadcast(out(copied[group]), 1);
        });
        for (std::size_t g = 0; g < groups; ++g) {
            for (std::size_t n = 0; n < 7; ++n) CHECK(reduced[g][n] == doctest::Approx(sum(data)[n]));
            CHECK(gathered[g] == whole);
            for (std::size_t n = 0; n < scattered[g].size(); ++n)
                CHECK(scattered[g][n] == doctest::Approx(piece(sum(data), back, g)[n]));
            CHECK(exchanged[g] == piece(whole, back, g));
            CHECK(copied[g] == data[1]);
        }
    }
}

TEST_CASE("a rank that fails stops every rank with its error") {
    for (std::size_t ranks : {1u, 2u, 5u})
        for (std::size_t bad = 0; bad < ranks; ++bad) {
            std::string const text = failure(ranks, [&](in_process_communicator& c) {
                values x(3);
                c.all_reduce(out(x));
                if (c.rank() == bad) throw std::runtime_error("rank gave up");
                for (int n = 0; n < 3; ++n) c.all_reduce(out(x));
            });
            CHECK(text == "rank gave up");
        }
}

TEST_CASE("ranks that do not make the same collective are told so") {
    CHECK(contains(failure(3,
                           [](in_process_communicator& c) {
                               values x(3);
                               if (c.rank() == 1) c.broadcast(out(x), 0);
                               else c.all_reduce(out(x));
                           }),
                   "different collectives or element types: rank 0 in all_reduce of 3 elements, rank 1 in broadcast"));
    CHECK(
        contains(failure(2,
                         [](in_process_communicator& c) {
                             values x(3 + c.rank());
                             c.all_reduce(out(x));
                         }),
                 "tensors of different sizes: rank 0 in all_reduce of 3 elements, rank 1 in all_reduce of 4 elements"));
    CHECK(contains(failure(2,
                           [](in_process_communicator& c) {
                               values mine(1), whole(2);
                               c.all_gather_v(in(mine), out(whole), counts{1, 1},
                                              c.rank() == 0 ? uneven::padded : uneven::grouped);
                           }),
                   "rank 0 in all_gather (padded) of 2 elements, rank 1 in all_gather (grouped)"));
    CHECK(contains(failure(2,
                           [](in_process_communicator& c) {
                               values mine(c.rank() + 1), whole(3);
                               c.all_gather_v(in(mine), out(whole), c.rank() == 0 ? counts{1, 2} : counts{2, 1},
                                              uneven::padded);
                           }),
                   "different shards"));
    CHECK(contains(failure(2,
                           [](in_process_communicator& c) {
                               values mine(1), whole(3);
                               c.reduce_scatter_v(in(whole), out(mine), counts{1, 2}, uneven::padded);
                           }),
                   "data that do not fit the shards"));
    CHECK(contains(failure(2,
                           [](in_process_communicator& c) {
                               values mine(2), other(2);
                               c.all_to_all_v(in(mine), counts{1, 1}, out(other),
                                              c.rank() == 0 ? counts{1, 1} : counts{2, 0});
                           }),
                   "counts that do not fit"));
    CHECK(contains(failure(2,
                           [](in_process_communicator& c) {
                               values x(2);
                               std::vector<float> y(2);
                               if (c.rank() == 0) c.all_reduce(out(x));
                               else c.all_reduce(std::span<float>(y));
                           }),
                   "element types"));
}

TEST_CASE("a rank that waits in vain is told so") {
    CHECK(contains(failure(3,
                           [](in_process_communicator& c) {
                               values x(1);
                               c.all_reduce(out(x));
                               if (c.rank() != 2) c.all_reduce(out(x));
                           }),
                   "no rank can go on: rank 0 waits in all_reduce, rank 1 waits in all_reduce, rank 2 has ended"));
    CHECK(contains(
        failure(3,
                [](in_process_communicator& c) {
                    auto pair = c.group(c.rank() == 0 ? counts{0, 1} : c.rank() == 1 ? counts{1, 2} : counts{2, 0});
                    values x(1);
                    pair.all_reduce(out(x));
                }),
        "no rank can go on"));
}

TEST_CASE("mismatches and failures stop all ranks whoever comes first") {
    for (unsigned round = 0; round < 200; ++round) {
        CAPTURE(round);
        CHECK(contains(failure(3,
                               [&](in_process_communicator& c) {
                                   if (c.rank() == round % 3) std::this_thread::yield();
                                   values mine(c.rank() == round % 2 ? 2 : 1), whole(3);
                                   c.all_gather_v(in(mine), out(whole), counts{1, 1, 1}, uneven::padded);
                               }),
                       "data that do not fit the shards"));
        CHECK(failure(4, [&](in_process_communicator& c) {
                  auto pair = c.group(c.rank() < 2 ? counts{0, 1} : counts{2, 3});
                  values x(100);
                  for (unsigned n = 0; n < 20; ++n) {
                      if (c.rank() == round % 4 && n == round % 20) throw std::runtime_error("stop");
                      pair.all_reduce(out(x));
                  }
              }) == "stop");
    }
}
