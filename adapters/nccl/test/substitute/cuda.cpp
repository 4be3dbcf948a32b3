// SPDX-License-Identifier: BSL-1.0
// The calls of CUDA's runtime that the adapter and its tests use.
#include "machine.hpp"

#include <algorithm>
#include <cstring>

using namespace heddle::test::substitute;

namespace {

range bytes_of(void const* begin, std::size_t size) {
    return std::span<std::byte const>(static_cast<std::byte const*>(begin), size);
}

/// While NCCL enqueues in the background, an event would be before what it is to be after.
void refuse_early_event(machine& m, CUstream_st const& on) {
    if (m.mine().open_groups > 0)
        m.violate("rank " + std::to_string(m.rank()) + ": an event is recorded while a group of calls of NCCL is open");
    if (on.launching > 0)
        m.violate("rank " + std::to_string(m.rank()) + ": an event is recorded before NCCL has enqueued its calls");
}

} // namespace

char const* cudaGetErrorString(cudaError_t error) {
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorNotReady: return "not ready";
    case cudaErrorNotSupported: return "the substitute does not do this";
    default: return "error";
    }
}

cudaError_t cudaGetDevice(int* device) {
    *device = static_cast<int>(machine::rank());
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    if (machine::is_host()) return cudaErrorNotSupported; // a rank has one device
    machine::help(static_cast<std::size_t>(device));
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* result, unsigned flags) {
    if (flags != cudaStreamNonBlocking) return cudaErrorNotSupported;
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.go_on();
    *result = m.new_stream();
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    stream->is_there = false;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    auto& m = machine::get();
    std::unique_lock guard(m.lock);
    m.go_on();
    m.refuse_wait("cudaStreamSynchronize");
    auto* const on = m.stream_of(stream);
    m.wait(guard, m.enqueue(on, "waiting for a stream", {}, {}, [] { return true; }));
    merge(m.mine().clock, on->clock);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    *status = m.stream_of(stream)->recording > 0 ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* result, unsigned) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.go_on();
    *result = m.new_event();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.remove(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.go_on();
    auto* const on = m.stream_of(stream);
    refuse_early_event(m, *on);
    event->marker = m.enqueue(on, "an event", {}, {}, [] { return true; });
    event->clock = on->clock;
    event->recording = on->recording;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.go_on();
    if (event->recording > 0) m.violate("rank " + std::to_string(m.rank()) + ": a recorded event is asked for");
    m.pump();
    bool const is_past = !event->marker || event->marker->is_done;
    if (m.is_host()) {
        if (!is_past) m.refuse_wait("cudaEventQuery");
        else merge(m.mine().clock, event->clock);
    }
    return is_past ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.go_on();
    if (!event->marker) return cudaSuccess; // as for one that was never recorded
    auto* const on = m.stream_of(stream);
    m.join_recording(on, event);
    merge(on->clock, event->clock);
    m.enqueue(on, "waiting for an event", {}, {}, [marker = event->marker] { return marker->is_done; });
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** result, std::size_t size, cudaStream_t stream) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.go_on();
    *result = m.take(size);
    m.enqueue(m.stream_of(stream), "taking memory", {}, {bytes_of(*result, size)}, [] { return true; });
    return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    if (m.has_problem()) return cudaErrorUnknown;
    try {
        auto& a = m.allocation_of(data, 0, "giving back memory");
        m.enqueue(m.stream_of(stream), "giving back memory", {}, {bytes_of(data, a.size)}, [] { return true; }, false);
        a.is_there = false;
    } catch (violation const&) { return cudaErrorInvalidValue; } // it is noted, and this is called by destructors
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t size, cudaMemcpyKind kind, cudaStream_t stream) {
    if (kind != cudaMemcpyDeviceToDevice) return cudaErrorNotSupported;
    launch(stream, "a copy", {bytes_of(from, size)}, {bytes_of(to, size)},
           [to = view(to), from = view(from), size] { std::memmove(to, from, size); });
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, void const* from, std::size_t size, cudaMemcpyKind kind) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.go_on();
    m.refuse_wait("cudaMemcpy");
    m.pump();
    if (kind == cudaMemcpyHostToDevice) {
        m.host_access("a copy by the host", {}, {bytes_of(to, size)});
        std::memcpy(m.view(to), from, size);
    } else if (kind == cudaMemcpyDeviceToHost) {
        m.host_access("a copy by the host", {bytes_of(from, size)}, {});
        std::memcpy(to, m.view(from), size);
    } else {
        return cudaErrorNotSupported;
    }
    return cudaSuccess;
}
