// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Numbers states in the order in which they are first met.
#pragma once

#include <heddle/search/block_vector.hpp>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle::search {

/// A hash table whose states stay where they are in memory.
template <class State>
class state_table {
public:
    /// Returns the number of a state, and whether it is new; only then is it copied, or moved from.
    /// *Complexity.* Constant, expected and amortised.
    template <class Given = State>
        requires std::same_as<std::remove_cvref_t<Given>, State>
    std::pair<std::uint32_t, bool> insert(Given&& state) {
        if ((states_.size() + 1) * 2 > slots_.size()) grow();
        auto const hash = hash_of(state);
        auto& slot = slots_[place_of(state, hash)];
        if (slot.number != none) return {slot.number, false};
        slot = {hash, static_cast<std::uint32_t>(states_.size())};
        states_.push_back(std::forward<Given>(state));
        return {slot.number, true};
    }
    /// Returns the number of a state that is there.
    /// *Complexity.* Constant, expected.
    [[nodiscard]] std::optional<std::uint32_t> find(State const& state) const {
        if (slots_.empty()) return std::nullopt;
        auto const& slot = slots_[place_of(state, hash_of(state))];
        return slot.number == none ? std::nullopt : std::optional(slot.number);
    }
    [[nodiscard]] State const& operator[](std::uint32_t number) const { return states_[number]; }
    [[nodiscard]] std::size_t size() const { return states_.size(); }
    /// Forgets states of this number and above. *Complexity.* Linear in the table.
    void cut_back(std::size_t size) {
        states_.cut_back(size);
        place_again(slots_.size(), [&](auto const& slot) { return slot.number < size; });
    }
    /// Returns the states in the order of their numbers.
    [[nodiscard]] std::vector<State> states() && {
        std::vector<State> result;
        result.reserve(size());
        for (std::size_t n = 0; n < states_.size(); ++n) result.push_back(std::move(states_[n]));
        return result;
    }

private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    struct slot_type {
        std::uint32_t hash = 0, number = none;
    };

    [[nodiscard]] static std::uint32_t hash_of(State const& state) {
        return static_cast<std::uint32_t>(std::hash<State>{}(state)*std::size_t{0x9e3779b97f4a7c15u} >> 32);
    }
    /// The slot of a state, or the empty one where it would be.
    [[nodiscard]] std::size_t place_of(State const& state, std::uint32_t hash) const {
        for (std::size_t at = home(hash);; at = next(at)) {
            auto const& slot = slots_[at];
            if (slot.number == none || (slot.hash == hash && states_[slot.number] == state)) return at;
        }
    }
    /// Takes the upper bits of the product: they depend on every bit of the state's hash, which may be the state
    /// itself.
    [[nodiscard]] std::size_t home(std::uint32_t hash) const {
        return hash >> (32 - std::bit_width(slots_.size() - 1));
    }
    [[nodiscard]] std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }
    void grow() {
        place_again(slots_.empty() ? 64 : slots_.size() * 2, [](auto const& slot) { return slot.number != none; });
    }
    template <class Keeps>
    void place_again(std::size_t slot_count, Keeps const& keeps) {
        std::vector<slot_type> const old = std::exchange(slots_, std::vector<slot_type>(slot_count));
        for (auto const& slot : old) {
            if (!keeps(slot)) continue;
            std::size_t at = home(slot.hash);
            while (slots_[at].number != none) at = next(at);
            slots_[at] = slot;
        }
    }

    block_vector<State> states_;
    std::vector<slot_type> slots_;
};

} // namespace heddle::search
