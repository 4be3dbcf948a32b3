// SPDX-License-Identifier: BSL-1.0
// Measuring libtorch's kernels, compiled once.
#include <heddle/libtorch/kernels.hpp>

#include "../profile_run.hpp"

#ifdef HEDDLE_HAS_MPI
#include <heddle/mpi/communicator.hpp>
#endif

namespace heddle::cli {

template <>
std::vector<sample> profile_alone<double>(profile_arguments const& arguments, std::vector<program> const& sizes) {
    return profile_alone_by(arguments, sizes, libtorch::kernels<double>());
}
template <>
std::vector<sample> profile_alone<float>(profile_arguments const& arguments, std::vector<program> const& sizes) {
    return profile_alone_by(arguments, sizes, libtorch::kernels<float>());
}

#ifdef HEDDLE_HAS_MPI
template <>
std::vector<sample> profile_in_job<double>(profile_arguments const& arguments, std::vector<program> const& sizes,
                                           mpi::communicator& world) {
    return profile_in(arguments, sizes, world, libtorch::kernels<double>());
}
template <>
std::vector<sample> profile_in_job<float>(profile_arguments const& arguments, std::vector<program> const& sizes,
                                          mpi::communicator& world) {
    return profile_in(arguments, sizes, world, libtorch::kernels<float>());
}
#endif

} // namespace heddle::cli
