// SPDX-License-Identifier: BSL-1.0
// Messages between in-process ranks.
#include <heddle/execute/in_process.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace heddle;

std::string failure_of(std::size_t ranks, std::function<void(in_process_communicator&)> const& work) {
    try {
        run_ranks(ranks, work);
    } catch (std::exception const& e) { return e.what(); }
    return "no failure";
}

std::vector<double> received(in_process_communicator& c, std::size_t size, std::size_t from) {
    std::vector<double> data(size);
    c.receive(std::span<double>(data), from);
    return data;
}
void sent(in_process_communicator& c, std::vector<double> const& data, std::size_t to) {
    c.send(std::span<double const>(data), to);
}

} // namespace

TEST_CASE("messages arrive in order, from each rank on its own, and a sender goes on") {
    CHECK(failure_of(3, [](in_process_communicator& c) {
              if (c.rank() < 2) {
                  for (double n = 0; n < 5; ++n) sent(c, {static_cast<double>(c.rank()), n}, 2);
                  return (void)received(c, 1, 1 - c.rank());
              }
              for (std::size_t n = 0; n < 5; ++n)
                  for (std::size_t from : {1u, 0u})
                      CHECK(received(c, 2, from) == std::vector{static_cast<double>(from), static_cast<double>(n)});
          }).find("rank 0 waits for rank 1, rank 1 waits for rank 0, rank 2 has ended") != std::string::npos);
    CHECK(failure_of(2, [](in_process_communicator& c) {
              sent(c, {static_cast<double>(c.rank())}, 1 - c.rank());
              CHECK(received(c, 1, 1 - c.rank()) == std::vector{static_cast<double>(1 - c.rank())});
              sent(c, {}, 1 - c.rank());
              CHECK(received(c, 0, 1 - c.rank()).empty());
          }) == "no failure");
}

TEST_CASE("ranks of a group are numbered in it") {
    CHECK(failure_of(3, [](in_process_communicator& c) {
              if (c.rank() == 1) return;
              auto group = c.group({2, 0});
              if (group.rank() == 0) sent(group, {4}, 1);
              else CHECK(received(group, 1, 0) == std::vector<double>{4});
          }) == "no failure");
}

TEST_CASE("a message of another size, and waiting for a rank that failed or ended, are errors") {
    CHECK(failure_of(2, [](in_process_communicator& c) {
              if (c.rank() == 0) sent(c, {1, 2}, 1);
              else (void)received(c, 3, 0);
          }) == "rank 1 receives 16 bytes from rank 0, expected 24");
    CHECK(failure_of(2, [](in_process_communicator& c) {
              if (c.rank() == 0) throw std::runtime_error("gone");
              (void)received(c, 1, 0);
          }) == "gone");
    CHECK(failure_of(2, [](in_process_communicator& c) {
              if (c.rank() == 1) (void)received(c, 1, 0);
          }).find("rank 1 waits for rank 0") != std::string::npos);
    CHECK(failure_of(2, [](in_process_communicator& c) {
              double x = 0;
              if (c.rank() == 1) (void)received(c, 1, 0);
              else c.all_reduce(std::span<double>(&x, 1));
          }).find("no rank can go on") != std::string::npos);
}
