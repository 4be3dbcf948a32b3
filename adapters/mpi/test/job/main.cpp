// SPDX-License-Identifier: BSL-1.0
// Runs the test cases on every rank of a job.
#define DOCTEST_CONFIG_IMPLEMENT
#include "world.hpp"

#include <doctest/doctest.h>

namespace heddle::test {
mpi::communicator* world_of_process = nullptr;
mpi::communicator& world() { return *world_of_process; }
} // namespace heddle::test

int main(int argc, char** argv) {
    return heddle::mpi::run_job(argc, argv, {.time_out = heddle::seconds(120)}, [&](heddle::mpi::communicator& world) {
        heddle::test::world_of_process = &world;
        doctest::Context context(argc, argv);
        context.setOption("no-intro", true);
        context.setOption("no-colors", true);
        return context.run();
    });
}
