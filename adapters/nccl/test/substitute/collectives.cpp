// SPDX-License-Identifier: BSL-1.0
#include "bfloat16.hpp"
#include "ranks.hpp"

#include <support/collective_case.hpp>
#include <support/errors.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <string>
#include <vector>

using namespace heddle;
using test::device_array;
using test::on_ranks;

namespace {

using counts = test::element_counts;

template <class Scalar>
void try_collectives(nccl::communicator& c, cudaStream_t on, std::mt19937& random) {
    std::size_t const rank = c.rank();
    test::collective_case<Scalar> const drawn(random, c.size(), rank);
    auto const& data = drawn.data[rank];
    device_array<Scalar> reduced(data, on), most(data, on), broadcast(data, on),
        gathered(std::vector<Scalar>(data.size()), on), scattered(std::vector<Scalar>(drawn.shards[rank]), on),
        incoming(std::vector<Scalar>(drawn.incoming.size()), on);
    device_array<Scalar> const mine(drawn.shard(drawn.whole, rank), on), summand(data, on),
        out(drawn.outgoing[rank], on);
    // All are under way before one is waited for, and the last is waited for first.
    std::vector<nccl::request> requests;
    requests.push_back(c.start_all_reduce(reduced.out()));
    requests.push_back(c.start_all_reduce(most.out(), reduction::maximum));
    requests.push_back(c.start_broadcast(broadcast.out(), drawn.root));
    requests.push_back(c.start_all_gather_v(mine.in(), gathered.out(), drawn.shards, drawn.how));
    requests.push_back(c.start_reduce_scatter_v(summand.in(), scattered.out(), drawn.shards, drawn.how));
    requests.push_back(c.start_all_to_all_v(out.in(), drawn.sent[rank], incoming.out(), drawn.received));
    for (auto r = requests.rbegin(); r != requests.rend(); ++r) r->wait();
    CHECK(reduced.values() == drawn.sum);
    CHECK(most.values() == drawn.largest);
    CHECK(broadcast.values() == drawn.data[drawn.root]);
    CHECK(gathered.values() == drawn.whole);
    CHECK(scattered.values() == drawn.shard(drawn.sum, rank));
    CHECK(incoming.values() == drawn.incoming);
}

} // namespace

TEST_CASE("collectives equal their sequential oracles") {
    for (std::size_t ranks = 1; ranks <= 8; ++ranks) {
        CAPTURE(ranks);
        on_ranks(ranks, [&](nccl::communicator& world, cudaStream_t on) {
            for (unsigned seed = 0; seed < 12; ++seed) {
                CAPTURE(seed);
                std::mt19937 random(seed);
                try_collectives<double>(world, on, random);
                try_collectives<float>(world, on, random);
                try_collectives<test::substitute::bfloat16>(world, on, random);
            }
        });
    }
}

TEST_CASE("a grouped gather is a group of broadcasts of the shards that are not empty, a padded one a single call") {
    on_ranks(3, [](nccl::communicator& world, cudaStream_t on) {
        counts const shards{4, 0, 9};
        device_array<double> const mine(std::vector<double>(shards[world.rank()]), on);
        device_array<double> whole(std::vector<double>(13), on);
        using test::substitute::calls_of;
        world.all_gather_v(mine.in(), whole.out(), shards, uneven::grouped);
        CHECK(calls_of("broadcast") == 2);
        CHECK(calls_of("all-gather") == 0);
        world.all_gather_v(mine.in(), whole.out(), shards, uneven::padded);
        CHECK(calls_of("broadcast") == 2);
        CHECK(calls_of("all-gather") == 1);
        device_array<double> scattered(std::vector<double>(shards[world.rank()]), on);
        world.reduce_scatter_v(whole.in(), scattered.out(), shards, uneven::grouped);
        CHECK(calls_of("reduce") == 2);
        world.reduce_scatter_v(whole.in(), scattered.out(), shards, uneven::padded);
        CHECK(calls_of("reduce-scatter") == 1);
    });
}

