// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <support/collective_case.hpp>
#include <support/errors.hpp>
#include <support/started_collectives.hpp>

#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

using namespace heddle;

namespace {

using counts = test::element_counts;

template <class Scalar>
std::span<Scalar> out(std::vector<Scalar>& v) {
    return v;
}
template <class Scalar>
std::span<Scalar const> in(std::vector<Scalar> const& v) {
    return v;
}

template <class Scalar, class Communicator>
void try_collectives(Communicator& c, std::mt19937& random) {
    auto const rank = static_cast<std::size_t>(c.rank());
    test::collective_case<Scalar> const drawn(random, static_cast<std::size_t>(c.size()), rank);
    auto const& data = drawn.data[rank];

    auto reduced = data, most = data, broadcast = data;
    c.all_reduce(out(reduced));
    CHECK(reduced == drawn.sum);
    c.all_reduce(out(most), reduction::maximum);
    CHECK(most == drawn.largest);
    c.broadcast(out(broadcast), drawn.root);
    CHECK(broadcast == drawn.data[drawn.root]);

    std::vector<Scalar> gathered(data.size()), scattered(drawn.shards[rank]);
    c.all_gather_v(in(drawn.shard(drawn.whole, rank)), out(gathered), drawn.shards, drawn.how);
    CHECK(gathered == drawn.whole);
    c.reduce_scatter_v(in(data), out(scattered), drawn.shards, drawn.how);
    CHECK(scattered == drawn.shard(drawn.sum, rank));

    std::vector<Scalar> incoming(drawn.incoming.size());
    c.all_to_all_v(in(drawn.outgoing[rank]), drawn.sent[rank], out(incoming), drawn.received);
    CHECK(incoming == drawn.incoming);
}

template <class Work>
std::string refusal(Work work) {
    try {
        work();
    } catch (error const& e) { return e.what(); }
    return "nothing thrown";
}

} // namespace

TEST_CASE("collectives equal their sequential oracles") {
    for (unsigned seed = 0; seed < 40; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        try_collectives<double>(test::world(), random);
        try_collectives<float>(test::world(), random);
    }
}

TEST_CASE("groups of ranks work by themselves, in the order they are given in") {
    auto& world = test::world();
    std::mt19937 random(5);
    for (unsigned seed = 0; seed < 10; ++seed) {
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
        try_collectives<double>(group, of_group);
    }
}

TEST_CASE("ranks of one machine have one first rank") {
    CHECK(test::world().first_ranks_of_machines() == std::vector<std::size_t>{0});
}

TEST_CASE("messages arrive in order, however many are sent before one is received") {
    auto& world = test::world();
    std::size_t const next = (world.rank() + 1) % world.size(), last = (world.rank() + world.size() - 1) % world.size();
    for (std::size_t n = 0; n < 200; ++n) {
        std::vector<double> const message(n % 7 == 0 ? 20000 : n % 7, static_cast<double>(n + 1000 * world.rank()));
        world.send(in(message), next);
    }
    for (std::size_t n = 0; n < 200; ++n) {
        std::vector<double> got(n % 7 == 0 ? 20000 : n % 7);
        world.receive(out(got), last);
        CHECK(got == std::vector<double>(got.size(), static_cast<double>(n + 1000 * last)));
    }
}

TEST_CASE("operations that are started together give what they give one by one, whichever is waited for first") {
    auto& world = test::world();
    for (unsigned seed = 0; seed < 40; ++seed) {
        CAPTURE(seed);
        std::mt19937 shared(seed), own(seed * 10 + static_cast<unsigned>(world.rank()));
        test::try_started(world, shared, own);
        test::try_started_messages(world, own);
    }
}

TEST_CASE("what is under way goes on while a rank is in no call of MPI") {
    auto& world = test::world();
    if (world.size() == 1) return;
    std::vector<double> name{static_cast<double>(::getpid())}, data(1 << 20, 1.0);
    world.broadcast(out(name), 0);
    auto const came = std::filesystem::temp_directory_path() / ("heddle_came_" + std::to_string(std::lround(name[0])));
    if (world.rank() == 0) {
        auto sent = world.start_send(in(data), 1);
        auto const has_come = [&] { return std::filesystem::exists(came); };
        for (int n = 0; n < 60000 && !has_come(); ++n) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        CHECK(has_come());
        sent.wait();
        std::filesystem::remove(came);
    } else if (world.rank() == 1) {
        world.start_receive(out(data), 0).wait();
        std::ofstream(came) << "it came\n";
    }
}

TEST_CASE("bytes are counted as ranks of one process count them") {
    auto& world = test::world();
    counts shards(world.size(), 3);
    shards[0] = 5;
    auto const before = world.traffic();
    std::vector<double> whole(total_count(shards)), mine(shards[world.rank()]);
    world.all_gather_v(in(mine), out(whole), shards, uneven::padded);
    auto const added = world.traffic().of(collective::all_gather).payload - before.of(collective::all_gather).payload;
    CHECK(added == bytes(8.0 * 5 * static_cast<double>(world.size())));
}

TEST_CASE("what does not fit is refused with rank and operation, before anything is sent") {
    auto& world = test::world();
    std::vector<double> whole(3), mine(1);
    counts const none;
    using test::contains;
    auto const shards = refusal([&] { world.all_gather_v(in(mine), out(whole), none, uneven::padded); });
    CHECK(contains(shards, "rank " + std::to_string(world.rank()) + " of "));
    CHECK(contains(shards, "all-gather of 3 elements"));
    CHECK(contains(refusal([&] { world.all_to_all_v(in(mine), none, out(whole), none); }), "counts that do not fit"));
    CHECK(contains(refusal([&] { (void)world.group({world.size() + 5}); }), "forming a group"));
    CHECK(contains(refusal([&] { (void)world.group({world.rank(), world.rank()}); }), "is twice"));
}

TEST_CASE("ranks that were given different things all refuse") {
    auto& world = test::world();
    world.require_equal("plan", "0123456789abcdef");
    world.require_equal("plan", std::string(1000, 'x'));
    if (world.size() == 1) return;
    auto const told = refusal([&] { world.require_equal("plan", world.rank() == 1 ? "one" : "other"); });
    CHECK(test::contains(told, "ranks 0 and 1 differ in the plan: other and one"));
    CHECK(test::contains(refusal([&] { world.require_equal("plan", std::string(1000 + world.rank(), 'x')); }),
                         "ranks 0 and 1 differ"));
}
