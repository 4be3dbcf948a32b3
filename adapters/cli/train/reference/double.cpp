// SPDX-License-Identifier: BSL-1.0
// Training by the reference kernels in numbers of type double, compiled once.
#include "../training_run.hpp"

#include <heddle/execute/eigen_kernels.hpp>

#ifdef HEDDLE_HAS_MPI
#include <heddle/mpi/communicator.hpp>
#endif

namespace heddle::cli {

std::string_view kernels_of_program() { return "reference"; }

void train_on_gpu(train_arguments const&, training const&, step_report const&) {
    throw error("the reference kernels compute on the CPU alone; --device cuda is for --kernels libtorch");
}

namespace {

[[noreturn]] void refuse(train_arguments const& arguments) {
    throw error("the reference kernels compute with float32 and float64; " + arguments.precision +
                " is for --kernels libtorch");
}

} // namespace

void train_in_threads_in_16_bits(train_arguments const& arguments, training const&, step_report const&) {
    refuse(arguments);
}
void train_on_gpu_in_16_bits(train_arguments const& arguments, training const&, step_report const&) {
    refuse(arguments);
}

template <>
void train_in_threads<double>(train_arguments const& arguments, training const& what, step_report const& report) {
    train_in_threads_by(arguments, what, eigen_kernels<double>(), report);
}

#ifdef HEDDLE_HAS_MPI
void train_in_job_in_16_bits(train_arguments const& arguments, training const&, mpi::communicator&,
                             step_report const&) {
    refuse(arguments);
}

template <>
void train_in_job<double>(train_arguments const& arguments, training const& what, mpi::communicator& world,
                          step_report const& report) {
    train_in(arguments, what, world, eigen_kernels<double>(), report);
}
#endif

} // namespace heddle::cli
