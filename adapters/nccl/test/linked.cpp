// SPDX-License-Identifier: BSL-1.0
// The adapter with the installed CUDA and NCCL, as far as that goes without a GPU.
#include <heddle/nccl/all.hpp>

#include <doctest/doctest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

using namespace heddle;

TEST_CASE("the library that is loaded is the one of the header") {
    CHECK(nccl::runtime_version() == NCCL_VERSION_CODE);
}

TEST_CASE("grouped gathers are one kernel from 2.29.2 on, unless that is turned off") {
    ::unsetenv("NCCL_ALLGATHERV_ENABLE");
    CHECK(!nccl::fuses_grouped_gathers(22901));
    CHECK(nccl::fuses_grouped_gathers(22902));
    ::setenv("NCCL_ALLGATHERV_ENABLE", "0", 1);
    CHECK(!nccl::fuses_grouped_gathers(22902));
    ::unsetenv("NCCL_ALLGATHERV_ENABLE");
    CHECK(nccl::fuses_grouped_gathers() == (NCCL_VERSION_CODE >= 22902));
}

TEST_CASE("a machine without a GPU says so; with one, a rank alone has what it sends") {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        CHECK_THROWS_WITH_AS(nccl::stream{}, doctest::Contains("making a stream: CUDA says: "), error);
        return;
    }
    auto const folder = std::filesystem::temp_directory_path() / ("heddle_nccl_" + std::to_string(::getpid()));
    nccl::file_store shared(folder);
    {
        nccl::stream const computation;
        nccl::communicator alone(shared, 0, 1, {.computation = computation.get()});
        std::vector<double> const sent{1, 2, 3};
        std::vector<std::size_t> const counts{sent.size()};
        nccl::device_memory<double> const mine(sent.size(), computation.get()), whole(sent.size(), computation.get());
        std::span<double> const in(mine.get(), sent.size()), out(whole.get(), sent.size());
        REQUIRE(cudaMemcpyAsync(in.data(), sent.data(), in.size_bytes(), cudaMemcpyHostToDevice, computation.get()) ==
                cudaSuccess);
        alone.all_reduce(in);
        alone.all_reduce(in, reduction::maximum);
        alone.broadcast(in, 0);
        auto const read = std::span<double const>(in);
        for (auto const how : {uneven::padded, uneven::grouped}) {
            alone.all_gather_v(read, out, counts, how);
            alone.reduce_scatter_v(std::span<double const>(out), in, counts, how);
        }
        alone.all_to_all_v(read, counts, out, counts);
        alone.group({0}).all_reduce(out);
        alone.split(0, 0)->all_reduce(out);
        alone.synchronise();
        std::vector<double> received(sent.size());
        REQUIRE(cudaMemcpy(received.data(), out.data(), out.size_bytes(), cudaMemcpyDeviceToHost) == cudaSuccess);
        CHECK(received == sent);
    }
    std::filesystem::remove_all(folder);
}
