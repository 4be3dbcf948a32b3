// SPDX-License-Identifier: BSL-1.0
#include <heddle/execute/in_process.hpp>
#include <heddle/nccl/launch.hpp>
#include <heddle/nccl/store.hpp>
#include <heddle/nccl/tcp_store.hpp>

#include <support/errors.hpp>

#include <doctest/doctest.h>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace heddle;
using test::contains;
using test::error_of;

namespace {

/// A folder that is gone afterwards.
struct scratch {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("heddle_store_" + std::to_string(::getpid()));
    scratch() { std::filesystem::remove_all(path); }
    ~scratch() { std::filesystem::remove_all(path); }
};

/// Tries what all stores do, between two ends of one.
void try_store(nccl::store& a, nccl::store& b) {
    CHECK(!b.find("x"));
    a.set("x", "");
    CHECK(b.find("x") == std::string());
    std::string id(128, '\0');
    id[5] = 'a';
    b.set("world/group 0 1 #1", id);
    CHECK(a.get("world/group 0 1 #1", seconds(1)) == id);
    CHECK(b.find("world/group 0 1 #1") == id);
    CHECK(contains(error_of<error>([&] { (void)a.get("y", seconds(0.05)); }), "waiting for 'y'"));
    CHECK(contains(error_of<error>([&] { (void)a.get("y", seconds(0.05)); }), "no end after 0 s"));
    std::jthread const other([&] { nccl::require_equal(b, 1, 2, "plan", "same"); });
    nccl::require_equal(a, 0, 2, "plan", "same");
}

struct variable {
    char const* name;
    variable(char const* n, std::string const& value) : name(n) { ::setenv(n, value.c_str(), 1); }
    ~variable() { ::unsetenv(name); }
};

} // namespace

TEST_CASE("a store of files") {
    scratch const folder;
    nccl::file_store a(folder.path), b(folder.path);
    try_store(a, b);
    CHECK(
        contains(error_of<file_error>([] { nccl::file_store const c("/dev/null/folder"); }), "cannot make the folder"));
}

TEST_CASE("a store over TCP, kept until all have gone") {
    nccl::tcp_store a(std::uint16_t{0});
    {
        nccl::tcp_store b("localhost", a.port());
        try_store(a, b);
    }
    auto kept = std::make_unique<nccl::tcp_store>(std::uint16_t{0});
    auto other = std::make_unique<nccl::tcp_store>("localhost", kept->port());
    std::jthread const leaving([&] { kept.reset(); });
    other->set("late", "still there");
    CHECK(other->find("late") == "still there");
    other.reset();
}

TEST_CASE("a store over TCP is kept until all have come") {
    auto kept = std::make_unique<nccl::tcp_store>(std::uint16_t{0}, seconds(30), 2);
    auto const port = kept->port();
    kept->set("x", "from the first");
    std::jthread const leaving([&] { kept.reset(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    nccl::tcp_store other("localhost", port, seconds(10));
    CHECK(other.find("x") == "from the first");
}

TEST_CASE("a store that is not there is given up in time, one that has gone is said to") {
    auto kept = std::make_unique<nccl::tcp_store>(std::uint16_t{0}, seconds(0));
    auto const port = kept->port();
    nccl::tcp_store c("localhost", port);
    kept.reset();
    CHECK(contains(error_of<error>([&] { c.set("x", "y"); }), "the rank that keeps the store is gone"));
    CHECK(contains(error_of<error>([&] { nccl::tcp_store const d("localhost", port, seconds(0.1)); }),
                   "reaching the store at localhost port " + std::to_string(port)));
}

TEST_CASE("ranks that were given different things refuse") {
    scratch const folder;
    nccl::file_store store(folder.path);
    std::vector<std::string> told(3);
    {
        std::vector<std::jthread> ranks;
        for (std::size_t r = 0; r < 3; ++r)
            ranks.emplace_back([&, r] {
                told[r] = error_of<error>(
                    [&] { nccl::require_equal(store, r, 3, "plan", r == 2 ? "this" : "that", seconds(10)); });
            });
    }
    CHECK(told[0] == "ranks 0 and 2 differ in the plan: that and this");
    CHECK(told[1] == "nothing thrown");
    CHECK(told[2] == told[0]);
}

TEST_CASE("what torchrun and mpirun tell a process") {
    {
        variable const rank("RANK", "3"), ranks("WORLD_SIZE", "4"), local("LOCAL_RANK", "1");
        auto const p = nccl::placement_from_environment();
        CHECK(p.rank == 3);
        CHECK(p.ranks == 4);
        CHECK(p.local_rank == 1);
        variable const wrong("WORLD_SIZE", "3");
        CHECK(contains(error_of([] { (void)nccl::placement_from_environment(); }), "is 3 of 3"));
        variable const no_number("RANK", "3rd");
        CHECK(contains(error_of([] { (void)nccl::placement_from_environment(); }), "RANK: is '3rd'"));
    }
    {
        variable const rank("OMPI_COMM_WORLD_RANK", "0"), ranks("OMPI_COMM_WORLD_SIZE", "2"),
            local("OMPI_COMM_WORLD_LOCAL_RANK", "0");
        CHECK(nccl::placement_from_environment().ranks == 2);
    }
    CHECK(contains(error_of([] { (void)nccl::placement_from_environment(); }),
                   "RANK or OMPI_COMM_WORLD_RANK: is not set"));
}

TEST_CASE("the address of rank 0 gives a store") {
    auto const free_port = nccl::tcp_store(std::uint16_t{0}).port();
    variable const host("MASTER_ADDR", "localhost"), port("MASTER_PORT", std::to_string(free_port - 1));
    auto const kept = nccl::store_from_environment({.rank = 0, .ranks = 2, .local_rank = 0});
    auto const other = nccl::store_from_environment({.rank = 1, .ranks = 2, .local_rank = 1});
    kept->set("x", "from 0");
    CHECK(other->get("x", seconds(10)) == "from 0");
    ::unsetenv("MASTER_ADDR");
    CHECK(contains(error_of([] { (void)nccl::store_from_environment({}); }), "MASTER_ADDR: is not set"));
}

TEST_CASE("a communicator of the hosts gives a store") {
    run_ranks(3, [](in_process_communicator& hosts) {
        auto const shared = nccl::store_beside(hosts);
        if (hosts.rank() == 1) shared->set("x", "from 1");
        CHECK(shared->get("x", seconds(10)) == "from 1");
    });
}
