// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What is measured on devices and between them.
#pragma once

#include "../commands.hpp"

#include <heddle/cluster/sample.hpp>
#include <heddle/program/program.hpp>

#include <vector>

#ifdef HEDDLE_HAS_MPI
namespace heddle::mpi {
class communicator;
}
#endif

namespace heddle::cli {

/// Measures on this process alone, and writes the samples; returns the exit status.
int run_profile_alone(profile_arguments const& arguments);
#ifdef HEDDLE_HAS_MPI
/// As one rank of a job.
int run_profile_in_job(profile_arguments const& arguments, mpi::communicator& world);
#endif

/// Measures the operators of programs, on this process alone.
template <class Scalar>
std::vector<sample> profile_alone(profile_arguments const& arguments, std::vector<program> const& sizes);
template <>
std::vector<sample> profile_alone<float>(profile_arguments const& arguments, std::vector<program> const& sizes);
template <>
std::vector<sample> profile_alone<double>(profile_arguments const& arguments, std::vector<program> const& sizes);

#ifdef HEDDLE_HAS_MPI
/// Measures as one rank of a job, collectives too.
template <class Scalar>
std::vector<sample> profile_in_job(profile_arguments const& arguments, std::vector<program> const& sizes,
                                   mpi::communicator& world);
template <>
std::vector<sample> profile_in_job<float>(profile_arguments const& arguments, std::vector<program> const& sizes,
                                          mpi::communicator& world);
template <>
std::vector<sample> profile_in_job<double>(profile_arguments const& arguments, std::vector<program> const& sizes,
                                           mpi::communicator& world);
#endif

} // namespace heddle::cli
