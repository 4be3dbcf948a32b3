// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Memory of consecutive layers on one device, and how many of them fit.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace heddle {

struct layer_memory {
    /// What is held all the time: parameters, gradients and optimiser state.
    bytes kept;
    /// What is saved for the backward pass, per micro-batch in flight; it includes the layer's input.
    bytes saved;
    /// The activations that enter the layer, per micro-batch.
    bytes input;
    /// What one layer at a time needs for a moment, such as a collective's buffer.
    bytes momentary{};
};

/// A stage does not fit even the least that it would have to hold, which is the layers [first, end).
struct memory_shortage {
    std::size_t stage, first, end;
    bytes needed, limit;
};

/// Tells what ranges of layers need. Adding a layer to a range never makes it need less.
class stage_memory {
public:
    /// With recomputation, the inputs of the layers are held for every micro-batch in flight, and what a layer saves
    /// only for one layer at a time.
    stage_memory(std::span<layer_memory const> layers, bool recompute);

    /// *Complexity.* Constant. *Precondition:* first < end.
    [[nodiscard]] bytes of(std::size_t first, std::size_t end, std::int64_t in_flight) const;

    /// Returns for every first layer the end of the longest range that fits; if none fits, the first layer itself.
    [[nodiscard]] std::vector<std::size_t> reach(bytes limit, std::int64_t in_flight) const;

private:
    std::span<layer_memory const> layers_;
    /// Sums over the layers before each layer.
    std::vector<bytes> kept_, held_;
    /// Row n holds, from each layer on, the most that one of 2^n layers needs for a moment; it is empty if none needs
    /// anything.
    std::vector<bytes> most_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE stage_memory::stage_memory(std::span<layer_memory const> layers, bool recompute)
    : layers_(layers), kept_(1), held_(1) {
    for (auto const& layer : layers) {
        kept_.push_back(kept_.back() + layer.kept);
        held_.push_back(held_.back() + (recompute ? layer.input : layer.saved));
    }
    if (!recompute && algorithm::all_of(layers, [](auto const& l) { return l.momentary == bytes(0); })) return;
    for (auto const& layer : layers) most_.push_back(layer.momentary + (recompute ? layer.saved : bytes(0)));
    for (std::size_t width = 1; 2 * width <= layers.size(); width *= 2) {
        auto const row = most_.size() - layers.size();
        for (std::size_t l = 0; l < layers.size(); ++l)
            most_.push_back(std::max(most_[row + l], most_[row + std::min(l + width, layers.size() - 1)]));
    }
}

HEDDLE_INLINE bytes stage_memory::of(std::size_t first, std::size_t end, std::int64_t in_flight) const {
    bytes sum = kept_[end] - kept_[first] + static_cast<double>(in_flight) * (held_[end] - held_[first]);
    if (!most_.empty()) {
        auto const level = static_cast<std::size_t>(std::bit_width(end - first)) - 1;
        auto const row = level * layers_.size();
        sum += std::max(most_[row + first], most_[row + end - (std::size_t{1} << level)]);
    }
    return sum;
}

HEDDLE_INLINE std::vector<std::size_t> stage_memory::reach(bytes limit, std::int64_t in_flight) const {
    std::vector<std::size_t> ends(layers_.size() + 1, layers_.size());
    std::size_t end = 0;
    for (std::size_t first = 0; first < layers_.size(); ++first) {
        end = std::max(end, first);
        while (end < layers_.size() && of(first, end + 1, in_flight) <= limit) ++end;
        ends[first] = end;
    }
    return ends;
}

} // namespace heddle

#endif
