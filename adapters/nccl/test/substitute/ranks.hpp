// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Ranks on the substitute, each with a computation stream, and arrays of device memory.
#pragma once

#include "substitute.hpp"

#include <heddle/nccl/all.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

/// Values for the threads of a process.
class shared_store : public nccl::store {
public:
    void set(std::string const& key, std::string const& value) override {
        std::scoped_lock const guard(lock_);
        values_[key] = value;
    }
    [[nodiscard]] std::optional<std::string> find(std::string const& key) override {
        std::scoped_lock const guard(lock_);
        auto const found = values_.find(key);
        return found == values_.end() ? std::nullopt : std::optional(found->second);
    }

private:
    std::mutex lock_;
    std::map<std::string, std::string> values_;
};

/// Runs `work(communicator, computation)` on as many ranks.
template <class Work>
void on_ranks(std::size_t ranks, Work&& work, seconds time_out = seconds(60)) {
    shared_store shared;
    substitute::run(ranks, [&](std::size_t rank) {
        nccl::stream const computation;
        nccl::communicator world(shared, rank, ranks, {.computation = computation.get(), .time_out = time_out});
        work(world, computation.get());
    });
}

/// Numbers on a device, there for what is enqueued on one stream.
template <class Scalar>
class device_array {
public:
    device_array(std::vector<Scalar> const& values, cudaStream_t on)
        : memory_(values.size(), on), size_(values.size()), on_(on) {
        write("filling", values);
    }
    [[nodiscard]] std::span<Scalar> out() { return {memory_.get(), size_}; }
    [[nodiscard]] std::span<Scalar const> in() const { return {memory_.get(), size_}; }
    /// Enqueues a kernel that writes these values.
    void write(std::string const& name, std::vector<Scalar> const& values) {
        if (size_ > 0)
            substitute::launch(on_, name, {}, {out()},
                               [to = substitute::view(out()), values] { std::ranges::copy(values, to.begin()); });
    }
    /// Returns the values, once the kernel that reads them has come to its turn.
    [[nodiscard]] std::vector<Scalar> values(std::string const& name = "reading") const {
        std::vector<Scalar> result(size_);
        if (size_ > 0)
            substitute::launch_now(on_, name, {in()}, {},
                                   [&] { std::ranges::copy(substitute::view(in()), result.begin()); });
        return result;
    }

private:
    nccl::device_memory<Scalar> memory_;
    std::size_t size_;
    cudaStream_t on_;
};

/// Returns what a violation or error says.
template <class Work>
[[nodiscard]] std::string problem_of(Work&& work) {
    try {
        work();
    } catch (std::exception const& e) { return e.what(); }
    return "nothing thrown";
}

} // namespace heddle::test
