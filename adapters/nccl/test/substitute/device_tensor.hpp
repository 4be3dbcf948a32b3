// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Tensors in the substitute's device memory, and kernels on them: the reference kernels stand for the device's
/// computation.
#pragma once

#include "substitute.hpp"

#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/nccl/cuda.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

/// The stream on which the calling thread computes.
inline thread_local cudaStream_t device_stream = nullptr;

/// It models `rank_tensor`. The host waits in `number` and `on_host`, and for nothing else.
class device_tensor {
public:
    using scalar_type = double;

    explicit device_tensor(tensor_shape dims, double value = 0) : device_tensor(std::move(dims), no_values{}) {
        run("filling", {}, {flat()}, [to = seen(flat()), value] { std::ranges::fill(to, value); });
    }
    explicit device_tensor(dense_tensor<double> const& host) : device_tensor(host.dims, no_values{}) {
        run("filling", {}, {flat()},
            [to = seen(flat()), values = host.data] { std::ranges::copy(values, to.begin()); });
    }
    device_tensor(device_tensor const& other) : device_tensor(other.dims_, no_values{}) { copy(other.flat(), flat()); }
    device_tensor(device_tensor&&) = default;
    device_tensor& operator=(device_tensor other) {
        std::swap(dims_, other.dims_);
        std::swap(memory_, other.memory_);
        return *this;
    }

    [[nodiscard]] tensor_shape const& shape() const { return dims_; }
    [[nodiscard]] extent elements() const { return count_elements(dims_); }
    [[nodiscard]] std::span<double> flat() { return {memory_.get(), size()}; }
    [[nodiscard]] std::span<double const> flat() const { return {memory_.get(), size()}; }
    [[nodiscard]] double number() const { return on_host().data.front(); }
    [[nodiscard]] dense_tensor<double> on_host() const {
        dense_tensor<double> result(dims_);
        nccl::check(cudaStreamSynchronize(device_stream), "waiting for a tensor");
        if (size() > 0)
            nccl::check(cudaMemcpy(result.data.data(), memory_.get(), size() * sizeof(double), cudaMemcpyDeviceToHost),
                        "bringing a tensor to the host");
        return result;
    }
    /// Returns the numbers as a kernel finds them in its turn.
    [[nodiscard]] dense_tensor<double> in_kernel(std::string const& name) const {
        dense_tensor<double> result(dims_);
        if (size() > 0)
            substitute::launch_now(device_stream, name, {flat()}, {},
                                   [&] { std::ranges::copy(seen(flat()), result.data.begin()); });
        return result;
    }
    static void copy(std::span<double const> from, std::span<double> to) {
        nccl::copy(from.data(), from.size(), to.data(), device_stream);
    }

    device_tensor& operator+=(device_tensor const& other) {
        run("adding", {flat(), other.flat()}, {flat()}, [to = seen(flat()), from = seen(other.flat())] {
            for (std::size_t n = 0; n < to.size(); ++n) to[n] += from[n];
        });
        return *this;
    }
    device_tensor& operator*=(double scale) {
        run("scaling", {flat()}, {flat()}, [to = seen(flat()), scale] {
            for (auto& x : to) x *= scale;
        });
        return *this;
    }