TEST_CASE("groups of ranks work by themselves, in the order they are given in") {
    on_ranks(6, [](nccl::communicator& world, cudaStream_t on) {
        std::mt19937 random(5);
        for (unsigned seed = 0; seed < 6; ++seed) {
            CAPTURE(seed);
            std::vector<std::size_t> all(world.size());
            std::iota(all.begin(), all.end(), std::size_t{0});
            std::shuffle(all.begin(), all.end(), random);
            auto const parts = static_cast<std::size_t>(1 + random() % all.size());
            auto const mine = static_cast<std::size_t>(std::find(all.begin(), all.end(), world.rank()) - all.begin());
            std::vector<std::size_t> members;
            for (auto n = mine % parts; n < all.size(); n += parts) members.push_back(all[n]);
            auto group = world.group(members);
            CHECK(group.size() == members.size());
            CHECK(members[group.rank()] == world.rank());
            std::mt19937 of_group(seed * 100 + static_cast<unsigned>(mine % parts));
            try_collectives<double>(group, on, of_group);
        }
    });
}

TEST_CASE("ranks of one color are divided from others") {
    on_ranks(5, [](nccl::communicator& world, cudaStream_t on) {
        std::size_t const rank = world.rank();
        // Ranks 0, 2 and 3 by falling rank, rank 4 alone, rank 1 nowhere.
        std::optional<int> const color = rank == 1 ? std::nullopt : std::optional(rank == 4 ? 7 : 0);
        for (int times = 0; times < 2; ++times) {
            auto part = world.split(color, -static_cast<int>(rank));
            REQUIRE(part.has_value() == (rank != 1));
            if (!part) continue;
            CHECK(part->size() == (rank == 4 ? 1 : 3));
            CHECK(part->rank() == (rank == 0 ? 2 : rank == 2 ? 1 : 0));
            std::mt19937 random(rank == 4 ? 1 : 2);
            try_collectives<float>(*part, on, random);
            if (part->size() == 3) { // what is divided has groups and messages as well
                auto pair = part->rank() == 1 ? part->group({1}) : part->group({0, 2});
                device_array<double> data({1.0}, on);
                pair.all_reduce(data.out());
                CHECK(data.values() == std::vector<double>{static_cast<double>(pair.size())});
            }
        }
        CHECK_THROWS_WITH_AS((void)world.split(-1, 0), doctest::Contains("a color is -1"), error);
    });
}

TEST_CASE("what goes through another lane is held up by nothing that was started before") {
    auto const through_lanes = [](bool are_open) {
        on_ranks(2, [&](nccl::communicator& world, cudaStream_t on) {
            if (are_open) world.open(lane::kernels);
            device_array<double> beside({1.0}, on), statistic({2.0 + static_cast<double>(world.rank()), 1.0}, on);
            nccl::request started;
            if (world.rank() == 0) started = world.start_all_reduce(beside.out());
            world.through(lane::kernels, [&] { world.all_reduce(statistic.out()); });
            auto const came = statistic.values("kernel"); // before the other starts what is beside
            CHECK(came == std::vector<double>{5.0, 2.0});
            if (world.rank() == 1) started = world.start_all_reduce(beside.out());
            started.wait();
            auto const then = beside.values("kernel");
            CHECK(then == std::vector<double>{2.0});
        });
    };
    through_lanes(true);
    CHECK(test::contains(test::problem_of([&] { through_lanes(false); }), "all-reduce of 2 doubles"));
}

TEST_CASE("messages arrive in order, however many are sent before one is received") {
    for (auto const ranks : std::vector<std::size_t>{2, 3, 5})
        on_ranks(ranks, [](nccl::communicator& world, cudaStream_t on) {
            std::size_t const next = (world.rank() + 1) % world.size(),
                              last = (world.rank() + world.size() - 1) % world.size();
            auto const size = [](std::size_t n) { return n % 7 == 0 ? 2000 : n % 7; };
            for (std::size_t n = 0; n < 30; ++n) {
                device_array<double> message(std::vector<double>(size(n), static_cast<double>(n + 1000 * world.rank())),
                                             on);
                world.send(message.in(), next);
                message.write("spoiling", std::vector<double>(size(n), -1)); // a copy was sent
            }
            for (std::size_t n = 0; n < 30; ++n) {
                device_array<double> got(std::vector<double>(size(n)), on);
                world.receive(got.out(), last);
                CHECK(got.values() == std::vector<double>(size(n), static_cast<double>(n + 1000 * last)));
            }
        });
}

