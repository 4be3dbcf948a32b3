// SPDX-License-Identifier: BSL-1.0
// Training by libtorch's kernels in scalars of 16 bits, compiled once.
#include "kernels_for.hpp"

#include "../training_run.hpp"

#ifdef HEDDLE_HAS_MPI
#include <heddle/mpi/communicator.hpp>
#endif
#ifdef HEDDLE_HAS_CUDA
#include "on_gpu.hpp"
#endif

namespace heddle::cli {

void train_in_threads_in_16_bits(train_arguments const& arguments, training const& what, step_report const& report) {
    require_no_whole_numbers_between_stages(what, arguments.plan);
    if (arguments.precision == "float16")
        train_in_threads_by(arguments, what, kernels_for<c10::Half>(what.ranks()), report);
    else train_in_threads_by(arguments, what, kernels_for<c10::BFloat16>(what.ranks()), report);
}

#ifdef HEDDLE_HAS_MPI
void train_in_job_in_16_bits(train_arguments const& arguments, training const& what, mpi::communicator& world,
                             step_report const& report) {
    require_no_whole_numbers_between_stages(what, arguments.plan);
    if (arguments.precision == "float16")
        train_in(arguments, what, world, kernels_for<c10::Half>(what.ranks()), report);
    else train_in(arguments, what, world, kernels_for<c10::BFloat16>(what.ranks()), report);
}
#endif

#ifdef HEDDLE_HAS_CUDA
void train_on_gpu_in_16_bits(train_arguments const& arguments, training const& what, step_report const& report) {
    require_no_whole_numbers_between_stages(what, arguments.plan);
    if (arguments.precision == "float16") train_on_gpu_in<c10::Half>(arguments, what, report);
    else train_on_gpu_in<c10::BFloat16>(arguments, what, report);
}
#else
void train_on_gpu_in_16_bits(train_arguments const&, training const&, step_report const&) { refuse_gpu(); }
#endif

} // namespace heddle::cli
