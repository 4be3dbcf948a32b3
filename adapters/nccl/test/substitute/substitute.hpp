// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Stands in for CUDA's runtime and NCCL where a program is linked, on machines without a GPU.
///
/// Ranks are threads. Device memory is apart from the host's: its addresses may not be read or written, and what the
/// substitute itself moves it moves by a second mapping. Work is queued on streams and done as late as somebody waits
/// for it. What real devices would leave to chance is a `violation`, whatever the order in which it is done here:
/// - work that uses what other work of the rank writes, or writes what other work uses, with no event in between;
/// - ranks of a communicator that make different calls, or in another order, or groups that are not balanced;
/// - memory that is none of the device's, is not large enough, or was given back;
/// - a host that waits inside an iteration;
/// - what a CUDA graph could not record, or would not do again;
/// - an event recorded before NCCL has enqueued what it was asked;
/// - ranks that leave something: work that is never done, communicators, streams, memory.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstddef>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace heddle::test::substitute {

/// Says what the program did wrong.
struct violation : std::logic_error {
    using std::logic_error::logic_error;
};

/// Runs `work(rank)` on as many threads, each of which has a device. *Throws* the first violation, otherwise the first
/// exception that left `work`.
void run(std::size_t ranks, std::function<void(std::size_t)> const& work);

/// While an object is there, its rank's host may not wait.
class iteration {
public:
    iteration();
    iteration(iteration const&) = delete;
    ~iteration();
};

/// While an object is there, what its rank enqueues on a stream is as if it were recorded as a CUDA graph, though it is
/// also done: streams join by waiting for events of the recording, nothing is enqueued on others, memory is taken on
/// those that have joined, and the host neither waits nor asks. `end` makes sure that all streams are waited for in the
/// end.
class recording {
public:
    explicit recording(cudaStream_t origin);
    recording(recording const&) = delete;
    ~recording();
    void end();

private:
    iteration const no_waits_;
    cudaStream_t origin_;
};

/// Device memory that work uses.
struct range {
    void const* begin = nullptr;
    std::size_t size = 0;

    template <class Scalar>
    range(std::span<Scalar> of) : begin(of.data()), size(of.size_bytes()) {} // NOLINT(google-explicit-constructor)
};
using ranges = std::vector<range>;

/// Returns where a kernel finds device memory.
[[nodiscard]] void* view(void const* device);
template <class Scalar>
[[nodiscard]] std::span<Scalar> view(std::span<Scalar> device) {
    return {static_cast<Scalar*>(view(static_cast<void const*>(device.data()))), device.size()};
}

/// Enqueues a kernel.
void launch(cudaStream_t on, std::string const& name, ranges const& reads, ranges const& writes,
            std::function<void()> kernel);
/// The same, but it is run before this returns; it may enqueue more. This is the device's computation, no wait of the
/// host's.
void launch_now(cudaStream_t on, std::string const& name, ranges const& reads, ranges const& writes,
                std::function<void()> const& kernel);

/// The next call of NCCL that this rank makes fails, at once or, if `later`, once it is asked for.
void fail_next(ncclResult_t code, bool later);
/// Returns how many communicators this rank has aborted.
[[nodiscard]] std::size_t aborted();
/// Returns how many calls of this name this rank has made, such as "broadcast".
[[nodiscard]] std::size_t calls_of(std::string const& name);

} // namespace heddle::test::substitute