TEST_CASE("ranks that all expect a message before they send one do not wait for each other") {
    on_ranks(4, [](nccl::communicator& world, cudaStream_t on) {
        std::size_t const next = (world.rank() + 1) % world.size(),
                          last = (world.rank() + world.size() - 1) % world.size();
        device_array<double> const mine({static_cast<double>(world.rank())}, on);
        device_array<double> got({-1.0}, on), sum({1.0}, on);
        auto coming = world.start_receive(got.out(), last);
        auto going = world.start_send(mine.in(), next);
        world.all_reduce(sum.out()); // goes past messages
        coming.wait();
        going.wait();
        CHECK(got.values() == std::vector<double>{static_cast<double>(last)});
        CHECK(sum.values() == std::vector<double>{4});
    });
}

TEST_CASE("what a rank sends last arrives, though it makes no more calls") {
    on_ranks(3, [](nccl::communicator& world, cudaStream_t on) {
        device_array<double> data({static_cast<double>(world.rank())}, on);
        if (world.rank() == 0) return world.send(data.in(), 2);
        if (world.rank() == 2) {
            world.receive(data.out(), 0);
            CHECK(data.values() == std::vector<double>{0});
        }
    });
}

TEST_CASE("an iteration is enqueued without a wait of the host, once ranks have met") {
    on_ranks(4, [](nccl::communicator& world, cudaStream_t on) {
        counts const shards{3, 0, 5, 1};
        std::size_t const next = (world.rank() + 1) % world.size(),
                          last = (world.rank() + world.size() - 1) % world.size();
        device_array<double> const mine(std::vector<double>(shards[world.rank()], 1), on);
        device_array<double> whole(std::vector<double>(9), on), message({0.0}, on);
        auto const iterate = [&] {
            for (auto const how : {uneven::padded, uneven::grouped}) {
                world.all_gather_v(mine.in(), whole.out(), shards, how);
                world.all_reduce(whole.out());
                world.send(message.in(), next);
                world.receive(message.out(), last);
            }
        };
        iterate();
        world.synchronise();
        for (int n = 0; n < 3; ++n) {
            {
                test::substitute::iteration const marked;
                iterate();
            }
            world.synchronise();
            std::vector<double> result(9);
            CHECK(cudaMemcpy(result.data(), whole.in().data(), 9 * sizeof(double), cudaMemcpyDeviceToHost) ==
                  cudaSuccess);
            CHECK(result == std::vector<double>(9, 4));
        }
    });
}

TEST_CASE("bytes are counted as ranks of one process count them") {
    on_ranks(3, [](nccl::communicator& world, cudaStream_t on) {
        counts const shards{5, 3, 3};
        device_array<double> const mine(std::vector<double>(shards[world.rank()]), on);
        device_array<double> whole(std::vector<double>(11), on);
        world.all_gather_v(mine.in(), whole.out(), shards, uneven::padded);
        CHECK(world.traffic().of(collective::all_gather).payload == bytes(8.0 * 5 * 3));
        world.charge_elements_as(2);
        world.all_gather_v(mine.in(), whole.out(), shards, uneven::grouped);
        auto const& grouped = world.traffic().of(collective::all_gather, uneven::grouped);
        CHECK(grouped.payload == bytes(2.0 * 11));
        CHECK(grouped.messages == 3);
    });
}

TEST_CASE("what does not fit is refused with rank and operation, before anything is sent") {
    on_ranks(2, [](nccl::communicator& world, cudaStream_t on) {
        device_array<double> whole(std::vector<double>(3), on), mine({0.0}, on);
        counts const none;
        using test::contains, test::error_of;
        auto const shards = error_of<error>([&] { world.all_gather_v(mine.in(), whole.out(), none, uneven::padded); });
        CHECK(contains(shards, "rank " + std::to_string(world.rank()) + " of 2"));
        CHECK(contains(shards, "all-gather of 3 elements"));
        CHECK(contains(error_of<error>([&] { world.all_to_all_v(mine.in(), none, whole.out(), none); }),
                       "counts that do not fit"));
        CHECK(contains(error_of<error>([&] { (void)world.group({7}); }), "forming a group"));
        CHECK(contains(error_of<error>([&] { (void)world.group({world.rank(), world.rank()}); }), "is twice"));
        CHECK(contains(error_of<error>([&] { world.send(mine.in(), 2); }), "a message of 1 elements"));
        CHECK(contains(error_of<error>([&] { world.send(mine.in(), world.rank()); }), "sends to itself"));
    });
}
