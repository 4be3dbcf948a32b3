// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Numbers values in the order in which they are first met.
#pragma once

#include <heddle/base/requirements.hpp>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ranges>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace heddle::search {

/// A hash of the values of a list.
template <class Element>
struct list_hash {
    template <std::ranges::sized_range List>
    std::size_t operator()(List const& list) const {
        auto left = std::ranges::size(list);
        std::uint64_t h = left, second = 0, third = 0, fourth = 0; // which need not wait for each other
        auto e = std::ranges::begin(list);
        for (; left >= 4; left -= 4) {
            mix(h, hash_of(*e++));
            mix(second, hash_of(*e++));
            mix(third, hash_of(*e++));
            mix(fourth, hash_of(*e++));
        }
        for (; left > 0; --left) mix(h, hash_of(*e++));
        for (auto const other : {second, third, fourth}) mix(h, other);
        return static_cast<std::size_t>(h);
    }

private:
    static void mix(std::uint64_t& h, std::uint64_t more) { h = (h ^ more) * 0xff51afd7ed558ccdu, h ^= h >> 29; }
    static std::uint64_t hash_of(Element const& e) {
        if constexpr (std::same_as<Element, double>) return std::bit_cast<std::uint64_t>(e + 0.0); // of either zero
        else return std::hash<Element>{}(e);
    }
};

/// Gives equal values one number. Values stay where they are in memory. Unlike a `state_table` it works with any hash,
/// even one of poor bits.
template <class Value, class Hash = std::hash<Value>>
class numbering {
public:
    numbering() = default;
    numbering(numbering&&) = default;
    numbering& operator=(numbering&&) = default;
    numbering(numbering const& other) {
        for (auto const* value : other.values_) insert(*value); // those of its own map
    }
    numbering& operator=(numbering const& other) { return *this = numbering(other); }

    /// Returns the number of a value, which is copied or moved if it is new, and whether it is.
    /// *Complexity.* Constant, expected and amortised.
    template <class Given = Value>
        requires std::same_as<std::remove_cvref_t<Given>, Value>
    std::pair<std::uint32_t, bool> insert(Given&& value) {
        auto const [slot, is_new] =
            numbers_.try_emplace(std::forward<Given>(value), static_cast<std::uint32_t>(values_.size()));
        if (is_new) values_.push_back(&slot->first);
        return {slot->second, is_new};
    }
    [[nodiscard]] Value const& operator[](std::uint32_t number) const { return *values_[number]; }
    [[nodiscard]] std::size_t size() const { return values_.size(); }
    /// Forgets values of this number and above.
    /// *Complexity.* Linear in what is forgotten, expected.
    void cut_back(std::size_t size) {
        for (std::size_t n = size; n < values_.size(); ++n) numbers_.erase(numbers_.find(*values_[n]));
        values_.resize(size);
    }

private:
    std::unordered_map<Value, std::uint32_t, Hash> numbers_;
    std::vector<Value const*> values_;
};

} // namespace heddle::search
