// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Ranks that are threads and share one GPU: what they exchange goes through the host.
#pragma once

#include <heddle/execute/communicator.hpp>
#include <heddle/execute/in_process.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/libtorch/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace heddle::bench {

/// It models `point_to_point_of` for spans of device memory.
class staged_communicator {
public:
    explicit staged_communicator(in_process_communicator ranks) : ranks_(std::move(ranks)) {}

    [[nodiscard]] std::size_t rank() const { return ranks_.rank(); }
    [[nodiscard]] std::size_t size() const { return ranks_.size(); }
    [[nodiscard]] heddle::traffic const& traffic() const { return ranks_.traffic(); }
    void charge_elements_as(std::size_t element_size) { ranks_.charge_elements_as(element_size); }
    [[nodiscard]] staged_communicator group(std::vector<std::size_t> members) {
        return staged_communicator(ranks_.group(std::move(members)));
    }

    void all_reduce(std::span<double> data, reduction how = reduction::sum) {
        staged here(data);
        ranks_.all_reduce(here.out(), how);
        here.bring(data);
    }
    void all_gather_v(std::span<double const> mine, std::span<double> whole, shard_counts counts, uneven how) {
        staged const from(mine);
        staged to(whole);
        ranks_.all_gather_v(from.in(), to.out(), counts, how);
        to.bring(whole);
    }
    void reduce_scatter_v(std::span<double const> whole, std::span<double> mine, shard_counts counts, uneven how) {
        staged const from(whole);
        staged to(mine);
        ranks_.reduce_scatter_v(from.in(), to.out(), counts, how);
        to.bring(mine);
    }
    void all_to_all_v(std::span<double const> send, shard_counts send_counts, std::span<double> receive,
                      shard_counts receive_counts) {
        staged const from(send);
        staged to(receive);
        ranks_.all_to_all_v(from.in(), send_counts, to.out(), receive_counts);
        to.bring(receive);
    }
    void broadcast(std::span<double> data, std::size_t root) {
        staged here(data);
        ranks_.broadcast(here.out(), root);
        here.bring(data);
    }
    void send(std::span<double const> data, std::size_t to) { ranks_.send(staged(data).in(), to); }
    void receive(std::span<double> data, std::size_t from) {
        staged here(data);
        ranks_.receive(here.out(), from);
        here.bring(data);
    }

private:
    /// Numbers of the device on the host.
    class staged {
    public:
        explicit staged(std::span<double const> data_there) : values_(data_there.size()) {
            if (!data_there.empty()) seen(values_.data(), values_.size(), at::kCPU).copy_(there(data_there));
        }
        [[nodiscard]] std::span<double> out() { return values_; }
        [[nodiscard]] std::span<double const> in() const { return values_; }
        void bring(std::span<double> data_there) {
            if (!data_there.empty()) there(data_there).copy_(seen(values_.data(), values_.size(), at::kCPU));
        }

    private:
        [[nodiscard]] static at::Tensor seen(double* data, std::size_t size, at::TensorOptions const& on) {
            return at::from_blob(data, {static_cast<extent>(size)}, on.dtype(at::kDouble));
        }
        [[nodiscard]] static at::Tensor there(std::span<double const> data_there) {
            return seen(const_cast<double*>(data_there.data()), data_there.size(), libtorch::tensor<double>::options());
        }
        std::vector<double> values_;
    };

    in_process_communicator ranks_;
};

static_assert(point_to_point_of<staged_communicator, double>);

} // namespace heddle::bench
