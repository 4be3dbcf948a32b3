// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Ranks as processes: the communicator on MPI, and the job that they are.
#pragma once

#include <heddle/mpi/communicator.hpp>
#include <heddle/mpi/job.hpp>
