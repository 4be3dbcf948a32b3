// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief One process per GPU: libtorch's tensors, memory and stream, and NCCL between them.
#pragma once

#include "recorded_rank.hpp"

#include "../training_run.hpp"

#include <heddle/base/version.hpp>
#include <heddle/libtorch/kernels.hpp>
#include <heddle/nccl/communicator.hpp>
#include <heddle/nccl/launch.hpp>

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace heddle::cli {

/// A store for a job of one process.
class store_of_one : public nccl::store {
public:
    void set(std::string const&, std::string const&) override {}
    [[nodiscard]] std::optional<std::string> find(std::string const&) override { return std::nullopt; }
};

/// Returns the GPU of a process of this machine. From version 2.30 NCCL lets processes share one if its environment
/// variable says so, which is slow and of use for a trial. *Throws* `error` if there is none for it.
inline c10::DeviceIndex device_of(std::size_t local_rank) {
    auto const count = static_cast<std::size_t>(c10::cuda::device_count());
    if (count == 0) throw error("this machine has no CUDA device, or no driver that works");
    char const* const shared = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    if (local_rank >= count && (!shared || std::string_view(shared) != "1"))
        throw error("process " + std::to_string(local_rank) + " of this machine has no GPU of its own; there are " +
                    std::to_string(count) + ", which processes share if NCCL_MULTI_RANK_GPU_ENABLE=1 is set");
    return static_cast<c10::DeviceIndex>(local_rank % count);
}

/// Trains as the process that mpirun or torchrun has started for one GPU, or alone. Tensors are computed on a stream of
/// libtorch's, whose allocator gives their memory in the order of that stream, as the communicator's waits do.
template <class Scalar>
void train_on_gpu_in(train_arguments const& arguments, training const& what, step_report const& report) {
    bool const is_alone = what.ranks() == 1;
    auto const where = is_alone ? nccl::placement{} : nccl::placement_from_environment();
    if (where.ranks != what.ranks())
        throw input_error(arguments.plan, "keeps " + std::to_string(what.ranks()) + " devices busy, and there are " +
                                              std::to_string(where.ranks) + " processes; start one for each");
    auto const processes = what.processes(where.ranks, arguments.plan);
    auto const rank = static_cast<std::size_t>(std::ranges::find(processes, where.rank) - processes.begin());
    auto const device = device_of(where.local_rank);
    c10::cuda::set_device(device);
    auto const computation = c10::cuda::getStreamFromPool(false, device);
    c10::cuda::setCurrentCUDAStream(computation);
    libtorch::device_scope const on_device{at::Device(at::kCUDA, device)};
    seconds const time_out(arguments.time_out);
    auto const shared = is_alone ? std::unique_ptr<nccl::store>(std::make_unique<store_of_one>())
                                 : nccl::store_from_environment(where, time_out);
    for (auto const& [name, value] : {std::pair("version of heddle", std::string(library_version)),
                                      std::pair("plan", what.plan_digest), std::pair("model", what.model.digest)})
        nccl::require_equal(*shared, rank, where.ranks, name, value, time_out);
    nccl::communicator world(*shared, rank, where.ranks, {.computation = computation.stream(), .time_out = time_out});
    libtorch::kernels<Scalar> const kernels;
    train_in(arguments, what, world, kernels, report, [&](auto& rank, auto&& train_on) {
        if (!arguments.graph) return train_on(rank);
        recorded_rank<libtorch::tensor<Scalar>, std::remove_reference_t<decltype(rank)>> recorded(rank, world);
        train_on(recorded);
    });
    world.synchronise();
}

} // namespace heddle::cli
