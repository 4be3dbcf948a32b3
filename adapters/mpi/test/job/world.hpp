// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The communicator of all ranks of the job that runs the tests.
#pragma once

#include <heddle/mpi/all.hpp>

namespace heddle::test {

[[nodiscard]] mpi::communicator& world();

} // namespace heddle::test
