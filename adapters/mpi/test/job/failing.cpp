// SPDX-License-Identifier: BSL-1.0
// A job that fails in the way its argument says, on its last rank: dies, hangs, throws, memory, disagrees,
// another-call, early; or of which one rank, the first or the last of three, is never there: first-never-there,
// last-never-there.
#include <heddle/mpi/all.hpp>

#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

int main(int argc, char** argv) {
    using namespace heddle;
    std::string const way = argc > 1 ? argv[1] : "";
    char const* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
    std::string const missing = way == "first-never-there" ? "0" : way == "last-never-there" ? "2" : "none";
    if (rank && rank == missing) ::raise(SIGSTOP);
    return mpi::run_job(argc, argv, {.time_out = seconds(3)}, [&](mpi::communicator& world) {
        bool const is_last = world.rank() + 1 == world.size();
        std::vector<double> data(100000, 1);
        for (int n = 0; n < 20; ++n) {
            world.all_reduce(std::span(data));
            for (auto& x : data) x = 1;
        }
        if (is_last) {
            if (way == "dies") ::raise(SIGKILL);
            if (way == "hangs") ::raise(SIGSTOP);
            if (way == "throws") throw error("there is no good way on");
            if (way == "memory") data.resize(std::size_t{1} << 50);
            if (way == "disagrees") data.resize(10);
            if (way == "another-call") return world.barrier(), 0;
            if (way == "early") return 0;
        }
        if (way == "plans") world.require_equal("plan", is_last ? "this" : "that");
        world.all_reduce(std::span(data));
        world.all_reduce(std::span(data));
        return 0;
    });
}
