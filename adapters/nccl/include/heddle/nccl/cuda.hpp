// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Streams, events and memory of the current CUDA device, owned by objects. Nothing here waits on the host.
#pragma once

#include <heddle/base/error.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>

namespace heddle::nccl {

/// *Throws* `error` with CUDA's own words if a call has failed.
inline void check(cudaError_t code, char const* what) {
    if (code != cudaSuccess) throw error(std::string(what) + ": CUDA says: " + cudaGetErrorString(code));
}

/// A point in a stream that other streams can wait for.
class event {
public:
    event() {
        cudaEvent_t made = nullptr;
        check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "making an event");
        own_.reset(made);
    }

    /// Becomes what is enqueued on a stream by now.
    void record(cudaStream_t on) { check(cudaEventRecord(own_.get(), on), "recording an event"); }
    /// Makes what will be enqueued on a stream wait for this, as it was last recorded.
    void hold(cudaStream_t what) const { check(cudaStreamWaitEvent(what, own_.get(), 0), "waiting for an event"); }
    /// Tells whether the device has come there.
    [[nodiscard]] bool is_past() const {
        auto const code = cudaEventQuery(own_.get());
        if (code == cudaErrorNotReady) return false;
        check(code, "asking for an event");
        return true;
    }

private:
    struct destroy {
        void operator()(cudaEvent_t e) const { cudaEventDestroy(e); }
    };
    std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, destroy> own_;
};

/// A queue of work that runs beside others, the default stream among them.
class stream {
public:
    stream() {
        cudaStream_t made = nullptr;
        check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "making a stream");
        own_.reset(made);
    }
    [[nodiscard]] cudaStream_t get() const { return own_.get(); }

private:
    struct destroy { // what is enqueued is still done
        void operator()(cudaStream_t s) const { cudaStreamDestroy(s); }
    };
    std::unique_ptr<std::remove_pointer_t<cudaStream_t>, destroy> own_;
};

/// Tells whether what is enqueued on a stream is recorded as a graph.
[[nodiscard]] inline bool is_recorded(cudaStream_t on) {
    auto status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(on, &status), "asking for a recording");
    return status != cudaStreamCaptureStatusNone;
}

/// Elements of device memory that are there between two points of streams.
template <class Scalar>
class device_memory {
public:
    device_memory() = default;
    /// They are there for what is enqueued on `on` from now on.
    device_memory(std::size_t elements, cudaStream_t on) {
        void* made = nullptr;
        if (elements > 0) check(cudaMallocAsync(&made, elements * sizeof(Scalar), on), "taking device memory");
        own_ = {static_cast<Scalar*>(made), give_back{on}};
    }
    [[nodiscard]] Scalar* get() const { return own_.get(); }
    /// They are there for what is enqueued by then on another stream.
    void until(cudaStream_t on) { own_.get_deleter().on = on; }

private:
    struct give_back {
        cudaStream_t on = nullptr;
        void operator()(Scalar* data) const { cudaFreeAsync(data, on); }
    };
    std::unique_ptr<Scalar, give_back> own_;
};

/// Enqueues a copy within device memory.
template <class Scalar>
void copy(Scalar const* from, std::size_t elements, Scalar* to, cudaStream_t on) {
    if (elements > 0)
        check(cudaMemcpyAsync(to, from, elements * sizeof(Scalar), cudaMemcpyDeviceToDevice, on),
              "copying on a device");
}

} // namespace heddle::nccl
