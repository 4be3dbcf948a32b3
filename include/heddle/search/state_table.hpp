// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Numbers states in the order in which they are first met.
#pragma once

#include <heddle/search/block_vector.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace heddle::search {

/// A hash table whose states stay where they are in memory.
template <class State>
class state_table {
public:
    /// Returns the number of a state, and whether it is new.
    /// *Complexity.* Constant, expected and amortised.
    std::pair<std::uint32_t, bool> insert(State state) {
        if ((states_.size() + 1) * 2 > slots_.size()) grow();
        auto const hash = static_cast<std::uint32_t>(std::hash<State>{}(state)*std::size_t{0x9e3779b97f4a7c15u} >> 32);
        for (std::size_t at = home(hash);; at = next(at)) {
            auto& slot = slots_[at];
            if (slot.number == none) {
                slot = {hash, static_cast<std::uint32_t>(states_.size())};
                states_.push_back(std::move(state));
                return {slot.number, true};
            }
            if (slot.hash == hash && states_[slot.number] == state) return {slot.number, false};
        }
    }
    [[nodiscard]] State const& operator[](std::uint32_t number) const { return states_[number]; }
    [[nodiscard]] std::size_t size() const { return states_.size(); }

private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    struct slot_type {
        std::uint32_t hash = 0, number = none;
    };

    /// Takes the upper bits of the product: they depend on every bit of the state's hash, which may be the state
    /// itself.
    [[nodiscard]] std::size_t home(std::uint32_t hash) const {
        return hash >> (32 - std::bit_width(slots_.size() - 1));
    }
    [[nodiscard]] std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }
    void grow() {
        std::vector<slot_type> const old =
            std::exchange(slots_, std::vector<slot_type>(slots_.empty() ? 64 : slots_.size() * 2));
        for (auto const& slot : old) {
            if (slot.number == none) continue;
            std::size_t at = home(slot.hash);
            while (slots_[at].number != none) at = next(at);
            slots_[at] = slot;
        }
    }

    block_vector<State> states_;
    std::vector<slot_type> slots_;
};

} // namespace heddle::search
