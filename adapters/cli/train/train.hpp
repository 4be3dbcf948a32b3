// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What is trained, and what is known of a step.
#pragma once

#include "../commands.hpp"
#include "../planned_training.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#ifdef HEDDLE_HAS_MPI
namespace heddle::mpi {
class communicator;
}
#endif

namespace heddle::cli {

/// One step, as the first rank tells it.
struct train_step {
    std::uint64_t number = 0;
    double loss = 0, seconds = 0;
    /// With `check`, the loss of the single device.
    std::optional<double> expected{};
    /// The scale of gradients from now on, if the step was left out as they were too large.
    std::optional<double> next_scale{};
};
using step_report = std::function<void(train_step const&)>;

/// Returns which kernels this program was linked with, `reference` or `libtorch`.
[[nodiscard]] std::string_view kernels_of_program();

/// Trains in threads of this process. Each of these *throws* `error` at the first loss that is no number.
template <class Scalar>
void train_in_threads(train_arguments const& arguments, training const& what, step_report const& report);
template <>
void train_in_threads<float>(train_arguments const& arguments, training const& what, step_report const& report);
template <>
void train_in_threads<double>(train_arguments const& arguments, training const& what, step_report const& report);

/// As above, computing with one of the types of 16 bits. *Throws* `error` too if this program's kernels cannot.
void train_in_threads_in_16_bits(train_arguments const& arguments, training const& what, step_report const& report);

#ifdef HEDDLE_HAS_MPI
/// Trains as one rank of a job.
template <class Scalar>
void train_in_job(train_arguments const& arguments, training const& what, mpi::communicator& world,
                  step_report const& report);
template <>
void train_in_job<float>(train_arguments const& arguments, training const& what, mpi::communicator& world,
                         step_report const& report);
template <>
void train_in_job<double>(train_arguments const& arguments, training const& what, mpi::communicator& world,
                          step_report const& report);
void train_in_job_in_16_bits(train_arguments const& arguments, training const& what, mpi::communicator& world,
                             step_report const& report);
#endif

/// Trains as a process with a GPU of its own. *Throws* `error` too if this program cannot.
void train_on_gpu(train_arguments const& arguments, training const& what, step_report const& report);
void train_on_gpu_in_16_bits(train_arguments const& arguments, training const& what, step_report const& report);

} // namespace heddle::cli
