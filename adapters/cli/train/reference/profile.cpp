// SPDX-License-Identifier: BSL-1.0
// Measuring the reference kernels, compiled once.
#include "../profile_run.hpp"

#include <heddle/execute/eigen_kernels.hpp>

#ifdef HEDDLE_HAS_MPI
#include <heddle/mpi/communicator.hpp>
#endif

namespace heddle::cli {

template <>
std::vector<sample> profile_alone<double>(profile_arguments const& arguments, std::vector<program> const& sizes) {
    return profile_alone_by(arguments, sizes, eigen_kernels<double>());
}
template <>
std::vector<sample> profile_alone<float>(profile_arguments const& arguments, std::vector<program> const& sizes) {
    return profile_alone_by(arguments, sizes, eigen_kernels<float>());
}

#ifdef HEDDLE_HAS_MPI
template <>
std::vector<sample> profile_in_job<double>(profile_arguments const& arguments, std::vector<program> const& sizes,
                                           mpi::communicator& world) {
    return profile_in(arguments, sizes, world, eigen_kernels<double>());
}
template <>
std::vector<sample> profile_in_job<float>(profile_arguments const& arguments, std::vector<program> const& sizes,
                                          mpi::communicator& world) {
    return profile_in(arguments, sizes, world, eigen_kernels<float>());
}
#endif

} // namespace heddle::cli
