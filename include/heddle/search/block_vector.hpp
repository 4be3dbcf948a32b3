// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A sequence that grows at its end and never moves what it holds.
#pragma once

#include <heddle/base/requirements.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace heddle::search {

/// Is like `std::deque`, with large blocks of a power of two elements: an element is two loads away.
template <class Value>
class block_vector {
public:
    /// *Complexity.* Amortised constant. References stay valid.
    Value& push_back(Value value) {
        if (size_ % block_size == 0) blocks_.emplace_back().reserve(block_size);
        ++size_;
        return blocks_.back().emplace_back(std::move(value));
    }
    [[nodiscard]] Value& operator[](std::size_t n) { return blocks_[n / block_size][n % block_size]; }
    [[nodiscard]] Value const& operator[](std::size_t n) const { return blocks_[n / block_size][n % block_size]; }
    [[nodiscard]] std::size_t size() const { return size_; }
    /// Keeps the first elements. *Precondition:* there are no fewer.
    void cut_back(std::size_t size) {
        blocks_.resize((size + block_size - 1) / block_size);
        if (size % block_size != 0) blocks_.back().resize(size % block_size);
        size_ = size;
    }

private:
    static constexpr std::size_t block_size = 512;

    std::vector<std::vector<Value>>
        blocks_; // each with its capacity reserved: a block that is moved keeps its elements in place
    std::size_t size_ = 0;
};

} // namespace heddle::search
