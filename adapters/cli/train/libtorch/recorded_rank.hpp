// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A rank whose iterations are recorded as a CUDA graph.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/libtorch/tensor.hpp>
#include <heddle/nccl/communicator.hpp>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>

#include <cstdint>
#include <optional>

namespace heddle::cli {

/// Runs the first iteration as `Rank` does: ranks meet, and libtorch's libraries take what they need. The second is
/// recorded, with the collectives in it; it and all others are then launched by one call, on sources that are copied to
/// where the first ones were. The optimiser is not part of it, as what it does depends on the number of the step.
///
/// Not recorded are kernels that draw random numbers and those whose sizes follow from values, such as of experts:
/// those *throw* `input_error`; and whatever else waits for the device, of which libtorch says what it was.
/// References to all arguments are kept. The thread's current stream of libtorch is the communicator's computation
/// stream.
template <class Tensor, class Rank>
class recorded_rank {
public:
    using result_type = typename Rank::result_type;

    recorded_rank(Rank& rank, nccl::communicator& world) : rank_(rank), world_(world) {}

    template <rank_tensor Placed = Tensor, class Whole>
    [[nodiscard]] tensor_values<Placed> place(Whole const& whole) const {
        return rank_.template place<Placed>(whole);
    }
    void reseed(std::uint64_t seed) { rank_.reseed(seed); }
    /// *Throws* `error` once an iteration is recorded, which has its scale.
    template <class Number>
    void scale_gradients(Number by) {
        if (result_) throw error("a recorded iteration has its scale of gradients");
        rank_.scale_gradients(by);
    }
    [[nodiscard]] auto whole_loss(result_type const& result) { return rank_.whole_loss(result); }
    [[nodiscard]] auto gradient_norm(gradients_of<Tensor> const& gradients) { return rank_.gradient_norm(gradients); }

    /// The result is overwritten by the next iteration.
    [[nodiscard]] result_type run(tensor_values<Tensor> const& sources) {
        if (!has_met_) {
            has_met_ = true;
            return rank_.run(sources);
        }
        if (!result_) {
            for (auto const& [t, value] : sources) sources_.emplace(t, Tensor(value.value().clone()));
            record();
        } else {
            for (auto const& [t, value] : sources) at::Tensor(sources_.at(t).value()).copy_(value.value());
        }
        graph_.replay();
        world_.watch("an iteration");
        return *result_;
    }

private:
    void record() {
        libtorch::recording_scope const refusing;
        world_.synchronise();
        graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
        try {
            result_.emplace(rank_.run(sources_));
        } catch (...) {
            try { // the stream is to be of use again
                graph_.capture_end();
            } catch (...) {} // NOLINT(bugprone-empty-catch): the first error is the one to be told
            throw;
        }
        graph_.capture_end();
    }

    Rank& rank_;
    nccl::communicator& world_;
    bool has_met_ = false;
    at::cuda::CUDAGraph graph_;
    tensor_values<Tensor> sources_;
    std::optional<result_type> result_;
};

} // namespace heddle::cli
