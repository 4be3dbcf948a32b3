// SPDX-License-Identifier: BSL-1.0
// Operations that ranks of one process start and wait for apart.
#include <heddle/execute/in_process.hpp>
#include <heddle/execute/mesh_communicator.hpp>

#include <support/errors.hpp>
#include <support/started_collectives.hpp>

#include <doctest/doctest.h>

#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

using namespace heddle;

namespace {

// Device groups send no messages.
using rank_of_groups = grouped_communicator<double, in_process_communicator, in_process_communicator>;
static_assert(asynchronous_communicator_of<rank_of_groups, double> && !point_to_point_of<rank_of_groups, double>);
// A mesh has a communicator for each axis, and is none.
using rank_of_mesh = mesh_communicator<in_process_communicator>;
static_assert(!communicator_of<rank_of_mesh, double> && ranks_of_plan<rank_of_mesh, double>);
static_assert(ranks_of_plan<rank_of_groups, double> && ranks_of_plan<in_process_communicator, float>);

template <class Work>
std::string how_started_ranks_fail(std::size_t ranks, Work work) {
    try {
        run_ranks(ranks, work);
    } catch (std::exception const& e) { return e.what(); }
    return "nothing thrown";
}

/// Has no starts.
struct at_once {
    std::size_t calls = 0;
    [[nodiscard]] std::size_t rank() const { return 0; }
    [[nodiscard]] std::size_t size() const { return 1; }
    void all_reduce(std::span<double>, reduction = reduction::sum) { ++calls; }
    void all_gather_v(std::span<double const>, std::span<double>, shard_counts, uneven) {}
    void reduce_scatter_v(std::span<double const>, std::span<double>, shard_counts, uneven) {}
    void all_to_all_v(std::span<double const>, shard_counts, std::span<double>, shard_counts) {}
    void broadcast(std::span<double>, std::size_t) {}
};

} // namespace

TEST_CASE("collectives that are started together give what they give one by one, whichever is waited for first") {
    for (unsigned seed = 0; seed < 200; ++seed) {
        CAPTURE(seed);
        run_ranks(1 + seed % 5, [&](in_process_communicator& c) {
            std::mt19937 shared(seed), own(seed * 10 + static_cast<unsigned>(c.rank()));
            test::try_started(c, shared, own);
            test::try_started_messages(c, own);
        });
    }
}

TEST_CASE("a start waits for nobody") {
    CHECK(how_started_ranks_fail(2, [](in_process_communicator& c) {
              double x = 1, y = 0;
              auto sum = c.start_all_reduce(std::span<double>(&x, 1));
              if (c.rank() == 0) c.send(std::span<double const>(&y, 1), 1); // before the other starts its second
              else c.receive(std::span<double>(&y, 1), 0);
              auto largest = c.start_all_reduce(std::span<double>(&y, 1), reduction::maximum);
              largest.wait();
              sum.wait();
              CHECK(x == 2);
          }) == "nothing thrown");
}

TEST_CASE("bytes are counted when an operation has been waited for") {
    run_ranks(2, [](in_process_communicator& c) {
        std::vector<double> x(3);
        auto started = c.start_all_reduce(std::span<double>(x));
        started.wait();
        started.wait();
        CHECK(c.traffic().of(collective::all_reduce) == traffic::entry{1, 1, bytes(24)});
    });
}

TEST_CASE("ranks that start different collectives are told so, and none waits for one that failed") {
    CHECK(test::contains(how_started_ranks_fail(2,
                                                [](in_process_communicator& c) {
                                                    std::vector<double> x(2), y(2);
                                                    auto first = c.rank() == 0
                                                                     ? c.start_all_reduce(std::span<double>(x))
                                                                     : c.start_broadcast(std::span<double>(x), 0);
                                                    auto second = c.start_all_reduce(std::span<double>(y));
                                                    second.wait();
                                                    first.wait();
                                                }),
                         "different collectives"));
    CHECK(how_started_ranks_fail(3, [](in_process_communicator& c) {
              double x = 0;
              auto const started = c.start_all_reduce(std::span<double>(&x, 1));
              if (c.rank() == 2) throw std::runtime_error("gone");
              c.receive(std::span<double>(&x, 1), 2);
          }) == "gone");
}

TEST_CASE("a communicator without starts has ended what is started") {
    static_assert(!asynchronous_communicator_of<at_once, double>);
    at_once c;
    double x = 0;
    auto done = starter<double, at_once>::all_reduce(c, std::span<double>(&x, 1));
    CHECK(c.calls == 1);
    done.wait();
    static_assert(std::same_as<decltype(done), completed>);
}
