// SPDX-License-Identifier: BSL-1.0
// Training by libtorch's kernels, compiled once.
#include "kernels_for.hpp"

#include "../training_run.hpp"

#ifdef HEDDLE_HAS_MPI
#include <heddle/mpi/communicator.hpp>
#endif
#ifdef HEDDLE_HAS_CUDA
#include "on_gpu.hpp"
#endif

#include <string_view>

namespace heddle::cli {

std::string_view kernels_of_program() { return "libtorch"; }

template <>
void train_in_threads<double>(train_arguments const& arguments, training const& what, step_report const& report) {
    train_in_threads_by(arguments, what, kernels_for<double>(what.ranks()), report);
}
template <>
void train_in_threads<float>(train_arguments const& arguments, training const& what, step_report const& report) {
    train_in_threads_by(arguments, what, kernels_for<float>(what.ranks()), report);
}

#ifdef HEDDLE_HAS_MPI
template <>
void train_in_job<double>(train_arguments const& arguments, training const& what, mpi::communicator& world,
                          step_report const& report) {
    train_in(arguments, what, world, kernels_for<double>(what.ranks()), report);
}
template <>
void train_in_job<float>(train_arguments const& arguments, training const& what, mpi::communicator& world,
                         step_report const& report) {
    train_in(arguments, what, world, kernels_for<float>(what.ranks()), report);
}
#endif

#ifdef HEDDLE_HAS_CUDA
void train_on_gpu(train_arguments const& arguments, training const& what, step_report const& report) {
    if (arguments.precision == "float32") train_on_gpu_in<float>(arguments, what, report);
    else train_on_gpu_in<double>(arguments, what, report);
}
#else
void train_on_gpu(train_arguments const&, training const&, step_report const&) { refuse_gpu(); }
#endif

} // namespace heddle::cli
