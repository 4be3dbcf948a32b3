// SPDX-License-Identifier: BSL-1.0
// Training by the reference kernels in numbers of type float, compiled once.
#include "../training_run.hpp"

#include <heddle/execute/eigen_kernels.hpp>

#ifdef HEDDLE_HAS_MPI
#include <heddle/mpi/communicator.hpp>
#endif

namespace heddle::cli {

template <>
void train_in_threads<float>(train_arguments const& arguments, training const& what, step_report const& report) {
    train_in_threads_by(arguments, what, eigen_kernels<float>(), report);
}

#ifdef HEDDLE_HAS_MPI
template <>
void train_in_job<float>(train_arguments const& arguments, training const& what, mpi::communicator& world,
                         step_report const& report) {
    train_in(arguments, what, world, eigen_kernels<float>(), report);
}
#endif

} // namespace heddle::cli