    friend device_tensor sum_of_squares(device_tensor const& x) {
        device_tensor sum(tensor_shape{}, no_values{});
        run("squaring", {x.flat()}, {sum.flat()}, [to = seen(sum.flat()), from = seen(x.flat())] {
            to[0] = 0;
            for (double const e : from) to[0] += e * e;
        });
        return sum;
    }
    friend void take(device_tensor const& x, factor const& f, extent begin, extent count, std::span<double> to) {
        run("taking", {x.flat()}, {to}, [dims = x.dims_, f, begin, count, from = seen(x.flat()), to = seen(to)] {
            detail::for_each_run(dims, f, begin, count, [&](extent at, extent part, extent length) {
                std::copy_n(from.begin() + at, length, to.begin() + part);
            });
        });
    }
    friend void put(device_tensor& y, factor const& f, extent begin, extent count, std::span<double const> from) {
        run("putting", {from, y.flat()}, {y.flat()},
            [dims = y.dims_, f, begin, count, from = seen(from), to = seen(y.flat())] {
                detail::for_each_run(dims, f, begin, count, [&](extent at, extent part, extent length) {
                    std::copy_n(from.begin() + part, length, to.begin() + at);
                });
            });
    }
    template <class Function, class... Others>
    friend void for_each_element(Function&& f, device_tensor& y, Others&... x) {
        run("computing", {y.flat(), x.flat()...}, {y.flat(), x.flat()...},
            [f, y_of = seen(y.flat()), ... x_of = seen(x.flat())] {
                for (std::size_t n = 0; n < y_of.size(); ++n) f(y_of[n], x_of[x_of.size() == 1 ? 0 : n]...);
            });
    }

private:
    struct no_values {};
    device_tensor(tensor_shape dims, no_values)
        : dims_(std::move(dims)), memory_(static_cast<std::size_t>(count_elements(dims_)), device_stream) {}

    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(elements()); }
    /// Returns where a kernel finds memory; nobody looks into that of nothing.
    template <class Scalar>
    [[nodiscard]] static std::span<Scalar> seen(std::span<Scalar> memory) {
        return memory.empty() ? std::span<Scalar>{} : substitute::view(memory);
    }
    template <class Kernel>
    static void run(std::string const& name, substitute::ranges reads, substitute::ranges writes, Kernel kernel) {
        auto const is_empty = [](substitute::range const& r) { return r.size == 0; };
        std::erase_if(reads, is_empty);
        std::erase_if(writes, is_empty);
        if (!writes.empty()) substitute::launch(device_stream, name, reads, writes, std::move(kernel));
    }

    tensor_shape dims_;
    nccl::device_memory<double> memory_;
};

static_assert(rank_tensor<device_tensor>);

/// It models `kernel_backend`.
class device_kernels {
public:
    using tensor = device_tensor;
    using tensor_span = std::span<tensor const* const>;

    [[nodiscard]] std::vector<tensor> forward(tensor_call<tensor> const& call, tensor_span operands) const {
        std::vector<tensor> results;
        for (auto const& y : reference().forward(joined(call), inputs(call, operands).pointers))
            results.emplace_back(y);
        return results;
    }
    [[nodiscard]] std::vector<std::optional<tensor>> backward(tensor_call<tensor> const& call, tensor_span operands,
                                                              tensor_span results, tensor_span cotangents) const {
        std::vector<std::optional<tensor>> given;
        for (auto const& g : reference().backward(joined(call), inputs(call, operands).pointers,
                                                  inputs(call, results).pointers, inputs(call, cotangents).pointers))
            if (g) given.emplace_back(std::in_place, *g);
            else given.emplace_back();
        return given;
    }

private:
    using dense = dense_tensor<double>;

    struct inputs {
        inputs(kernel_call const& call, tensor_span given) : values(given.size()) {
            for (std::size_t k = 0; k < given.size(); ++k) {
                if (given[k]) values[k] = given[k]->in_kernel(std::string(call.name));
                pointers.push_back(given[k] ? &values[k] : nullptr);
            }
        }
        std::vector<dense> values;
        std::vector<dense const*> pointers;
    };

    [[nodiscard]] static eigen_kernels<double> const& reference() {
        static eigen_kernels<double> const all;
        return all;
    }
    /// Returns a call whose statistics and rows go through device memory.
    [[nodiscard]] static tensor_call<dense> joined(tensor_call<tensor> const& call) {
        tensor_call<dense> result = kernel_call(call);
        if (call.combine)
            result.combine = [&call](std::size_t which, reduction how, dense& rows) {
                tensor all(rows);
                call.combine(which, how, all);
                rows = all.in_kernel("combined rows");
            };
        if (call.send)
            result.send = [&call](std::size_t which, dense const& rows, shard_counts sent, shard_counts received) {
                return call.send(which, tensor(rows), sent, received).in_kernel("rows that were sent");
            };
        return result;
    }
};

static_assert(kernel_backend<device_kernels, double>);

} // namespace heddle::test
